"""The newest query of an application. A pause and the taps outlast each query."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from penstock.host.spark.driver.running_query import JVM_IS_GONE, RunningQuery
from penstock.task.taps import TappedRecord


class CurrentQuery:
    """Pauses, taps and stops the newest query, from any thread.

    query: the newest query, None before the first.
    """

    def __init__(self) -> None:
        self.query: RunningQuery | None = None
        self._paused = False
        self._changing = threading.Lock()  # of the query, and of its pause file
        self._taps: dict[str, int] = {}
        self._tapping = threading.Lock()

    @property
    def is_active(self) -> bool:
        """Whether a query runs."""
        return self.query is not None and self.query.is_active

    @property
    def is_paused(self) -> bool:
        """Whether no epochs are to be planned."""
        return self._paused

    def start(self, start: Callable[[bool], RunningQuery]) -> None:
        """Take the query that `start` returns; its argument is whether the query is to begin with a pause."""
        with self._changing:  # a pause that comes meanwhile finds the new query
            self.query = start(self._paused)

    def pause(self) -> None:
        """Plan no epochs after the running one, in this query and all that follow."""
        with self._changing:
            self._paused = True
            if self.query is not None:
                self.query.pause()

    def resume(self) -> None:
        """Plan epochs again."""
        with self._changing:
            self._paused = False
            if self.query is not None:
                self.query.resume()

    def tapped(self, node: str, limit: int) -> Sequence[TappedRecord]:
        """Return the last records that have reached a node, and let the coming epochs keep such records."""
        with self._tapping:
            self._taps[node] = limit
            return [] if self.query is None else self.query.tapped(self._taps, node)

    def untap(self, node: str) -> None:
        """Keep the records of a node no longer."""
        with self._tapping:
            if self._taps.pop(node, None) is not None and self.query is not None:
                self.query.tapped(self._taps, node)

    def stop(self, is_over: Callable[[], bool]) -> bool:
        """Stop the query after its epoch; return False if that epoch was given up since it `is_over`."""
        query = self.query
        with suppress(*JVM_IS_GONE):
            if query is not None and query.is_active:
                finished = query.finish_epoch(is_over)
                query.stop()
                return finished
        return True
