# SPDX-License-Identifier: MIT
"""python -m crun: the launcher that was installed with this package.

python -m crun --cflags --libs prints what a compiler needs for programs in C that use the
worker library; each of the two flags alone, one half of it."""
import os
import sys
import sysconfig

PACKAGE = os.path.dirname(os.path.abspath(__file__))
BESIDE = os.path.dirname(PACKAGE)
# of .../lib/python3.X/site-packages, and of .../lib/crun/python
PREFIX = os.path.normpath(os.path.join(BESIDE, "../../.."))


def find_launcher() -> str:
    schemes = [sysconfig.get_path("scripts")]
    if hasattr(sysconfig, "get_preferred_scheme"):
        schemes.append(sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user")))
    # pip install --target has bin beside the packages
    for folder in [os.path.join(PREFIX, "bin"), os.path.join(BESIDE, "bin"), *schemes]:
        path = os.path.join(folder, "crun")
        if os.access(path, os.X_OK):
            return path
    sys.exit(f"python -m crun: there is no crun in {PREFIX}/bin")


def compiler_flags(asked: "list[str]") -> str:
    root = PACKAGE if os.path.isdir(os.path.join(PACKAGE, "include")) else PREFIX
    flags = {"--cflags": f"-I{root}/include",
             "--libs": f"-L{root}/lib -Wl,-rpath,{root}/lib -lcrun-worker"}
    return " ".join(flags[flag] for flag in asked)


def main() -> None:
    arguments = sys.argv[1:]
    if arguments and set(arguments) <= {"--cflags", "--libs"}:
        print(compiler_flags(arguments))
        return
    path = find_launcher()
    os.execv(path, [path, *arguments])


if __name__ == "__main__":
    main()
