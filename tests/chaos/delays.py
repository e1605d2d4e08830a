# SPDX-License-Identifier: MIT
"""
How late this machine runs what is ready to run: a thread that sleeps for a moment, over
and over, and remembers by how much it overslept. On a machine with too much to do a
lease may expire although nothing was injected, and that is then nobody's fault.
"""
import collections
import threading
import time

NAP_S = 0.01
NOTED_S = 0.05
KEPT = 20000


class Delays(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.noted = collections.deque(maxlen=KEPT)  # (when it woke up, seconds too late)
        self.start()

    def run(self):
        while True:
            begin = time.monotonic()
            time.sleep(NAP_S)
            now = time.monotonic()
            if now - begin - NAP_S > NOTED_S:
                self.noted.append((now, now - begin - NAP_S))

    def worst(self, begin, end, window):
        """Of all spans so long between begin and end, the seconds in the worst of them by
        which it was late: what takes several processes waits for each of them."""
        noted = [(when, late) for when, late in list(self.noted) if begin <= when <= end]
        return max((sum(late for when, late in noted if first <= when <= first + window)
                    for first, _ in noted), default=0)
