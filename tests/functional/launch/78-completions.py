#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Completions in the shells themselves: bash by its function, fish by `complete -C`, zsh by its
function and a compadd of ours. Each of them offers what the programs answer to --complete.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../lib"))
from process import BIN, fail, same, until  # noqa: E402

CRUNCTL = BIN / "crunctl"
ENV = {**os.environ, "PATH": f"{BIN}:/usr/bin:/bin"}
# what is typed, and what it becomes or what is offered
CASES = [
    ("crun --fence=g", ["--fence=grace"]),
    ("crun --fence ", ["grace", "strict"]),
    ("crun --nproc_per", ["--nproc_per_node"]),
    ("crun --rdzv-backend=s", ["--rdzv-backend=static"]),
    ("crun --rdzv-conf=lease=5,sc", [f"--rdzv-conf=lease=5,scale={w}"
                                     for w in ("checkpoint", "never", "now")]),
    ("crun --redirects ", ["1", "2", "3", "0:3"]),
    ("crun tr", ["train.py"]),
    ("crun trunc", ["truncate"]),
    ("crun --hostfile=no", ["--hostfile=notes.txt"]),
    ("crund --log-format ", ["text", "json"]),
    ("crunctl st", ["status", "stacks", "stop"]),
    ("crunctl -e :1 st", ["status", "stacks", "stop"]),
    ("crunctl events --f", ["--follow"]),
    ("crunctl logs --std", ["--stdout", "--stderr"]),
]


def ask(words):
    r = subprocess.run(words, env=ENV, capture_output=True, text=True, timeout=20)
    return [line.split("\t")[0] for line in r.stdout.splitlines() if line[:1] != "\t"]


def all_of_cases():
    return [line for typed, offered in CASES for line in (f"> {typed}", *offered)]


def programs_answer():
    for typed, offered in CASES:
        program, *words = typed.split(" ")
        same((typed, ask([BIN / program, "--complete", *words])), (typed, offered))


BASH = r"""
for p in crun crund crunctl; do source <($p --print-completion bash); done
complete -p crun crund crunctl >/dev/null || exit 1
try() { COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _${COMP_WORDS[0]}; echo "${COMPREPLY[*]}"; }
COMP_WORDS=(crun --fence = g); try
COMP_WORDS=(crun --rdzv-conf = lease = 5,sc); try
COMP_WORDS=(crun tr); try
COMP_WORDS=(crunctl -e :1 st); try
"""


def bash_completes():
    r = subprocess.run(["bash", "-c", BASH], env=ENV, capture_output=True, text=True, timeout=20)
    same(r.stdout.splitlines(), ["grace", "5,scale=checkpoint 5,scale=never 5,scale=now", "train.py",
                                 "status stacks stop"])
    same(r.stderr, "")


def fish_completes():
    if not shutil.which("fish"):
        return
    script = "for p in crun crund crunctl; $p --print-completion fish | source; end\n"
    for typed, _ in CASES:
        script += f"echo '> {typed}'; complete -C'{typed}'\n"
    r = subprocess.run(["fish", "-N", "-c", script], env=ENV, capture_output=True, text=True,
                       timeout=20)
    got = [line.split("\t")[0] for line in r.stdout.splitlines()]
    same(sorted(got), sorted(all_of_cases()))
    same(r.stderr, "")


# compadd shows what it is given: the array that its last argument names
ZSH = r"""
compdef() {}
compadd() { local name=${@[-1]}; print -rl -- "${(@P)name}" }
for p in crun crund crunctl; do source <($p --print-completion zsh); done
try() { print -r -- "> $1"; words=("${(@s: :)1}"); CURRENT=$#words; PREFIX=$words[-1]; _$words[1] }
"""


def zsh_completes():
    if not shutil.which("zsh"):
        return
    script = ZSH + "".join(f"try '{typed}'\n" for typed, _ in CASES)
    r = subprocess.run(["zsh", "-f", "-c", script], env=ENV, capture_output=True, text=True,
                       timeout=20)
    same(sorted(r.stdout.splitlines()), sorted(all_of_cases()))
    same(r.stderr, "")


def jobs_and_nodes_are_offered():
    folder = os.path.abspath("run")
    os.mkdir(folder, 0o700)
    ENV["CRUN_RUNTIME_DIR"] = folder
    with open("resnet.py", "w") as f:
        f.write("import time\ntime.sleep(100)\n")
    job = subprocess.Popen([BIN / "crun", "resnet.py"], env=ENV, stdin=subprocess.DEVNULL)
    try:
        until(lambda: ask([CRUNCTL, "--complete", "stop", ""]) == ["resnet"], "the job")
        same(ask([CRUNCTL, "--complete", "-j", "r"]), ["resnet"])
        status = subprocess.run([CRUNCTL, "status", "--json"], env=ENV, capture_output=True)
        host = json.loads(status.stdout)[0]["nodes"][0]["host"]
        same(ask([CRUNCTL, "--complete", "drain", "resnet", ""]), [host])
        same(ask([CRUNCTL, "--complete", "drain", ""]), [host, "resnet"])
    finally:
        job.send_signal(signal.SIGINT)
        job.wait()
    same(ask([CRUNCTL, "--complete", "stop", ""]), [])
    same(ask([CRUNCTL, "--complete", "events", ""]), ["resnet"])


def main():
    with tempfile.TemporaryDirectory(prefix="crun-completions-") as place:
        os.chdir(place)
        for name in ("train.py", "notes.txt"):
            open(name, "w").close()
        for test in (programs_answer, bash_completes, fish_completes, zsh_completes,
                     jobs_and_nodes_are_offered):
            test()
            print("ok", test.__name__, flush=True)
        os.chdir("/")


main()
