#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 30 s
"""
The API of the page: a live object is at each moment what GET gives, also for readers that come
later, come back, or do not read for a while; never the patch of another version, of another job
of the same run id, or for a viewer whose right has ended.
"""
import concurrent.futures
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from control import (BYE, FAILED, HEARTBEAT, JOINED, START, STOPPED, STORE_READY, WELCOME, Crund,  # noqa: E402
                     Session, frame, hello, join)
from live import Live  # noqa: E402
from process import BIN, ROOT, SECONDS, fail, matches, run, same, until  # noqa: E402


class World:
    def __init__(self, folder, *flags):
        os.mkdir(folder)
        self.crund = Crund(folder, "--http", "0", *flags)
        self.port = int(re.search(r"page at http://127\.0\.0\.1:(\d+)/", self.crund.log())[1])

    def get(self, path, headers=None):
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        client.request("GET", path, headers=headers or {})
        answer = client.getresponse()
        body = answer.read().decode()
        client.close()
        return answer.status, body

    def json(self, path):
        status, body = self.get(path)
        same([path, status], [path, 200])
        return json.loads(body)

    def agent(self, run_id, host="node0", nodes=1, **changes):
        s = Session(self.crund.port)
        s.send(hello("agent"))
        s.expect(WELCOME)
        s.send(join(run_id, nodes=nodes, host=host, **changes))
        s.expect(JOINED)
        return s

    def live(self, path, **options):
        return Live(self.port, path, **options)

    def close(self):
        same(self.crund.stop(), 0)
        if "Sanitizer" in self.crund.log():
            fail(self.crund.log())


class Load:
    """A job of many nodes whose numbers change each second."""

    def __init__(self, w, nodes, lease_s=3):
        self.process = subprocess.Popen(
            [BIN / "agent-load", "--endpoint", f"127.0.0.1:{w.crund.port}", "--agents", str(nodes),
             "--hold", "agents", "--progress", "--lease", str(lease_s), "--run-id", "load"],
            stdout=subprocess.PIPE, text=True)
        same(self.process.stdout.readline(), "ready\n")

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate()


def is_same(w, path, *readers):
    """With readers, GET gives the version that was sent last."""
    wanted = w.json(path)
    for reader in readers:
        reader.until(lambda r: r.object == wanted or r.object and
                     r.object.get("age_ms", 0) > wanted.get("age_ms", 0), "the version of GET")
        if reader.object == wanted:
            return True
    return False


def a_live_object_is_what_get_gives(folder):
    w = World(f"{folder}/same")
    load = Load(w, 40)
    first = w.live("/api/v1/jobs/load-0/live")
    first.until(lambda r: r.events == ["whole"], "the object")
    matches(first.head, "(?i)content-type: text/event-stream")
    first.until(lambda r: r.events.count("patch") >= 3, "patches")
    second = w.live("/api/v1/jobs/load-0/live", headers="Last-Event-ID: 12-34\r\n")
    second.until(lambda r: r.events == ["whole"], "the object at once")
    for reader in (first, second, first, second):
        until(lambda: is_same(w, "/api/v1/jobs/load-0", reader), "a live object is that of GET")
    same(set(first.events[1:]) | set(second.events[1:]), {"patch"})
    same(len(first.object["nodes"]), 40)
    first.close()
    # all jobs
    readers = [w.live("/api/v1/live") for _ in range(2)]
    agent = w.agent("another")
    for reader in readers:
        reader.until(lambda r: r.object and len(r.object["jobs"]) == 2, "both jobs")
        until(lambda: is_same(w, "/api/v1/jobs", reader), "the list is that of GET")
    agent.send(frame(BYE))
    for reader in readers + [second]:
        reader.close()
    load.end()
    agent.close()
    w.close()


def a_get_beside_the_first_reader_is_answered(folder):
    """Both come in the same turn: the reader has been sent nothing yet."""
    w = World(f"{folder}/beside")
    agent = w.agent("one")
    for path in ("/api/v1/jobs/one", "/api/v1/jobs"):
        os.kill(w.crund.pid, signal.SIGSTOP)
        live = w.live("/api/v1/live" if path.endswith("jobs") else path + "/live")
        with concurrent.futures.ThreadPoolExecutor() as pool:
            answer = pool.submit(w.get, path)
            time.sleep(0.2)
            os.kill(w.crund.pid, signal.SIGCONT)
            same([path, answer.result()[0]], [path, 200])
        live.until(lambda r: r.events and r.object == json.loads(answer.result()[1]) or len(r.events) > 1,
                   "the object")
        live.close()
    agent.close()
    w.close()


def the_list_has_the_step_of_the_job(folder):
    """Also while the job stops, when one of its nodes has stopped already."""
    w = World(f"{folder}/step")
    agents = [w.agent("one", f"node{i}", nodes=2, max_restarts=3) for i in range(2)]
    places = []
    for agent in agents:
        kind = None
        while kind != START:
            kind, _, header = agent.receive()
        places.append({"epoch": header[4], "instance": header[5]})
        agent.send(frame(STORE_READY, {"port": 29500}, 2, **places[-1]))
    for step, agent, place in zip((5, 7), agents, places):
        agent.send(frame(HEARTBEAT, {"step": f"{step:016x}", "steps": f"{70:016x}"}, 3, **place))

    def steps():
        jobs = [w.json("/api/v1/jobs/one"), *w.json("/api/v1/jobs")["jobs"]]
        return [(job["state"], job["step"], job["steps"]) for job in jobs]

    until(lambda: steps() == [("running", 5, 70)] * 2, "the steps")
    agents[0].send(frame(FAILED, {"kind": "exit", "code": 1}, 4, **places[0]))
    agents[0].send(frame(STOPPED, {}, 5, **places[0]))
    until(lambda: "stopped" in [node["state"] for node in w.json("/api/v1/jobs/one")["nodes"]], "a stopped node")
    time.sleep(1.2)  # a rendering counts for a second
    same(steps(), [("stopping", 5, 70)] * 2)
    for agent in agents:
        agent.close()
    w.close()


def who_does_not_read_gets_the_whole_later(folder):
    w = World(f"{folder}/slow")
    load = Load(w, 600, lease_s=30)  # under a sanitizer on a busy machine, heartbeats take seconds
    slow = w.live("/api/v1/jobs/load-0/live", receive_buffer=4096)
    other = w.live("/api/v1/jobs/load-0/live")
    until_s = time.monotonic() + 15
    while time.monotonic() < until_s:
        other.read()
    # on a busy machine the other one may be late for the first changes, too
    slow.until(lambda r: other.read(0.01) and "patch" in other.events and
               r.events.count("whole") >= 2, "the whole object again")
    until(lambda: is_same(w, "/api/v1/jobs/load-0", slow), "it is that of GET")
    same(other.events[0], "whole")
    slow.close()
    other.close()
    load.end()
    w.close()


def another_job_of_the_same_name_is_another_object(folder):
    w = World(f"{folder}/again")
    job = subprocess.Popen([BIN / "crun", f"--rdzv-endpoint=127.0.0.1:{w.crund.port}", "--rdzv-id=again",
                            "--rdzv-backend=c10d", "--no-python", "sleep", "1000"],
                           stderr=subprocess.DEVNULL)
    until(lambda: w.get("/api/v1/jobs/again")[0] == 200, "the job is there")
    live, all_jobs = w.live("/api/v1/jobs/again/live"), w.live("/api/v1/live")
    instance = live.until(lambda r: r.object, "the object")["instance"]
    live.until(lambda r: r.object["state"] == "running", "it runs")
    all_jobs.until(lambda r: r.object, "the list")
    job.terminate()
    job.wait(SECONDS)
    agent = w.agent("again")
    while live.read(1):
        same(live.object["instance"], instance)
    same(live.object["instance"], instance)
    later = w.live("/api/v1/jobs/again/live")
    later.until(lambda r: r.object, "the other object")
    same([later.object["instance"] == instance, later.events], [False, ["whole"]])
    all_jobs.until(lambda r: any(j["instance"] == later.object["instance"] for j in r.object["jobs"]),
                   "the other job in the list")
    for reader in (later, all_jobs):
        reader.close()
    agent.close()
    w.close()


def the_end_comes_once(folder):
    w = World(f"{folder}/end")
    job = subprocess.Popen([BIN / "crun", f"--rdzv-endpoint=127.0.0.1:{w.crund.port}", "--rdzv-id=short",
                            "--rdzv-backend=c10d", "--no-python", "sleep", "2"],
                           stderr=subprocess.DEVNULL)
    until(lambda: w.get("/api/v1/jobs/short")[0] == 200, "the job is there")
    live = w.live("/api/v1/jobs/short/live")
    while live.read(1):
        pass
    same([live.events[0], live.events.count("whole"), live.events[-1]], ["whole", 1, "end"])
    same([live.object["state"], live.object["result"]], ["done", "success"])
    job.wait(SECONDS)
    late = w.live("/api/v1/jobs/short/live")
    while late.read(1):
        pass
    same([late.events, late.object["instance"]], [["whole", "end"], live.object["instance"]])
    w.close()


def rights_end_in_the_middle(folder):
    os.mkdir(f"{folder}/keys", 0o700)
    key = f"{folder}/red.key"
    subprocess.run([BIN / "crunctl", "keygen", f"{folder}/keys/red"], check=True, capture_output=True)
    subprocess.run(["cp", f"{folder}/keys/red", key], check=True)
    w = World(f"{folder}/rights", "--key-dir", f"{folder}/keys")
    env = {**os.environ, "CRUN_KEY_FILE": key}
    link = subprocess.run([BIN / "crunctl", "-e", f"127.0.0.1:{w.crund.port}", "page"], env=env,
                          capture_output=True, text=True, check=True).stdout.strip()
    client = http.client.HTTPConnection("127.0.0.1", w.port, timeout=SECONDS)
    client.request("GET", link.split(f":{w.port}", 1)[1])
    cookie = client.getresponse().headers["Set-Cookie"].split(";")[0]
    # two tabs of him, and one of the user of crund, who has no key to lose
    his = [w.live("/api/v1/live", headers=f"Cookie: {cookie}\r\n") for _ in range(2)]
    own = w.live("/api/v1/live")
    for reader in (*his, own):
        reader.until(lambda r: r.object, "the list")
    os.unlink(f"{folder}/keys/red")
    job = subprocess.Popen([BIN / "crunctl", "keygen", f"{folder}/keys/blue"])
    job.wait()
    for reader in his:
        until_s = time.monotonic() + SECONDS
        while reader.read(0.2):
            if time.monotonic() > until_s:
                fail("a stream goes on after its key was retired")
        same("end" in reader.events, False)
    same(own.read(), True)
    own.close()
    w.close()


def objects_and_errors(folder):
    w = World(f"{folder}/objects")
    agent = w.agent("one")
    job = w.json("/api/v1/jobs/one")
    same([job["job"], len(job["nodes"]), "curve" in job["history"]], ["one", 1, True])
    (brief,) = w.json("/api/v1/jobs")["jobs"]
    same(sorted(set(job) - set(brief)), ["history", "nodes"])
    viewer = w.json("/api/v1/viewer")
    same([viewer["sees_output"], viewer["has_list"], viewer["server"]],
         [True, True, f"-e 127.0.0.1:{w.crund.port}" if viewer["server"] else None])
    same(abs(viewer["now_ms"] - time.time() * 1000) < 5000, True)
    for path, status in (("/api/v1/jobs/two", 404), ("/api/v1/jobs/one/ranks/7", 404), ("/api/v1/x", 404),
                         ("/api/v1/jobs/two/live", 404), ("/api/v1/jobs/one/ranks/x/logs", 404)):
        got, body = w.get(path)
        same([path, got, list(json.loads(body))], [path, status, ["error"]])
    # the manual's line
    if shutil.which("curl") and shutil.which("jq"):
        manual = (ROOT / "launcher/man/watching.md").read_text()
        line = re.search(r"^curl -s localhost:29480/api.*", manual, re.M)[0]
        done = subprocess.run(line.replace("29480", str(w.port)), shell=True, capture_output=True, text=True,
                              check=True)
        same(done.stdout.split("\t")[:2], ["one", job["state"]])
    # others may not interrupt a rank, nor does a proxy see what it prints
    for path, header, status in (("stacks", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 403),
                                 ("logs", {"Via": "1.1 proxy"}, 403), ("stacks", {"Via": "1.1 proxy"}, 403)):
        got, body = w.get(f"/api/v1/jobs/one/ranks/0/{path}", header)
        same([path, got, list(json.loads(body))], [path, status, ["error"]])
    agent.close()
    job = subprocess.Popen([BIN / "crun", "--no-python", f"--rdzv-endpoint=127.0.0.1:{w.crund.port}",
                            "--rdzv-backend=c10d", "--rdzv-id=quiet", "sleep", "1000"], stdout=subprocess.DEVNULL)
    until(lambda: w.get("/api/v1/jobs/quiet/ranks/0")[0] == 200, "the job is there")
    matches(until(lambda: w.json("/api/v1/jobs/quiet/ranks/0/logs").get("note"), "why there is no output"),
            "it writes to /dev/null, and not through crun")
    job.terminate()
    job.wait(SECONDS)
    w.close()


def with_folder(test):
    def wrapped():
        with tempfile.TemporaryDirectory(prefix="crun-live-") as folder:
            test(folder)
    wrapped.__name__ = test.__name__
    return wrapped


run([with_folder(test) for test in (
    a_live_object_is_what_get_gives, a_get_beside_the_first_reader_is_answered,
    the_list_has_the_step_of_the_job, who_does_not_read_gets_the_whole_later,
    another_job_of_the_same_name_is_another_object, the_end_comes_once, rights_end_in_the_middle,
    objects_and_errors)])
