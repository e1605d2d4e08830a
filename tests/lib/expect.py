# SPDX-License-Identifier: MIT
"""What functional tests say and wait for. The deadlines are those of a loaded machine."""
import sys
import time

SECONDS = 90


def fail(*what):
    sys.exit("FAILED: " + " ".join(map(str, what)))


def until(condition, what, seconds=SECONDS):
    """Poll; the condition's value once it is true. `what` may be a function that says it."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > end:
            fail(f"{what() if callable(what) else what}: not within {seconds} s")
        time.sleep(0.01)
    return value


def expect(p, code, *texts, seconds=SECONDS):
    """This process of nodes.py ends with that exit code, and has said these texts."""
    got = p.wait(seconds)
    said = p.out + p.err
    if got != code:
        fail(f"{p}: exit code {got}, not {code}:\n{said}")
    for text in texts:
        if text not in said:
            fail(f"{p}: {text!r} is not in:\n{said}")
