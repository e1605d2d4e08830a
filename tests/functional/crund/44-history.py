#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 5 s
"""
A crund keeps what jobs have done: over a kill -9 while a job runs, the curve and the
epochs of that job go on, and a job that is over is shown, listed and reported by another
crund on the same folder, also when its run id was used again. Files that are not whole are
left out; they are of the crund's user alone.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from control import Crund  # noqa: E402
from process import BIN, Process, SECONDS, fail, until  # noqa: E402

# A step ten times a second until the file is gone; the first epoch fails at step 12.
WORKER = r"""
step=$((10 * TORCHELASTIC_RESTART_COUNT))
while [ -e "$1" ]; do
    step=$((step + 1))
    echo "step $step"
    [ "$TORCHELASTIC_RESTART_COUNT" = 0 ] && [ $step = 12 ] && exit 3
    sleep 0.1
done
"""


class Test:
    def __init__(self, directory):
        self.directory, self.lives, self.port = directory, 0, 0
        self.state = directory + "/state"
        self.env = {**os.environ, "CRUN_RUNTIME_DIR": directory + "/run"}
        os.mkdir(directory + "/run", 0o700)
        self.start()

    def start(self):
        """At the same port as before."""
        self.lives += 1
        self.crund = Crund(self.directory, "--listen", f"127.0.0.1:{self.port}", "--state-dir",
                           self.state, "--http", "127.0.0.1:0", name=f"crund-{self.lives}")
        self.port = self.crund.port

    def kill(self):
        self.crund.stop(9)
        self.start()

    def start_job(self):
        go = self.directory + "/go"
        open(go, "w", encoding="utf-8").close()
        return Process([BIN / "crun", "--rdzv-endpoint", f"127.0.0.1:{self.port}", "--rdzv-id=alpha",
                        "--nnodes=1", "--nproc-per-node=1", "--max-restarts=3", "--rdzv-conf=lease=3",
                        "--restart-backoff=0", r"--progress-pattern=^step (\d+)",
                        "--no-python", "sh", "-c", WORKER, "worker", go], stdin=None,
                       env=self.env, cwd=self.directory), go

    def ctl(self, *words, code=0):
        p = subprocess.run([BIN / "crunctl", "-e", f"127.0.0.1:{self.port}", *words], text=True,
                           env=self.env, cwd=self.directory, capture_output=True, check=False)
        if p.returncode != code:
            fail(words, p.returncode, p.stdout, p.stderr)
        return p.stdout + p.stderr

    def job(self):
        return json.loads(self.ctl("status", "alpha", "--json"))[0]

    def history(self):
        return self.job()["history"]

    def files(self):
        """But for one that is being written."""
        folder = self.state + "/history"
        return sorted(os.path.join(folder, name) for name in os.listdir(folder) if name != "new")


def check_epochs(epochs):
    assert [e["cause"] for e in epochs[:2]] == ["first", "failure"], epochs
    assert "exited with code 3" in epochs[1]["text"], epochs
    assert epochs[0]["ended_ms"] == epochs[1]["begun_ms"], epochs
    for e in epochs[:2]:
        times = [e[k] for k in ("begun_ms", "formed_ms", "started_ms", "first_step_ms")]
        assert None not in times and times == sorted(times), e
    assert epochs[1]["lost"]["steps_again"] == 2, epochs


def check_curve(curve):
    assert curve["time_ms"] == sorted(curve["time_ms"]), curve
    assert len({len(values) for values in curve.values()}) == 1, curve
    assert max(curve["step"]) >= 10, curve


def run_through_a_kill(t):
    job, go = t.start_job()
    until(lambda: "alpha" in t.ctl("status"), "the job is not there")
    until(lambda: len(t.history()["epochs"]) == 2 and t.history()["epochs"][1]["first_step_ms"],
          t.history)
    # written five seconds after an epoch has formed, at the latest
    until(lambda: any(len(json.load(open(f, encoding="utf-8"))["history"]["epochs"]) == 2
                      for f in t.files()), t.files)
    before = t.history()
    t.kill()
    after = t.history()
    check_epochs(after["epochs"])
    assert after["curve"]["time_ms"][0] == before["curve"]["time_ms"][0], (before, after)
    assert after["epochs"][1]["formed_ms"] == before["epochs"][1]["formed_ms"], (before, after)
    until(lambda: t.history()["curve"]["step"][-1] > before["curve"]["step"][-1], t.history)
    os.unlink(go)
    assert job.wait() == 0, job
    until(lambda: t.job()["state"] == "done", t.job)
    ended = t.history()
    check_epochs(ended["epochs"])
    check_curve(ended["curve"])
    assert ended["epochs"][-1]["ended_ms"], ended
    return ended


def check_end_is_known(t):
    """A crund that starts again tells when a job ended, not when it started itself."""
    def when():
        return json.loads(t.ctl("status", "--json", "alpha"))[0]["ended_ms"]
    before = when()
    until(lambda: time.time() * 1000 > before + 2500, "some time after the end")
    t.kill()
    assert abs(when() - before) < 500, (when(), before)


def check_kept(t, ended):
    """Another launch of the same name, and a crund that has lost its journal."""
    mode = os.stat(t.files()[0]).st_mode & 0o777
    assert mode == 0o600 and len(t.files()) == 1, (oct(mode), t.files())
    t.crund.stop(9)
    os.unlink(t.state + "/journal")
    with open(t.files()[0], "rb") as f:
        whole = f.read()
    torn = re.sub(r"-[0-9a-f]{32}", "-" + 32 * "7", t.files()[0])
    with open(torn, "wb") as f:
        f.write(whole[:len(whole) // 2])
    t.start()
    assert "is left out" in t.crund.log(), t.crund.log()
    assert "alpha" not in t.ctl("status"), t.ctl("status")
    listed = t.ctl("status", "--all")
    assert len(re.findall(r"^alpha\s+finished", listed, re.M)) == 1, listed
    assert t.history() == {**ended, "events": t.history()["events"]}, (t.history(), ended)
    assert "exited with code 3" in json.dumps(t.history()["events"])
    assert "alpha" in t.ctl("status", "alpha")
    t.ctl("status", "beta", code=1)


def check_page(t):
    """A job that is over has a page, which tells of its restart."""
    url = re.search(r"page at (http://\S+)", t.crund.log())[1]
    for path, texts in {"jobs/alpha": ["<title>"], "api/v1/jobs": ["alpha"],
                        "jobs/alpha/report.html": ["exited with code 3"],
                        "api/v1/jobs/alpha": ['"cause":"failure"']}.items():
        with urllib.request.urlopen(url + path, timeout=SECONDS) as answer:
            body = answer.read().decode()
        for text in texts:
            assert text in body, (path, text, body)
    try:
        urllib.request.urlopen(url + "jobs/beta", timeout=SECONDS)
        fail("a job that never was has a page")
    except urllib.error.HTTPError as e:
        assert e.code == 404, e


def check_report(t):
    t.ctl("report", "alpha")
    with open(t.directory + "/alpha.html", encoding="utf-8") as f:
        html = f.read()
    assert html.startswith("<!DOCTYPE html>") and "alpha" in html, html[:500]
    inside = re.search(r'<script type="application/json" id="job">(.*?)</script>', html)[1]
    assert "exited with code 3" in json.loads(inside)["history"]["epochs"][1]["text"], inside
    assert t.ctl("report", "alpha", "-o", "-").startswith("<!DOCTYPE html>")
    t.ctl("report", "beta", code=1)
    t.ctl("report", "alpha", "-o", t.directory + "/none/alpha.html", code=1)


def check_many(t):
    """More jobs than are sent at once, by a crund that does nothing else."""
    (file,) = [file for file in t.files() if 32 * "7" not in file]
    own = re.search(r"-([0-9a-f]{32})\.json", file)[1]
    with open(file, "rb") as f:
        whole = f.read()
    assert t.crund.stop() == 0
    for i in range(400):
        other = f"{i:032x}"
        with open(f"{t.state}/history/{1000 + i}-{other}.json", "wb") as f:
            f.write(whole.replace(own.encode(), other.encode()))
    t.start()
    listed = t.ctl("status", "--all")
    assert len(re.findall(r"^alpha\s+finished", listed, re.M)) == 401, listed[-500:]


def main():
    with tempfile.TemporaryDirectory(prefix="crund-history-") as directory:
        t = Test(directory)
        ended = run_through_a_kill(t)
        check_end_is_known(t)
        check_kept(t, ended)
        check_page(t)
        check_report(t)
        check_many(t)
        assert t.crund.stop() == 0
    print(f"{t.lives} lives of crund")


main()
