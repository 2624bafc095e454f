"""Open connections: limited in number, and in the time in which the peer has to do something."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.application.open_connections import OpenConnections
from penstock.config import StreamsConfig
from penstock_broker.common.clock import MockClock

LATER_MS = 3_600_000


def limits(most: int = 100, timeout_ms: int = LATER_MS) -> Mapping[str, Any]:
    return {"penstock.http.max.connections": most, "penstock.http.timeout.ms": timeout_ms}


class Opened:
    """The open connections of a server of names, with a clock of its own."""

    def __init__(self, **given: Any) -> None:
        self.clock = MockClock(1_000)
        self.ended: list[str] = []
        config = StreamsConfig(given, environment={})
        self.open = OpenConnections[str](config, "The port", self.ended.append, self.clock.milliseconds)

    def after(self, milliseconds: int) -> list[str]:
        """Let time pass, and return the connections that are closed then."""
        self.clock.advance(milliseconds)
        self.open.close_late()
        ended, self.ended[:] = [*self.ended], []
        return ended


def test_of_too_many_connections_the_one_that_has_waited_for_longest_is_closed() -> None:
    opened = Opened(**limits(most=3))
    for name in "abc":
        opened.open.opened(name)
    opened.open.is_answered("a")
    opened.open.is_answered("b")
    opened.open.waits("a")  # for the next request
    opened.open.opened("d")
    assert opened.ended == ["c"]
    for name in "ad":
        opened.open.is_answered(name)
    opened.open.opened("e")
    assert opened.ended == ["c", "e"], "all others are being answered"
    opened.open.closed("b")
    opened.open.opened("f")
    assert opened.ended == ["c", "e"]


def test_only_the_time_counts_in_which_the_peer_has_to_do_something() -> None:
    opened = Opened(**limits(timeout_ms=1_000))
    opened.open.opened("silent")
    opened.open.opened("asking")
    opened.open.is_answered("asking")
    assert opened.after(999) == []
    opened.open.waits("silent")  # it has sent a byte
    assert opened.after(1) == ["silent"]
    assert opened.after(LATER_MS) == []
    opened.open.waits("asking")
    assert opened.after(999) == []
    opened.open.closed("silent")
    assert opened.after(1) == ["asking"]
    assert opened.after(LATER_MS) == []


def test_the_end_closes_each_connection_once() -> None:
    opened = Opened(**limits())
    for name in "abc":
        opened.open.opened(name)
    opened.open.is_answered("b")
    opened.open.closed("c")
    opened.open.close_all()
    opened.open.close_all()
    assert sorted(opened.ended) == ["a", "b"]


def test_a_connection_that_is_gone_comes_back_by_no_report() -> None:
    opened = Opened(**limits(timeout_ms=1))
    opened.open.opened("a")
    opened.open.closed("a")
    opened.open.is_answered("a")
    opened.open.waits("a")
    assert opened.after(LATER_MS) == []
