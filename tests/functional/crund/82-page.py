#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 20 s
# sanitizers: no, other tests of the page's server run under them
"""
The page in a real browser: what it shows while a job fails and restarts, what stays while it
changes, with the keyboard alone, on narrow windows, in light and dark, by the rules of accessibility.
"""
import itertools
import json
import os
import re
import signal
import sys
import tempfile
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, PROGRAMS, Process, fail, matches, run, same, until  # noqa: E402
import browser  # noqa: E402
from control import Crund  # noqa: E402
from long_job import BEGUN_MS, DAY_MS, long_job  # noqa: E402
from page_server import PageServer, page_html, report_html  # noqa: E402

WIDTHS = 360, 900, 1600
KIB_MAX, PAINT_MAX_MS, CHANGE_MAX_MS = 200, 300, 50
SLOW = 10  # other tests have the cores too
HOSTILE = ('</script></style></title><script>window.owned = 1</script><img src=x onerror="owned=2">'
           '"\'><svg onload=owned=3>&lt;b&gt;\x1b[31m\u202egnp.exe')
NOW_MS = BEGUN_MS + DAY_MS


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


def show(chromium, job, path="/jobs/llama-70b", texts=()):
    """(page, server) with the page of a job that is made up."""
    server, page = PageServer([job]), chromium.page()
    page.open(server.origin + path)
    page.until("document.querySelector('h1').textContent !== 'crun'", "the page is drawn")
    page.until_text(*texts)
    return page, server


# -- pages of jobs that are made up -----------------------------------------------------------


def all_pages_keep_the_rules(chromium):
    early = {"job": "new", "name": "new", "state": "forming", "nodes": [], "history": None}
    ended = {**long_job(nodes=2, ended=True), "report": "all of it"}
    server = PageServer([long_job(nodes=64), {**ended, "job": "ended"}, early])
    server.put("/report.html", report_html(ended, NOW_MS))
    pages = {"/": "Restarts", "/jobs/llama-70b": "64 nodes", "/jobs/ended": "First failure",
             "/jobs/new": "waiting", "/jobs/llama-70b/ranks/56": "line 2", "/report.html": "Report of"}
    for path, text in pages.items():
        page = chromium.page()
        page.open(server.origin + path)
        page.until_text(text)
        looks_right(page, path)
        stays_here(page, server.origin)
        page.close()
    server.close()


def no_text_becomes_markup(chromium):
    job = long_job(nodes=3, run_id=HOSTILE, text=HOSTILE)
    for node in job["nodes"]:
        node["host"] = node["note"] = node["address"] = HOSTILE
    job.update(notice=HOSTILE, program=HOSTILE, report=HOSTILE, state=HOSTILE)
    server = PageServer([job])
    server.texts = {"logs": HOSTILE, "stacks": HOSTILE}
    server.put("/report", report_html(job, NOW_MS))
    hostile = "/jobs/" + "".join(f"%{byte:02x}" for byte in HOSTILE.encode())
    for path in ("/", hostile, hostile + "/ranks/0", "/report"):
        page = chromium.page()
        page.open(server.origin + path)
        page.until_text('<script>window.owned = 1</script><img src=x onerror="owned')
        same(page.evaluate("[typeof owned, document.images.length, "
                           "document.querySelectorAll('main script, main style').length]"),
             ["undefined", 0, 0])
        for character in "\x1b\u202e":
            same(character in page.text() + page.evaluate("document.title"), False)
        same(page.scrolls_sideways(), 0)
        stays_here(page, server.origin)
        page.close()
    server.close()


MEASURE = """(() => {
    window.changes = 0, window.frames = [];
    new MutationObserver(all => { changes += all.length; })
        .observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true });
    const later = requestAnimationFrame;
    window.requestAnimationFrame = draw => later(at => {
        const begun = performance.now();
        draw(at);
        frames.push(performance.now() - begun);
    });
})()"""


def a_thousand_nodes_are_painted_in_time_and_only_what_differs_changes(chromium):
    page, server = show(chromium, long_job(), texts=["1,000 nodes"])
    painted_ms = page.first_paint_ms()
    same(len(page_html()) < KIB_MAX << 10, True)
    page.evaluate(MEASURE)

    def change(job):
        job["nodes"][500].update(step=1, xid=31, xids=1)
        job["step"] += 1
    server.change("llama-70b", change)
    page.until_text("11 with a GPU error")
    changes, slowest_ms = page.evaluate("[changes, Math.max(...frames)]")
    print(f"  first paint after {painted_ms:.0f} ms, an update takes {slowest_ms:.0f} ms, {changes} changes")
    if painted_ms > PAINT_MAX_MS * SLOW or slowest_ms > CHANGE_MAX_MS * SLOW or changes > 300:
        fail(painted_ms, slowest_ms, changes)
    for width in WIDTHS:
        page.look(width, 800)
        same(page.scrolls_sideways(), 0)
    stays_here(page, server.origin)
    server.close()
    page.close()


ROWS = "[...document.querySelectorAll('#nodes tbody th')].map(e => e.textContent)"
TYPE = """((selector, text) => {
    const e = document.querySelector(selector);
    e.focus();
    e.value = text;
    e.dispatchEvent(new Event(e.localName === 'select' ? 'change' : 'input', { bubbles: true }));
})"""


def nodes_are_searched_sorted_and_coloured(chromium):
    page, server = show(chromium, long_job(nodes=300), texts=["300 nodes"])
    same(page.evaluate(ROWS)[0], "gpu-node-00009")  # the worst first
    page.evaluate("[...document.querySelectorAll('#nodes .sort')].find(e => e.innerText === 'Power').click()")
    page.until(f"{ROWS}[0] === 'gpu-node-00299'", "the order by power")
    page.evaluate(TYPE + "('#search', 'rank 57')")
    page.until(f"{ROWS}.join() === 'gpu-node-00007'", "one node")
    page.evaluate(TYPE + "('#nodes select', 'heat')")
    page.until_text("median 67 °C")
    page.press("Escape")  # the select has the focus, not the search
    page.evaluate("document.querySelector('#search').focus()")
    page.press("Escape")
    page.until("document.querySelectorAll('.map .cell').length === 300", "all nodes again")
    page.evaluate("document.querySelector('.map [tabindex=\"0\"]').focus()")
    for key in ("End", "ArrowLeft"):
        page.press(key)
    page.until("document.querySelector('.panel h3').innerText === 'gpu-node-00298'", "the node's values")
    server.close()
    page.close()


KEPT = """[document.querySelector('#search').value, document.activeElement.id, scrollY > 100,
    document.querySelector('#epochs details').open, document.querySelector('.chips .note') !== null]"""


def what_the_reader_chose_stays(chromium):
    page, server = show(chromium, long_job(nodes=24), texts=["24 nodes", "Loss"])
    page.evaluate("document.querySelector('#curves .canvas').focus()")
    for key in ("ArrowLeft", "ArrowLeft"):
        page.press(key)
    page.until_text(", step 860,598")
    page.press("+")
    page.evaluate("document.querySelector('#epochs details').open = true; scrollTo(0, 300)")
    page.evaluate(TYPE + "('#search', 'node-0001')")
    page.until(f"{ROWS}.length === 10", "ten nodes")
    before = page.evaluate(KEPT)
    same(before, ["node-0001", "search", True, True, True])
    server.change("llama-70b", lambda job: job.update(step=863999, epoch=65))
    page.until_text("863,999", "epoch 65")
    same(page.evaluate(KEPT), before)
    server.jobs["llama-70b"].update(epoch=66)
    server.close_streams()
    page.until_text("Not live since")
    page.until_text("epoch 66")  # the stream is opened again and begins with all
    page.until("document.querySelector('#live').hidden", "it is live again")
    same(page.evaluate(KEPT), before)
    server.close()
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


def the_keyboard_reaches_everything(chromium):
    page, server = show(chromium, long_job(nodes=8), texts=["8 nodes", "Output of rank"])
    stops = []
    for _ in range(200):
        page.press("Tab")
        stop = page.evaluate(FOCUSED)
        if stop is None or stops and stop["order"] <= stops[-1]["order"]:
            break  # round
        stops.append(stop)
    same(len(stops) > 30, True)
    for stop in stops:
        if not stop["seen"] or not stop["ring"]:
            fail("the focus cannot be seen on", stop)
    same([s["at"] for s in stops], sorted(s["at"] for s in stops))
    server.close()
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
    page.until("window.kept = document.querySelector('main a[href*=ranks]')", "links to ranks")
    page.evaluate("window.marker = 'the same page'; kept.focus()")
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


def a_page_without_scripts_leads_to_the_json(chromium, training):
    page = chromium.page(javascript=False)
    page.open(training.url)
    page.until_text("drawn by a script")
    page.open(training.origin + page.evaluate("document.querySelector('noscript a').getAttribute('href')"))
    same([job["job"] for job in json.loads(page.text())["jobs"]], ["elastic"])
    stays_here(page, training.origin)
    page.close()


def a_rank_shows_what_it_printed_and_does(chromium, training):
    page = chromium.page()
    page.open(training.url + "/ranks/1")
    page.until_text("began 1 ")
    page.evaluate("document.querySelector('#stacks button').click()")
    page.until("document.querySelector('#stacks pre')", "stacks")
    looks_right(page, "a rank")
    stays_here(page, training.origin)
    page.close()


def the_end_is_seen_and_stays(chromium, training, page):
    training.end()
    page.until_text("■ stopped", "by SIGTERM", "exit code 143")
    same(page.evaluate("[marker, document.querySelector('#live').hidden]"), ["the same page", True])
    page.open(training.url)
    page.until_text("SIGKILL", "epoch 2")
    requests = len(page.requests)
    page.open(training.url + "/report.html")
    page.until_text("Report of job elastic", "SIGKILL", "epoch 2")
    same(len(page.requests) - requests, 1)  # the report itself
    stays_here(page, training.origin)


def a_running_job(chromium):
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(folder + "/state", 0o700)
        training = Training(folder)
        try:
            page = a_failure_is_seen_without_a_reload(chromium, training)
            a_page_without_scripts_leads_to_the_json(chromium, training)
            a_rank_shows_what_it_printed_and_does(chromium, training)
            the_end_is_seen_and_stays(chromium, training, page)
        finally:
            training.close()


def main():
    browser.need_browser()
    with browser.Browser() as chromium:
        begun = time.monotonic()
        run([all_pages_keep_the_rules, no_text_becomes_markup,
             a_thousand_nodes_are_painted_in_time_and_only_what_differs_changes,
             nodes_are_searched_sorted_and_coloured, what_the_reader_chose_stays,
             the_keyboard_reaches_everything, a_running_job], chromium)
        print(f"{chromium.version}: {time.monotonic() - begun:.1f} s,"
              f" {chromium.cpu_s():.1f} s of it of the cores")


if __name__ == "__main__":
    main()
