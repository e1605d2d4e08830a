#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 3 s
"""
Which program crun starts, by which interpreter, with which arguments: called as crun and
as torchrun, in environments that are activated and those that are not.
"""
import contextlib
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from launch import CRUN, Place  # noqa: E402
from process import free_port, same  # noqa: E402


def make_environment(p, name):
    """A virtual environment whose Python says its name."""
    os.makedirs(f"{p.path}/{name}/bin")
    p.file(f"{name}/pyvenv.cfg")
    p.file(f"{name}/bin/python3", f'#!/bin/sh\necho {name} "$@"\n')
    for launcher in ("crun", "torchrun"):
        os.symlink(CRUN, f"{p.path}/{name}/bin/{launcher}")


def environments_that_are_not_activated(p):
    make_environment(p, "venv")
    make_environment(p, "active")
    p.file("train.py")
    p.file("train")
    active = {**p.env, "PATH": f"{p.path}/active/bin:{p.env['PATH']}"}

    def says(words, env, text):
        same(p.end(p.start(*words, env=env), 0), text + "\n")

    for launcher in ("crun", "torchrun"):
        away = f"{p.path}/venv/bin/{launcher}"
        says([away, "train.py", "x"], p.env, "venv -u train.py x")
        says([f"venv/bin/{launcher}", "train.py"], active, "venv -u train.py")
        says([away, "-m", "module"], active, "venv -u -m module")
        says([away, "train.py"], {**p.env, "PYTHON_EXEC": "active/bin/python3"},
             "active -u train.py")
        says([launcher, "train.py"], active, "active -u train.py")
    says([CRUN, "train.py"], active, "active -u train.py")
    says(["torchrun", "train"], active, "active -u train")
    p.end(p.start("torchrun", "coll-bench", env=active), 2, "coll-bench: no such file")
    p.end(p.start("torchrun", "--no-python", "coll-bench", env=active), 2,
          "coll-bench: no such file")


def a_file_of_the_working_directory_is_first(p):
    """crun's folder has a trainer, and PATH a program, of the same name."""
    make_environment(p, "venv")
    p.file("venv/bin/train", "#!/bin/sh\necho PATH\n")
    env = {**p.env, "PATH": f"{p.path}/venv/bin:{p.env['PATH']}"}
    same(p.crun(["train"], 0, env=env), "PATH\n")
    os.mkdir(f"{p.path}/train")
    same(p.crun(["train"], 0, env=env), "PATH\n")
    os.rmdir(f"{p.path}/train")
    p.file("train", "print('a text')\n", 0o644)
    out = p.crun(["train", "x"], 0, env=env, stderr=subprocess.STDOUT)
    same(out.splitlines(), ['crun: train is not executable and has no "#!" line: '
                            "Python runs it", "venv -u train x"])
    same(p.end(p.start("torchrun", "train", env=env, stderr=subprocess.STDOUT), 0),
         "venv -u train\n")
    p.file("train", "#!/bin/sh\necho a script\n", 0o644)
    p.crun(["train"], 2, "crun: train is not executable (chmod +x)\n", env=env)
    os.chmod(f"{p.path}/train", 0o755)
    same(p.crun(["train"], 0, env=env), "a script\n")
    same(p.crun(["--no-python", "train"], 0, env=env), "PATH\n")
    os.unlink(f"{p.path}/venv/bin/train")
    same(p.crun(["--no-python", "train"], 0, env=env), "a script\n")
    os.unlink(f"{p.path}/train")
    same(p.crun(["--no-python", "train", "--version"], 0, env=env)[:6], "train ")


def what_torchrun_takes_or_refuses(p):
    p.crun(["--rdzv-conf='join_timeout=5,last_call_timeout=1,timeout=5'", "true"], 0)
    p.crun(["--rdzv-conf", "join_timout=5,cacert=a", "true"], 0,
           "crun: --rdzv-conf: join_timout (did you mean join_timeout?), cacert are not")
    p.crun(["--logs-specs=DOES_NOT_EXIST", "true"], 2, "crun: --logs-specs: ")
    p.crun(["--logs-specs=default", "true"], 0)


def mpi_programs_in_python(p):
    """mpi4py itself need not be here: the line comes from the program's text."""
    p.file("mpi4py.py", "MPI = None\n")
    p.file("mpi4py_fft.py", "")
    for text, is_mpi in [("import os\nfrom mpi4py import MPI\n", True),
                         ("import mpi4py", True),
                         ("try:\n    import mpi4py\nexcept ImportError:\n    pass\n", False),
                         ("import mpi4py_fft\n", False)]:
        p.file("mpi.py", text)
        for words in ["mpi.py"], ["python3", "-u", "mpi.py"]:
            err = p.crun(["-n", "2", *words], 0, stderr=subprocess.STDOUT)
            same(err.count("crun: mpi.py imports mpi4py, which crun does not start: "), int(is_mpi))
            same(re.search('type "mpirun -n 2 [^ ]*python3 mpi.py"', err) is not None, is_mpi)


def mpi_programs(p):
    """Each rank would be a world of its own: one line says so."""
    cc = shutil.which(os.environ.get("CC", "cc")) or shutil.which("cc")
    if not cc:
        print("no C compiler: mpi_programs is left out")
        return
    p.file("mpi.c", "int MPI_Init(void) { return 0; }\n")
    p.file("main.c", "int MPI_Init(void);\nint main(void) { return MPI_Init(); }\n")
    for words in (["-shared", "-fPIC", "-Wl,-soname,libmpi.so.40", "-o", "libmpi.so.40",
                   "mpi.c"], ["-o", "prog", "main.c", "libmpi.so.40"]):
        subprocess.run([cc, *words], cwd=p.path, check=True)
    env = {**p.env, "LD_LIBRARY_PATH": p.path}
    c = p.start(CRUN, "--nproc-per-node=2", "./prog", env=env)
    out, err = c.communicate()
    same((c.returncode, err.count(b"\n")), (0, 1))
    same(err.startswith(b"crun: ./prog is linked with MPI (libmpi.so.40), which crun does "
                        b"not start: "), True)
    same(p.crun(["./prog"], 0, env=env, stderr=subprocess.STDOUT), "")
    mpi_programs_in_python(p)
    same(p.crun(["--nproc-per-node=2", "true"], 0, stderr=subprocess.STDOUT), "")


def arguments_of_each_rank(p):
    out = p.crun(["--nproc-per-node=2", "echo", "${rank}/${world_size}", "$rank",
                  "${node_rank}.${local_rank}", "${unknown}", "$${rank}"], 0)
    same(sorted(out.splitlines()), [f"{i}/2 $rank 0.{i} ${{unknown}} ${{rank}}"
                                    for i in (0, 1)])
    out = p.crun(["--nproc-per-node=2", "sh", "-c",
                  '[ "$0" = "$MASTER_ADDR $MASTER_PORT 1 2" ] && echo same',
                  "${master_addr} ${master_port} ${nnodes} ${local_world_size}"], 0)
    same(out, "same\nsame\n")


def two_nodes(p, *words):
    """The same arguments but for those of the second node, which begin its list."""
    port = free_port()
    return [p.start(CRUN, "--nnodes=2", f"--node-rank={i}", "--master-addr=127.0.0.1",
                    f"--master-port={port}", "--rdzv-id=pair", "--nproc-per-node=2", *of_node,
                    stdin=subprocess.DEVNULL) for i, of_node in enumerate(words)]


def ports_of_rank_0(p):
    """All workers have the same; they are free, and others after a restart."""
    program = ('import os, socket, sys\n'
               'rank, epoch = os.environ["RANK"], os.environ["CRUN_EPOCH"]\n'
               'print(epoch, *sys.argv[1:], flush=True)\n'
               'if rank == "0":\n'
               '    for port in sys.argv[1:]:\n'
               '        socket.create_server(("127.0.0.1", int(port)))\n'
               'open(f"up.{epoch}.{rank}", "w")\n'
               'while epoch == "1" and rank == "3" and not all(\n'
               '        os.path.exists(f"up.1.{i}") for i in range(4)): pass\n'
               'sys.exit(epoch == "1" and rank == "3")\n')
    words = ["--max-restarts=1", sys.executable, "-c", program,
             "${free_port}", "${free_port:api}", "${free_port:dist}"]
    lines = "".join(p.end(c, 0) for c in two_nodes(p, words, words)).splitlines()
    first, second = [{line for line in lines if line[0] == n} for n in "12"]
    same((len(lines), len(first), len(second)), (8, 1, 1))
    same(len(set(" ".join(first | second).split())), 8)
    for c in two_nodes(p, ["true", "${free_port:api}"], ["true", "${free_port:dist}"]):
        p.end(c, 1, "rank 0's node has sent no port for ${free_port:dist}: ")
    for bad in ("${free_port:a-b}", "--port=${free_port:", "${free_port:}"):
        c = p.start(CRUN, "true", bad, stdin=subprocess.DEVNULL)
        out, err = c.communicate()
        same((c.returncode, out, err.count(b"\n")), (2, b"", 1))
        same(err.startswith(b"crun: " + bad.encode()), True)
    same(p.crun(["echo", "$${free_port:api}"], 0), "${free_port:api}\n")


CHECKS = [arguments_of_each_rank, ports_of_rank_0, mpi_programs, what_torchrun_takes_or_refuses,
          environments_that_are_not_activated,
          a_file_of_the_working_directory_is_first]

if __name__ == "__main__":
    for check in CHECKS:
        with contextlib.closing(Place()) as place:
            check(place)
            place.nothing_is_left()
        print(f"ok {check.__name__}", flush=True)
