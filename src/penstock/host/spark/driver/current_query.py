"""The newest query of an application, with a pause and taps that outlive each query."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from penstock.host.spark.driver.running_query import RunningQuery
from penstock.host.spark.driver.session_errors import session_errors
from penstock.task.taps import TappedRecord


class CurrentQuery:
    """Pauses, taps and stops the newest query. Thread-safe.

    Attributes:
        query: the newest query, or None before the first.
    """

    def __init__(self) -> None:
        self.query: RunningQuery | None = None
        self._paused = False
        self._changing = threading.Lock()  # guards the query and its pause file
        self._taps: dict[str, int] = {}
        self._tapping = threading.Lock()

    @property
    def is_active(self) -> bool:
        """Whether a query runs."""
        return self.query is not None and self.query.is_active

    @property
    def is_paused(self) -> bool:
        """Whether the planning of epochs is paused."""
        return self._paused

    def start(self, start: Callable[[bool], RunningQuery]) -> None:
        """Store the query that `start` returns; its argument is whether the query begins paused."""
        with self._changing:  # so that a concurrent pause applies to the new query
            self.query = start(self._paused)

    def pause(self) -> None:
        """Plan no epochs after the running one, in this query and all later ones."""
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
        """Return the last records of a node, and keep its records in the next epochs."""
        with self._tapping:
            self._taps[node] = limit
            return [] if self.query is None else self.query.tapped(self._taps, node)

    def untap(self, node: str) -> None:
        """Stop keeping the records of a node."""
        with self._tapping:
            if self._taps.pop(node, None) is not None and self.query is not None:
                self.query.tapped(self._taps, node)

    def stop(self, is_over: Callable[[], bool]) -> bool:
        """Stop the query after its epoch. Return False if `is_over` returned True before the epoch ended."""
        query = self.query
        with suppress(*session_errors()):
            if query is not None and query.is_active:
                finished = query.finish_epoch(is_over)
                query.stop()
                return finished
        return True
