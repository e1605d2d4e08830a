# SPDX-License-Identifier: MIT
"""
A real browser: Debian's Chromium without a window, driven by its DevTools protocol over two pipes
(its descriptors 3 and 4; JSON messages that end with NUL).

    with Browser() as browser:
        page = browser.page(width=800, dark=True)
        page.open("http://127.0.0.1:8080/")
        page.until("document.title === 'done'", "the title")
        same(page.complaints, [])

Events are taken from the pipe while a call or a poll waits; there is no thread.
"""
import base64
import itertools
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import tempfile
import time

from process import SECONDS, fail, skip, until

LIB = pathlib.Path(__file__).resolve().parent
# the shell needs fewer packages; the script /usr/bin/chromium only adds flags for a desktop
PROGRAMS = ("chromium-headless-shell", "/usr/lib/chromium/chromium", "chromium")
FLAGS = ("--headless", "--no-sandbox", "--remote-debugging-pipe", "--disable-gpu",
         "--disable-dev-shm-usage", "--no-first-run", "--no-proxy-server",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--disable-extensions", "--mute-audio", "--password-store=basic",
         # pages in the background are as quick as that in front
         "--disable-background-timer-throttling", "--disable-renderer-backgrounding",
         "--disable-backgrounding-occluded-windows")
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "End": 35, "Home": 36, "ArrowLeft": 37,
        "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "+": 187}
SHIFT = 8
MESSAGE_MAX = 64 << 20


def program():
    """The browser's path, or None."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


def need_browser():
    if not program():
        skip("no Chromium", "apt-get install chromium-headless-shell")


class Browser:
    """The process and its pipes; all its processes end with it."""

    def __init__(self, seconds=SECONDS):
        self.folder = tempfile.mkdtemp(prefix="crun-browser-")
        self.log = open(os.path.join(self.folder, "log"), "w+")
        self.numbers, self.buffer = itertools.count(1), b""
        self.answers, self.pages = {}, {}
        self._start()
        self.version = self.call("Browser.getVersion", seconds=seconds)["product"]

    def _start(self):
        commands, self.commands = os.pipe()
        self.events, events = os.pipe()
        os.set_blocking(self.commands, False)
        # a shell gives the pipes the numbers 3 and 4: code of ours between fork and exec could hang
        words = ["sh", "-c", f'exec "$@" 3<&{commands} 4>&{events}', "sh", program(), *FLAGS,
                 f"--user-data-dir={self.folder}/profile", "about:blank"]
        env = {**os.environ, "HOME": self.folder, "XDG_RUNTIME_DIR": self.folder}
        self.process = subprocess.Popen(words, pass_fds=(commands, events), env=env,
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        start_new_session=True)
        os.close(commands)
        os.close(events)

    # -- messages -------------------------------------------------------------------------

    def _write(self, data, end):
        while data:
            if not select.select([], [self.commands], [], max(0, end - time.monotonic()))[1]:
                self._fail("it takes no commands")
            try:
                data = data[os.write(self.commands, data[:65536]):]
            except BrokenPipeError:
                self._fail("it has ended")

    def pump(self, seconds=0):
        """Takes what has arrived, and waits so long for something; whether there was anything."""
        if not select.select([self.events], [], [], max(0, seconds))[0]:
            return False
        data = os.read(self.events, 1 << 20)
        if not data:
            self._fail("it has ended")
        self.buffer += data
        if len(self.buffer) > MESSAGE_MAX:
            self._fail("its message is too large")
        *messages, self.buffer = self.buffer.split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self.answers[message["id"]] = message
            elif message.get("sessionId") in self.pages:
                self.pages[message["sessionId"]].on_event(message["method"], message["params"])
        return True

    def call(self, method, params=None, session=None, seconds=SECONDS):
        number, end = next(self.numbers), time.monotonic() + seconds
        message = {"id": number, "method": method, "params": params or {}}
        if session:
            message["sessionId"] = session
        self._write(json.dumps(message).encode() + b"\0", end)
        while number not in self.answers:
            left = end - time.monotonic()
            if left <= 0:
                self._fail(f"no answer to {method} within {seconds} s")
            self.pump(left)
        answer = self.answers.pop(number)
        if "error" in answer:
            self._fail(f"{method}: {answer['error']}")
        return answer["result"]

    def _fail(self, why):
        self.log.seek(0)
        fail(f"browser: {why}\n{self.log.read()[-2000:]}")

    # -- pages ------------------------------------------------------------------------------

    def page(self, width=1280, height=900, dark=False, javascript=True):
        """A new page with cookies of its own."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget",
                           {"url": "about:blank", "browserContextId": context})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})
        page = Page(self, target, session["sessionId"])
        self.pages[page.session] = page
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        if not javascript:
            page.call("Emulation.setScriptExecutionDisabled", value=True)
        page.look(width, height, dark)
        return page

    def cpu_s(self):
        """Seconds of all its processes that still live."""
        used = 0
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat") as stat:
                    fields = stat.read().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == self.process.pid:  # its session
                used += sum(map(int, fields[11:15]))
        return used / os.sysconf("SC_CLK_TCK")

    def close(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        os.close(self.commands)
        os.close(self.events)
        self.log.close()
        # processes of the group may still end, and write until then
        until(lambda: shutil.rmtree(self.folder, ignore_errors=True) or
              not os.path.exists(self.folder), "the end of the browser's folder")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Page:
    """
    One tab. `complaints` has all that its console shows and each exception, `requests` the address
    of each request.
    """

    def __init__(self, browser, target, session):
        self.browser, self.target, self.session = browser, target, session
        self.complaints, self.requests, self.failed_requests = [], [], []
        self.loaded = 0
        self.address = {}

    def call(self, method, **params):
        return self.browser.call(method, params, self.session)

    def on_event(self, method, params):
        if method == "Page.loadEventFired":
            self.loaded += 1
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(" ".join(str(a.get("value", a.get("description")))
                                            for a in params["args"]))
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded":
            self.complaints.append(params["entry"]["text"] + " " + params["entry"].get("url", ""))
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
            self.address[params["requestId"]] = params["request"]["url"]
        elif method == "Network.loadingFailed":
            self.failed_requests.append(
                f"{self.address.get(params['requestId'])}: {params['errorText']}")

    # -- going somewhere --------------------------------------------------------------------

    def open(self, url):
        """Until its load event; live connections may go on."""
        loaded = self.loaded
        answer = self.call("Page.navigate", url=url)
        if "errorText" in answer:
            fail(f"{url}: {answer['errorText']}")
        self._until_loaded(loaded, url)

    def reload(self):
        loaded = self.loaded
        self.call("Page.reload")
        self._until_loaded(loaded, "the page again")

    def _until_loaded(self, loaded, what):
        until(lambda: self.browser.pump(0.05) and self.loaded > loaded or self.loaded > loaded,
              f"loading {what}", pause=0)

    def close(self):
        self.browser.call("Target.closeTarget", {"targetId": self.target})
        self.browser.pages.pop(self.session)

    # -- looking ----------------------------------------------------------------------------

    def look(self, width=1280, height=900, dark=False, scale=1):
        """How wide the window is and which colours the user prefers."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=scale, mobile=False)
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        # a change of colours is seen at its end
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.call("Emulation.setEmulatedMedia", features=[theme, still])

    def evaluate(self, expression):
        """The value of the expression, as JSON has it; a promise is awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            fail(f"{expression[:200]}: "
                 f"{details.get('exception', {}).get('description', details['text'])}")
        return answer["result"].get("value")

    def until(self, condition, what, seconds=SECONDS):
        """Polls until the expression is true; its value."""
        return until(lambda: self.evaluate(condition),
                     lambda: f"{what}\n{self.text()[:4000]}\n{self.complaints}", seconds, pause=0.02)

    def text(self):
        """What a reader sees."""
        return self.evaluate("document.body ? document.body.innerText : ''")

    def until_text(self, *texts, seconds=SECONDS):
        for text in texts:
            self.until(f"document.body?.innerText.includes({json.dumps(text)})", text, seconds)

    def first_paint_ms(self):
        """From the start of the navigation until the first text or picture is painted."""
        paint = "performance.getEntriesByName('first-contentful-paint')[0]"
        return self.until(f"{paint} && {paint}.startTime", "the first paint")

    def bytes(self):
        """Of the document: those that travelled, and those without compression."""
        return self.evaluate("(e => [e.transferSize, e.decodedBodySize])"
                             "(performance.getEntriesByType('navigation')[0])")

    def screenshot(self, path, whole=True):
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        pathlib.Path(path).write_bytes(base64.b64decode(shot["data"]))

    def scrolls_sideways(self):
        """By how many pixels the page is wider than the window."""
        return self.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")

    def faults(self):
        """What page_rules.js finds."""
        return self.evaluate((LIB / "page_rules.js").read_text())

    # -- acting -----------------------------------------------------------------------------

    def press(self, key, shift=False):
        code = KEYS[key]
        event = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": code,
                 "modifiers": SHIFT if shift else 0}
        text = {"Enter": "\r", " ": " "}.get(key)
        self.call("Input.dispatchKeyEvent", **event, type="keyDown" if text else "rawKeyDown",
                  **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", **event, type="keyUp")
