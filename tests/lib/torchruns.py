# SPDX-License-Identifier: MIT
"""
Several torchruns at a time, each a fork of this process, which has imported PyTorch for all
of them: that takes each of them seconds. Run with the Python of a scripts/torch-venv; reads
[{"words", "env", "folder"}], writes [[exit code, output, errors]], both JSON.
"""
import json
import os
import runpy
import signal
import sys
import tempfile
import time

import torch.distributed.run  # noqa: F401

SECONDS = 300


def become_torchrun(node, out, err):
    """In the child: as if torchrun had been executed there."""
    os.environ.clear()
    os.environ.update(node["env"])
    tempfile.tempdir = None  # it is looked up again
    os.chdir(node["folder"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out.fileno(), 1)
    os.dup2(err.fileno(), 2)
    sys.argv = node["words"]
    runpy.run_path(node["words"][0], run_name="__main__")


def start(node):
    out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            become_torchrun(node, out, err)
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return pid, out, err


def read(file):
    file.seek(0)
    return file.read().decode(errors="replace")


def wait(pid, out, err, deadline):
    late = ""
    while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() > deadline and not late:
            late = "\n(killed by the test)"
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    return [os.waitstatus_to_exitcode(ended[1]), read(out), read(err) + late]


def main():
    children = [start(node) for node in json.load(sys.stdin)]
    deadline = time.monotonic() + SECONDS
    json.dump([wait(*child, deadline) for child in children], sys.stdout)


main()
