"""Visitors of the pages of an application: readers who look at everything, and connections that say nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable
from contextlib import ExitStack
from itertools import cycle
from types import TracebackType
from urllib.request import urlopen

_PATHS = (
    *("/", "/topology", "/tasks", "/commits", "/state", "/errors", "/changes", "/metrics", "/topology.svg"),
    *("/api/v1/overview", "/api/v1/history", "/api/v1/stores", "/api/v1/stores/counts?limit=20", "/health/ready"),
)
_EVERY_SECONDS = 0.3
_SILENT = 8


class Visitors:
    """Threads that visit until the end of the block; `visits` says how many requests were answered."""

    def __init__(self, pages: str, metrics: str) -> None:
        """Take the addresses of the pages and of the metrics, with a slash at the end."""
        self.visits = 0
        self._pages = pages.rstrip("/")
        self._metrics = metrics
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._read, args=([*(self._pages + path for path in _PATHS), metrics],)),
            threading.Thread(target=self._follow),
            threading.Thread(target=self._say_nothing),
        ]

    def __enter__(self) -> Visitors:
        for each in self._threads:
            each.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        for each in self._threads:
            each.join()

    def _read(self, addresses: Iterable[str]) -> None:
        for address in cycle(addresses):
            if self._over.wait(_EVERY_SECONDS):
                return
            self._visit(address, lines=None)

    def _follow(self) -> None:
        """Open pages that follow the application, a new one every few seconds."""
        while not self._over.wait(_EVERY_SECONDS):
            self._visit(f"{self._pages}/events", lines=20)

    def _visit(self, address: str, lines: int | None) -> None:
        try:
            with urlopen(address, timeout=30) as answer:
                for _ in answer if lines is None else range(lines):
                    if lines is not None:
                        answer.readline()
            self.visits += 1
        except OSError:  # 503 while it starts; the test looks at how many were answered
            return

    def _say_nothing(self) -> None:
        while not self._over.is_set():
            with ExitStack() as stack:
                for port in (self._pages, self._metrics):
                    host, number = port.removeprefix("http://").rstrip("/").split(":")
                    for _ in range(_SILENT):
                        stack.enter_context(socket.create_connection((host, int(number.split("/")[0])), 30))
                self._over.wait(20)
