#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 3 s
# sanitizers: no, there is no emulated GPU in that tree
# emulated GPU: errors of users and broken GPUs
"""
If something is missing, wrong or broken, each rank reports it in one line, which names the
rank, the node and the GPU, and no rank hangs or crashes.
"""
import concurrent.futures
import os
import re
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
import worker  # noqa: E402
from process import BUILD  # noqa: E402

HOST = re.escape(socket.gethostname())
HERE = rf'backend "nccl" on {HOST}: '
jobs = iter(range(1 << 30))
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}


class Store:
    """A store that lives longer than all ranks, like that of a launcher."""

    def __enter__(self):
        server = os.path.join(BUILD, "bin", "store-server")
        self.process = subprocess.Popen([server], stdout=subprocess.PIPE, text=True)
        self.port = self.process.stdout.readline().strip()
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()

    def ranks(self, each, backend="nccl", scenario="every", size=2):
        """each: the variables of each rank, or of all."""
        job = f"bad-{os.getpid()}-{next(jobs)}"

        def variables(rank, size):
            return {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank,
                    "LOCAL_WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": self.port, "TORCHELASTIC_USE_AGENT_STORE": "True",
                    "TORCHELASTIC_RUN_ID": job, "CRUN_BACKEND": backend,
                    "CALLS_DEVICE": "auto", "CALLS_MEET": "30", "CALLS_TIMEOUT": "30",
                    **(each if isinstance(each, dict) else each[rank])}

        return worker.Ranks(scenario, size, variables)


def one_line(ranks, rank, words):
    """The rank's output is one line, which matches the pattern."""
    ranks.ends(rank, 3, words)
    said = ranks.said(rank)
    if said.count("\n") != 1:
        raise AssertionError(f"rank {rank} says more than a line: {said!r}")


def all_say(store, each, words, **more):
    with store.ranks(each, **more) as ranks:
        for rank in range(2):
            one_line(ranks, rank, words)


def second_says(store, each, words):
    """Rank 1 has the fault, and the error of rank 0 names rank 1."""
    with store.ranks([{}, each]) as ranks:
        one_line(ranks, 1, words)
        one_line(ranks, 0, "rank 1: ")


def all_done(store, each, **more):
    with store.ranks(each, **more) as ranks:
        for rank in range(2):
            ranks.ends(rank, 0, "done")


def no_driver(store):
    all_say(store, {"CRUN_STANDIN_COUNT": "35", "CRUN_STANDIN_DRIVER": "0"},
            HERE + "there is no NVIDIA driver on this machine")


def an_old_driver(store):
    all_say(store, {"CRUN_STANDIN_COUNT": "35", "CRUN_STANDIN_DRIVER": "12020"},
            HERE + r"the NVIDIA driver is too old: it is for CUDA 12.2, this build for 13.0")


def no_nccl(store):
    all_say(store, {"CRUN_NCCL_LIBRARY": "/nowhere/libnccl.so.2"},
            HERE + r"NCCL cannot be loaded: /nowhere/libnccl.so.2: ")


def another_library(store):
    all_say(store, {"CRUN_NCCL_LIBRARY": "libm.so.6"},
            HERE + r"libm.so.6 is not NCCL: it has no ncclGetVersion")


def an_old_nccl(store):
    all_say(store, {"CRUN_STANDIN_VERSION": "21803"},
            HERE + r"\S+ is NCCL 2.18.3: 2.19.0 or newer is needed")


def a_driver_too_old_for_nccl(store):
    """NCCL contains CUDA, which may be newer than this build's."""
    second_says(store, {"CRUN_STANDIN_FAULT": "ncclCommInitRankConfig:error=1:1"},
                "system error: ncclCommInitRankConfig: unhandled cuda error")


def a_gpu_for_two_ranks(store):
    for version in "22304", "22809", "23007":
        with store.ranks({"CRUN_DEVICE": "0", "CRUN_STANDIN_VERSION": version}) as ranks:
            said = [None, None]
            for rank in range(2):
                ranks.ends(rank, 3)
                said[rank] = ranks.said(rank)
            words = HERE + (r"ranks (0 and 1|1 and 0) both use GPU 0 \(0000:01:00.0\): each needs "
                            r"a GPU of its own \(CUDA_VISIBLE_DEVICES, CRUN_DEVICE\)")
            for text in said:
                if not re.search(words, text) or text.count("\n") != 1:
                    raise AssertionError(said)
        # each rank is a node, as in scripts/gpu-check
        all_done(store, [{"CRUN_DEVICE": "0", "NCCL_HOSTID": f"rank{r}",
                          "CRUN_STANDIN_VERSION": version} for r in range(2)])


def parts_of_a_gpu(store):
    parts = {"CRUN_STANDIN_MIG": "1"}
    all_say(store, {**parts, "CRUN_STANDIN_VERSION": "22809"},
            r"ranks (0 and 1|1 and 0) use parts \(MIG\) of one GPU \(0000:01:00.0\), and NCCL "
            "2.28.9 needs a GPU for each rank")
    all_done(store, {**parts, "CRUN_STANDIN_VERSION": "23007"})


def a_gpu_that_others_have(store):
    with tempfile.TemporaryDirectory() as folder:
        with store.ranks([{"CRUN_DEVICE": "0", "CRUN_STANDIN_EXCLUSIVE": folder,
                           "NCCL_HOSTID": f"rank{r}"} for r in range(2)]) as ranks:
            for rank in range(2):
                ranks.ends(rank, 3)
            said = ranks.said(0) + ranks.said(1)
    if not re.search(HERE + r"GPU 0 \(0000:01:00.0\) cannot be used: .*CUDA error 46\): another "
                     "process uses it, and its compute mode allows only one", said):
        raise AssertionError(said)


def a_broken_gpu(store):
    for code in 100, 101, 719, 802, 999:
        second_says(store, {"CRUN_STANDIN_FAULT": f"cudaSetDevice:error={code}:1"},
                    HERE + rf"GPU 1( \(0000:02:00.0\))? cannot be used: .*CUDA error {code}\)")


def too_few_gpus(store):
    with store.ranks({"CRUN_STANDIN_GPUS": "1"}) as ranks:
        one_line(ranks, 1, HERE + "local rank 1 of 2 needs GPU 1, and there is 1: use fewer ranks")
        one_line(ranks, 0, "rank 1: ")


def different_versions(store):
    words = (rf"rank 1 on {HOST} has NCCL 2.23.4, and rank 0 on {HOST} has NCCL 2.28.9: all ranks "
             "need the same version")
    with store.ranks([{"CRUN_STANDIN_VERSION": "22809"},
                      {"CRUN_STANDIN_VERSION": "22304"}]) as ranks:
        for rank in range(2):
            one_line(ranks, rank, words)


def a_rank_without_a_gpu(store):
    second_says(store, NO_GPU, HERE + 'CUDA_VISIBLE_DEVICES is "": that leaves no GPU')
    # all ranks together use the host
    with store.ranks([{}, NO_GPU], backend="auto", scenario="who") as ranks:
        for rank in range(2):
            ranks.ends(rank, 0, "shm")


def a_device_that_is_no_number(store):
    second_says(store, {"CRUN_DEVICE": "gpu0"}, 'CRUN_DEVICE "gpu0" is not the number of a GPU')


CASES = [no_driver, an_old_driver, no_nccl, another_library, an_old_nccl,
         a_driver_too_old_for_nccl, a_gpu_for_two_ranks, parts_of_a_gpu, a_gpu_that_others_have,
         a_broken_gpu, too_few_gpus, different_versions, a_rank_without_a_gpu,
         a_device_that_is_no_number]


def main():
    if not os.path.exists(os.path.join(BUILD, "lib", "libcuda-emulated.so")):
        print("skipped: this build has no emulated GPU")
        sys.exit(77)
    wanted = [c for c in CASES if len(sys.argv) < 2 or c.__name__ in sys.argv[1:]]
    with Store() as store, concurrent.futures.ThreadPoolExecutor(4) as pool:
        runs = [(case.__name__, pool.submit(case, store)) for case in wanted]
        failed = [f"{name}: {run.exception()}" for name, run in runs if run.exception()]
    if failed:
        print("\n".join(failed))
        sys.exit(1)


if __name__ == "__main__":
    main()
