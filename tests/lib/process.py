# SPDX-License-Identifier: MIT
"""
What functional tests share: where the build is, what they say and wait for, processes and what
/proc knows of them, ports. A test imports it so:

    import sys
    sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
    from process import fail, until  # noqa: E402
"""
import collections
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BUILD", "build")).resolve()
BIN = BUILD / "bin"
PROGRAMS = ROOT / "tests" / "programs"
SANITIZED = "san" in BUILD.name
# a deadline of a loaded machine
SECONDS = 300 if SANITIZED else 120

# a test must not use the key of the user who runs it
for variable in ("KEY_DIR", "KEY_FILE", "REQUIRE_KEY"):
    for prefix in ("CRUN", "CRUND", "PET"):
        os.environ.pop(f"{prefix}_{variable}", None)
os.environ.pop("CREDENTIALS_DIRECTORY", None)
os.environ["XDG_CONFIG_HOME"] = "/dev/null"


# -- saying and waiting ---------------------------------------------------------------


def fail(*what):
    sys.exit("FAILED: " + " ".join(map(str, what)))


def skip(why, what):
    """Ends a test that cannot run here; loudly, because it proves nothing then."""
    print(f"{'*' * 72}\n* SKIPPED: {why}:\n*   {what}\n{'*' * 72}", file=sys.stderr)
    sys.exit(77)


def patience(seconds):
    """So long where two processes share a core, as these tests do; in proportion longer where
    more do, 300 s at most."""
    return min(seconds * max(1, os.getloadavg()[0] / os.cpu_count() / 2), max(seconds, 300))


def until(condition, what, seconds=60, pause=0.005):
    """
    Poll; the condition's value once it is true. `what` is a text or a function for it. A
    condition that costs much, such as one that asks crunctl, takes a small part of the time.
    What hangs fails after these seconds, on a busy machine later.
    """
    started = time.monotonic()
    while True:
        begun = time.monotonic()
        if value := condition():
            return value
        asked = time.monotonic()
        if asked > started + seconds and asked > started + patience(seconds):
            fail(f"{what() if callable(what) else what}: not within {asked - started:.0f} s")
        time.sleep(max(pause, min(5 * (asked - begun), 0.3)))


def slowdown():
    """How many times longer than on an idle machine it takes to compute now. A figure that is
    promised for an idle one is compared with it, times this."""
    begun, used = time.monotonic(), time.process_time()
    while time.process_time() < used + 0.2:
        pass
    return (time.monotonic() - begun) / 0.2


def same(got, wanted):
    if got != wanted:
        raise AssertionError(f"{got!r} is not {wanted!r}")


def matches(text, pattern):
    if not re.search(pattern, text):
        raise AssertionError(f"nothing like {pattern!r} in {text!r}")


def run(tests, *arguments):
    """The tests one after another; only those named on the command line, if any."""
    for test in tests:
        if sys.argv[1:] and test.__name__ not in sys.argv[1:]:
            continue
        begun = time.monotonic()
        test(*arguments)
        print(f"ok {test.__name__} ({time.monotonic() - begun:.1f} s)", flush=True)


# -- processes ------------------------------------------------------------------------


def shell_code(code):
    """crun dies of SIGINT where that has ended its job; a shell says 130."""
    return 128 + signal.SIGINT if code == -signal.SIGINT else code


class Process:
    """A command whose output is in files, to be looked at while it runs."""

    def __init__(self, command, where="", stdin=subprocess.DEVNULL, **options):
        self.command, self.where = [str(word) for word in command], where
        self.files = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self.popen = subprocess.Popen(self.command, stdin=stdin,
                                      stdout=self.files[0], stderr=self.files[1], **options)
        self.pid = self.popen.pid

    def _read(self, which):
        fd = self.files[which].fileno()
        return os.pread(fd, os.fstat(fd).st_size, 0).decode(errors="replace")

    out = property(lambda self: self._read(0))
    err = property(lambda self: self._read(1))

    def kill(self, signo=signal.SIGKILL):
        if self.popen.poll() is None:
            os.kill(self.pid, signo)

    def wait(self, seconds=120):
        """Its shell_code; fails with the output if it takes longer, on a busy machine much longer."""
        until(lambda: self.popen.poll() is not None,
              lambda: f"the end of {self}\n{self.out}{self.err}", seconds, pause=0.02)
        return shell_code(self.popen.returncode)

    def expect(self, code, *texts, seconds=120):
        """It ends with that exit code, and has printed these texts."""
        got = self.wait(seconds)
        said = self.out + self.err
        if got != code:
            fail(f"{self}: exit code {got}, not {code}:\n{said}")
        for text in texts:
            if text not in said:
                fail(f"{self}: {text!r} is not in:\n{said}")

    def end(self):
        if self.popen.poll() is None:
            self.popen.kill()
            self.popen.wait()

    def __str__(self):
        return " ".join(self.command) + self.where


def expect(p, code, *texts, seconds=120):
    p.expect(code, *texts, seconds=seconds)


def read(path):
    """The content of the file; "" if it cannot be read, as when a process has ended."""
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError:
        return b""


Stat = collections.namedtuple("Stat", "name state parent")


def stat_of(pid):
    """From /proc/PID/stat; the state of a process that has ended is ""."""
    name, _, rest = read(f"/proc/{pid}/stat").decode().partition(" (")[2].rpartition(") ")
    fields = rest.split()
    return Stat(name, fields[0], int(fields[1])) if fields else Stat("", "", 0)


def lives(pid):
    """Dead processes have closed all their files."""
    return stat_of(pid).state not in ("", "Z", "X")


def processes():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def children(pid):
    return [p for p in processes() if stat_of(p).parent == pid]


def living(cookie):
    """Processes executed with the cookie in their environment; dead ones have none."""
    return [pid for pid in processes() if cookie in read(f"/proc/{pid}/environ")]


# -- ports and cgroups ----------------------------------------------------------------


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def free_port():
    return free_ports(1)[0]


def own_cgroup():
    """The folder of our own cgroup v2 where groups can be made, or None."""
    group = re.search(r"^0::(.*)$", read("/proc/self/cgroup").decode(), re.M)
    mount = re.search(r"^\S+ \S+ \S+ / (\S+) .* - cgroup2 ",
                      read("/proc/self/mountinfo").decode(), re.M)
    folder = mount[1] + group[1].rstrip("/") if group and mount else None
    return folder if folder and os.access(folder + "/cgroup.procs", os.W_OK) else None
