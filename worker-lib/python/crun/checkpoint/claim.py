# SPDX-License-Identifier: MIT
"""Which job writes to a folder of checkpoints: the last one in its list of jobs. One that finds
itself before the last one is an earlier job that still lives, also after a restart."""
import os
from typing import List

import crun

from .library import MemoryFault

JOBS = ".crun-jobs"
EXIT_CODE = 78  # crun restarts no job after it


class ClaimLost(MemoryFault):
    pass


def this_job() -> str:
    """The same in all lives of the job; "": no crun has started it."""
    return os.environ.get("CRUN_INSTANCE", "")


def _words_of(folder: str) -> List[str]:
    """JOB/EPOCH/HOST/PID each, where rank 0 of the job was in its last life."""
    try:
        with open(os.path.join(folder, JOBS), encoding="ascii", errors="replace") as file:
            return file.read().split()
    except OSError:  # there is none; if it cannot be read, a save fails, too
        return []


def check(folder: str, claimed: str) -> None:
    """That nothing else has taken what this job or, with a word of its own, this process has claimed;
    "": it has claimed nothing."""
    words = _words_of(folder)
    if claimed and words and not f"{words[-1]}/".startswith(f"{claimed}/"):
        raise ClaimLost("another job, another program of this one, or a later start of it, now writes its "
                        f"checkpoints to {os.path.abspath(folder)}: end it, or give this job a folder of its own")


def claim(folder: str, job: str, takes: bool) -> str:
    """What is claimed: the job, if it has the folder, and with `takes` the word of this process. It
    takes a folder in whose list it is not yet, or with an earlier life."""
    words = _words_of(folder)
    known = job in [word.split("/")[0] for word in words]
    if known:
        check(folder, job)
    if not takes or not job:
        return job if known else ""
    mine = [job, str(crun.epoch()), os.uname().nodename, str(os.getpid())]
    last = words.pop().split("/") if known else []
    if int([*last, 0, 0][1]) > crun.epoch():
        return job
    if last[:2] == mine[:2] and last != mine and (last[2] != mine[2] or os.path.exists(f"/proc/{last[3]}")):
        raise ClaimLost(f"another program of this job, process {last[3]} of {last[2]}, writes its checkpoints to "
                        f"{os.path.abspath(folder)}: give each a folder of its own")
    path = os.path.join(folder, JOBS)
    try:
        os.makedirs(folder, exist_ok=True)
        with open(f"{path}.{job}", "w", encoding="ascii") as file:
            file.write("\n".join([*words, "/".join(mine), ""]))
            file.flush()
            os.fsync(file.fileno())
        os.rename(file.name, path)
    except OSError:  # one to restore from only, or a full one
        return job if known else ""
    return "/".join(mine)
