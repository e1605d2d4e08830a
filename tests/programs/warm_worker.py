# SPDX-License-Identifier: MIT
"""
A Python program without torch, for tests of warm starts: appends a line with what it sees of
itself to $WARM_LOG, and then waits to be killed, or for the time given.
"""
import json
import os
import sys
import time

fact = {"rank": int(os.environ["RANK"]), "epoch": int(os.environ["CRUN_EPOCH"]),
        "pid": os.getpid(), "parent": os.getppid(), "session": os.getsid(0),
        "warm": "fractions" in sys.modules,
        "began": time.monotonic(), "argv": sys.argv[1:]}
with open("/proc/self/cgroup") as file:
    fact["cgroup"] = [line for line in file.read().splitlines() if line.startswith("0::")]
with open(os.environ["WARM_LOG"], "a") as file:
    file.write(json.dumps(fact) + "\n")
time.sleep(float(sys.argv[1]) if len(sys.argv) > 1 else 1000)
