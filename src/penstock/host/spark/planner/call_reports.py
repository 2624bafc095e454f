"""The figures of calls on their way from the source process to the driver, as one message in the mailbox.

The message has the last reports, each with a number, so a driver that looks often enough misses none of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from penstock.host.calls.measuring import CallFigures
from penstock.host.spark.protocol.mailbox import Mailbox
from penstock.host.spark.protocol.rows import decode_message, encode_message
from penstock.metrics.measurements import Measurement

CALLS_FILE: Final = "calls"
"""The message with the figures of calls."""

EVERY_MS: Final = 1_000
"""Minimum interval (ms) between two reports."""

_KEPT: Final = 60
"""Number of reports in the message."""


class CallReports:
    """Writes the figures of calls at intervals.

    Args:
        mailbox: of the query.
        take: returns the figures by operator since the last call.
        elapsed_ms: the clock, in ms.
    """

    def __init__(
        self, mailbox: Mailbox, take: Callable[[], Mapping[str, CallFigures]], elapsed_ms: Callable[[], int]
    ) -> None:
        self._mailbox = mailbox
        self._take = take
        self._elapsed_ms = elapsed_ms
        self._told_at: int | None = None
        self._told: Mapping[str, CallFigures] = {}
        self._number = 0
        self._reports: deque[tuple[int, dict[str, tuple[object, ...]]]] = deque(maxlen=_KEPT)

    def tell(self) -> None:
        """Write a report if one is due, and calls were made or still run."""
        now = self._elapsed_ms()
        if self._told_at is None or now - self._told_at >= EVERY_MS:
            self._told_at = now
            self.finish()

    def finish(self) -> None:
        """Write a report, as `tell` does, at any time: the last one of a query."""
        figures = self._take()
        if figures == self._told and not any(each.answered or each.latency.number for each in figures.values()):
            return  # nothing has happened
        self._told = figures
        self._number += 1
        self._reports.append((self._number, {node: tuple(each) for node, each in figures.items()}))
        with suppress(OSError):  # the next message includes the report
            self._mailbox.write(CALLS_FILE, encode_message(tuple(self._reports)))


def read_call_reports(message: bytes | None, after: int) -> tuple[int, list[dict[str, CallFigures]]]:
    """Return the number of the last report in a message, and the reports after number `after`."""
    reports = [] if message is None else decode_message(message)
    found = [(number, nodes) for number, nodes in reports if number > after]
    return max((number for number, _ in found), default=after), [_decoded(nodes) for _, nodes in found]


def _decoded(nodes: Mapping[str, list[object]]) -> dict[str, CallFigures]:
    found = {node: CallFigures._make(fields) for node, fields in nodes.items()}
    return {
        node: each._replace(
            latency=Measurement._make(each.latency),
            percentiles=None if each.percentiles is None else (each.percentiles[0], each.percentiles[1]),
        )
        for node, each in found.items()
    }
