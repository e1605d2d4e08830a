#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 20 s
# sanitizers: no, the programs that it runs have their own tests
# emulated GPU: every command of scripts/gpu-check, in small, on emulated GPUs
"""
The package of scripts/gpu-pack, in a folder of its own. With emulated GPUs each command of
gpu-check works there, and each part of it has a result; its figures have no meaning. In a root
with nothing but glibc and Python each program runs, and gpu-check says that there is no driver.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import tempfile
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BUILD, ROOT, fail, skip, slowdown  # noqa: E402

SIZE_MAX, FIRST_ROW_MAX_S = 30 << 20, 20
MISSING = "error while loading shared libraries"


def run(*command, **options):
    return subprocess.run(list(map(str, command)), text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, **options)


def pack(folder):
    file = folder / "gpu.tar.gz"
    done = run(ROOT / "scripts/gpu-pack", f"--build={BUILD}", f"--output={file}")
    if done.returncode != 0 or file.stat().st_size > SIZE_MAX:
        fail("gpu-pack:", done.stdout)
    print(done.stdout, end="")
    subprocess.run(["tar", "xzf", file, "-C", folder], check=True)
    return folder / "crun-gpu"


def rows_of(file):
    return json.loads(file.read_text()) if file.exists() else []


def check_whole(package):
    """From its copy to its first row, all parts, and what a budget leaves out."""
    file, copied = package / "rows.json", time.monotonic()
    with subprocess.Popen([package / "gpu-check", "--no-build", "--small", "--gpus=2",
                           f"--json={file}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, cwd="/") as job:
        out = ""
        for line in job.stdout:
            if not out.strip().count("\n") and line.startswith("  "):
                print(f"first row after {time.monotonic() - copied:.1f} s: {line}", end="")
                if time.monotonic() - copied > FIRST_ROW_MAX_S * slowdown():
                    fail("that is too late")
            out += line
    names = [row["figure"] for row in rows_of(file)]
    if job.returncode != 0 or "| exchange hidden" not in out or "kernels, bit" not in " ".join(names):
        fail(out, names)
    late = run(package / "gpu-check", "--no-build", "--small", "--gpus=2", "--budget=2", "--from=killed")
    if late.returncode != 0 or "| killed | not run" not in late.stdout or "| kernels" in late.stdout:
        fail("no table of what was not run:", late.stdout)


def check_missing_program(package):
    (package / "build/tests/test_device").unlink()
    done = run(package / "gpu-check", "--no-build", "--small", "--gpus=2", "--only=kernels")
    if done.returncode != 1 or not re.search(r"^\| kernels \| FAILED: .*No such file", done.stdout, re.M):
        fail("a program that is missing:", done.stdout)


# -- a root with nothing in it ------------------------------------------------------------


def libraries_of(program):
    return re.findall(r"(/\S+) \(0x", run("ldd", program).stdout)


def make_root(root, package):
    """Returns the commands that make it whole: what is not copied is bound there."""
    python = pathlib.Path(sys.executable).resolve()
    glibc = [f for f in libraries_of(package / "build/bin/train") if re.search(r"/(lib[cm]|ld-linux\S*)\.so", f)]
    for file in {str(python), *libraries_of(python), *glibc}:
        (root / file[1:]).parent.mkdir(parents=True, exist_ok=True)
        (root / file[1:]).write_bytes(pathlib.Path(file).read_bytes())
        (root / file[1:]).chmod(0o755)
    bound = ["/dev", sysconfig.get_path("stdlib")]
    for folder in [*bound, "/tmp", "/proc", "/usr/bin"]:
        (root / folder[1:]).mkdir(parents=True, exist_ok=True)
    for link in ("python3", "env"):
        (root / "usr/bin" / link).unlink(missing_ok=True)
    (root / "usr/bin/python3").symlink_to(python)
    return " && ".join(f"mount --rbind {folder} {root}{folder}" for folder in bound)


def in_root(root, binds, *command):
    user = [] if os.geteuid() == 0 else ["-r"]
    return run("unshare", *user, "-m", "sh", "-c", f'{binds} && exec chroot {root} "$@"', "sh", *command)


def check_without_driver(package, folder):
    root = folder / "root"
    binds = make_root(root, package)
    package.rename(root / "gpu")
    if in_root(root, binds, "/usr/bin/python3", "-c", "").returncode != 0:
        skip("a root of its own cannot be made here", "gpu-check where there is no driver")
    done = in_root(root, binds, "/usr/bin/python3", "/gpu/gpu-check", "--no-build")
    if done.returncode != 3 or not re.search(r"^gpu-check: there is no GPU here .*no NVIDIA driver", done.stdout):
        fail(f"exit {done.returncode}:", done.stdout)
    print(done.stdout, end="")
    for program in sorted((root / "gpu/build").glob("[bt]*/*")):
        path = "/" + str(program.relative_to(root))
        done = in_root(root, binds, "/usr/bin/python3", "-c",
                       "import os, sys; os.environ['LD_LIBRARY_PATH'] = '/gpu/build/lib/package'; "
                       "os.environ['CRUN_TEST_NEEDS_GPU'] = '1'; os.execv(sys.argv[1], sys.argv[1:])",
                       path, *(() if "test_device" in path else ("--help",)))
        if MISSING in done.stdout or "Traceback" in done.stdout:
            fail(path, done.stdout)
        if "test_device" in path and done.returncode == 0:
            fail("the kernels are right, without a GPU:", done.stdout)


def main():
    emulated = (BUILD / "lib/libcuda-emulated.so").exists()
    with tempfile.TemporaryDirectory() as folder:
        package = pack(pathlib.Path(folder))
        if emulated:
            check_whole(package)
            check_missing_program(package)
        else:
            check_without_driver(package, pathlib.Path(folder))


if __name__ == "__main__":
    main()
