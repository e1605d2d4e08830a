#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 34 s
"""
Three crund --peers, each a network namespace, and a job on a fourth one: the leader is killed,
cut off and put to an old or an empty state directory, and all three are killed. The job goes
on, with the same workers, and all that was acknowledged is known.
"""
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, SANITIZED, expect, read, run, until  # noqa: E402
import host  # noqa: E402

CRUN, CRUND, CRUNCTL = BIN / "crun", BIN / "crund", BIN / "crunctl"
PORT = 29400
LEASE = 3
FREE = ["--unconfined"] if SANITIZED else []  # the leak checker looks at its process
# a worker ends well once its stop file is there
WORKER = ('echo "epoch=$CRUN_EPOCH rank=$RANK"; '
          'while [ ! -e "$DIR/end" ]; do sleep 0.05; done')


class Site:
    def __init__(self, cluster):
        self.cluster = cluster
        self.at = [f"{n.address}:{PORT}" for n in cluster.nodes[:3]]
        self.crund = [None] * 3
        self.key = f"--key-file={cluster.directory}/key"
        subprocess.run([CRUNCTL, "keygen", f"{cluster.directory}/key"], check=True,
                       capture_output=True)

    def state(self, i):
        return f"{self.cluster.directory}/state-{i}"

    def start(self, *which):
        for i in which:
            self.crund[i] = self.cluster[i].start(
                [CRUND, "--allow-root", "-v", f"--peers={','.join(self.at)}",
                 f"--state-dir={self.state(i)}", "--http=29480", self.key, *FREE])

    def kill(self, *which):
        for i in which:
            self.crund[i].kill(signal.SIGKILL)
            self.crund[i].wait()

    def ask(self, i, *words):
        """crunctl on the job's machine, of that one; None: it has no answer."""
        got = subprocess.run(
            ["ip", "netns", "exec", self.cluster[3].ns, CRUNCTL, *words, "-e", self.at[i],
             "--timeout=5", self.key], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        return got.stdout if got.returncode == 0 else None

    def kept_by(self, i):
        """The places of those that keep the records, the leader first, as that one says."""
        line = re.search(r"rendezvous: (\S+?)(?:, also kept by (.*))?\n",
                         self.ask(i, "status", "job") or "")
        names = [line[1]] + (line[2] or "").split(", ") if line else []
        return [self.at.index(name) for name in names if name in self.at]

    def until_kept(self, count, by):
        """By so many, as all of these say: the leader first."""
        def agree():
            said = [self.kept_by(i) for i in by]
            return said[0] if len(said[0]) == count and \
                all(sorted(s) == sorted(said[0]) and s[0] == said[0][0] for s in said) else None
        return until(agree, lambda: f"kept by {count}: {[self.kept_by(i) for i in by]}\n" +
                     "\n".join(c.err for c in self.crund), 60)

    def others(self, leader):
        return [i for i in range(3) if i != leader]


def refused(cluster, text, *flags):
    p = cluster[0].start([CRUND, "--allow-root", *flags])
    code = p.wait()
    assert code not in (0, None) and text in p.err, f"{text} is not in: {code} {p.err}"


def says_what_is_wrong(cluster, site):
    other = f"--state-dir={cluster.directory}/other"
    alone = f"--state-dir={cluster.directory}/alone"
    peers = "--peers=" + ",".join(site.at)
    refused(cluster, "--peers needs --state-dir", peers)
    refused(cluster, "none of 10.77.0.8:1,10.77.0.9:1 is the address of this crund",
            "--peers=10.77.0.9:1,10.77.0.8:1", other)
    refused(cluster, "several of", "--peers=127.0.0.1:1,127.0.0.1:2,10.77.0.9:1", other)
    refused(cluster, "is given twice", f"--peers={site.at[0]},{site.at[0]}", other)
    refused(cluster, "is one crund", f"--peers={site.at[0]}", other)
    refused(cluster, 'cannot find host "none.invalid"', f"--peers={site.at[0]},none.invalid",
            other)
    refused(cluster, "peers need one key", peers, other, f"--key-dir={cluster.directory}")
    first = cluster[0].start([CRUND, "--allow-root", peers, other])
    keyed = cluster[2].start([CRUND, "--allow-root", peers, site.key,
                              f"--state-dir={cluster.directory}/keyed"])
    plain = cluster[1].start([CRUND, "--allow-root", f"--listen={site.at[1]}", alone])
    says(first, f"the first start waits for all peers: {site.at[1]}, {site.at[2]}")
    says(first, f"peer {site.at[1]}: it has other --peers, or none")
    asked = cluster[3].start([CRUNCTL, "status", "-e", site.at[0]])
    expect(asked, asked.wait(), "none of its --peers leads")
    says(keyed, f"peer {site.at[0]}: it closed the connection")
    for p in (first, plain, keyed):
        p.kill()
        p.wait()
    refused(cluster, "it is that of a crund with --peers", other, f"--listen={site.at[0]}")
    two = f"--peers={site.at[0]},10.77.0.9:1"
    refused(cluster, f"it is that of {site.at[0]} of {','.join(site.at)}, and this is", two, other)
    refused(cluster, "2 peers outlive the loss of 0, as 1 do", two, other)
    refused(cluster, "it is that of a crund without --peers", peers, alone)


def says(p, text, seconds=60):
    until(lambda: text in p.err, lambda: f"{text}:\n{p.err}", seconds)


def the_first_leader_is_killed_at_once(site):
    site.start(0, 1, 2)
    for i in range(3):
        says(site.crund[i], "listening on")
    asked = [site.cluster[3].start([CRUNCTL, "status", "-e", site.at[i], site.key])
             for i in (1, 2)]
    says(site.crund[0], "this peer leads now")
    for p in asked:
        expect(p, 0, "no jobs")
    site.kill(0)
    until(lambda: any("this peer leads now" in site.crund[i].err for i in (1, 2)),
          lambda: "\n".join(c.err for c in site.crund), 60)
    site.start(0)


def has_read(site):
    """Bytes, from files: all crunds."""
    return sum(int(re.search(rb"rchar: (\d+)", read(f"/proc/{c.popen.pid}/io"))[1])
               for c in site.crund)


def many_agents_of_another_machine_join(site):
    """A crund that is locked in does not read the list of all connections for each of them."""
    before = has_read(site)
    load = site.cluster[3].start([BIN / "agent-load", f"--endpoint={','.join(site.at)}",
                                  "--agents=300", "--lease=60", site.key])
    expect(load, 0)
    assert has_read(site) - before < 1 << 20, f"{has_read(site) - before} bytes were read"


def launch(site):
    """Two nodes of one job, and one of another."""
    jobs = [start_node(site, name, nodes) for name, nodes in (("job", 2), ("job", 2), ("other", 1))]
    until(lambda: all("epoch=1" in p.out for p in jobs), lambda: "\n".join(p.err for p in jobs))
    return jobs


def launch_one(site, name):
    p = start_node(site, name, 1)
    until(lambda: "epoch=1" in p.out, lambda: p.err)
    return p


def start_node(site, name, nodes):
    return site.cluster[3].start(
        [CRUN, f"--nnodes={nodes}", f"--rdzv-endpoint={','.join(site.at)}", f"--rdzv-id={name}",
         "--nproc-per-node=1", f"--rdzv-conf=lease={LEASE}", site.key, "sh", "-c", WORKER],
        env={"DIR": site.cluster.directory})


def moves(site, jobs, leader, what, lose):
    """Once the leader is lost, another one serves all agents and crunctl."""
    begun, seen = time.monotonic(), [len(p.err) for p in jobs]
    lose(leader)
    at = [re.escape(site.at[i]) for i in site.others(leader)]
    told = re.compile(f"({'|'.join(at)}) hosts the rendezvous now")

    def served():
        found = [told.findall(p.err[n:]) for p, n in zip(jobs, seen)]
        return found[0][-1] if all(found) and len({f[-1] for f in found}) == 1 else None
    now = until(served, lambda: f"{what}:\n" + "\n".join(p.err for p in [*jobs, *site.crund]), 60)
    print(f"   {what}: all agents are served again after {time.monotonic() - begun:.2f} s")
    for i in site.others(leader):
        until(lambda i=i: all(n in (site.ask(i, "status") or "") for n in ("job ", "other ")),
              f"crunctl at {i}", 30)
    return site.at.index(now)


def page_of(site, i, path):
    """The status and the text that the page of that one answers with."""
    code = ("import urllib.request as u, urllib.error as e\n"
            f"try: a = u.urlopen('http://127.0.0.1:29480{path}')\n"
            "except e.HTTPError as x: a = x\n"
            "print(a.status, a.read().decode())")
    return subprocess.run(["ip", "netns", "exec", site.cluster[i].ns, sys.executable, "-c", code],
                          capture_output=True, text=True).stdout


def a_leader_is_killed(site, jobs):
    leader = site.until_kept(3, range(3))[0]
    for i in site.others(leader):
        got = page_of(site, i, "/api/v1/jobs")
        assert got.startswith("503 ") and f"ask the page of {site.at[leader]}" in got, got
        assert page_of(site, i, "/healthz").startswith("200 "), "not alive"
    for i in range(3):
        shutil.copytree(site.state(i), f"{site.cluster.directory}/old-{i}")
    now = moves(site, jobs, leader, "the leader was killed", site.kill)
    site.start(leader)
    assert site.until_kept(3, range(3))[0] == now, "the lead has moved back"


def a_leader_is_cut_off(site, jobs):
    leader = site.until_kept(3, range(3))[0]
    moves(site, jobs, leader, "the leader was cut off", lambda i: site.cluster[i].cut())
    says(site.crund[leader], "this peer leads no more")
    site.cluster[leader].mend()
    site.until_kept(3, range(3))


def all_are_killed(site, jobs):
    site.kill(0, 1, 2)
    site.start(0, 1, 2)
    site.until_kept(3, range(3))
    until(lambda: all(p.err.rstrip().endswith("hosts the rendezvous now") or
                      p.err.rstrip().endswith("is back") for p in jobs),
          lambda: "\n".join(p.err for p in jobs))


def an_old_state_directory_is_put_back(site, jobs):
    leader, old, _ = site.until_kept(3, range(3))
    site.kill(old)
    shutil.rmtree(site.state(old))
    shutil.copytree(f"{site.cluster.directory}/old-{old}", site.state(old))
    site.start(old)
    says(site.crund[leader], f"peer {site.at[old]} has lost records that it had")
    site.until_kept(3, range(3))


def one_has_an_empty_state_directory(site, jobs):
    """It gets all records, and makes a majority with one of the others."""
    leader, empty, _ = site.until_kept(3, range(3))
    site.kill(empty)
    shutil.rmtree(site.state(empty))
    site.start(empty)
    site.until_kept(3, range(3))
    moves(site, jobs, leader, "another one was new", site.kill)
    site.start(leader)
    site.until_kept(3, range(3))


def what_a_majority_has_lost_is_said(site, jobs):
    """An old copy and one that lags make a majority, while the third one is down."""
    leader, old, lags = site.until_kept(3, range(3))
    copy = f"{site.cluster.directory}/before"
    site.kill(old)
    shutil.copytree(site.state(old), copy)
    site.start(old)
    site.until_kept(3, range(3))
    site.kill(lags)
    site.until_kept(2, [leader, old])
    late = launch_one(site, "late")
    site.kill(leader, old)
    shutil.rmtree(site.state(old))
    shutil.move(copy, site.state(old))
    site.start(old, lags)
    expect(late, late.wait(), 'job "late" is not known here any more')
    assert any('job "late": a node of it comes back from' in site.crund[i].err
               for i in (old, lags)), "no peer says so"
    site.start(leader)
    expect(site.crund[leader], site.crund[leader].wait(),
           "of the entries that the peers had acknowledged are others")
    shutil.rmtree(site.state(leader))
    site.start(leader)
    site.until_kept(3, range(3))


def the_job_ends_well(site, jobs):
    for p in jobs:
        found = re.findall(r"epoch=(\d+)", p.out)
        assert found == ["1"], f"workers were stopped: {found}"
    with open(f"{site.cluster.directory}/end", "w", encoding="utf-8"):
        pass
    for p in jobs:
        expect(p, 0)
    for c in site.crund:
        c.kill(signal.SIGTERM)
        expect(c, 0, seconds=30)


def main():
    host.need()
    host.enclose()
    with host.Cluster(4) as cluster:
        site = Site(cluster)
        run([says_what_is_wrong], cluster, site)
        run([the_first_leader_is_killed_at_once, many_agents_of_another_machine_join], site)
        jobs = launch(site)
        run([a_leader_is_killed, a_leader_is_cut_off, all_are_killed,
             an_old_state_directory_is_put_back, one_has_an_empty_state_directory,
             what_a_majority_has_lost_is_said,
             the_job_ends_well], site, jobs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
