#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 30 s
# sanitizers: no, other tests of the page's server run under them
"""
The page in a real browser: what it shows while a job fails and restarts, what stays, with the keyboard
alone, on narrow windows, in light and dark, by the rules of accessibility.
"""
import contextlib
import itertools
import json
import os
import re
import signal
import sys
import tempfile

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, PROGRAMS, Process, fail, matches, run, same, slowdown, until  # noqa: E402
import browser  # noqa: E402
from control import Crund  # noqa: E402
from long_job import BEGUN_MS, DAY_MS, long_job  # noqa: E402
from page_server import PageServer, page_html, report_html  # noqa: E402

WIDTHS = 360, 900, 1600
KIB_MAX, PAINT_MAX_MS, CHANGES_MAX = 200, 300, 300
SLOW = 10  # other tests have the cores too
HOSTILE = ('</script></style></title><script>window.owned = 1</script><img src=x onerror="owned=2">'
           '"\'><svg onload=owned=3>&lt;b&gt;\x1b[31m\u202egnp.exe')


@contextlib.contextmanager
def visit(chromium, origin, path, *texts, javascript=True):
    """A page that shows these texts; it makes no complaint, and no request to another address."""
    page = chromium.page(javascript=javascript)
    page.open(origin + path)
    page.until_text(*texts)
    yield page
    same(page.complaints, [])
    same([url for url in page.requests if not url.startswith((origin + "/", "data:"))], [])
    page.close()


@contextlib.contextmanager
def shown(chromium, nodes, *texts):
    """(page, server) of a job of so many nodes that is made up."""
    server = PageServer([long_job(nodes)])
    with visit(chromium, server.origin, "/jobs/llama-70b", *texts) as page:
        yield page, server
    server.close()


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


def all_pages_keep_the_rules(chromium):
    early = {"job": "new", "name": "new", "state": "forming", "nodes": [], "history": None}
    ended = {**long_job(nodes=2, ended=True), "report": "all of it"}
    server = PageServer([long_job(nodes=64), {**ended, "job": "ended"}, early])
    server.put("/report.html", report_html(ended, BEGUN_MS + DAY_MS))
    for path, text in {"/": "Restarts", "/jobs/llama-70b": "64 nodes", "/jobs/ended": "First failure",
                       "/jobs/new": "waiting", "/jobs/llama-70b/ranks/56": "line 2",
                       "/report.html": "Report of"}.items():
        with visit(chromium, server.origin, path, text) as page:
            looks_right(page, path)
    server.close()


def no_text_becomes_markup(chromium):
    job = long_job(nodes=3, run_id=HOSTILE, text=HOSTILE)
    for node in job["nodes"]:
        node["host"] = node["note"] = node["address"] = HOSTILE
    job.update(notice=HOSTILE, program=HOSTILE, report=HOSTILE, state=HOSTILE)
    server = PageServer([job])
    server.texts = {"logs": HOSTILE, "stacks": HOSTILE}
    server.put("/report", report_html(job, BEGUN_MS + DAY_MS))
    hostile = "/jobs/" + "".join(f"%{byte:02x}" for byte in HOSTILE.encode())
    for path in ("/", hostile, hostile + "/ranks/0", "/report"):
        seen = '<script>window.owned = 1</script><img src=x onerror="owned'
        with visit(chromium, server.origin, path, seen) as page:
            same(page.evaluate("[typeof owned, document.images.length, "
                               "document.querySelectorAll('main script, main style').length]"),
                 ["undefined", 0, 0])
            for character in "\x1b\u202e":
                same(character in page.text() + page.evaluate("document.title"), False)
            same(page.scrolls_sideways(), 0)
    server.close()


COUNT_CHANGES = """window.changes = 0;
    new MutationObserver(all => { changes += all.length; })
        .observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true })"""


def a_thousand_nodes_are_painted_in_time_and_only_what_differs_changes(chromium):
    with shown(chromium, 1000, "1,000 nodes") as (page, server):
        painted_ms, kib = page.first_paint_ms(), len(page_html()) >> 10
        page.evaluate(COUNT_CHANGES)
        server.change("llama-70b", lambda job: job["nodes"][500].update(step=1, xid=31, xids=1))
        page.until_text("11 with a GPU error")
        changes = page.evaluate("changes")
        print(f"  {kib} KiB, first paint after {painted_ms:.0f} ms, then {changes} changes")
        if kib > KIB_MAX or painted_ms > PAINT_MAX_MS * SLOW * slowdown() or changes > CHANGES_MAX:
            fail(painted_ms, changes)


ROWS = "[...document.querySelectorAll('#nodes tbody th')].map(e => e.textContent)"
TYPE = """((selector, text) => {
    const e = document.querySelector(selector);
    e.focus();
    e.value = text;
    e.dispatchEvent(new Event(e.localName === 'select' ? 'change' : 'input', { bubbles: true }));
})"""


def nodes_are_searched_sorted_and_coloured(chromium):
    with shown(chromium, 300, "300 nodes") as (page, server):
        same(page.evaluate(ROWS)[0], "gpu-node-00009")  # the worst first
        page.evaluate("[...document.querySelectorAll('.sort')].find(e => e.innerText === 'Power').click()")
        page.until(f"{ROWS}[0] === 'gpu-node-00299'", "the order by power")
        page.evaluate(TYPE + "('#search', 'rank 57')")
        page.until(f"{ROWS}.join() === 'gpu-node-00007'", "one node")
        page.evaluate(TYPE + "('#nodes select', 'heat')")
        page.until_text("median 67 °C")
        page.evaluate("document.querySelector('#search').focus()")
        page.press("Escape")
        page.until("document.querySelectorAll('.map .cell').length === 300", "all nodes again")
        page.evaluate("document.querySelector('.map [tabindex=\"0\"]').focus()")
        page.press("End")
        page.press("ArrowLeft")
        page.until("document.querySelector('.panel h3').innerText === 'gpu-node-00298'", "its values")


KEPT = """[document.querySelector('#search').value, document.activeElement.id, scrollY > 100,
    document.querySelector('#epochs details').open, document.querySelector('.chips .note') !== null]"""


def what_the_reader_chose_stays(chromium):
    with shown(chromium, 24, "24 nodes", "Loss") as (page, server):
        page.evaluate("document.querySelector('#curves .canvas').focus()")
        page.press("ArrowLeft")
        page.press("ArrowLeft")
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


def the_picked_node_stays_when_another_goes(chromium):
    with shown(chromium, 100, "100 nodes") as (page, server):
        page.evaluate("document.querySelectorAll('.map .cell')[50].focus()")
        page.until("document.querySelector('.panel h3').innerText === 'gpu-node-00050'", "its values")
        server.change("llama-70b", lambda job: job["nodes"].pop(3))
        page.until_text("99 nodes")
        same(page.evaluate("['.panel h3', '[aria-selected=true]', ':focus'].map(selector => "
                           "document.querySelector(selector)).map(e => e.ariaLabel || e.innerText)"),
             ["gpu-node-00050", "gpu-node-00050, running", "gpu-node-00050, running"])


# -- what is not so any more ------------------------------------------------------------------


def a_report_stays_of_its_time(chromium):
    server = PageServer([])
    server.put("/report", report_html(long_job(nodes=2), BEGUN_MS + DAY_MS))
    page = chromium.page()
    page.call("Page.addScriptToEvaluateOnNewDocument", source="Date.now = () => 2e12")
    page.open(server.origin + "/report")
    page.until_text("running since 2026-11-24 02:27:38 when this was written, at 2026-11-24 02:49:48")
    matches(page.evaluate("document.querySelector('#epochs .ends').innerText"), "2026-11-24 02:")
    matches(page.evaluate("document.title"), "^report: running")
    page.close()
    server.close()


def ages_are_right_when_a_clock_is_set(chromium):
    with shown(chromium, 2, "2 nodes", "(22 min)", "(24 h 0 m)") as (page, server):
        server.change("llama-70b", lambda job: job.update(age_ms=job["age_ms"] + 7200_000))
        page.until_text("(22 min)", "(26 h 0 m)")
        page.evaluate("(now => { Date.now = () => now() - 86400000; })(Date.now.bind(Date))")
        server.change("llama-70b", lambda job: job.update(age_ms=job["age_ms"] + 1000))
        page.until_text("(22 min)", "(26 h 0 m)")
        same(len([url for url in page.requests if url.endswith("/live")]), 1)


def what_the_epoch_before_did_is_not_shown_as_done_now(chromium):
    with shown(chromium, 2, "Rate", "Time left") as (page, server):
        def starts_again(job):
            job.update(step=None)
            for node in job["nodes"]:
                node.update(step=None, steps_per_s=None, loss=None)

        server.change("llama-70b", starts_again)
        page.until("!document.querySelector('#figures').innerText.match(/Rate|Loss|Time left/)", "no rate")
        matches(page.evaluate("document.querySelector('#figures').innerText"), "Step\\s+–\\s+of 1,000,000\n")


def a_step_is_in_memory_if_each_node_has_its_part(chromium):
    with shown(chromium, 3, "3 nodes") as (page, server):
        def hold(*steps):
            def change(job):
                for node, step in zip(job["nodes"], steps):
                    node.update(memory=step and {"step": step, "copied": None, "restored": None,
                                                 "bytes": 4096, "age_ms": 300})
            server.change("llama-70b", change)

        hold(1205, 1204, 1206)
        page.until("document.querySelector('#figures').innerText.match(/In memory\\s+1,204\\s+step/)", "the least")
        hold(1205, 1204, None)
        page.until("!document.querySelector('#figures').innerText.match(/In memory/)", "no step of all nodes")


def no_node_is_behind_one_that_is_silent(chromium):
    with shown(chromium, 5, "5 running") as (page, server):
        server.change("llama-70b", lambda job: job["nodes"][3].update(heard_ms_ago=60000))
        page.until_text("heard 60 s ago", "5 running")


def huge_numbers_are_drawn(chromium):
    job = long_job(nodes=2)
    job["history"]["curve"]["loss"][5:7] = [1.7e308, -1.7e308]
    server = PageServer([job])
    with visit(chromium, server.origin, "/jobs/llama-70b", "to 1.00e+300"):
        pass  # a path that is no path is a complaint
    server.close()


def another_job_after_the_end_is_live_again(chromium):
    """The page comes back from the browser's cache, and then the server goes."""
    server = PageServer([long_job(nodes=2, ended=True)])
    page = chromium.page()
    page.open(server.origin + "/jobs/llama-70b")
    page.until_text("First failure")
    server.jobs["llama-70b"] = long_job(nodes=2)
    for name in ("pagehide", "pageshow"):
        page.evaluate(f"dispatchEvent(new PageTransitionEvent('{name}', {{ persisted: true }}))")
    page.until_text("running since", "● live")
    server.http.server_close()
    server.close()
    page.until_text("Not live since")
    page.close()


def a_server_that_hangs_is_not_live(chromium):
    """Its connections stay, and new ones are accepted by the kernel alone."""
    with tempfile.TemporaryDirectory() as folder:
        crund = Crund(folder, "--http", "127.0.0.1:0")
        page = chromium.page()
        page.open(re.search(r"(http://127\.0\.0\.1:\d+)", crund.log())[1])
        page.until_text("There are no jobs", "● live")
        os.kill(crund.pid, signal.SIGSTOP)
        page.evaluate("(now => { Date.now = () => now() + 50000; })(Date.now.bind(Date))")
        page.until_text("Not live since")
        os.kill(crund.pid, signal.SIGCONT)
        page.until_text("● live")
        page.close()
        crund.stop()


FOCUSED = """(() => {
    const e = document.activeElement;
    if (e === document.body || e === document.documentElement)
        return null;
    e.dataset.order = e.dataset.order || (window.focused = (window.focused || 0) + 1);
    const s = getComputedStyle(e), r = e.getBoundingClientRect();
    const all = [...document.querySelectorAll("*")];
    return { order: Number(e.dataset.order), at: all.indexOf(e), is: e.outerHTML.slice(0, 90),
             seen: r.width > 0 && r.height > 0 && r.bottom > 0 && r.top < innerHeight,
             ring: s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 1 };
})()"""


def the_keyboard_reaches_everything(chromium):
    with shown(chromium, 8, "8 nodes", "Output of rank") as (page, _):
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


# -- a job that runs --------------------------------------------------------------------------


class Training:
    """An elastic job of two agents on a crund with a page."""

    def __init__(self, folder):
        self.crund = Crund(folder, "--http", "127.0.0.1:0", "--state-dir", folder + "/state")
        self.origin = re.search(r"(http://127\.0\.0\.1:\d+)", self.crund.log())[1]
        self.url = self.origin + "/jobs/elastic"
        self.agents = [Process(
            [BIN / "crun", "--nnodes=1:2", "--nproc-per-node=2", "--max-restarts=3", "--rdzv-id=elastic",
             f"--rdzv-endpoint=127.0.0.1:{self.crund.port}", "--no-python", sys.executable,
             PROGRAMS / "page_writer.py", "--until=1000000", "--step=0.02"]) for _ in range(2)]

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


def a_failure_is_seen_without_a_reload(page, training):
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


def a_page_without_scripts_leads_to_the_json(chromium, training):
    link = "document.querySelector('noscript a').getAttribute('href')"
    with visit(chromium, training.origin, "/jobs/elastic", "drawn by a script", javascript=False) as page:
        page.open(training.origin + page.evaluate(link))
        same([job["job"] for job in json.loads(page.text())["jobs"]], ["elastic"])


def a_rank_shows_what_it_printed_and_does(chromium, training):
    with visit(chromium, training.origin, "/jobs/elastic/ranks/1", "began 1 ") as page:
        page.evaluate("document.querySelector('#stacks button').click()")
        page.until("document.querySelector('#stacks pre')", "stacks")
        looks_right(page, "a rank")


def the_end_is_seen_and_stays(page, training):
    training.end()
    page.until_text("■ stopped", "by SIGTERM", "exit code 143")
    same(page.evaluate("[marker, document.querySelector('#live').hidden]"), ["the same page", True])
    page.open(training.url)
    page.until_text("SIGKILL", "epoch 2")
    page.requests.clear()
    page.open(training.url + "/report.html")
    page.until_text("Report of job elastic", "SIGKILL", "epoch 2")
    same(page.requests, [training.url + "/report.html"])


def a_running_job(chromium):
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(folder + "/state", 0o700)
        training = Training(folder)
        try:
            until(lambda: len(training.workers()) == 4, "four workers")
            with visit(chromium, training.origin, "/jobs/elastic", "elastic", "running", "epoch 1") as page:
                a_failure_is_seen_without_a_reload(page, training)
                a_page_without_scripts_leads_to_the_json(chromium, training)
                a_rank_shows_what_it_printed_and_does(chromium, training)
                the_end_is_seen_and_stays(page, training)
        finally:
            training.close()


def main():
    browser.need_browser()
    with browser.Browser() as chromium:
        run([all_pages_keep_the_rules, no_text_becomes_markup,
             a_thousand_nodes_are_painted_in_time_and_only_what_differs_changes,
             nodes_are_searched_sorted_and_coloured, what_the_reader_chose_stays,
             the_picked_node_stays_when_another_goes, a_report_stays_of_its_time,
             ages_are_right_when_a_clock_is_set, what_the_epoch_before_did_is_not_shown_as_done_now,
             a_step_is_in_memory_if_each_node_has_its_part, no_node_is_behind_one_that_is_silent, huge_numbers_are_drawn,
             another_job_after_the_end_is_live_again, a_server_that_hangs_is_not_live,
             the_keyboard_reaches_everything, a_running_job], chromium)


if __name__ == "__main__":
    main()
