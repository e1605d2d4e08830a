#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 20 s
# sanitizers: no, the unit tests of keys, TLS and sessions run the code
# no root: key files belong to an ordinary user
"""Keys: how they are made, found and refused, replaced while jobs run, and kept secret."""
import json
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from control import hkdf  # noqa: E402
from process import (BIN, SECONDS, Process, children, fail, free_port,  # noqa: E402
                     read, run, same, until)

CRUN, CRUND, CRUNCTL = str(BIN / "crun"), str(BIN / "crund"), str(BIN / "crunctl")
ROTATING = 50  # nodes
GOOD = "crun1:00112233445566ff:agent:0:" + "0123456789abcdef" * 4 + "\n"


class World:
    """A folder with the homes of nodes, and what was started."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="crun-keys-"))
        self.started = []

    def home(self, name):
        """The environment of a node, and the path of its key."""
        home = self.folder / name
        home.mkdir(mode=0o700, exist_ok=True)
        env = {**os.environ, "XDG_CONFIG_HOME": str(home), "CRUND_ALLOW_ROOT": "1"}
        return env, home / "crun" / "key"

    def start(self, env, *words):
        p = Process(words, env={**os.environ, **env})
        self.started.append(p)
        return p

    def end(self):
        for p in self.started:
            p.end()
        shutil.rmtree(self.folder)


def call(env, *words, **options):
    return subprocess.run([str(w) for w in words], env=env, capture_output=True, text=True,
                          timeout=SECONDS, stdin=subprocess.DEVNULL, **options)


def keygen(env, *words):
    r = call(env, CRUNCTL, "keygen", *words)
    if r.returncode:
        fail("keygen", words, r.stderr)
    return r.stdout


def expect(r, code, *texts):
    """Exit code, and one line that has these texts."""
    if r.returncode != code or any(t not in r.stderr for t in texts):
        fail(f"{r.args}: exit code {r.returncode}, not {code}, or not {texts}: {r.stderr}")


# -- making keys ----------------------------------------------------------------------


def keygen_makes_a_private_file(world):
    env, key = world.home("maker")
    os.umask(0)
    keygen(env)
    same(stat.S_IMODE(key.stat().st_mode), 0o600)
    same(stat.S_IMODE(key.parent.stat().st_mode), 0o700)
    text = key.read_text()
    same(len(text.splitlines()), 1)
    same(text.split(":")[:1] + text.split(":")[2:4], ["crun1", "agent", "0"])
    expect(call(env, CRUNCTL, "keygen"), 1, "replaces no key", str(key))
    same(key.read_text(), text)
    os.umask(0o022)


def lesser_keys_are_made_from_it(world):
    env, key = world.home("maker")
    parent = key.read_text().split(":")
    view = keygen(env, "--role", "view", "--expires", "90d", "-").strip().split(":")
    same(view[1:3], [parent[1], "view"])
    days = (int(view[3]) - time.time()) / 86400
    if not 89.9 < days < 90.1 or view[4] == parent[4].strip():
        fail("a key to view:", view[:4])
    same(keygen(env, "--role=operate", "-"), keygen(env, "--role=operate", "-"))
    other = world.folder / "view.key"
    keygen(env, "--role=view", other)
    expect(call({**env, "CRUN_KEY_FILE": str(other)}, CRUNCTL, "keygen", "--role=view", "-"), 1,
           "no agent's key")
    expect(call(env, CRUNCTL, "keygen", "--role=view"), 2, "say where")
    expect(call(env, CRUNCTL, "keygen", "--expires=never"), 2, "is not a duration")
    bare = {k: v for k, v in env.items() if k not in ("HOME", "XDG_CONFIG_HOME")}
    expect(call(bare, CRUNCTL, "keygen"), 2, "name a file")


def keygen_prints_into_no_file_of_others(world):
    env, _ = world.home("maker")
    path = world.folder / "printed"
    for mode, code in ((0o644, 1), (0o600, 0)):
        with open(path, "w") as out:
            os.fchmod(out.fileno(), mode)
            same(subprocess.run([CRUNCTL, "keygen", "-"], env=env, stdout=out,
                                stderr=subprocess.DEVNULL).returncode, code)
        same(path.stat().st_size > 0, code == 0)


# -- finding them ---------------------------------------------------------------------


def programs():
    """Each with its exit code when its key cannot be used."""
    port = str(free_port())
    return [([CRUN, "--nnodes=2", "--node-rank=0", f"--master-port={port}", "true"], 2),
            ([CRUND, "--listen=127.0.0.1:0"], 2),
            ([CRUNCTL, f"--rdzv-endpoint=127.0.0.1:{port}", "status"], 2)]


def bad_keys(folder):
    def file(name, text, mode=0o600):
        path = folder / name
        path.write_text(text)
        path.chmod(mode)
        return path
    open_folder = folder / "open"
    open_folder.mkdir()
    in_open_folder = open_folder / "key"
    in_open_folder.write_text(GOOD)
    in_open_folder.chmod(0o600)
    open_folder.chmod(0o775)
    os.mkfifo(folder / "fifo", 0o600)
    ended = GOOD.replace(":0:", f":{int(time.time()) - 365 * 86400}:", 1)
    bad = [(folder / "missing", "No such file"), (folder, "is a folder, not a file"),
           (folder / "fifo", "is a FIFO, not a file"), (file("empty", ""), "is empty"),
           (file("all", GOOD, 0o644), "chmod 600"), (file("cut", GOOD[:60]), "cut or damaged"),
           (file("twice", GOOD + GOOD), "stands there twice"),
           (file("large", "#" * 10_000_000), "more than 64 KiB"),
           (file("text", "-----BEGIN"), "not a key"), (in_open_folder, "chmod go-w"),
           (file("ended", ended), "ended on")]
    if os.geteuid() == 0:
        os.chown(file("another", GOOD), 4711, 4711)
        bad.append((folder / "another", "belongs to user 4711"))
    return bad


def a_key_that_cannot_be_used_is_one_line(world):
    env, _ = world.home("nobody")
    folder = world.folder / "bad"
    folder.mkdir(mode=0o755)
    for path, why in bad_keys(folder):
        for words, code in programs():
            if why == "ended on" and words[0] != CRUNCTL:
                continue  # they may get a new key while they run
            r = call({**env, "CRUN_KEY_FILE": str(path), "CRUND_KEY_FILE": str(path)}, *words)
            expect(r, code, why, str(folder))
            if len(r.stderr.splitlines()) != 1 or GOOD[40:60] in r.stderr:
                fail(path, "is not refused by one line without the key:", r.stderr)


def a_key_for_a_group_is_warned_of_once(world):
    """Root's files are those of a Secret's volume; a group of the same number is the user's own."""
    if os.getuid() != 0:
        return
    env, key = world.home("group")
    keygen(env, key)
    os.chown(key, -1, 4711)
    key.chmod(0o640)
    crund = world.start({**env, "CRUND_KEY_FILE": str(key)}, CRUND, "--listen=127.0.0.1:0")
    until(lambda: "listening on" in crund.err, lambda: crund.err)
    os.utime(key)
    crund.kill(signal.SIGHUP)
    until(lambda: "reading" in crund.err, lambda: crund.err)
    same(crund.err.count(f"{key} can be read by all users of the group 4711 (mode 0640): "
                         f"chmod 600 {key}"), 1)
    os.chown(key, -1, os.geteuid())
    r = call({**env, "CRUN_KEY_FILE": str(key)}, CRUN, "--nnodes=1:1", "--rdzv-backend=c10d",
             "--rdzv-endpoint=127.0.0.1:0", "--no-python", "true")
    same([r.returncode, r.stderr], [0, ""])


def a_key_is_found_where_it_is_documented(world):
    """A file that is wrong says which was looked at."""
    env, key = world.home("found")
    key.parent.mkdir()
    places = [("home", key), ("credential", world.folder / "crun.key"),
              ("named", world.folder / "named.key")]
    for _, path in places:
        path.write_text("")
    home, credential, named = (str(path) for _, path in places)
    words = programs()[2][0]
    expect(call(env, *words), 2, home)
    env["CREDENTIALS_DIRECTORY"] = str(world.folder)
    expect(call(env, *words), 2, credential)
    env["CRUN_KEY_FILE"] = named
    expect(call(env, *words), 2, named)
    expect(call(env, words[0], "--key-file", home, *words[1:]), 2, home)
    env = {**os.environ, "HOME": str(world.folder / "house")}
    del env["XDG_CONFIG_HOME"]
    keygen(env)
    if not (world.folder / "house" / ".config" / "crun" / "key").exists():
        fail("keygen does not use ~/.config")


def a_required_key_must_be_there(world):
    env, _ = world.home("nobody")
    for words, code in programs():
        expect(call(env, words[0], "--require-key", *words[1:]), code, "crunctl keygen")
    expect(call(env, CRUN, "--require-key", "true"), 0)
    both = call(env, CRUND, "--key-file=x", "--key-dir=y")
    expect(both, 2, "one is enough")


def a_rendezvous_needs_the_agents_key(world):
    env, _ = world.home("maker")
    view = world.folder / "only-view.key"
    keygen(env, "--role=view", view)
    for words, code in programs()[:2]:
        r = call({**env, "CRUN_KEY_FILE": str(view), "CRUND_KEY_FILE": str(view)}, *words)
        expect(r, 1 if words[0] == CRUND else code, str(view))


def a_job_of_one_node_needs_nothing_of_it(world):
    """Neither is the file read, which would be refused, nor OpenSSL loaded."""
    env, key = world.home("single")
    key.parent.mkdir()
    key.write_text("no key")
    script = "cat /proc/$(awk '{print $4}' /proc/$PPID/stat)/maps"
    r = call(env, CRUN, "sh", "-c", script)
    expect(r, 0)
    if "/crun" not in r.stdout:
        fail("these are not crun's libraries:", r.stdout)
    if "libssl" in r.stdout or "libcrypto" in r.stdout:
        fail("OpenSSL was loaded")


# -- using them -----------------------------------------------------------------------


class Rendezvous:
    """A crund with a home of its own."""

    def __init__(self, world, name, *flags):
        self.env, self.key = world.home(name)
        if not self.key.exists() and "--key-dir" not in flags:
            keygen(self.env)
        self.process = world.start(self.env, CRUND, "--listen=127.0.0.1:0", *flags)
        found = until(lambda: re.search(r"listening on (127\.0\.0\.1:\d+)", self.log()),
                      lambda: f"listens: {self.log()}")
        self.endpoint = "--rdzv-endpoint=" + found[1]

    def log(self):
        return self.process.err

    def crunctl(self, env, *words):
        return call(env, CRUNCTL, self.endpoint, *words)

    def job(self, env, run_id="job"):
        r = self.crunctl(env, "status", "--json")
        if r.returncode:
            fail("status:", r.stderr)
        return next((j for j in json.loads(r.stdout) if j["job"] == run_id), None)

    def agents(self, world, count, run_id, program, envs=None):
        """That many nodes of a job, each with a home that has the key."""
        started = []
        for i in range(count):
            env, key = world.home(f"{run_id}-{i}")
            key.parent.mkdir(exist_ok=True)
            write_key(key, self.key.read_text())
            started.append(world.start(env, CRUN, f"--nnodes={count}", self.endpoint,
                                       f"--rdzv-id={run_id}", *program))
            started[-1].key, started[-1].env = key, env
        return started


def write_key(path, text):
    """As an editor writes it: a new file takes the place of the old."""
    fresh = path.with_name(".fresh")
    fresh.touch(0o600)
    fresh.write_text(text)
    fresh.rename(path)


def each_wrong_key_is_one_line_at_both_ends(world):
    r = Rendezvous(world, "honest")
    other, _ = world.home("other")
    keygen(other)
    none, _ = world.home("nobody")
    same(r.crunctl(r.env, "status").returncode, 0)
    wrong, lacking = r.crunctl(other, "status"), r.crunctl(none, "status")
    expect(wrong, 69, "does not accept the key")
    expect(lacking, 69, "if it asks for a key")
    same([len(x.stderr.splitlines()) for x in (wrong, lacking)], [1, 1])
    join = (CRUN, "--nnodes=2", r.endpoint, "--rdzv-conf=join_timeout=0.5", "true")
    expect(call(other, *join), 69, "does not accept")
    expect(call(none, *join), 69, "--key-file")
    forged = world.folder / "forged"
    write_key(forged, re.sub("[0-9a-f]{64}", "0" * 64, r.key.read_text()))
    expect(r.crunctl({**none, "CRUN_KEY_FILE": str(forged)}, "status"), 69, "does not accept")
    for env, line in ((other, "is not in"), (none, "it has no key")):  # one line a second
        until(lambda: r.crunctl(env, "status") and line in r.log(), r.log)


def roles_allow_what_they_say(world):
    r = Rendezvous(world, "roles")
    agent, = r.agents(world, 1, "watched", ["sleep", "60"])
    until(lambda: (r.job(r.env, "watched") or {}).get("state") == "running", r.log)
    keys = {}
    for role in ("view", "operate"):
        keys[role] = world.folder / f"{role}.role"
        keygen(r.env, "--role", role, keys[role])
    none, _ = world.home("nobody")
    view, operate = ({**none, "CRUN_KEY_FILE": str(keys[k])} for k in ("view", "operate"))
    pids = [json.loads(r.crunctl(env, "status", "--rdzv-id=watched", "--json").stdout)
            [0]["nodes"][0]["pid"] for env in (r.env, operate, view)]
    same(pids, [agent.popen.pid] * 2 + [None])
    expect(r.crunctl(view, "stop"), 2, "this needs \"operate\"")
    expect(call(view, CRUN, r.endpoint, "--nnodes=2", "true"), 2, "no key for a node")
    expect(r.crunctl(operate, "stop"), 0)
    until(lambda: agent.popen.poll() is not None, "the job's end")
    short = world.folder / "short"
    keygen(r.env, "--role=view", "--expires=1m", short)
    text = short.read_text().split(":")
    text[3] = str(int(text[3]) + 3600)  # its holder would like it to be longer
    write_key(short, ":".join(text))
    expect(r.crunctl({**none, "CRUN_KEY_FILE": str(short)}, "status"), 69, "does not accept")


def a_team_does_not_see_anothers_job(world):
    folder = world.folder / "teams"
    folder.mkdir(mode=0o700)
    (red, _), (blue, _) = world.home("red"), world.home("blue")
    for name, env in (("red", red), ("blue", blue)):
        write_key(folder / name, "")
        keygen(env)
        write_key(folder / name, world.home(name)[1].read_text())
    r = Rendezvous(world, "teams-crund", "--key-dir", str(folder))
    r.key = world.home("red")[1]
    agent, = r.agents(world, 1, "secret", ["sleep", "60"])
    until(lambda: (r.job(red, "secret") or {}).get("state") == "running", r.log)
    same(r.job(blue, "secret"), None)
    expect(r.crunctl(blue, "--rdzv-id=secret", "stop"), 1)
    same(agent.popen.poll(), None)
    (folder / "blue").unlink()
    r.process.kill(signal.SIGHUP)
    until(lambda: r.crunctl(blue, "status").returncode == 69, "blue is retired")
    expect(r.crunctl(red, "stop"), 0)


def a_key_behind_a_link_is_read_again(world):
    """crund has locked itself in before: it may read where the link leads."""
    elsewhere = world.folder / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    env, key = world.home("linked")
    key.parent.mkdir()
    keygen(env, elsewhere / "key")
    key.symlink_to("../../elsewhere/key")
    r = Rendezvous(world, "linked")
    added, _ = world.home("added")
    keygen(added)
    write_key(elsewhere / "key", key.read_text() + world.home("added")[1].read_text())
    r.process.kill(signal.SIGHUP)
    until(lambda: r.crunctl(added, "status").returncode == 0, r.log)


def a_key_is_replaced_while_a_job_runs(world):
    """Added, used and retired, with agents that read it at other times: no epoch is lost."""
    r = Rendezvous(world, "rotating")
    agents = r.agents(world, ROTATING, "long", ["sleep", "60"])
    until(lambda: (r.job(r.env, "long") or {}).get("state") == "running", r.log)
    old = r.key.read_text()
    old_home, old_key = world.home("kept")
    old_key.parent.mkdir()
    write_key(old_key, old)
    new = keygen(r.env, "-")
    files = [r.key] + [a.key for a in agents]
    for text in (old + new, new + old, new):
        for path in files:
            write_key(path, text)
        until(lambda: r.crunctl(r.env, "status").returncode == 0, "the first key is accepted")
        same(r.job(r.env, "long")["epoch"], 1)
    # the connections of the old key end, and the agents come back with the new one
    until(lambda: f"closed: key {old.split(':')[1]}" in r.log(), r.log)
    until(lambda: all(n["connected"] for n in r.job(r.env, "long")["nodes"]), r.log)
    same(r.job(r.env, "long")["epoch"], 1)
    expect(r.crunctl(old_home, "status"), 69, "does not accept")
    for a in agents:
        if a.popen.poll() is not None:
            fail("a node has ended:", a.err, r.log())
    expect(r.crunctl(r.env, "stop"), 0)


def a_job_that_hosts_itself_asks_for_its_key(world):
    env, key = world.home("hosted")
    keygen(env)
    port = free_port()
    words = ("--nnodes=2", f"--master-port={port}", "sh", "-c", "echo rank $RANK")
    first = world.start(env, CRUN, "--node-rank=0", *words)
    until(lambda: call(env, CRUNCTL, f"--rdzv-endpoint=127.0.0.1:{port}", "status").returncode == 0,
          lambda: f"hosts: {first.err}")
    other, _ = world.home("nobody")
    expect(call(other, CRUN, "--node-rank=1", "--rdzv-conf=join_timeout=0.5", *words), 69,
           "--key-file")
    second = world.start(env, CRUN, "--node-rank=1", *words)
    nodes = [first, second]
    for i, p in enumerate(nodes):
        p.expect(0, f"rank {i}")
    if any("can run code" in p.err for p in nodes):
        fail("the job has a key, but says:", nodes[0].err)


# -- keeping them secret --------------------------------------------------------------


def forms(text):
    """What must be seen nowhere: the secret and what TLS makes of it, in bytes and in hex."""
    secret = bytes.fromhex(text.strip().split(":")[4])
    psk = hkdf(secret, b"crun tls")
    return {"the secret": secret, "the secret in hex": secret.hex().encode(), "the PSK": psk,
            "the PSK in hex": psk.hex().encode()}


def dumped_memory(pid):
    """What a core of the process would have: its memory without the parts that are exempt."""
    mapping, regions = None, []
    for line in read(f"/proc/{pid}/smaps").decode().splitlines():
        if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+)", line):
            mapping = int(found[1], 16), int(found[2], 16), found[3]
        elif line.startswith("VmFlags:") and " dd" not in line and mapping[2].startswith("r"):
            regions.append(mapping)
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for first, end, _ in regions:
            try:
                memory.seek(first)
                yield memory.read(end - first)
            except (OSError, ValueError, OverflowError):
                pass  # the kernel's own page


def family(pid):
    return [pid] + [p for child in children(pid) for p in family(child)]


def all_of(world, pids):
    """(where, bytes) of all that others may come to see."""
    for pid in pids:
        for name in ("cmdline", "environ"):
            yield f"{name} of {pid}", read(f"/proc/{pid}/{name}")
        if not os.access(f"/proc/{pid}/fd", os.R_OK):
            continue  # crund hides these from its own user, and has no core
        for fd in os.listdir(f"/proc/{pid}/fd"):
            yield f"descriptor {fd} of {pid}", os.readlink(f"/proc/{pid}/fd/{fd}").encode()
        for part in dumped_memory(pid):
            yield f"a core of {pid}", part
    for path in world.folder.rglob("*"):
        if path.is_file() and not path.is_symlink() and "crun/key" not in str(path):
            yield str(path), path.read_bytes()
    for p in world.started:
        yield f"what {p} prints", (p.out + p.err).encode()


def a_key_is_in_no_place_but_its_file(world):
    """Not in command lines, environments, descriptors, cores, logs or the journal."""
    quiet = World()
    try:
        env, key = quiet.home("secret")
        keygen(env)
        others = [keygen(env, "-") for _ in range(63)]  # so many are sorted
        write_key(key, key.read_text() + "".join(others))
        r = Rendezvous(quiet, "secret", "-v", "--state-dir", str(quiet.folder / "state"))
        agents = r.agents(quiet, 2, "quiet", ["-v", "--log-dir", str(quiet.folder / "logs"),
                                              "sh", "-c", "env; ls -l /proc/$$/fd; sleep 600"])
        until(lambda: (r.job(r.env, "quiet") or {}).get("state") == "running", r.log)
        secrets = forms(key.read_text().split("\n")[0])
        secrets |= {f"the secret of {i}": bytes.fromhex(text.strip().split(":")[4])
                    for i, text in enumerate(others)}
        pids = [pid for p in [r.process, *agents] for pid in family(p.pid)]
        if len(pids) < 7:  # guards and workers, too
            fail("these are not all processes:", pids)
        for where, data in all_of(quiet, pids):
            for what, secret in secrets.items():
                if secret in data:
                    fail(what, "is in", where)
            if where.startswith("descriptor") and b"/crun/key" in data:
                fail("the key file is open:", where)
        expect(r.crunctl(r.env, "stop"), 0)
    finally:
        quiet.end()


TESTS = [keygen_makes_a_private_file, lesser_keys_are_made_from_it,
         keygen_prints_into_no_file_of_others, a_key_that_cannot_be_used_is_one_line,
         a_key_for_a_group_is_warned_of_once, a_key_is_found_where_it_is_documented, a_required_key_must_be_there,
         a_rendezvous_needs_the_agents_key, a_job_of_one_node_needs_nothing_of_it,
         each_wrong_key_is_one_line_at_both_ends, roles_allow_what_they_say,
         a_job_that_hosts_itself_asks_for_its_key, a_team_does_not_see_anothers_job,
         a_key_behind_a_link_is_read_again,
         a_key_is_replaced_while_a_job_runs,
         a_key_is_in_no_place_but_its_file]

if __name__ == "__main__":
    the_world = World()
    try:
        run(TESTS, the_world)
    finally:
        the_world.end()
