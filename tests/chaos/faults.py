# SPDX-License-Identifier: MIT
"""
What can go wrong, one row each: what it is called, what it needs, what it may cost, how
it is done and undone. A row that this machine cannot make says why.

on     what it takes hold of, so that two faults do not fight for it: worker, agent, net,
       disk of one node, or crund, or chain, the disk with the checkpoints, or the
       crund that is the witness of two nodes
cost   restarts that it may be charged for; None: any number, as when the network makes
       workers fail
seen   what may be seen of it besides a pause
"""
import os
import signal
import time

from hosts import ip
from strangers import flood, half_open, rendezvous, some_store, throw

CRUND_PORT = 29400
IN_TURN_S = 30
ORDER_S = 10  # in which a worker takes an order, unless it is a spare's
CUT_OFF = {75, 1}  # evicted; or ended by its own fence
SHARED = {"crund", "chain", "witness"}


class NotHere(Exception):
    """It has not happened: nothing to do it to, or nobody took the order."""


class Kind:
    def __init__(self, name, on, inject, cost=0, seconds=(0.3, 0.6), leases=None, seen="",
                 needs=None, fails=False, stores=False, replicas=2, witness=False):
        self.name, self.on, self.inject, self.cost = name, on, inject, cost
        self.span, self.leases, self.seen, self.needs = seconds, leases, seen, needs
        self.replicas = replicas  # so many nodes keep the records, or more
        self.witness = witness or on == "witness"  # a crund is the witness of two nodes
        self.fails = fails  # workers must fail by it, for else they would wait for ever
        self.stores = stores  # the same where the rendezvous' port is the store's too

    def seconds(self, run):
        """A span is in seconds, or in leases where these matter."""
        if self.leases:
            return run.rng.uniform(*self.leases) * run.plan.lease
        return run.rng.uniform(*self.span)

    def missing(self, net):
        """Why this machine cannot make it, or None."""
        return self.needs(net) if self.needs else None

    def fits(self, run):
        if self.missing(run.net):
            return False
        fails = self.fails or (self.stores and run.plan.mode != "daemon")
        if fails and run.plan.on_loss != "exit" and not run.plan.hang:
            return False
        if self.witness and run.plan.witness != "crund":
            return False
        mode = {"crund": "daemon", "keeper": "replicas", "witness": "replicas"}.get(self.on, run.plan.mode)
        return mode == run.plan.mode and (self.on != "keeper" or
                                          self.replicas <= run.plan.replicas)

    def choose(self, run):
        """A node that it can happen to. One that hosts the rendezvous is left alone where
        its loss would be the job's end."""
        if self.on == "crund" or (self.on == "witness" and ("keepers",) not in run.claims):
            return run.daemon_host
        if run.plan.mode == "replicas" and self.on in ("agent", "net", "keeper"):
            return self.choose_keeper(run)
        if self.on == "witness":
            return None
        nodes = [h for h, a in run.agents.items() if a.alive]
        if run.plan.mode != "daemon" and self.on in ("agent", "net"):
            nodes = [h for h in nodes if h is not run.nodes[0]]
        return run.rng.choice(nodes) if nodes else None

    def choose_keeper(self, run):
        """No more may be lost than the others can do without: one of them at a time, while
        they are as many as they shall be."""
        if ("keepers",) in run.claims or run.returns:
            return None
        found, safe = run.keepers()
        alive = [h for h, a in run.agents.items() if a.alive]
        if not safe or not run.settled() or any(a.leaving for a in run.agents.values()):
            return None
        return found[0] if self.on == "keeper" else run.rng.choice(alive)

    def claims(self, run, host):
        if not host:
            return None
        if run.plan.mode == "replicas" and self.on in ("agent", "net", "keeper"):
            return {("keepers",), ("net" if self.on == "keeper" else self.on, host)}
        if self.on == "witness":  # while it is away, neither node may be lost
            return {("keepers",), ("witness",)}
        return {(self.on,) if self.on in SHARED else (self.on, host)}


def remove(path):
    if os.path.exists(path):
        os.remove(path)


def kill_quietly(pid, signo):
    try:
        os.kill(pid, signo)
    except ProcessLookupError:
        pass


# -- workers ---------------------------------------------------------------------------


def order(*texts):
    """A worker is told to do something wrong, or several of a node, one each."""
    def inject(run, host, _seconds):
        ranks = run.plan.workers[host.index]
        first = run.rng.randrange(ranks)
        paths = [run.order(host, (first + i) % ranks, text)
                 for i, text in enumerate(texts[-ranks:])]

        def heal():
            if all(os.path.exists(path) for path in paths):
                [remove(path) for path in paths]
                raise NotHere("nobody took the order")
            [remove(path) for path in paths]
        return heal
    return inject


def signal_worker(signo, undo=None, everyone=False):
    def inject(run, host, _seconds):
        pids = run.workers(host)
        if not pids:
            raise NotHere("no workers")
        chosen = pids if everyone else pids[:1]
        for pid in chosen:
            kill_quietly(pid, signo)
        return (lambda: [kill_quietly(pid, undo) for pid in chosen]) if undo else None
    return inject


def taken(path, end):
    """Wait until an order has been taken; in pieces."""
    while os.path.exists(path) and time.monotonic() < end:
        yield


def hang(run, host, _seconds):
    """It is crun that ends it where there is --hang-timeout."""
    path, before = run.order(host, 0, "hang"), len(run.hung(host))

    def heal():
        yield from taken(path, time.monotonic() + ORDER_S)
        remove(path)
        hung = run.hung(host)[before:]
        if not hung:
            raise NotHere("nobody took the order")
        if not run.plan.hang:
            kill_quietly(hung[0], signal.SIGKILL)
            return
        # it may be stopped, cut off or frozen besides, and a node that begins waits longer
        end = time.monotonic() + 10 * run.plan.hang + 20
        while run.is_worker(hung[0]):
            if time.monotonic() > end:
                run.wrong(f"worker {hung[0]} on {host.name} has hung for too long")
                kill_quietly(hung[0], signal.SIGKILL)
            yield
    return heal


def crash_loop(run, host, _seconds):
    """Three times in a row, as soon as it runs again."""
    path = run.order(host, 0, "exit 1")

    def heal():
        end = time.monotonic() + ORDER_S
        for _ in range(2):
            yield from taken(path, end)
            if os.path.exists(path):
                break
            run.order(host, 0, "exit 1")
        yield from taken(path, end)
        remove(path)
    return heal


# -- agents and guards -----------------------------------------------------------------


def kill_agent(run, host, _seconds):
    run.excuse([host], -signal.SIGKILL)
    run.agents[host].process.kill()


def kill_guard(run, host, _seconds):
    pid = run.guard(host)
    if not pid:
        raise NotHere("no guard")
    kill_quietly(pid, signal.SIGKILL)


def kill_both(run, host, _seconds):
    guard = run.guard(host)
    run.excuse([host], -signal.SIGKILL)
    if guard:
        kill_quietly(guard, signal.SIGSTOP)
    run.agents[host].process.kill()
    if guard:
        kill_quietly(guard, signal.SIGKILL)


def cut_off(run, hosts, seconds):
    """After so long without the rendezvous these may be taken for lost."""
    if run.plan.pair:  # one of them goes on
        hosts = run.nodes
    if seconds > run.plan.lease * (0.2 if run.plan.strict else 0.5):
        run.excuse(hosts, *CUT_OFF)
    if seconds > reconnect_grace(run):
        for host in hosts:
            run.cut_until[host] = time.monotonic() + seconds
            excuse_without_connection(run, host)


def reconnect_grace(run):
    return min(1, run.plan.lease / 5)


def excuse_without_connection(run, host):
    """A lease outlives a cut, and a connection's end does not, where the cut is longer
    than the reconnect grace."""
    now = time.monotonic()
    if min(run.cut_until.get(host, 0), run.reset_until.get(host, 0)) > now:
        run.excuse([host], *CUT_OFF)


def may_end(run, hosts, seconds):
    """These connections, for so long; and then the reconnect grace begins."""
    for host in hosts:
        run.reset_until[host] = time.monotonic() + seconds + reconnect_grace(run)
        excuse_without_connection(run, host)


def stop_agent(run, host, seconds):
    agent = run.agents[host]
    cut_off(run, [host], seconds)
    agent.process.kill(signal.SIGSTOP)
    return lambda: agent.process.kill(signal.SIGCONT)


def stop_guard(run, host, _seconds):
    pid = run.guard(host)
    if pid is None:
        raise NotHere("no guard")
    kill_quietly(pid, signal.SIGSTOP)
    return lambda: kill_quietly(pid, signal.SIGCONT)


def leave(signo, again=None):
    """The second signal, while it lasts, hurries the node, and is not the job's end."""
    def inject(run, host, _seconds):
        if not run.can_spare(host):
            raise NotHere("too few nodes")
        agent = run.agents[host]
        run.excuse([host], 128 + signo)
        agent.leaving = True
        agent.process.kill(signo)
        return (lambda: agent.process.kill(again)) if again else None
    return inject


def drain(run, host, _seconds):
    if not run.can_spare(host):
        raise NotHere("too few nodes")
    run.excuse([host], 0)
    run.agents[host].leaving = True
    run.crunctl("drain", host.name)


def freeze(run, host, seconds):
    cut_off(run, [host], seconds)
    host.freeze(True)
    return lambda: host.freeze(False)


def same_slot(run, host, _seconds):
    if not run.plan.ranks or run.plan.mode != "daemon":
        raise NotHere("nodes have no ranks")
    # while the other lives it is refused, and else it is a node as any, and the other is
    process = run.start_stranger(run.command(host), {2, 143, 75, -signal.SIGKILL})
    run.tolerate(host, 2)
    return lambda: process.kill()


def wrong_configuration(run, host, _seconds):
    if run.plan.mode != "daemon":
        raise NotHere("the rendezvous may not be there yet")
    run.start_stranger(run.command(host)[:-5] + ["true"], {2})


def newcomer(run, host, _seconds):
    if run.plan.mode != "daemon" or run.plan.ranks:
        raise NotHere("there is no place")
    process = run.start_stranger(run.command(host), {143, 75, -signal.SIGKILL})
    return lambda: process.kill(signal.SIGTERM if run.can_spare(None) else signal.SIGKILL)


# -- the rendezvous --------------------------------------------------------------------


def kill_crund(signo):
    def inject(run, _host, seconds):
        if run.plan.strict:
            cut_off(run, run.nodes, seconds)
        run.crund.kill(signo)
        run.crund.popen.wait(20)
        return run.start_crund
    return inject


def kill_crund_often(run, _host, _seconds):
    if run.plan.strict:
        cut_off(run, run.nodes, 1)
    for _ in range(4):
        run.crund.kill()
        run.crund.popen.wait(20)
        run.start_crund()
        time.sleep(run.rng.uniform(0, 0.1))


def stop_crund(run, _host, seconds):
    if run.plan.strict:
        cut_off(run, run.nodes, seconds)
    crund = run.crund
    crund.kill(signal.SIGSTOP)
    return lambda: crund.kill(signal.SIGCONT)


# -- the rendezvous inside a node --------------------------------------------------------


def power_off(run, host, _seconds):
    """The other nodes get no message, and the host starts again later."""
    if run.plan.pair and not run.plan.witness:
        raise NotHere("the other node cannot know")
    run.net.order("set", host.index, "both", "loss=100")
    run.excuse([host], -signal.SIGKILL)
    run.agents[host].process.kill()
    return lambda: run.net.order("set", host.index, "both")


def power_off_and_forget(run, host, seconds):
    """The witness' state directory is restored from before the other node's claim."""
    run.daemon_host.keep_state()
    power_on = power_off(run, host, seconds)

    def heal():
        run.crund.kill()
        run.crund.popen.wait(20)
        run.daemon_host.restore_state()
        run.start_crund()
        power_on()
    return heal


def after_a_moment(run, host):
    time.sleep(run.rng.uniform(0, 0.4))
    kill_agent(run, host, 0)


def kill_in_stop(run, host, _seconds):
    """While workers are being stopped, or those of the next epoch start."""
    other = run.rng.choice([h for h in run.nodes if h is not host])
    path = run.order(other, 0, "exit 7")
    for _ in taken(path, time.monotonic() + 2):
        time.sleep(0.01)
    remove(path)
    after_a_moment(run, host)


def kill_in_forming(run, host, _seconds):
    """While an epoch without another node is being formed."""
    found, _ = run.keepers()
    others = [h for h, a in run.agents.items() if a.alive and h not in found]
    if not others:
        raise NotHere("all keep the records")
    kill_agent(run, run.rng.choice(others), 0)
    after_a_moment(run, host)


def kill_two(latest):
    """Two of five: the second one with the first, or during the takeover."""
    def inject(run, host, _seconds):
        found, _ = run.keepers()
        kill_agent(run, host, 0)
        time.sleep(run.rng.uniform(0, latest))
        other = run.rng.choice([run.leader() or found[1], *found[1:]]) if latest else found[1]
        kill_agent(run, other, 0)
    return inject


def kill_in_turn(run, host, _seconds):
    """And the next one, as soon as all is as before."""
    kill_agent(run, host, 0)

    def heal():
        for _ in range(run.in_turn):
            end = time.monotonic() + IN_TURN_S
            while not (run.keepers()[1] and run.settled()):
                if time.monotonic() > end:
                    run.wrong(f"{IN_TURN_S} s after the death of a host not all is as before")
                    return
                yield
            kill_agent(run, run.leader() or host, 0)
            while any(a.alive and -signal.SIGKILL in a.codes for a in run.agents.values()):
                yield
    return heal


def fill(name):
    def inject(_run, host, _seconds):
        host.fill(name, True)
        return lambda: host.fill(name, False)
    return inject


# -- the network -----------------------------------------------------------------------


def bad(*words, cuts=True):
    """The relay treats one host's frames badly."""
    def inject(run, host, seconds):
        half = "loss=100" not in words and run.plan.mode == "replicas"
        hosts = run.nodes if host is run.daemon_host or (half and host is run.leader()) else [host]
        cut_off(run, hosts, seconds if cuts else 0)
        run.net.order("set", host.index, *words)
        return lambda: run.net.order("set", host.index, "both")
    return inject


def carrier(run, host, seconds):
    cut_off(run, [host], seconds + 0.3)
    ip("link", "set", host.port, "down", ns=run.net.switch)
    return lambda: ip("link", "set", host.port, "up", ns=run.net.switch)


def reset(port):
    def inject(run, host, seconds):
        may_end(run, [host], seconds)  # with some frame that comes
        run.net.order("reset", host.index, 1, port)
        return lambda: run.net.order("reset", host.index, 0, 0)
    return inject


def forget(run, host, seconds):
    cut_off(run, [host], seconds)
    run.net.order("forget", host.index, CRUND_PORT)
    return lambda: run.net.order("forget", host.index, 0)


# -- storage ---------------------------------------------------------------------------


def remove_logs(_run, host, _seconds):
    for path, folders, files in os.walk(host.folder + "/logs", topdown=False):
        for name in files + [f for f in folders if os.path.islink(f"{path}/{f}")]:
            remove_quietly(os.remove, f"{path}/{name}")
        for name in folders:
            remove_quietly(os.rmdir, f"{path}/{name}")


def remove_quietly(how, path):
    """crun may be making new ones at the same time."""
    try:
        how(path)
    except OSError:
        pass


def full_checkpoints(run, _host, _seconds):
    path = run.chain + "/disk/filler"
    with open(path, "wb", buffering=0) as f:
        try:
            while True:
                f.write(b"x" * 4096)
        except OSError:
            pass
    return lambda: os.remove(path)


def no_freezer(net):
    return None if net.freezer else "no cgroup v2 that can be frozen"


def no_disks(net):
    return None if net.disks else "no tmpfs can be mounted"


def never(why):
    return lambda _net: why


SHORT, LONG = (0.05, 0.3), (1.5, 2.2)  # in leases
ANY = (0.5, 3)
LOST = "may be evicted: 75"
KILL, TERM, HUP = signal.SIGKILL, signal.SIGTERM, signal.SIGHUP
STOP, CONT = signal.SIGSTOP, signal.SIGCONT

KINDS = [
    Kind("W1-exit-7", "worker", order("exit 7"), 1),
    Kind("W1-crash-loop", "worker", crash_loop, 3),
    Kind("W2-sigkill", "worker", signal_worker(KILL), 1),
    Kind("W2-segv", "worker", order("signal 11"), 1),
    Kind("W2-abort", "worker", order("signal 6"), 1),
    Kind("W2-all-at-once", "worker", signal_worker(KILL, everyone=True), 1),
    Kind("W3-memory", "worker", order("memory 300000000"), 1),
    Kind("W4-hang", "worker", hang, 2, ANY),
    Kind("W5-deaf-to-term", "worker", order("deaf", "exit 7"), 1, seen="the failure grace"),
    Kind("W6-stopped", "worker", signal_worker(STOP, CONT), 0, ANY),
    Kind("W8-zombies", "worker", order("zombies 300")),
    Kind("W9-orphans", "worker", order("orphans 3")),
    Kind("W10-orphans-hold-stdout", "worker", order("orphans-and-die 2"), 1),
    Kind("W-closes-stdout", "worker", order("close")),
    Kind("W-drops-store", "worker", order("drop"), None, fails=True),
    Kind("S4-log-spam", "worker", order("spam 20000000")),
    Kind("S4-nul-bytes", "worker", order("nul 2000000")),
    Kind("S4-line-without-end", "worker", order("long-line 10000000"), 1),
    Kind("A1-agent-sigkill", "agent", kill_agent),
    Kind("A2-guard-sigkill", "agent", kill_guard, 1),
    Kind("A2-guard-stopped", "agent", stop_guard, seconds=(0.2, 1.5)),
    Kind("A3-agent-and-guard", "agent", kill_both),
    Kind("A4-agent-stopped-short", "agent", stop_agent, leases=SHORT),
    Kind("A4-agent-stopped-long", "agent", stop_agent, leases=LONG, seen=LOST),
    Kind("A5-node-frozen-short", "agent", freeze, leases=SHORT, needs=no_freezer),
    Kind("A5-node-frozen-long", "agent", freeze, leases=LONG, needs=no_freezer, seen=LOST),
    Kind("A-sigterm", "agent", leave(TERM), seen="leaves: 143"),
    Kind("A-sigterm-twice", "agent", leave(TERM, TERM), 0, (0, 0.2), seen="leaves: 143"),
    Kind("A13-sighup", "agent", leave(HUP), seen="leaves: 129"),
    Kind("A-drained", "agent", drain, seen="leaves: 0"),
    Kind("A6-same-slot", "agent", same_slot, None, seen="refused: 2"),
    Kind("A10-wrong-configuration", "agent", wrong_configuration, seen="refused: 2"),
    Kind("A-newcomer", "agent", newcomer, 0, (0.5, 2), seen="a restart free of charge"),
    Kind("M1-crund-sigkill", "crund", kill_crund(KILL), seconds=(0, 0.05)),
    Kind("M1-crund-away", "crund", kill_crund(KILL), seconds=(1, 5)),
    Kind("M1-crund-killed-often", "crund", kill_crund_often),
    Kind("M16-crund-sigterm", "crund", kill_crund(TERM), seconds=(0, 1)),
    Kind("M1-witness-sigkill", "witness", kill_crund(KILL), seconds=(0, 1)),
    Kind("M11-witness-stopped", "witness", stop_crund, leases=(0.2, 2.5)),
    Kind("M11-crund-stopped", "crund", stop_crund, leases=(0.2, 2.5)),
    Kind("M4-crund-disk-full", "crund", fill("state"), None, (0.5, 2), needs=no_disks),
    Kind("R1-host-sigkill", "keeper", kill_agent),
    Kind("R1-host-and-guard", "keeper", kill_both),
    Kind("R1-host-powered-off", "keeper", power_off, leases=LONG),
    Kind("R1-host-off-claim-forgotten", "keeper", power_off_and_forget, leases=LONG, witness=True),
    Kind("R2-killed-in-stop", "keeper", kill_in_stop, None),
    Kind("R2-killed-in-forming", "keeper", kill_in_forming),
    Kind("R2-killed-in-takeover", "keeper", kill_two(0.3), replicas=5),
    Kind("R2-killed-with-next", "keeper", kill_two(0), replicas=5),
    Kind("R2-killed-in-turn", "keeper", kill_in_turn),
    Kind("R3-host-cut-short", "keeper", bad("both", "loss=100"), leases=SHORT),
    Kind("R3-host-cut-long", "keeper", bad("both", "loss=100"), leases=LONG, seen=LOST),
    Kind("R3-host-mute", "keeper", bad("out", "loss=100"), leases=LONG, seen=LOST),
    Kind("R3-host-deaf", "keeper", bad("in", "loss=100"), leases=LONG, seen=LOST),
    Kind("R4-host-stopped-short", "keeper", stop_agent, leases=SHORT),
    Kind("R4-host-stopped-long", "keeper", stop_agent, leases=LONG, seen=LOST),
    Kind("R4-host-frozen-long", "keeper", freeze, leases=LONG, needs=no_freezer, seen=LOST),
    Kind("R5-host-slow", "keeper", bad("both", "delay=60", "jitter=60"), None, ANY, seen=LOST),
    Kind("R5-host-loss-10", "keeper", bad("both", "loss=10"), None, ANY, seen=LOST),
    Kind("N1-cut-short", "net", bad("both", "loss=100"), leases=SHORT),
    Kind("N2-cut-long", "net", bad("both", "loss=100"), leases=LONG, seen=LOST),
    Kind("N1-carrier-short", "net", carrier, leases=SHORT),
    Kind("N2-carrier-long", "net", carrier, leases=LONG, seen=LOST),
    Kind("N3-mute", "net", bad("out", "loss=100"), leases=LONG, seen=LOST),
    Kind("N3-deaf", "net", bad("in", "loss=100"), leases=LONG, seen=LOST),
    Kind("N1-crund-cut-short", "crund", bad("both", "loss=100"), leases=SHORT),
    Kind("N2-crund-cut-long", "crund", bad("both", "loss=100"), leases=LONG, seen=LOST),
    Kind("N3-crund-mute", "crund", bad("out", "loss=100"), leases=LONG, seen=LOST),
    Kind("N5-delay", "net", bad("both", "delay=60", "jitter=60"), None, ANY, seen=LOST),
    Kind("N5-slow-link", "net", bad("both", "rate=8000"), None, ANY, seen=LOST),
    Kind("N6-loss-10", "net", bad("both", "loss=10"), None, ANY, seen=LOST),
    Kind("N6-loss-30", "net", bad("both", "loss=30"), None, ANY, seen=LOST),
    Kind("N6-duplicates", "net", bad("both", "dup=30", cuts=False), 0, ANY),
    Kind("N6-reordering", "net", bad("both", "swap=30", cuts=False), 0, ANY),
    Kind("N8-reset-control", "net", reset(CRUND_PORT), None, stores=True),
    Kind("N8-reset-any", "net", reset(0), None, fails=True),
    Kind("N8-forgotten-by-firewall", "net", forget, 0, leases=(1.2, 1.8), seen=LOST,
         stores=True),
    Kind("N10-garbage", "crund", throw(rendezvous)),
    Kind("N10-garbage-at-a-store", "disk", throw(some_store)),
    Kind("N12-half-open", "crund", half_open),
    Kind("N12-flood", "crund", flood),
    Kind("S1-logs-full", "disk", fill("logs"), 0, ANY, needs=no_disks),
    Kind("S1-tmp-full", "disk", fill("tmp"), 0, ANY, needs=no_disks),
    Kind("S10-logs-removed", "disk", remove_logs),
    Kind("S5-checkpoints-full", "chain", full_checkpoints, 0, ANY, needs=no_disks),
    Kind("M12-clock-set", "crund", None,
         needs=never("one program's clock cannot be set without a preloaded library")),
    Kind("W7-unkillable", "worker", None, needs=never("needs a file system that hangs")),
    Kind("A7-reboot", "agent", None, needs=never("needs another boot id")),
]
