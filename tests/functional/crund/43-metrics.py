#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 11 s
"""
The metrics of a crund and of a crun that hosts its rendezvous: --metrics-file while a job
fails, restarts and ends; promtool's opinion of the text; a real Prometheus that scrapes the
page; and the dashboard and alert rules, which name no metric that does not exist.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from control import Crund  # noqa: E402
from process import (BIN, Process, ROOT, SECONDS, fail, free_port, matches, run,  # noqa: E402
                     skip, until)

GRAFANA = ROOT / "scripts" / "grafana"
# Prints a step ten times a second until the file is gone; fails once at step 20.
WORKER = r"""
step=0
while [ -e "$1" ]; do
    step=$((step + 1))
    echo "step $step"
    [ "$TORCHELASTIC_RESTART_COUNT" = 0 ] && [ $step = 5 ] && exit 3
    sleep 0.1
done
"""
# Tells all that a program can, and saves so quickly that no look at its phase may see it.
TRAINER = r"""
import crun, os, sys, time
step = 0
while os.path.exists(sys.argv[1]):
    step += 1
    crun.progress(step=step, steps=5000, loss=0.25)
    with crun.checkpointing():
        pass
    time.sleep(0.1)
"""
JOB = ["--nproc-per-node=1", "--max-restarts=10", "--restart-backoff=0",
       r"--progress-pattern=^step (\d+)", "--no-python"]


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def start_job(directory, name, *flags):
    go = f"{directory}/{name}.go"
    open(go, "w", encoding="utf-8").close()
    return Process([BIN / "crun", *flags, *JOB, "sh", "-c", WORKER, name, go], stdin=None,
                   cwd=directory), go


def value(text, name, **labels):
    """Of the sample with these labels and perhaps more; None: there is none."""
    for line in re.findall(rf"^{name}\{{(.*)\}} (\S+)$", text, re.M):
        got = dict(re.findall(r'(\w+)="([^"]*)"', line[0]))
        if labels.items() <= got.items():
            return float(line[1])
    return None


def check_by_promtool(text):
    if not shutil.which("promtool"):
        print("without promtool: the format of the metrics is not checked")
        return
    check = subprocess.run(["promtool", "check", "metrics"], input=text, text=True,
                           capture_output=True, check=False)
    if check.returncode or check.stderr:
        fail("promtool:", check.stderr, check.stdout, text)


def no_tail(directory):
    left = [name for name in os.listdir(directory) if name.endswith(".new")]
    if left:
        fail("files are left beside:", left)


# -- tests ----------------------------------------------------------------------------


def a_crund_writes_a_file(directory):
    path = directory + "/crund.prom"
    os.mkdir(directory + "/state", 0o700)
    old_mask = os.umask(0o077)
    crund = Crund(directory, f"--state-dir={directory}/state", f"--metrics-file={path}")
    os.umask(old_mask)
    job, go = start_job(directory, "filed", f"--rdzv-endpoint=127.0.0.1:{crund.port}",
                        "--rdzv-id=filed")
    until(lambda: "step 7" in job.out, lambda: job.out + job.err)
    os.unlink(go)
    job.expect(0)
    if crund.stop() != 0:
        fail(crund.log())
    text = read(path)
    check_by_promtool(text)
    got = {name: value(text, name, run_id="filed", **labels) for name, labels in [
        ("crun_job_restarts_total", {"cause": "failure"}),
        ("crun_job_state", {"state": "done"}), ("crun_job_result", {"result": "success"}),
        ("crun_recovery_seconds_count", {}), ("crun_job_epoch", {})]}
    if got != {"crun_job_restarts_total": 1, "crun_job_state": 1, "crun_job_result": 1,
               "crun_recovery_seconds_count": 1, "crun_job_epoch": 2}:
        fail(got, text)
    if not value(text, "crun_job_productive_seconds_total", run_id="filed") > 0.3:
        fail(text)
    if not int(re.search(r"^crund_journal_fsync_seconds_count (\d+)", text, re.M)[1]) > 5:
        fail(text)
    mode = os.stat(path).st_mode & 0o777
    if mode != 0o644:
        fail(f"{path} has the mode {mode:o}")
    no_tail(directory)


def a_hosting_crun_writes_a_file(directory):
    path = directory + "/crun.prom"
    job, go = start_job(directory, "hosted", f"--metrics-file={path}")
    until(lambda: os.path.exists(path), lambda: job.out + job.err)
    until(lambda: "step 3" in job.out, lambda: job.out + job.err)
    os.unlink(go)
    job.expect(0)
    text = read(path)
    check_by_promtool(text)
    if value(text, "crun_job_result", result="success") != 1 or "crund_" in text:
        fail(text)
    no_tail(directory)


def a_file_that_cannot_be_written_costs_one_line(directory):
    crund = Crund(directory, f"--metrics-file={directory}/no/such/folder/m.prom", name="none")
    until(lambda: "--metrics-file" in crund.log(), crund.log)
    crund.stop()
    matches(crund.log(), r"--metrics-file .*m\.prom: No such file or directory; trying again")
    if crund.log().count("--metrics-file") != 1:
        fail(crund.log())


def dashboard_and_rules_name_what_exists(directory):
    text = read(directory + "/crund.prom")
    exist = set()
    for name, kind in re.findall(r"^# TYPE (\w+) (\w+)$", text, re.M):
        exist |= {name + suffix for suffix in
                  (("_bucket", "_sum", "_count") if kind == "histogram" else ("",))}
    dashboard = json.loads(read(GRAFANA / "crun-dashboard.json"))
    uses = [target["expr"] for panel in dashboard["panels"]
            for target in panel.get("targets", [])]
    uses += [v["definition"] for v in dashboard["templating"]["list"] if "definition" in v]
    uses += [a["expr"] for a in dashboard["annotations"]["list"]]
    uses += re.findall(r"^ *(?:expr:|and |<= |unless |\(|sum by).*$",
                       read(GRAFANA / "crun-alerts.yml"), re.M)
    named = set(re.findall(r"\bcrund?_\w+", " ".join(uses)))
    if named - exist:
        fail("there is no metric", *sorted(named - exist))
    panels = set(re.findall(r"\bcrund?_\w+", read(GRAFANA / "crun-dashboard.json")))
    unused = {re.sub("_(bucket|sum|count)$", "", name) for name in exist} - \
             {re.sub("_(bucket|sum|count)$", "", name) for name in panels}
    if unused:
        fail("the dashboard does not show", *sorted(unused))


def rules_say_what_they_should(_):
    if shutil.which("promtool"):
        for command in (["check", "rules", "crun-alerts.yml"],
                        ["test", "rules", "crun-alerts.test.yml"]):
            Process(["promtool", *command], cwd=GRAFANA).expect(0, "SUCCESS")


class Prometheus:
    def __init__(self, directory, target):
        self.port = free_port()
        config = {"global": {"scrape_interval": "1s"},
                  "scrape_configs": [{"job_name": "crund",
                                      "static_configs": [{"targets": [target]}]}]}
        with open(directory + "/prometheus.yml", "w", encoding="utf-8") as f:
            json.dump(config, f)  # which is YAML
        self.process = Process(["setpriv", "--pdeathsig", "KILL", "prometheus",
                                f"--config.file={directory}/prometheus.yml",
                                f"--storage.tsdb.path={directory}/tsdb",
                                f"--web.listen-address=127.0.0.1:{self.port}"],
                               env={**os.environ, "GOMAXPROCS": "1"})

    def query(self, expression):
        """Its samples: [(labels, value)]; none while it starts."""
        url = f"http://127.0.0.1:{self.port}/api/v1/query?" + \
            urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(url, timeout=SECONDS) as answer:
                result = json.load(answer)["data"]["result"]
        except OSError:
            return []
        return [(sample["metric"], float(sample["value"][1])) for sample in result]


def prometheus_scrapes_a_crund(directory):
    crund = Crund(directory, "--http=127.0.0.1:0", name="scraped")
    url = re.search(r"page at http://([^/\s]+)/", crund.log())[1]
    go, program = directory + "/scraped.go", directory + "/scraped.py"
    for path, text in ((go, ""), (program, TRAINER)):
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
    job = Process([BIN / "crun", "--nproc-per-node=1", "--rdzv-id=scraped",
                   f"--rdzv-endpoint=127.0.0.1:{crund.port}", program, go],
                  env={**os.environ, "PYTHONPATH": str(ROOT / "worker-lib" / "python")})
    prometheus = Prometheus(directory, url)
    until(lambda: prometheus.query('crun_job_state{run_id="scraped",state="running"} == 1'),
          lambda: prometheus.process.err, pause=0.1)
    for expression in ("crun_job_step > 2", "crun_job_final_step == 5000",
                       "crun_job_loss == 0.25", "crun_node_checkpoint_age_seconds < 60"):
        until(lambda: prometheus.query(expression),
              lambda: expression + job.err + prometheus.process.err, pause=0.1)
    if prometheus.query('up{job="crund"} == 0'):
        fail("Prometheus cannot read", url)
    os.unlink(go)
    job.expect(0)
    until(lambda: prometheus.query('crun_job_result{run_id="scraped",result="success"} == 1'),
          lambda: prometheus.process.err, pause=0.1)
    with urllib.request.urlopen(f"http://{url}/metrics") as answer:
        text = answer.read().decode()
    if not answer.headers["Content-Type"].startswith("text/plain; version=0.0.4"):
        fail(answer.headers, text[-200:])
    check_by_promtool(text)
    prometheus.process.end()
    crund.stop()


def main():
    with tempfile.TemporaryDirectory() as directory:
        run([a_crund_writes_a_file, a_hosting_crun_writes_a_file,
             a_file_that_cannot_be_written_costs_one_line,
             dashboard_and_rules_name_what_exists, rules_say_what_they_should], directory)
        if not shutil.which("prometheus"):
            skip("prometheus is not installed", "apt-get install prometheus")
        run([prometheus_scrapes_a_crund], directory)


main()
