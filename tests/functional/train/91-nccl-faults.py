#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 30 s
# sanitizers: no, there is no emulated GPU in that tree
# emulated GPU: each call of CUDA and NCCL fails or hangs during a training
"""
Each call of CUDA and NCCL that a training makes, with each way in which it can fail. The call of
one rank fails in the middle of a training. crun then restarts the ranks once, within the time
that the library promises; the messages name the rank and its GPU, and the parameters have the
bits of a training without faults. Each call in the sources must be in the table or in UNUSED.
A second program never waits for its GPU, and is not ended by SIGTERM: each checkpoint that it
leaves is right, and so is what it resumes from there.

    91-nccl-faults.py [--all] [--jobs=N] [--show] [--saves] [CELL...]   CELL: cudaMalloc:hang, a regex

Without --all: each call in one way, and two important ones in all ways. A cell that
fails while others run is repeated alone, with a longer time limit.
"""
import argparse
import array
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import struct
import sys
import tempfile
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BUILD, fail, living  # noqa: E402
from train import Run  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[3]
FLAGS = ["--model=mlp", "--train-limit=64", "--batch=8", "--passes=1", "--device=cuda",
         "--precision=bf16", "--zero", "--ckpt-every=2"]
GRAPH_FLAGS = ["--cuda-graph", "--train-limit=48", "--passes=2"]
TIMEOUT, TIMEOUT_ALONE, STUCK_EXIT = 4, 15, 1
BUSY = 30  # additional seconds, since other cells keep the machine busy
NOT_NAMED = "are not named"
MENDED = 8  # how many cells may be repeated
WINDOWS = 23007  # a version of NCCL that has symmetric windows

# The kinds of faults that take long come first.
ORDER = {"deaf": 0, "hang": 1, "stall": 1, "sticky": 2, "async": 2, "error": 2}
FREED_S = 20  # train's own limit for its last calls
# Calls that start work on the GPU or in NCCL, which can fail or hang later.
QUEUES = {"cudaMemcpyAsync", "cudaMemsetAsync", "cudaLaunchKernel", "cudaEventRecord",
          "cudaStreamWaitEvent", "cudaGraphLaunch"}
LAUNCHES = {"ncclAllReduce", "ncclBroadcast", "ncclReduceScatter", "ncclAllGather"}
SET_UP = {"ncclCommInitRankConfig", "ncclCommFinalize", "ncclCommRegister", "ncclGroupEnd",
          "ncclCommWindowRegister"}
# Only with --cuda-graph.
GRAPHS = {"cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiate",
          "cudaGraphLaunch", "cudaGraphDestroy"}
# The number of such calls depends on time.
POLLED = {"cudaEventQuery", "cudaStreamQuery", "ncclCommGetAsyncError",
          "cudaThreadExchangeStreamCaptureMode", "cudaSetDevice", "cudaStreamIsCapturing"}
NOT_HAPPENED = "it did not happen"
# The GPU has no name yet.
UNNAMED = {"ncclGetVersion", "cudaGetDeviceCount", "cudaDeviceGetPCIBusId", "cudaGetDevice",
           "cudaGetDeviceProperties", "cudaMemGetInfo"}
# The limit of crun_init, 300 s, is for such calls that hang.
BEFORE_MEETING = UNNAMED - {"cudaGetDevice"}
IMPORTANT = {"ncclAllReduce", "cudaLaunchKernel"}
# Calls that the sources have, but that no training makes.
UNUSED = {
    "cudaGetLastError": "it only reads",
    "cudaGetErrorString": "it only reads",
    "ncclGetErrorString": "it only reads",
    "ncclGetLastError": "it only reads",
    "cudaDriverGetVersion": "for the text of a GPU that is missing",
    "cudaRuntimeGetVersion": "for the text of a GPU that is missing",
    "cudaEventSynchronize": "the library polls",
    "ncclSend": "a training sends no messages",
    "ncclRecv": "a training sends no messages",
    "ncclCommSplit": "a training has one world",
    "ncclCommAbort": "only after another failure",
    "ncclCommRevoke": "only after another failure, by communicators that block",
}


class Cell:
    def __init__(self, call, kind, nth, rank, ranks, version):
        self.call, self.kind, self.nth = call, kind, nth
        self.rank, self.ranks, self.version = rank, ranks, version
        self.graph = call in GRAPHS
        # a rank whose GPU ignores an abort reports last
        self.grace = 15 if kind == "deaf" else 1
        self.problems, self.restarted, self.seconds, self.text = [], False, 0, ""

    @property
    def name(self):
        return f"{self.call}:{self.kind}:{self.rank}:{self.nth}"


def calls_of_sources():
    found = set()
    for path in [ROOT / "worker-lib/backends/nccl/nccl_calls.c",
                 ROOT / "worker-lib/compute/gpu_calls_cuda.cu",
                 *(ROOT / "worker-lib/train").iterdir()]:
        text = path.read_text()
        found |= set(re.findall(r"\b(cuda[A-Z]\w+)\(", text))
        found |= set(re.findall(r'{ "(nccl\w+)"', text))
        if "<<<" in text or "LAUNCH" in text:
            found.add("cudaLaunchKernel")
    return found


def promised(cell, timeout):
    """
    Seconds: the limit of a call, or 5 while the ranks meet; one each to find the rank that did not
    come, for the communication thread to leave its call, and for it to end after the abort; the
    abort, which has the limit of a call; the ends of the processes.
    """
    return max(max(timeout, 5) + 3 + max(timeout, 1), FREED_S) + STUCK_EXIT + cell.grace


def environment(version, timeout, **more):
    return {"CRUN_TIMEOUT": str(timeout), "CRUN_STUCK_EXIT": str(STUCK_EXIT),
            "CRUN_STANDIN_VERSION": str(version), **more}


def job(folder, ranks, graph, env, grace=1):
    return Run(*FLAGS, *(GRAPH_FLAGS if graph else []), f"--ckpt-dir={folder}/checkpoints",
               ranks=ranks, env=env, crun=["--max-restarts=1", "--restart-backoff=0",
                                           f"--failure-grace={grace}"])


def undisturbed(ranks, version, graph):
    """Parameters, and how often each rank makes each call."""
    with tempfile.TemporaryDirectory() as folder:
        env = environment(version, 60, CRUN_STANDIN_CALLS=f"{folder}/calls")
        with job(folder, ranks, graph, env) as run:
            run.ends_with(0)
        lines = pathlib.Path(f"{folder}/calls").read_text().split("\n")[:-1]
        return run.sha, collections.Counter(lines)


def names_rank(cell, text):
    """A rank that cannot start names its node and its GPU, and crun names the rank."""
    gpu = rf"GPU {cell.rank} \(0000:{cell.rank + 1:02x}:00\.0\)"
    rank = re.search(rf"^crun: .*\brank {cell.rank} on ", text, re.M)
    if cell.call in UNNAMED:
        return rank or re.search(rf"^train: .*\brank {cell.rank}(: | on GPU)", text, re.M)
    return re.search(rf"^train: .*\brank {cell.rank}\b.*{gpu}", text, re.M) or \
        rank and re.search(rf"^train: .*{gpu}", text, re.M)


def check(cell, run, happened, sha, limit):
    if not happened:
        yield NOT_HAPPENED
    if run.popen.returncode != 0:
        yield f"exit code {run.popen.returncode}"
    elif set(re.findall(r"parameters sha256 (\w+)", run.out)) != {sha}:
        yield "other parameters"
    if cell.restarted and not names_rank(cell, run.err):
        yield f"rank {cell.rank} and its GPU {NOT_NAMED}"
    if not cell.restarted and cell.kind in ("hang", "deaf"):
        yield "no restart"
    if not cell.restarted and run.err:
        yield "words without a restart"
    if cell.seconds > limit:
        yield f"later than {limit} s"
    if living(run.mark.encode()):
        yield "a process is left"


def play(cell, sha, timeout=TIMEOUT):
    limit = promised(cell, timeout) + BUSY
    cell.problems, cell.restarted, cell.seconds = [], False, 0
    with tempfile.TemporaryDirectory() as folder:
        happened = pathlib.Path(f"{folder}/happened")
        env = environment(cell.version, timeout, CRUN_STANDIN_FAULT=cell.name,
                          CRUN_STANDIN_HAPPENED=str(happened))
        begun, since = time.monotonic(), 0
        with job(folder, cell.ranks, cell.graph, env, cell.grace) as run:
            while run.popen.poll() is None and time.monotonic() - begun < limit + BUSY:
                since = since or (happened.exists() and time.monotonic())
                if since and not cell.restarted and "restart 1 of 1" in run.err:
                    cell.restarted, cell.seconds = True, time.monotonic() - since
                time.sleep(0.2)
            if run.popen.poll() is None:
                cell.problems = [f"it has not ended after {limit + BUSY} s"]
            else:
                cell.restarted = "restart 1 of 1" in run.err
                cell.problems = list(check(cell, run, happened.exists(), sha, limit))
        cell.text = str(run)
    return cell


def play_where_it_happens(cell, sha, timeout=TIMEOUT):
    """A rank that has to wait for the processor finds its GPU ready, and polls less often."""
    play(cell, sha, timeout)
    while NOT_HAPPENED in cell.problems and cell.call in POLLED and cell.nth > 1:
        cell.nth = (cell.nth + 1) // 2
        play(cell, sha, timeout)
    # where all ranks have come to an operation, a rank cannot know whose GPU hangs in it: it
    # says so, and the fault is made at a later call
    for _ in range(3):
        if NOT_NAMED in " ".join(cell.problems) and "did not come to it, or GPU" in cell.text:
            cell.nth += 3
            play(cell, sha, timeout)
    return cell


def table(ranks_of, everything):
    """The cells, in an order that mixes calls and kinds."""
    cells, seen = [], set()
    for version, graph in (22809, True), (WINDOWS, False):
        _, counts = ranks_of(2, version, graph)
        seen |= {line.split()[1] for line in counts}
    unknown = calls_of_sources() - seen - UNUSED.keys()
    if unknown:
        fail("no training makes these calls of the sources:", *sorted(unknown))
    if seen & UNUSED.keys():
        fail("a training makes these calls:", *sorted(seen & UNUSED.keys()))
    made = (calls_of_sources() | {"cuMemMap", "cuMemUnmap"}) & seen
    for at, call in enumerate(sorted(made)):
        ranks = 3 if at % 4 == 3 else 2
        rank = at % ranks
        version = WINDOWS if "Window" in call else 22809
        counts = ranks_of(ranks, version, call in GRAPHS)[1]
        if counts[f"{rank} {call}"] == 0:
            rank = 0
        count = counts[f"{rank} {call}"]
        nth = min(count // 3, 30) + 1 if call in POLLED else count // 2 + 1
        kinds = ["error"] if call in BEFORE_MEETING else ["error", "hang"]
        kinds += ["async"] if call in QUEUES | LAUNCHES | SET_UP else []
        kinds += ["sticky"] if call.startswith("cu") else []
        kinds += ["stall", "deaf"] if call in LAUNCHES else []
        kinds += ["stall"] if call in QUEUES else []
        if not everything and call not in IMPORTANT:
            kinds = [kinds[at % len(kinds)]]
        cells += [Cell(call, kind, nth, rank, ranks, version) for kind in kinds]
    return sorted(cells, key=lambda c: (ORDER[c.kind], "Free" not in c.call and
                                        "Destroy" not in c.call))


# -- checkpoints -----------------------------------------------------------------------

# ranks, how far the state is sharded, and the fault of rank 1
SAVES = [(2, shard, f"ncclGroupEnd:{fault}") for shard, fault in
         (("", "stall:1:3"), ("1", "kill:1:4"), ("2", "kill:1:4"), ("2", "stall:1:3"))]
MORE_SAVES = [(ranks, shard, f"ncclGroupEnd:{kind}:{rank}:{nth}")
              for ranks in (2, 4, 8) for shard in ("", "1", "2") for kind in ("kill", "stall")
              for rank in {1, ranks - 1} for nth in range(2, 6)]


def saves_environment(folder, shard, timeout, **more):
    return environment(WINDOWS if shard else 22809, timeout, GPU_WORKER_FOLDER=folder,
                       GPU_WORKER_TIMEOUT=str(timeout), **more,
                       **({"GPU_WORKER_SHARD": shard} if shard else {}))


def saves_of_calls():
    """Each call that the program makes: it fails at once or later, never ends, or kills."""
    for ranks in 2, 4, 8:
        for shard in "", "1", "2":
            with tempfile.TemporaryDirectory() as folder:
                env = saves_environment(folder, shard, 60, CRUN_STANDIN_CALLS=f"{folder}/calls")
                with Run("save", ranks=ranks, env=env, program="gpu-worker") as run:
                    run.ends_with(0)
                calls = collections.Counter(pathlib.Path(f"{folder}/calls").read_text().split("\n"))
            for call in sorted(c for c in {line[2:] for line in calls} if c not in UNUSED):
                count = calls[f"{ranks - 1} {call}"]
                nth = (count // 3 if call in POLLED else count * 2 // 3) + 1
                later = call in QUEUES | LAUNCHES | SET_UP
                kinds = ["error", "kill"] + later * ["async"] + (call in QUEUES | LAUNCHES) * ["stall"]
                yield from ((ranks, shard, f"{call}:{kind}:{ranks - 1}:{nth}")
                            for kind in kinds if count)


def is_right(name, values, ranks, step):
    """What gpu-worker's parameters and its optimizer's m are after this step."""
    m = w = 0
    for _ in range(step):
        m = m / 2 + 1
        w -= m
    begin = int((name.split("@") + [0])[1])
    factor = w if name == "w" else m
    turn = array.array("f", [factor * ((ranks + 1) / 2 + i % 7) for i in range(begin, begin + 7)])
    return values.tobytes() == (turn * (len(values) // 7 + 1))[:len(values)].tobytes()


def wrong_files(folder, ranks):
    for path in pathlib.Path(folder).glob("*.safetensors"):
        with open(path, "rb") as f:
            header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
            data = f.read()
        step = int(header.pop("__metadata__")["step"])
        for name, tensor in header.items():
            values = array.array("f", data[slice(*tensor["data_offsets"])])
            if not is_right(name, values, ranks, step):
                yield f"{path.name}: {name} is {values[0]:g} ... {values[-1]:g}"


def play_save(ranks, shard, fault):
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        happened = pathlib.Path(f"{folder}/happened")
        env = saves_environment(folder, shard, TIMEOUT if "stall" in fault else 60,
                                CRUN_STANDIN_FAULT=fault, CRUN_STANDIN_HAPPENED=str(happened))
        with Run("save", ranks=ranks, env=env,
                 crun=["--max-restarts=1", "--restart-backoff=0"], program="gpu-worker") as run:
            run.wait(BUSY * 4)
            problems += [] if happened.exists() else [NOT_HAPPENED]
            problems += [f"exit code {run.popen.returncode}"] if run.popen.returncode else []
            problems += wrong_files(folder, ranks)
    print(f"{'NO' if problems else 'ok'} {shard and 'sharded ' + shard or 'whole'} checkpoints of {ranks}: "
          f"{fault}", *problems, *([run] if problems else []), sep="; ", flush=True)
    return not problems


def report(cell, show):
    print(f"{'NO' if cell.problems else 'ok'} {cell.name} of {cell.ranks}: "
          f"{f'restart after {cell.seconds:.1f} s' if cell.restarted else 'goes on'}",
          *cell.problems, sep="; ", flush=True)
    if show or cell.problems:
        print(cell.text, flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--show", action="store_true", help="what each cell has printed")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--saves", action="store_true", help="only the second program")
    parser.add_argument("cells", nargs="*")
    flags = parser.parse_args()
    whole = {}

    def ranks_of(ranks, version, graph):
        key = ranks, version, graph
        if key not in whole:
            whole[key] = undisturbed(*key)
        return whole[key]

    cells = [] if flags.saves else table(ranks_of, flags.all or flags.cells)
    if flags.cells:
        cells = [c for c in cells if any(re.search(p, c.name) for p in flags.cells)]
    goals = {cell: ranks_of(cell.ranks, cell.version, cell.graph)[0] for cell in cells}
    saves = [] if flags.cells else SAVES
    if saves and (flags.all or os.environ.get("CRUN_ALL_ROUNDS") == "1"):
        saves = SAVES + MORE_SAVES + list(saves_of_calls())
    wrong = []
    with concurrent.futures.ThreadPoolExecutor(flags.jobs) as pool:
        saved = [pool.submit(play_save, *save) for save in saves]
        results = [pool.submit(play_where_it_happens, *goal) for goal in goals.items()]
        for result in concurrent.futures.as_completed(results):
            cell = result.result()
            report(cell, flags.show)
            wrong += [cell] if cell.problems else []
    if len(wrong) <= MENDED:
        for cell in wrong:
            report(play_where_it_happens(cell, goals[cell], TIMEOUT_ALONE), True)
        wrong = [cell for cell in wrong if cell.problems]
    lost = sum(not save.result() for save in saved)
    print(f"{len(cells)} cells, {len(wrong)} wrong; {len(saves)} with checkpoints, {lost} wrong")
    sys.exit(len(wrong) + lost > 0)


if __name__ == "__main__":
    if "emulated" not in BUILD.name:
        print("needs a build with emulated GPUs: make CUDA=emulated")
        sys.exit(77)
    main()
