#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 7 s
# sanitizers: no, they would be installed
"""
Every command of README, as it is typed there, prints what README shows. The programs are
installed first, into a folder of the test; README_BIN=FOLDER tries those of another one
instead, such as a virtual environment's bin. What cannot run here has a line in ELSEWHERE.

Of what is shown, numbers, host names and the width of blanks may differ, and all lines must
be printed, in any order.
"""
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BUILD, ROOT, fail, skip, until  # noqa: E402

PAGE = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.S | re.M)

# the first line of a block, or a command in a sentence: why it does not run here, and what runs it
ELSEWHERE = {
    "scripts/setup --build && make": "installs packages: scripts/checks/packages source",
    "scripts/wheel --build build && pip install build/crun_launcher-*.whl":
        "tests/functional/launch/77-wheel.sh, which runs this test with README_BIN",
    "sudo make install": "what installed() below does, with another PREFIX",
    "#!/bin/sh": "needs Slurm: tests/functional/launch/70-slurm.py submits it",
    "command: [crun, --max-restarts=3, train.py]":
        "needs pods: tests/functional/launch/71-kubernetes.py",
    "crun -H node1:8,node2:8 train.py": "needs hosts: tests/functional/launch/74-ssh.py, 73-remote.py",
    "make install PREFIX=$HOME/.local": "what installed() below does, and 77-install.sh",
    "make CRUN=tcrun install": "tests/functional/launch/77-install.sh",
    "scripts/deb": "tests/functional/launch/77-install.sh",
    "scripts/tarball": "as scripts/wheel: scripts/checks/packages FILE.tar.gz",
    "scripts/demo": "tests/functional/train/84-demo.sh",
    "scripts/test": "this is one of them",
}
# what a sentence says of a program rather than has typed
NOT_TYPED = {"make", "make install", "crunctl status", "crunctl top", "crunctl page", "crund --state-dir", "crun"}


def commands_of(block):
    """[(command, [line that it prints])] of a block with prompts."""
    found = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif line.strip():
            if not found:
                found.append(("", []))
            found[-1][1].append(line)
    return found


def plain(line, host):
    line = re.sub(rf"\b{re.escape(host)}\b", "HOST", line)
    line = re.sub(r"\d[\d.,:]*(e-?\d+)?", "0", line)
    return re.sub(r"\s+", " ", line).strip()


def missing(shown, printed):
    """The lines of README that were not printed."""
    got = [plain(line, os.uname().nodename) for line in printed.splitlines()]
    return [line for line in shown if plain(line, "node-1") not in got]


class Reader:
    """A user with a shell, who has installed crun."""

    def __init__(self, place, programs):
        self.place = place
        tools = place / "tools"
        tools.mkdir()
        # pidof finds the processes of this user only, not those of other tests
        (tools / "pidof").write_text(
            "#!/bin/sh\nfor pid in $(" + shlex.quote(shutil.which("pidof") or "pidof") +
            ' "$2"); do\n  grep -qsxz "README_READER=$README_READER" /proc/$pid/environ &&'
            " last=$pid\ndone\necho $last\n")
        (tools / "pidof").chmod(0o755)
        self.env = {**os.environ, "PATH": f"{tools}:{programs}:{os.environ['PATH']}",
                    "README_READER": str(place), "CRUN_RUNTIME_DIR": str(place / "run"),
                    "PKG_CONFIG_PATH": ":".join(map(str, programs.parent.rglob("pkgconfig"))),
                    "TERM": "dumb"}
        (place / "run").mkdir(mode=0o700)

    def type(self, command, shown=(), code=0):
        done = subprocess.run(["bash", "-c", command], cwd=self.place, env=self.env,
                              capture_output=True, text=True, timeout=60)
        if done.returncode != code or (lines := missing(shown, done.stdout + done.stderr)):
            fail(f"$ {command}\nexit {done.returncode}; not printed as README shows:",
                 lines if done.returncode == code else "", f"\n{done.stdout}{done.stderr}")
        return done.stdout

    def begin(self, command, file):
        with open(file, "wb") as out:
            return subprocess.Popen(["bash", "-c", "exec " + command], cwd=self.place,
                                    env=self.env, stdout=out, stderr=out)


def installed(place):
    """The folder of the programs."""
    if folder := os.environ.get("README_BIN"):
        return pathlib.Path(folder).resolve()
    tree = os.path.relpath(BUILD, ROOT)
    subprocess.run(["make", "-s", "-C", ROOT, f"B={tree}", f"PREFIX={place}/usr", "CRUN_ANYWAY=1",
                    "install"], check=True, stdout=subprocess.DEVNULL)
    return place / "usr/bin"


def until_printed(shown, file):
    until(lambda: not missing(shown, file.read_text()),
          lambda: f"{missing(shown, file.read_text())}, but\n{file.read_text()}")


def sixty_seconds(user, blocks):
    (hello, training), looking, ((_, recovery),) = blocks
    user.type(*hello)
    out = user.place / "out"
    crun = user.begin(training[0], out)
    try:
        until_printed(training[1], out)
        until(lambda: len(list(user.place.glob("digits/*1of1.safetensors"))) > 0, "checkpoint")
        (status, table), (kill, _) = looking
        header = [line for line in table
                  if line.startswith(("train ", "NODE"))]
        until(lambda: "STEPS/S" in user.type(status), "steps")
        if "kill" not in kill or len(header) != 2 or missing(header, user.type(status)):
            fail("status shows", user.type(status))
        user.type(kill)
        until_printed([re.sub(r"rank \d", "rank 3", line) for line in recovery], out)
        link = user.type("crunctl page train").strip()
        with urllib.request.urlopen(link, timeout=30) as answer:
            if b"<title>crun</title>" not in (page := answer.read()):
                fail(link, page[:2000])
        user.type("crunctl report train")
        if "<title>" not in (user.place / "train.html").read_text():
            fail("the report is no page")
        user.type("crunctl stop train")
        if crun.wait(60) != 128 + signal.SIGTERM:
            fail("exit code", crun.returncode)
    finally:
        crun.kill()
        crun.wait()


def library(user, program, block):
    if not shutil.which("cc", path=user.env["PATH"]):
        return "no compiler"
    if subprocess.run(["pkg-config", "--exists", "crun-worker"], env=user.env, check=False).returncode:
        return "no library in this installation"
    (user.place / "sum.c").write_text(program)
    (command, shown), = block
    user.type(command, shown)
    return ""


def check_elsewhere(blocks):
    """Each reason is one, and each command without a reason is run."""
    for language, text in blocks:
        typed = [line for line in text.splitlines() if line.startswith("$ ")]
        for command in typed or text.splitlines()[:1]:
            command = re.sub(r" +# .*", "", command.removeprefix("$ "))
            if command not in ELSEWHERE:
                fail(f"README has a command that no test knows: {command}")
    sentences = re.sub(r"^```.*?^```$", "", PAGE, flags=re.S | re.M)
    typed = re.findall(r"`((?:scripts/(?:deb|demo|wheel|tarball)|make|sudo|pip|crunctl|crund|ln)\b[^`]*)`", sentences)
    for command in typed:
        if command not in ELSEWHERE and command not in NOT_TYPED and command not in TYPED:
            fail(f"README has a command that no test knows: {command}")
    for why in ELSEWHERE.values():
        for file in re.findall(r"(?:tests|scripts)/\S+?(?=[,;:\s]|$)", why):
            if not (ROOT / file).exists():
                fail(f"{file}: there is none")


def check_links():
    """Pages and their headings that README and the pages below it link to are there."""
    pages = ["README.md", "worker-lib/README.md", "tests/README.md", "scripts/README.md",
             ".github/CONTRIBUTING.md", *(str(p.relative_to(ROOT)) for p in ROOT.glob("launcher/man/*.md"))]
    for page in pages:
        for link in re.findall(r"\]\(([^)]+)\)", (ROOT / page).read_text()):
            file, _, heading = link.partition("#")
            at = (ROOT / page).parent / file if file else ROOT / page
            if link.startswith("http"):
                continue
            if not at.exists():
                fail(f"{page}: there is no {file}")
            headings = re.findall(r"^#+ (.*)$", at.read_text() if heading else "", re.M)
            if heading and heading not in [re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-")
                                           for h in headings]:
                fail(f"{page}: {file} has no heading {heading}")


TYPED = {"crunctl stop train", "crunctl page train", "crunctl report train", "ln -s $(command -v crun) venv/bin/torchrun"}


def main():
    if "README_BIN" not in os.environ and BUILD.parent != ROOT:
        skip("the build is of another tree", "README's commands")
    with tempfile.TemporaryDirectory() as directory:
        place = pathlib.Path(directory)
        user = Reader(place, installed(place))
        consoles = [commands_of(text) for language, text in BLOCKS if language == "console"]
        first = next(i for i, block in enumerate(consoles) if block[0][0].startswith("crun "))
        sixty_seconds(user, consoles[first:first + 3])
        print("  ok sixty seconds")
        (failing, report), = consoles[first + 3]
        user.type(failing, report, 3)
        print("  ok the report of a failure")
        (place / "venv/bin").mkdir(parents=True)
        link = "ln -s $(command -v crun) venv/bin/torchrun"
        if f"`{link}`" not in PAGE:
            fail("README does not say how to link")
        user.type(f"{link} && venv/bin/torchrun --no-python echo '$RANK' && venv/bin/torchrun --version")
        print("  ok the link")
        (program,) = [text for language, text in BLOCKS if language == "c"]
        building = next(block for block in consoles if block[0][0].startswith("cc "))
        why = library(user, program, building)
        print(f"  {why or 'ok the worker library'}")
        known = consoles[first:first + 4] + [building]
        check_links()
        if (lines := PAGE.count("\n")) > 200:
            fail(f"README has {lines} lines; 200 are enough")
        check_elsewhere([(language, text) for language, text in BLOCKS if language != "c" and
                         not (language == "console" and commands_of(text) in known)])


main()
