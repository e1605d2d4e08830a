#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The program of the worker library's README: it compiles as it stands there, and runs."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("BUILD", "build")).resolve()
SANITIZER = {"asan": ["-fsanitize=address,undefined"], "tsan": ["-fsanitize=thread"]}


def main():
    page = (ROOT / "worker-lib/README.md").read_text()
    code = re.search(r"^```c\n(#include <crun/worker.h>\n.*?)^```$", page, re.M | re.S)
    assert code, "the README has no program"
    compiler = next(filter(shutil.which, ("cc", "gcc", "clang")))
    sanitizer = SANITIZER.get(BUILD.name.removeprefix("build-"), [])
    with tempfile.TemporaryDirectory() as folder:
        source, program = pathlib.Path(folder, "example.c"), pathlib.Path(folder, "example")
        source.write_text(code[1])
        subprocess.run([compiler, "-Wall", "-Werror", *sanitizer, "-o", program, source,
                        f"-I{ROOT}/worker-lib", BUILD / "lib/libcrun-worker.so.0",
                        f"-Wl,-rpath,{BUILD}/lib"], check=True)
        run = subprocess.run([BUILD / "bin/crun", "--nproc-per-node=2", program], timeout=120,
                             capture_output=True, text=True)
    lines = sorted(run.stdout.splitlines())
    assert run.returncode == 0 and lines == ["rank 0 of 2: w = 3.000",
                                             "rank 1 of 2: w = 3.000"], run
    print("  ok the README's program")


sys.exit(main())
