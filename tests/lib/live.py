# SPDX-License-Identifier: MIT
"""A live object of the page's API: its stream of server-sent events, as a browser reads it."""
import copy
import json
import re
import socket
import time

from process import SECONDS, fail


def apply_patch(value, patch):
    """RFC 6902, of what the API sends."""
    value = copy.deepcopy(value)
    for change in patch:
        *path, last = change["path"].split("/")[1:] or [None]
        where = value
        for name in path:
            where = where[int(name) if isinstance(where, list) else name]
        if last is None:
            value = change["value"]
        elif isinstance(where, list):
            at = int(last)
            assert at <= len(where) - (change["op"] != "add"), (change, where)
            if change["op"] == "add":
                where.insert(at, change["value"])
            elif change["op"] == "remove":
                del where[at]
            else:
                where[at] = change["value"]
        else:
            assert change["op"] != "replace" or last in where, change
            where[last] = change["value"]
    return value


class Live:
    """Keeps the object as a browser does. `events` are the names of those that came."""

    def __init__(self, port, path, headers="", receive_buffer=None, connect=socket.socket):
        self.socket = connect()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(20)
        self.socket.connect(("127.0.0.1", port))
        self.socket.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode())
        self.head, self.raw, self.text = None, b"", b""
        self.object, self.events, self.is_closed = None, [], False
        self.bytes = 0

    def _unchunk(self):
        if self.head is None and b"\r\n\r\n" in self.raw:
            head, self.raw = self.raw.split(b"\r\n\r\n", 1)
            self.head = head.decode()
        while self.head is not None and (found := re.match(rb"([0-9a-fA-F]+)\r\n", self.raw)):
            size, begin = int(found[1], 16), found.end()
            if len(self.raw) < begin + size + 2:
                return
            self.text += self.raw[begin:begin + size]
            self.raw = self.raw[begin + size + 2:]

    def _take(self, event):
        lines = dict(line.split(": ", 1) for line in event.split("\n") if not line.startswith(":"))
        if not lines:
            return
        self.events.append(lines["event"])
        data = json.loads(lines["data"])
        if lines["event"] == "whole":
            self.object = data
        elif lines["event"] == "patch":
            if self.object is None:
                fail("a patch comes before the whole object")
            self.object = apply_patch(self.object, data)

    def read(self, seconds=0.05):
        """What has come within that time. False: the connection has ended."""
        self.socket.settimeout(seconds)
        try:
            data = self.socket.recv(1 << 20)
        except TimeoutError:
            return True
        except ConnectionError:
            data = b""
        self.is_closed = not data
        self.bytes += len(data)
        self.raw += data
        self._unchunk()
        *events, self.text = self.text.split(b"\n\n")
        for event in events:
            self._take(event.decode())
        return not self.is_closed

    def until(self, condition, what, seconds=SECONDS):
        until_s = time.monotonic() + seconds
        while not condition(self):
            if time.monotonic() > until_s:
                fail(what, "does not come:", self.events, self.object)
            if not self.read() and not condition(self):
                fail("the stream has ended before", what, self.head, self.events)
        return self.object

    def close(self):
        self.socket.close()
