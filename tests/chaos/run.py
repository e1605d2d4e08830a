# SPDX-License-Identifier: MIT
"""
One run of chaos: a job on several hosts, drawn from a seed, faults at random moments,
healing, an end, and what must hold after it. Everything that happens stands in the
timeline.
"""
import collections
import inspect
import json
import os
import random
import re
import signal
import subprocess
import time

import oracle
from faults import CRUND_PORT, CUT_OFF, NotHere
from hosts import read
from job import Agent, Plan

SLOW = 4 if "san" in os.environ.get("BUILD", "") else 1
BEGIN_S = 30 * SLOW  # until the first steps
HEAL_S = 45 * SLOW  # from the last healing until it trains again: the declared bound
END_S = 30 * SLOW  # from the end of the job to the end of its agents
LEFT_S = 3 * SLOW  # then nothing is left
SHED_S = 10 * SLOW  # in which crund sheds connections that say nothing
BUDGET_UNKNOWN = 100000
SPACING_S = 0.7  # from one fault to the next, on average
LATE_S = 0.2
YOUNG_S = 2  # by then one that was lost has been replaced on the list of those that keep records
STARVED = 0.3  # of a lease, within which the machine let things wait for so long
OUR_BUGS = re.compile(r"Assertion|AddressSanitizer|runtime error:|LeakSanitizer|"
                      r"ThreadSanitizer|stack smashing", re.I)


LEAVES = {0, 129, 143}


class Run:
    def __init__(self, net, options, seed, kinds, folder, delays):
        self.net, self.seed, self.folder = net, seed, folder
        self.build = os.path.realpath(options.build)
        self.delays = delays
        self.rng = random.Random(seed)
        self.plan = Plan(self.rng, len(net.hosts) - 2, options, kinds)
        self.nodes = net.hosts[:self.plan.count]
        self.stranger, self.daemon_host = net.hosts[-2:]
        self.chain = folder + "/chain"
        self.cookie = f"CRUN_CHAOS={os.getpid()}.{seed}.{time.monotonic_ns()}"
        self.begun = time.monotonic()
        self.timeline, self.violations = [], []
        self.agents, self.returns = {}, []  # by host; [(when, host)]
        self.strangers, self.forked = [], []
        self.crund = None
        self.claims, self.injected = set(), []
        self.exits, self.starved = [], 0
        self.tolerated = {}  # exit codes by host, for the rest of the run
        # by host: until when it has no way to the rendezvous, and its connections may end
        self.cut_until, self.reset_until = {}, {}
        self.cost, self.spent = None if self.plan.hang else 0, 0
        self.kinds = [k for k in kinds if k.fits(self)]
        self.count, self.in_turn, self.ended = options.faults, options.in_turn, False

    # -- saying ---------------------------------------------------------------------

    def say(self, *what):
        self.timeline.append(f"{time.monotonic() - self.begun:8.3f} {' '.join(map(str, what))}")

    def wrong(self, *what):
        text = " ".join(map(str, what))
        self.violations.append(text)
        self.say("VIOLATION", text)

    # -- the programs ---------------------------------------------------------------

    def environment(self):
        key, _, value = self.cookie.partition("=")
        env = {**os.environ, key: value}
        if not self.plan.contained:
            env["CRUN_NO_CGROUP"] = "1"
        return env

    def endpoint(self):
        """Where the rendezvous is."""
        host = self.daemon_host if self.plan.mode == "daemon" else self.nodes[0]
        if self.plan.mode == "replicas":
            host = self.leader() or host
        return f"{host.address}:{CRUND_PORT}"

    def endpoints(self):
        """Where an agent looks for it."""
        if self.plan.mode != "replicas":
            return self.endpoint()
        return ",".join(f"{host.address}:{CRUND_PORT}" for host in self.nodes)

    def start_crund(self):
        host = self.daemon_host
        self.crund = host.start("crund", [
            self.build + "/bin/crund", "--allow-root", "--listen", f"{host.address}:{CRUND_PORT}",
            "--state-dir", host.folder + "/state", *["--witness"] * self.plan.pair],
            self.environment())
        self.say("crund begins, pid", self.crund.pid)

    def flags(self, host):
        p = self.plan
        flags = [f"--nnodes={p.min}:{p.max}", f"--nproc-per-node={p.workers[host.index]}",
                 f"--max-restarts={self.budget}", "--failure-grace=1",
                 f"--restart-backoff={p.backoff}", "--shutdown-timeout=2",
                 f"--rdzv-conf=lease={p.lease},last_call_timeout=2,join_timeout=120,"
                 f"scale={p.scale},quarantine={p.quarantine},"
                 f"replicas={p.replicas}" +
                 {"file": f",witness=file:{self.chain}/witness",
                  "crund": f",witness={self.daemon_host.address}:{CRUND_PORT}"}.get(p.witness, ""),
                 f"--hang-timeout={p.hang}", "--rdzv-id=chain", *p.logs,
                 "--log-dir=" + host.folder + "/logs"]
        if p.mode == "static":
            flags += [f"--node-rank={host.index}", f"--master-addr={self.nodes[0].address}",
                      f"--master-port={CRUND_PORT}"]
        else:
            flags += [f"--rdzv-endpoint={self.endpoints()}"]
            flags += [f"--node-rank={host.index}"] if p.ranks else []
            flags += ["--rdzv-backend=c10d"]
        return flags + (["--fence=strict"] if p.strict else [])

    def command(self, host, more=()):
        p = self.plan
        return [self.build + "/bin/crun", *self.flags(host), *more,
                self.build + "/bin/chain-worker", self.chain, p.pace_ms, p.interval, p.on_loss]

    def start_agent(self, host):
        agent = Agent(host.start("crun", self.command(host), self.environment()))
        agent.codes |= self.tolerated.get(host, set())
        self.agents[host] = agent
        self.say("crun begins on", host.name, "pid", agent.process.pid)
        return agent

    def start_stranger(self, command, codes):
        """Somebody else's crun, which is to end with one of the codes."""
        process = self.stranger.start("stranger", command, self.environment())
        self.strangers.append((process, codes))
        return process

    def crunctl(self, *words):
        self.stranger.start("crunctl", [self.build + "/bin/crunctl", "-e", self.endpoint(),
                                        "-j", "chain", *words], self.environment())

    # -- what faults ask for --------------------------------------------------------

    def excuse(self, hosts, *codes):
        """Those agents may end so because of what was done."""
        for host in hosts:
            if host in self.agents:
                self.agents[host].codes.update(codes)

    def tolerate(self, host, code):
        """So may every crun end that is started there from now on, or runs there."""
        self.tolerated.setdefault(host, set()).add(code)
        self.excuse([host], code)

    def order(self, host, local_rank, text):
        path = f"{self.chain}/order/{host.name}.{local_rank}"
        with open(path + "~", "w") as f:
            f.write(text)
        os.rename(path + "~", path)
        return path

    def workers(self, host):
        """Process ids of the workers that live on a host, of its last epoch."""
        found = [(int(w[2]), int(w[5])) for w in oracle.lines(self.chain, "starts")
                 if w[1] == host.name]
        last = max((epoch for epoch, _ in found), default=0)
        return [pid for epoch, pid in found if epoch == last and self.is_worker(pid)]

    @staticmethod
    def is_worker(pid):
        return read(f"/proc/{pid}/comm").strip() == b"chain-worker"

    def hung(self, host):
        """Process ids of the workers of a host that were told to hang."""
        return [int(w[2]) for w in oracle.lines(self.chain, "hangs") if w[1] == host.name]

    def guard(self, host):
        pid = self.agents[host].process.pid
        for child in read(f"/proc/{pid}/task/{pid}/children").split():
            if read(f"/proc/{int(child)}/comm").strip() == b"crun-guard":
                return int(child)
        return None

    def healthy(self):
        return [h for h, a in self.agents.items() if a.alive and not
                any(("agent", h) == c or ("net", h) == c for c in self.claims)]

    # -- looking after --------------------------------------------------------------

    def tend(self):
        """What has ended is looked at, and started anew as a scheduler would."""
        now = time.monotonic()
        for host, agent in list(self.agents.items()):
            if agent.alive or agent.seen:
                continue
            agent.seen = True
            code = agent.process.poll()
            self.say("crun on", host.name, "pid", agent.process.pid, "ends with", code)
            if self.ended:
                continue
            self.exits.append((oracle.now_us(), host, code))
            if code not in agent.codes:
                self.judge_end(host, agent, code)
            self.returns.append((now + self.rng.choice([0, 0.3, 1]), host))
        for entry in [r for r in self.returns if r[0] <= now and not self.ended and
                      not self.would_found()]:
            self.returns.remove(entry)
            self.start_agent(entry[1])
        if self.crund and self.crund.poll() is not None and \
                not self.claims & {("crund",), ("witness",)}:
            self.wrong("crund ends with", self.crund.poll(), self.crund.err[-300:])
            self.start_crund()

    def would_found(self):
        """One node is enough for a job of two, and it may hear nothing of the other one."""
        return self.plan.pair and any(f.healed is None and (f.kind.leases or f.kind.span[1] > 1)
                                      for f in self.injected)

    def judge_end(self, host, agent, code):
        """It has ended as nothing that was done explains; maybe the machine does."""
        now = time.monotonic()
        late = self.delays.worst(now - 3 * self.plan.lease - 2, now, self.plan.lease)
        what = (f"crun on {host.name} ends with {code}, not {agent.codes or 'at all'}, "
                f"and the machine was {late:.2f} s late: "
                f"{agent.process.err.strip().splitlines()[-1:]}")
        if code == 75 and late > STARVED * self.plan.lease:
            self.starved += 1
            self.say("STARVED", what)
        else:
            self.wrong(what)

    def wait(self, seconds, condition=lambda: False):
        """Whether the condition came true."""
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                return False
            self.tend()
            time.sleep(0.02)
        return True

    def steps(self):
        return len(oracle.lines(self.chain, "steps"))

    def trains(self):
        """A function that says whether it has trained since."""
        before = self.steps()
        return lambda: self.steps() >= before + 3

    # -- the faults -----------------------------------------------------------------

    def plan_faults(self):
        """[(when, kind)]; only those whose cost is known where the budget is counted."""
        counted = self.plan.ending == "failure"
        kinds = [k for k in self.kinds if not counted or k.cost is not None]
        chosen, cost = [], 0
        for _ in range(self.count):
            kind = self.rng.choice(kinds) if kinds else None
            if kind is None or (counted and cost + kind.cost > 4):
                continue
            chosen.append(kind)
            cost += kind.cost or 0
        self.budget = cost + 1 if counted else BUDGET_UNKNOWN
        # those that keep the rendezvous are replaced in between
        length = len(chosen) * SPACING_S * (4 if self.plan.mode == "replicas" else 1)
        return sorted(((self.rng.uniform(0, length), k) for k in chosen),
                      key=lambda pair: pair[0])

    def inject(self, kind):
        host = kind.choose(self)
        claims = kind.claims(self, host)
        if claims is None or claims & self.claims:
            self.say("no place for", kind.name)
            return None
        seconds = kind.seconds(self)
        self.claims |= claims
        self.say("FAULT", kind.name, "on", host.name if host else "-", f"for {seconds:.2f} s")
        fault = Injected(kind, host, claims, time.monotonic() + seconds)
        try:
            fault.heal = kind.inject(self, host, seconds)
        except NotHere as why:
            self.claims -= claims
            self.say("not done:", why)
            return None
        if kind.cost is None:
            self.cost = None
        elif self.cost is not None:
            self.cost += kind.cost
        self.injected.append(fault)
        return fault

    def excuse_late(self, fault):
        """It has lasted for longer than it should have, as we were busy."""
        late = time.monotonic() - fault.until
        if late > LATE_S and fault.kind.on in ("agent", "net", "crund", "keeper"):
            self.say(f"{late:.2f} s late:", fault.kind.name)
            self.excuse(self.nodes if fault.kind.on == "crund" or self.plan.pair
                        else [fault.host], *CUT_OFF)

    def heal(self, fault):
        """True when it is healed; until then it is asked again."""
        try:
            if fault.healing is None:
                self.excuse_late(fault)
                todo = fault.heal() if fault.heal else None
                fault.healing = todo if inspect.isgenerator(todo) else iter(())
            next(fault.healing)
            return False
        except StopIteration:
            pass
        except NotHere as why:
            self.injected.remove(fault)
            self.say("not done:", why)
        self.say("healed", fault.kind.name, "on", fault.host.name if fault.host else "-")
        self.claims -= fault.claims
        fault.healed = oracle.now_us()
        return True

    def disturb(self, planned):
        begin, active = time.monotonic(), []
        while planned or active:
            now = time.monotonic()
            if planned and now - begin >= planned[0][0]:
                fault = self.inject(planned.pop(0)[1])
                if fault:
                    active.append(fault)
            active = [f for f in active if now < f.until or not self.heal(f)]
            self.tend()
            time.sleep(0.01)

    # -- the end --------------------------------------------------------------------

    def end_job(self):
        """Ask for the end; the code that every crun of the job must end with."""
        ending = self.plan.ending
        self.say("END", ending)
        # a scheduler would not start any more, and who is on its way ends as the others
        self.returns.clear()
        if ending == "finish":
            self.ended = True
            open(self.chain + "/finish", "w").close()
            return 0
        if ending == "interrupt":
            self.ended = True
            living = [h for h, a in self.agents.items() if a.alive]
            self.agents[self.rng.choice(living)].process.kill(signal.SIGINT)
            return 130
        if ending == "stop":
            self.ended = True
            self.crunctl("stop")
            return None  # any, the same for all
        if ending == "host-lost":
            self.ended = True
            self.agents[self.nodes[0]].process.kill()
            del self.agents[self.nodes[0]]
            return 75 if self.plan.strict else 1  # as it is fenced, or told
        self.ended = True
        return 7

    def exhaust(self):
        """Fail until no restart is left."""
        hosts = list(self.agents)
        for host in hosts:
            if self.agents[host].alive and not os.path.exists(
                    f"{self.chain}/order/{host.name}.0"):
                self.order(host, 0, "exit 7")

    def check_end(self, code):
        end = time.monotonic() + (END_S * 2 if self.plan.ending == "failure" else END_S)
        while any(a.alive for a in self.agents.values()):
            if time.monotonic() > end:
                late = [h.name for h, a in self.agents.items() if a.alive]
                self.wrong("the job has ended, and crun still runs on", late)
                break
            if self.plan.ending == "failure":
                self.exhaust()
            self.tend()
            time.sleep(0.02)
        # one that was told to leave just before may still have been on its way
        codes = {h.name: self.code(h) for h, a in self.agents.items()
                 if not a.alive and a.process.poll() not in a.codes & LEAVES}
        if len(set(codes.values())) > 1 or (code is not None and codes and
                                            code not in codes.values()):
            self.wrong(f"exit codes {codes}, not {'all the same' if code is None else code}")

    def code(self, host):
        """As a shell has it, without the loss of output where there was no place for it."""
        code = self.agents[host].process.poll()
        code = 128 - code if code == -signal.SIGINT else code
        full = any(f.host is host and f.kind.name.startswith("S") for f in self.injected)
        return 0 if code == os.EX_IOERR and full else code

    def check_strangers(self):
        for process, codes in self.strangers:
            code = process.poll()
            if code is None:
                process.kill(signal.SIGTERM)
                try:
                    code = process.popen.wait(10 * SLOW)
                except Exception:  # noqa: BLE001
                    self.wrong("a stranger does not end by SIGTERM")
                    continue
            if code not in codes:
                self.wrong(f"a stranger ends with {code}, not {codes}: "
                           f"{process.err.strip().splitlines()[-1:]}")

    def check_crund(self):
        if not self.crund or self.crund.poll() is not None:
            return
        self.end_nuisances()
        deadline = time.monotonic() + SHED_S
        while (wrong := self.usage.check_growth(oracle.Usage(self.crund.pid))) and \
                time.monotonic() < deadline:
            time.sleep(0.05)
        for line in wrong:
            self.wrong(line)
        self.crund.kill(signal.SIGTERM)
        code = self.crund.popen.wait(20)
        if code != 0:
            self.wrong("crund ends with", code)

    def check_words(self):
        for host in self.net.hosts:
            for name in os.listdir(host.folder):
                if name.endswith(".err"):
                    text = read(f"{host.folder}/{name}").decode(errors="replace")
                    found = OUR_BUGS.search(text)
                    if found:
                        self.wrong(f"{host.name}/{name}: {text[found.start():][:300]}")

    def check(self):
        for line in (oracle.check_seen(self.chain) + oracle.check_chain(self.chain) +
                     oracle.check_epochs(self.chain) + oracle.check_budget(self.chain) +
                     oracle.check_losses(self.chain, self.plan.interval)):
            self.wrong(line)
        stale = oracle.lines(self.chain, "stale")
        if stale and self.plan.strict:
            self.wrong(f"with a strict fence {len(stale)} of an old epoch were alive: {stale[0]}")
        self.spent = oracle.restarts(self.chain)
        if self.cost is not None and self.plan.ending != "failure" and self.spent > self.cost:
            self.wrong(f"{self.spent} restarts were charged, and {self.cost} failures made")
        self.check_words()

    # -- the whole ------------------------------------------------------------------

    def go(self):
        for name in ("alive", "order", "witness"):
            os.makedirs(f"{self.chain}/{name}")
        planned = self.plan_faults()
        self.say("seed", self.seed, "plan", self.plan)
        if self.plan.mode == "daemon" or self.plan.witness == "crund":
            self.start_crund()
            self.wait(10, lambda: "listening" in self.crund.err)
            self.usage = oracle.Usage(self.crund.pid)
        for host in self.nodes:
            self.start_agent(host)
        if not self.wait(BEGIN_S, self.trains()):
            self.wrong(f"no steps within {BEGIN_S} s")
            return
        self.disturb(planned)
        healed = time.monotonic()
        if not self.wait(HEAL_S, lambda c=self.trains(): c() and self.settled()):
            self.wrong(f"all is healed, and {HEAL_S} s later it does not train: "
                       f"{self.steps()} steps, {len(self.healthy())} nodes")
            return
        self.say(f"trains again after {time.monotonic() - healed:.2f} s")
        self.check_end(self.end_job())

    def settled(self):
        """Every agent is in the job, a member or a spare."""
        if self.returns or not all(a.alive for a in self.agents.values()):
            return False
        there = self.there()
        return all(a.process.pid in there for a in self.agents.values())

    def status(self, endpoint):
        """Jobs, as crunctl shows them."""
        command = ["nsenter", f"--net=/run/netns/{self.stranger.ns}", self.build + "/bin/crunctl",
                   "-e", endpoint, "--timeout=1", "status", "--json"]
        try:
            return json.loads(subprocess.run(command, capture_output=True).stdout)
        except ValueError:
            return []

    def there(self):
        """Process ids of the agents that the rendezvous knows and has a connection to."""
        return {node["pid"] for job in self.status(self.endpoint()) for node in job["nodes"]
                if node["connected"]}

    def has_young(self):
        """The list may have the one that was there before."""
        return any(time.monotonic() - a.begun < YOUNG_S for a in self.agents.values())

    def keepers(self):
        """Hosts that keep the records of the rendezvous, the one that leads first, and whether
        they are so many as they shall be."""
        for host in self.nodes:
            if not self.agents[host].alive:
                continue
            for job in self.status(f"{host.address}:{CRUND_PORT}"):
                names = job.get("keepers", "").split(", ")
                found = [h for name in names for h in self.nodes if h.name == name]
                return found, (job.get("kept_safely", False) and
                               len(found) == self.plan.replicas and not self.has_young())
        return [], False

    def leader(self):
        found, _ = self.keepers()
        return found[0] if found else None

    def can_spare(self, host):
        """One that leaves when fewer would remain than the minimum ends the job; and one
        that is cut off is heard later, when others may be lost. None: a newcomer."""
        if self.claims & {("crund",), ("net", host)} or (host and self.agents[host].leaving):
            return False
        there = self.there()
        others = [self.agents[h] for h in self.healthy() if h is not host]
        return sum(a.process.pid in there and not a.leaving for a in others) >= self.plan.min

    def run(self):
        try:
            self.go()
            self.check_strangers()
            self.check_crund()
            if not self.violations:
                for line in oracle.check_processes(self.cookie.encode(), LEFT_S):
                    self.wrong(line)
                for line in oracle.check_hosts(self.net.hosts):
                    self.wrong(line)
            self.check()
        finally:
            self.sweep()
        return self.violations

    def sweep(self):
        for host in self.net.hosts:
            if host.cgroup:
                host.freeze(False)
        ours = ([a.process for a in self.agents.values()] + [p for p, _ in self.strangers] +
                ([self.crund] if self.crund else []))
        for process in ours:
            process.kill()
        for _ in range(50):
            left = oracle.living(self.cookie.encode())
            if not left:
                break
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.02)
        for process in ours:
            process.popen.wait()
        self.end_nuisances()

    def end_nuisances(self):
        for pid in self.forked:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self.forked = []

    def fork(self, host, action):
        """A nuisance of our own on a host, which ends with the run."""
        self.forked.append(host.inside(action))

    def observed(self):
        """[{...}], of each fault: for how long training stood still around it, how many
        epochs began meanwhile, and how the crun that it happened to has ended."""
        steps = oracle.lines(self.chain, "steps")
        begins = oracle.lines(self.chain, "begins")
        found = []
        for f in self.injected:
            end = (f.healed or f.at) + 1000000
            found.append({
                "kind": f.kind.name,
                "pause": oracle.longest_pause(steps, f.at, end),
                "epochs": sum(f.at <= b[0] <= end for b in begins),
                "codes": collections.Counter(
                    str(code) for at, host, code in self.exits
                    if f.at <= at <= end and (host is f.host or f.kind.on == "crund"))})
        return found

    def keep(self, where):
        with open(where + "/timeline", "w") as f:
            f.write("\n".join(self.timeline) + "\n")


class Injected:
    def __init__(self, kind, host, claims, until):
        self.kind, self.host, self.claims, self.until = kind, host, claims, until
        self.heal = self.healing = None
        self.at, self.healed = oracle.now_us(), None

