# SPDX-License-Identifier: MIT
"""
The page and its API without a rendezvous: objects as `crunctl status --json` prints them, answers
that are made up, and a stream of patches.

    server = PageServer([job])
    page.open(server.origin + "/jobs/llama-70b")
    server.change("llama-70b", lambda job: job.update(state="done"))
"""
import base64
import copy
import hashlib
import http.server
import json
import pathlib
import queue
import re
import threading
import urllib.parse

PAGE = pathlib.Path(__file__).resolve().parents[2] / "rendezvous/show/web"
VIEWER = {"version": "0.1.0", "now_ms": 0, "server": "-e 127.0.0.1:29500", "sees_output": True,
          "has_list": True}


def source(name):
    return (PAGE / name).read_text()


def script():
    """The parts, in the order of page.c."""
    return "".join(source(name) for name in re.findall(r"page_\w+\.js", source("page.c")))


def digest(text):
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def policy():
    return (f"default-src 'none'; style-src {digest(source('page.css'))}; img-src data:; "
            f"script-src {digest(script())}; connect-src 'self'; base-uri 'none'; "
            "form-action 'none'")


def page_html(embedded="", meta=""):
    html = source("page.html")
    for mark, text in (("policy", meta), ("job", embedded), ("css", source("page.css")),
                       ("js", script())):
        html = html.replace(f"<!--{mark}-->", text)
    return html.encode()


def report_html(job, now_ms):
    """As crunctl report writes it."""
    scripts = "".join(f'<script type="application/json" id="{name}">'
                      + json.dumps(o).replace("<", "\\u003c") + "</script>"
                      for name, o in (("job", job), ("viewer", {**VIEWER, "now_ms": now_ms})))
    return page_html(scripts, f'<meta http-equiv="Content-Security-Policy" content="{policy()}">')


def patch(before, after, path=""):
    """The operations of RFC 6902 by which one becomes the other, as cJSONUtils_GeneratePatches."""
    if type(before) is type(after) is dict:
        for key in sorted(set(before) | set(after)):
            at = path + "/" + key.replace("~", "~0").replace("/", "~1")
            if key not in after:
                yield {"op": "remove", "path": at}
            elif key not in before:
                yield {"op": "add", "path": at, "value": after[key]}
            else:
                yield from patch(before[key], after[key], at)
    elif type(before) is type(after) is list:
        for i, (old, new) in enumerate(zip(before, after)):
            yield from patch(old, new, f"{path}/{i}")
        for _ in before[len(after):]:
            yield {"op": "remove", "path": f"{path}/{len(after)}"}
        for new in after[len(before):]:
            yield {"op": "add", "path": path + "/-", "value": new}
    elif before != after:
        yield {"op": "replace", "path": path, "value": after}


def brief(job):
    return {name: value for name, value in job.items() if name not in ("nodes", "history")}


class PageServer:
    def __init__(self, jobs=(), **viewer):
        self.jobs = {job["job"]: job for job in jobs}
        self.viewer = {**VIEWER, **viewer}
        self.texts = {"logs": "line 1\nline 2\n", "stacks": "thread 1\n  train.py:7 in step\n"}
        self.statics, self.streams = {}, []
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.http.daemon_threads = True
        self.origin = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def _handler(self):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(handler):
                self._answer(handler, urllib.parse.urlsplit(handler.path).path)

            def log_message(handler, *_):
                pass
        return Handler

    def _answer(self, handler, path):
        words = [urllib.parse.unquote(word) for word in path.split("/")[1:]]
        if path in self.statics:
            self._send(handler, "text/html; charset=utf-8", self.statics[path], report=True)
        elif words[0] != "api":
            self._send(handler, "text/html; charset=utf-8", page_html())
        elif words[-1] == "live":
            self._stream(handler, words[3] if len(words) == 5 else None)
        elif words[-1] in self.texts:
            self._send(handler, "text/plain; charset=utf-8", self.texts[words[-1]].encode())
        elif words[2] == "viewer":
            self._send(handler, "application/json", json.dumps(self.viewer).encode())
        elif len(words) == 3 or words[3] in self.jobs:
            o = self.object(words[3] if len(words) == 4 else None)
            self._send(handler, "application/json", json.dumps(o).encode())
        else:
            self._send(handler, "application/json", b'{"error": "there is no such job here"}', 404)

    def object(self, run_id):
        return self.jobs[run_id] if run_id else {"jobs": [brief(job) for job in self.jobs.values()]}

    def _send(self, handler, kind, body, status=200, report=False):
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        if not report:
            handler.send_header("Content-Security-Policy", policy())
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def _stream(self, handler, run_id):
        if run_id and run_id not in self.jobs:
            return self._send(handler, "application/json", b'{"error": "there is no such job here"}', 404)
        news, shown = queue.Queue(), copy.deepcopy(self.object(run_id))
        self.streams.append(news)
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.end_headers()
        try:
            self._event(handler, "whole", shown)
            while shown.get("state") != "done" and news.get() is not None:
                fresh = copy.deepcopy(self.object(run_id))
                self._event(handler, "patch", list(patch(shown, fresh)))
                shown = fresh
            if shown.get("state") == "done":
                self._event(handler, "end", {})
        except OSError:
            pass
        self.streams.remove(news)

    def _event(self, handler, name, o):
        handler.wfile.write(f"event: {name}\ndata: {json.dumps(o)}\n\n".encode())
        handler.wfile.flush()

    def change(self, run_id, change):
        change(self.jobs[run_id])
        for news in list(self.streams):
            news.put(True)

    def put(self, path, body):
        self.statics[path] = body
        return self.origin + path

    def close_streams(self):
        for news in list(self.streams):
            news.put(None)

    def close(self):
        self.close_streams()
        self.http.shutdown()
