#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 3 s
# sanitizers: no, there is no emulated GPU in that tree
# emulated GPU: preflight's all-reduce over NCCL, on emulated GPUs
"""
crun --preflight over NCCL: nodes of 2, 4 and 8 GPUs pass with every version of NCCL, and a
node whose GPU or NCCL does not work is unfit: exit code 69, and one line with the reason.
"""
import concurrent.futures
import os
import re
import subprocess
import sys

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BUILD  # noqa: E402
from worker import CRUN, PATIENCE, PLAIN  # noqa: E402

UNFIT = 69
VERSIONS = "21903", "22304", "22707", "22809", "23007"


def preflight(gpus, **env):
    return subprocess.run(
        [CRUN, f"--nproc-per-node={gpus}", "--preflight", "--no-python", "true"],
        env={**PLAIN, "CRUN_PREFLIGHT_TIMEOUT": "10", **env}, capture_output=True, text=True,
        stdin=subprocess.DEVNULL, timeout=PATIENCE, check=False)


def is_fit(gpus, version):
    done = preflight(gpus, CRUN_STANDIN_VERSION=version)
    words = f"preflight: all-reduce of 1 MiB over {gpus} ranks (nccl): "
    if done.returncode != 0 or words not in done.stderr:
        raise AssertionError(f"{gpus} GPUs, NCCL {version}: {done}")


def is_unfit(words, **env):
    done = preflight(2, **env)
    why = [line for line in done.stderr.splitlines() if "preflight: " in line]
    if done.returncode != UNFIT or len(why) != 1 or not re.search(words, why[0]):
        raise AssertionError(f"{env}: not {words!r}: {done}")


CASES = [(is_fit, (gpus, version), {}) for gpus in (2, 4, 8) for version in VERSIONS] + [
    (is_unfit, (r"GPU 1( \(\S+\))? cannot be used: .*CUDA error 719",),
     {"CRUN_STANDIN_FAULT": "cudaSetDevice:error=719:1"}),
    (is_unfit, ("ncclCommInitRankConfig: unhandled system error",),
     {"CRUN_STANDIN_FAULT": "ncclCommInitRankConfig:error:1"}),
    (is_unfit, ("illegal memory access|unspecified launch failure|CUDA|the GPU",),
     {"CRUN_STANDIN_FAULT": "cudaMemcpyAsync:sticky:1:2"}),
    (is_unfit, ("both use GPU 0",), {"CRUN_DEVICE": "0"}),
]


def main():
    if not os.path.exists(os.path.join(BUILD, "lib", "libcuda-emulated.so")):
        print("skipped: this build has no emulated GPU")
        sys.exit(77)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(check, *args, **env) for check, args, env in CASES]
        failed = [str(run.exception()) for run in runs if run.exception()]
    if failed:
        print("\n".join(failed))
        sys.exit(1)


if __name__ == "__main__":
    main()
