"""A page that follows a run: served on this machine only (127.0.0.1), it asks for the state while it changes.

    with LiveView(8123) as live:
        live.show({"title": ..., "positions": ..., ...})     # as `viewer.trajectory_document` makes it

The page is that of `graphopt view`. States are made only while a page asks: `is_watched`.
"""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from graphopt.errors import OptionError
from graphopt.evaluate.report.viewer import filled, trajectory_document

__all__ = ["LiveView"]

HOST = "127.0.0.1"
_PATIENCE = 3.0
"""[s] after its last question a page counts as gone."""
_NAMES = ("127.0.0.1", "localhost")


class LiveView:
    """A server in threads of its own; closed at the end of its `with`."""

    def __init__(self, port: int = 0):
        """port: 0 for any that is free. Raises `OptionError` where the port is taken."""
        self._state = b""
        self._asked = -np.inf
        try:
            self._server = _Server((HOST, port), self)
        except (OSError, OverflowError) as error:
            raise OptionError(f"--live {port}: cannot listen there ({error}). Choose another port.") from None
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """Where a browser finds it."""
        return f"http://{HOST}:{self._server.server_address[1]}/"

    @property
    def is_watched(self) -> bool:
        """A page asked for the state a short time ago."""
        return time.monotonic() - self._asked < _PATIENCE

    def show(self, document: dict[str, Any]) -> None:
        """The state that pages get from now on."""
        self._state = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Status, type and content of a path."""
        if path == "/":
            empty = {"now": {"estimate": np.zeros((0, 3)), "truth": [], "error_m": [], "times_s": []}}
            page = filled({**trajectory_document(empty, "waiting for a run"), "is_live": True})
            return 200, "text/html; charset=utf-8", page.encode()
        if path == "/state":
            self._asked = time.monotonic()
            return (200 if self._state else 204), "application/json", self._state
        return 404, "text/plain", b"there is / and /state\n"

    def close(self) -> None:
        """End the server; pages then say that nothing runs."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> LiveView:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, place: tuple[str, int], view: LiveView):
        self.view = view
        super().__init__(place, _Handler)


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """Answer browsers that address this machine by its own name; others could be led here by theirs."""
        name = (self.headers.get("Host") or "").rpartition(":")[0] or self.headers.get("Host")
        if name not in _NAMES:
            status, kind, content = 403, "text/plain", b"only for 127.0.0.1 and localhost\n"
        else:
            assert isinstance(self.server, _Server)
            status, kind, content = self.server.view.answer(self.path)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the terminal has the evaluation's progress."""
