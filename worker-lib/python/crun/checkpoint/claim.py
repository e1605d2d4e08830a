# SPDX-License-Identifier: MIT
"""Which job writes to a folder of checkpoints: the last one in its list of jobs. One that finds
itself before the last one is an earlier job that still lives, also after a restart."""
import os
from typing import List

from .library import MemoryFault

JOBS = ".crun-jobs"
EXIT_CODE = 78  # crun restarts no job after it


class ClaimLost(MemoryFault):
    pass


def this_job() -> str:
    """The same in all lives of the job; "": no crun has started it."""
    return os.environ.get("CRUN_INSTANCE", "")


def _jobs_of(folder: str) -> List[str]:
    try:
        with open(os.path.join(folder, JOBS), encoding="ascii", errors="replace") as file:
            return file.read().split()
    except OSError:  # there is none; if it cannot be read, a save fails, too
        return []


def check(folder: str, job: str) -> None:
    """That no other job has taken what this one has claimed; "": it has claimed nothing."""
    jobs = _jobs_of(folder)
    if job and jobs and jobs[-1] != job:
        raise ClaimLost(f"another job, or a later start of this one, now writes its checkpoints to "
                        f"{os.path.abspath(folder)}: end it, or give this job a folder of its own")


def claim(folder: str, job: str, takes: bool) -> str:
    """The job, if it has the folder. It `takes` one in whose list it is not yet."""
    jobs = _jobs_of(folder)
    if job in jobs:
        check(folder, job)
        return job
    if not job or not takes:
        return ""
    path = os.path.join(folder, JOBS)
    try:
        os.makedirs(folder, exist_ok=True)
        with open(f"{path}.{job}", "w", encoding="ascii") as file:
            file.write("\n".join([*jobs, job, ""]))
            file.flush()
            os.fsync(file.fileno())
        os.rename(file.name, path)
    except OSError:  # one to restore from only
        return ""
    return job
