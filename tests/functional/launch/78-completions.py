#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
What scripts/completions prints, in the shells themselves: bash by its function, fish by
`complete -C`, zsh by its parser.
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, same  # noqa: E402

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "scripts/completions"
# what is typed, in the words of readline, and what is offered
CASES = [
    ("crun --fence = g", ["grace"]),
    ("crun --fence ", ["grace", "strict"]),
    ("crun --nproc_per", ["--nproc_per_node"]),
    ("crun --fence = strict --rdzv-backend s", ["static"]),
    ("crun --warm --rdzv-b", ["--rdzv-backend"]),
    ("crun --np 2 train.py --f", []),
    ("crund --log-format ", ["text", "json"]),
    ("crunctl st", ["status", "stacks", "stop"]),
    ("crunctl -e :1 st", ["status", "stacks", "stop"]),
    ("crunctl logs --std", ["--stdout", "--stderr"]),
]
# fish knows neither underscores nor where the program begins
NOT_OF_FISH = ("crun --nproc_per", "crun --np 2 train.py --f")


def made(shell, folder):
    path = folder / shell
    path.write_text("".join(
        subprocess.run([SCRIPT, shell, BIN / program], capture_output=True, check=True,
                       text=True).stdout for program in ("crun", "crund", "crunctl")))
    return path


def run(*words):
    r = subprocess.run(words, capture_output=True, text=True, timeout=60)
    same(r.stderr, "")
    return r.stdout.splitlines()


def main():
    with tempfile.TemporaryDirectory(prefix="crun-completions-") as name:
        folder = pathlib.Path(name)
        script = f"source {made('bash', folder)}\n"
        for typed, _ in CASES:
            words = " ".join(f"'{word}'" for word in typed.split(" "))
            script += (f"COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); "
                       f"_${{COMP_WORDS[0]}}; echo \"${{COMPREPLY[*]}}\"\n")
        same(run("bash", "-c", script), [" ".join(offered) for _, offered in CASES])
        if shutil.which("fish"):
            script = f"source {made('fish', folder)}\n"
            cases = [(typed.replace(" = ", "="), offered) for typed, offered in CASES
                     if typed not in NOT_OF_FISH]
            for typed, _ in cases:
                script += f"echo '> {typed}'; complete -C'{typed}'\n"
            got = [line.split("\t")[0].rsplit("=", 1)[-1]
                   for line in run("fish", "-N", "-c", script)]
            same(sorted(got), sorted(line for typed, offered in cases
                                     for line in [f"> {typed}".rsplit("=", 1)[-1], *offered]))
        if shutil.which("zsh"):
            run("zsh", "-n", made("zsh", folder))


main()
