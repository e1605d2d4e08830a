#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 10 s
# sanitizers: no, other tests of the page and of its server run under them
"""
The page of a job in a real browser: what it shows while a job fails and restarts, with the keyboard
alone, without scripts, on narrow windows, in light and dark, and by the rules of accessibility.
"""
import http.server
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, PROGRAMS, Process, fail, matches, run, same, until  # noqa: E402
import browser  # noqa: E402
from control import Crund  # noqa: E402
from long_job import BEGUN_MS, DAY_MS, long_job  # noqa: E402

WIDTHS = 360, 768, 1440
KIB_MAX, PAINT_MAX_MS = 200, 300
SLOW = 10  # other tests have the cores too
HOSTILE = ('</script></style></title><script>window.owned = 1</script><img src=x onerror="owned=2">'
           '"\'><svg onload=owned=3>&lt;b&gt;\x1b[31m\u202egnp.exe')
NOW_MS = BEGUN_MS + DAY_MS


def job_page(what, o=None, now_ms=NOW_MS):
    words = [BIN / "job-page", what] + ([str(now_ms)] if o is not None else [])
    return subprocess.run(words, input=json.dumps(o).encode(), stdout=subprocess.PIPE,
                          check=True).stdout


class Server:
    """Pages as files, with the policy that belongs to them; live events that never come."""

    def __init__(self):
        self.pages, self.over = {}, threading.Event()
        policy = job_page("policy").decode().strip()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(handler):
                live = handler.path.endswith("/live")
                body = self.pages.get(handler.path)
                handler.send_response(200 if live or body else 404)
                handler.send_header("Content-Type", "text/event-stream" if live else "text/html")
                handler.send_header("Content-Security-Policy", policy)
                if not live:
                    handler.send_header("Content-Length", str(len(body or b"")))
                handler.end_headers()
                if live:
                    self.over.wait()
                else:
                    handler.wfile.write(body or b"")

            def log_message(handler, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.origin = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def put(self, path, body):
        self.pages[path] = body
        return self.origin + path

    def close(self):
        self.over.set()
        self.http.shutdown()


def stays_here(page, origin):
    """No complaint, and no request to another address."""
    same(page.complaints, [])
    same([url for url in page.requests if not url.startswith((origin + "/", "data:"))], [])


def looks_right(page, what):
    """On each width, in light and dark; the rules on each width in one of them."""
    for width, dark in itertools.product(WIDTHS, (False, True)):
        page.look(width, 800, dark)
        where = f"{what}, {width} pixels, {'dark' if dark else 'light'}"
        if (sideways := page.scrolls_sideways()) > 0:
            fail(f"{where}: {sideways} pixels are out of the window")
        if dark == (width == WIDTHS[1]) and (faults := page.faults()):
            fail(f"{where}:", *faults[:20], sep="\n  ")
    page.look()


# -- pages of jobs that are made up -----------------------------------------------------------


def all_pages_keep_the_rules(chromium, server):
    job, ended = long_job(nodes=24), long_job(nodes=2, ended=True)
    early = {"job": "new", "name": "new", "state": "forming", "nodes": [], "history": None}
    pages = {"/jobs/llama-70b": job_page("job", job), "/jobs/ended": job_page("job", ended),
             "/jobs/new": job_page("job", early),
             "/jobs/llama-70b/report.html": job_page("report", ended),
             "/jobs/llama-70b/ranks/56": job_page("rank", job),
             "/": job_page("list", [job, ended, early])}
    for path, body in pages.items():
        page = chromium.page()
        page.open(server.put(path, body))
        looks_right(page, path)
        stays_here(page, server.origin)
        page.close()


def no_text_becomes_markup(chromium, server):
    job = long_job(nodes=3, run_id=HOSTILE, text=HOSTILE)
    for node in job["nodes"]:
        node["host"] = node["note"] = node["address"] = HOSTILE
    job.update(notice=HOSTILE, program=HOSTILE, report=HOSTILE, state=HOSTILE)
    for what in ("job", "report", "rank", "list"):
        page = chromium.page()
        page.open(server.put("/" + what, job_page(what, [job] if what == "list" else job)))
        same(page.evaluate("[typeof owned, document.images.length, "
                           "document.querySelectorAll('main script, main style').length]"),
             ["undefined", 0, 0])
        matches(page.text(), re.escape('<script>window.owned = 1</script><img src=x onerror="owned'))
        for character in "\x1b\u202e":
            same(character in page.text(), False)
        same(page.scrolls_sideways(), 0)
        stays_here(page, server.origin)
        page.close()


def a_day_of_a_thousand_nodes_is_painted_in_time(chromium, server):
    body = job_page("job", long_job())
    if len(body) > KIB_MAX << 10:
        fail(f"the page has {len(body) >> 10} KiB")
    page = chromium.page()
    page.open(server.put("/jobs/llama-70b", body))
    painted_ms = page.first_paint_ms()
    print(f"  {len(body) / 1024:.0f} KiB, first paint after {painted_ms:.0f} ms")
    if painted_ms > PAINT_MAX_MS * SLOW:
        fail(f"first paint after {painted_ms:.0f} ms")
    for width in WIDTHS:
        page.look(width, 800)
        same(page.scrolls_sideways(), 0)
    stays_here(page, server.origin)
    page.close()


FOCUSED = """(() => {
    const e = document.activeElement;
    if (e === document.body || e === document.documentElement)
        return null;
    e.dataset.order = e.dataset.order || (window.focused = (window.focused || 0) + 1);
    const s = getComputedStyle(e), r = e.getBoundingClientRect();
    const all = [...document.querySelectorAll("*")];
    return { order: Number(e.dataset.order), at: all.indexOf(e),
             is: e.outerHTML.slice(0, 120), seen: r.width > 0 && r.height > 0 &&
                 r.bottom > 0 && r.top < innerHeight,
             ring: s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 1 };
})()"""


def the_keyboard_reaches_everything(chromium, server):
    page = chromium.page()
    page.open(server.put("/jobs/llama-70b", job_page("job", long_job(nodes=24))))
    stops = []
    for _ in range(200):
        page.press("Tab")
        stop = page.evaluate(FOCUSED)
        if stop is None or stops and stop["order"] <= stops[-1]["order"]:
            break  # round
        stops.append(stop)
    same(len(stops) > 3, True)
    for stop in stops:
        if not stop["seen"] or not stop["ring"]:
            fail("the focus cannot be seen on", stop)
    same([s["at"] for s in stops], sorted(s["at"] for s in stops))
    page.close()


# -- a job that runs --------------------------------------------------------------------------


class Training:
    """An elastic job of two agents on a crund with a page."""

    def __init__(self, folder):
        self.crund = Crund(folder, "--http", "127.0.0.1:0", "--state-dir", folder + "/state")
        self.origin = re.search(r"(http://127\.0\.0\.1:\d+)", self.crund.log())[1]
        self.url = self.origin + "/jobs/elastic"
        self.agents = []
        for _ in range(2):
            self.agents.append(Process(
                [BIN / "crun", "--nnodes=1:2", "--nproc-per-node=2", "--max-restarts=3",
                 "--rdzv-id=elastic", f"--rdzv-endpoint=127.0.0.1:{self.crund.port}",
                 "--no-python", sys.executable, PROGRAMS / "page_writer.py", "--until=1000000",
                 "--step=0.02"]))

    def workers(self):
        """[(rank, restart, pid)] of all that began."""
        return [tuple(map(int, found)) for agent in self.agents
                for found in re.findall(r"began (\d+) (\d+) (\d+)", agent.out)]

    def end(self):
        for agent in self.agents:
            agent.kill(signal.SIGTERM)
        for agent in self.agents:
            agent.wait()

    def close(self):
        for agent in self.agents:
            agent.end()
        self.crund.stop()


CURVES = "[...document.querySelectorAll('main svg')].map(e => e.outerHTML).join()"


def a_failure_is_seen_without_a_reload(chromium, training):
    page = chromium.page()
    until(lambda: len(training.workers()) == 4, "four workers")
    page.open(training.url)
    page.until_text("elastic", "running", "epoch 1")
    page.evaluate("window.marker = 'the same page';"
                  "window.kept = document.querySelector('main a[href*=ranks]'); kept.focus()")
    steps = "Number((document.body.innerText.match(/Step\\s+([\\d,]+)/) || [0, '0'])[1].replace(',', ''))"
    step = page.until(steps, "a step")
    page.until(f"{steps} > {step}", "more steps")
    rank, _, pid = training.workers()[0]
    os.kill(pid, signal.SIGKILL)
    page.until_text("epoch 2", f"rank {rank}", "SIGKILL", "Goodput", "Lost")
    until(lambda: len(training.workers()) == 8, "four workers again")
    page.until_text("running")
    curves = page.evaluate(CURVES)
    page.until(f"{CURVES} !== {json.dumps(curves)}", "a curve that grows")
    same(page.evaluate("[marker, kept === document.activeElement]"), ["the same page", True])
    looks_right(page, "the job after a failure")
    stays_here(page, training.origin)
    return page


def a_page_without_scripts_shows_the_same(chromium, training):
    page = chromium.page(javascript=False)
    page.open(training.url)
    for text in ("elastic", "running", "epoch 2", "SIGKILL", "Goodput", "Lost"):
        matches(page.text().lower(), text.lower())
    same(page.evaluate("document.querySelectorAll('noscript meta[http-equiv=refresh]').length"), 1)
    stays_here(page, training.origin)
    page.close()


def a_rank_shows_what_it_printed(chromium, training):
    page = chromium.page()
    page.open(training.url + "/ranks/1")
    page.until_text("began 1 ")
    looks_right(page, "a rank")
    stays_here(page, training.origin)
    page.close()


def the_end_is_seen_and_stays(chromium, training, page):
    training.end()
    page.until_text("■ stopped", "by SIGTERM", "exit code 143")
    same(page.evaluate("window.marker"), "the same page")
    page.open(training.url)
    page.until_text("SIGKILL", "epoch 2")
    page.open(training.url + "/report.html")
    page.until_text("elastic", "SIGKILL", "epoch 2")
    same(page.evaluate("document.scripts.length"), 0)
    stays_here(page, training.origin)


def a_running_job(chromium, _):
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(folder + "/state", 0o700)
        training = Training(folder)
        try:
            page = a_failure_is_seen_without_a_reload(chromium, training)
            a_page_without_scripts_shows_the_same(chromium, training)
            a_rank_shows_what_it_printed(chromium, training)
            the_end_is_seen_and_stays(chromium, training, page)
        finally:
            training.close()


def main():
    browser.need_browser()
    server = Server()
    with browser.Browser() as chromium:
        begun = time.monotonic()
        run([all_pages_keep_the_rules, no_text_becomes_markup,
             a_day_of_a_thousand_nodes_is_painted_in_time, the_keyboard_reaches_everything,
             a_running_job], chromium, server)
        print(f"{chromium.version}: {time.monotonic() - begun:.1f} s,"
              f" {chromium.cpu_s():.1f} s of it of the cores")
    server.close()


if __name__ == "__main__":
    main()
