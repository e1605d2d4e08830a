# SPDX-License-Identifier: MIT
"""A worker that sleeps below DEPTH frames. One rank sleeps in another function than all others."""
import os
import sys
import time

DEPTH, OTHER_RANK = 40, 7


def sleep_deep(depth, sleep):
    if depth > 0:
        sleep_deep(depth - 1, sleep)
    else:
        sleep()


def wait_for_others():
    time.sleep(3600)


def load_image():
    time.sleep(3600)


rank = int(os.environ["RANK"])
sys.stdout.write(f"ready rank={rank}\n")
sys.stdout.flush()
sleep_deep(DEPTH, load_image if rank == OTHER_RANK else wait_for_others)
