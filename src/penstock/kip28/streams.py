"""Streams in the shape of the second draft: where they come from, their operators, and joins of two with windows.

Aggregations, tables and all else are those of today, on `KStream.stream`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import penstock
from penstock import Consumed, JoinWindows, Produced, SessionWindows, StreamsBuilder, TimeWindows, Topology
from penstock.kip28.processors import KafkaProcessor, ProcessorDefLike, adapted, name_of
from penstock.serdes import Serde

DAY_MS = 24 * 60 * 60 * 1000
"""A day, in ms."""


class KStreamBuilder:
    """Where streams come from (second draft)."""

    def __init__(self) -> None:
        """Start with an empty program."""
        self._builder = StreamsBuilder()

    def from_(self, topic: str, key_serde: Serde | None = None, value_serde: Serde | None = None) -> KStream:
        """Return the stream of `topic`; serdes of None are the defaults of the configuration."""
        consumed = Consumed.with_(key_serde=key_serde, value_serde=value_serde)
        return KStream(self, self._builder.stream(topic, consumed))

    def build(self) -> Topology:
        """Return the topology of all that was made so far."""
        return self._builder.build()


@dataclass(frozen=True)
class Window:
    """How long a stream's elements wait for those of another stream (the papers' `Window`, for joins).

    span_ms: how far back an element of the other stream looks into this one. retention_ms: how late an element may
    come, counted from its own time, a day where it is not set.
    """

    span_ms: int
    retention_ms: int = DAY_MS

    def until(self, retention_ms: int) -> Window:
        """Return a window with another retention."""
        return replace(self, retention_ms=retention_ms)


W = TypeVar("W", bound=TimeWindows | SessionWindows)


def until(windows: W, retention_ms: int = DAY_MS) -> W:
    """Return `windows` for aggregations with the retention that `Windows.until` gave: what is older is late.
    Present-day Kafka Streams expresses this with a grace period.

    Raises ValueError if the retention is shorter than a window.
    """
    span_ms = windows.inactivity_gap_ms if isinstance(windows, SessionWindows) else windows.size_ms
    if retention_ms < span_ms:
        raise ValueError(f"Window retention time ({retention_ms} ms) cannot be smaller than the window ({span_ms} ms).")
    return replace(windows, grace_period_ms=retention_ms - span_ms)


class KStream:
    """A stream in the shape of the papers; `stream` is the KStream of today behind it."""

    def __init__(self, builder: KStreamBuilder, stream: penstock.KStream) -> None:
        """Wrap `stream`; users call `KStreamBuilder.from_`."""
        self._builder = builder
        self.stream = stream

    def _wrapped(self, stream: penstock.KStream) -> KStream:
        return KStream(self._builder, stream)

    def filter(self, predicate: Callable[[Any, Any], bool]) -> KStream:
        """Return the elements that match `predicate(key, value)`."""
        return self._wrapped(self.stream.filter(predicate))

    def map(self, mapper: Callable[[Any, Any], tuple[Any, Any]]) -> KStream:
        """Return each element as the (key, value) of `mapper(key, value)`."""
        return self._wrapped(self.stream.map(mapper))

    def map_values(self, mapper: Callable[[Any], Any]) -> KStream:
        """Return each element with the value `mapper(value)`."""
        return self._wrapped(self.stream.map_values(mapper))

    def flat_map(self, mapper: Callable[[Any, Any], Iterable[tuple[Any, Any]]]) -> KStream:
        """Return an element for each (key, value) of `mapper(key, value)`."""
        return self._wrapped(self.stream.flat_map(mapper))

    def flat_map_values(self, mapper: Callable[[Any], Iterable[Any]]) -> KStream:
        """Return an element for each value of `mapper(value)`."""
        return self._wrapped(self.stream.flat_map_values(mapper))

    def with_window(self, window: Window) -> KStreamWindowed:
        """Return the stream with a window, to be joined with another one (the papers: `with`). Raises TypeError for
        windows of aggregations."""
        if not isinstance(window, Window):
            raise TypeError(
                f"Expected a Window for a join, such as Window(span_ms=1000), got {window!r}: windows of aggregations "
                "are given to windowed_by, such as stream.stream.group_by_key().windowed_by(...)."
            )
        return KStreamWindowed(self._builder, self.stream, window)

    def join(self, other: KStreamWindowed, joiner: Callable[[Any, Any], Any]) -> KStream:
        """Raise TypeError: only a stream with a window can be joined, see `KStreamWindowed.join`."""
        raise self._has_no_window("join")

    def join_prior(self, other: KStreamWindowed, joiner: Callable[[Any, Any], Any]) -> KStream:
        """Raise TypeError: only a stream with a window can be joined, see `KStreamWindowed.join_prior`."""
        raise self._has_no_window("join_prior")

    def _has_no_window(self, method: str) -> TypeError:
        return TypeError(
            f"A stream needs a window before {method}: call with_window first, such as "
            f"stream.with_window(Window(span_ms=1000)).{method}(other.with_window(Window(span_ms=1000)), joiner)."
        )

    def branch(self, *predicates: Callable[[Any, Any], bool]) -> list[KStream]:
        """Return a stream for each of `predicates`, in their order; an element goes to the first that holds."""
        split = self.stream.split()
        for predicate in predicates:
            split = split.branch(predicate)
        return [self._wrapped(branch) for branch in split.no_default_branch().values()]

    def send_to(self, topic: str, key_serde: Serde | None = None, value_serde: Serde | None = None) -> None:
        """Write the elements to `topic`; serdes of None are those of the stream, or else the defaults of the
        configuration."""
        self.stream.to(topic, Produced.with_(key_serde=key_serde, value_serde=value_serde))

    def through(self, topic: str, key_serde: Serde | None = None, value_serde: Serde | None = None) -> KStream:
        """Write the elements to `topic`, which must exist, and return the stream of that topic; serdes as in
        `send_to`, for both."""
        self.send_to(topic, key_serde, value_serde)
        return self._builder.from_(topic, key_serde or self.stream.key_serde, value_serde or self.stream.value_serde)

    def process(self, definition: ProcessorDefLike) -> KStream:
        """Return what a processor of the user's forwards; the node has the name of a KafkaProcessor. What it sends by
        its context has the serdes of this stream."""
        named = name_of(definition) if isinstance(definition, KafkaProcessor) else None
        supplier = adapted(definition, self.stream.key_serde, self.stream.value_serde)
        return self._wrapped(self.stream.process(supplier, named=named))


class KStreamWindowed(KStream):
    """A stream with a window; two of them can be joined."""

    def __init__(self, builder: KStreamBuilder, stream: penstock.KStream, window: Window) -> None:
        """Wrap `stream`; users call `KStream.with_window`."""
        super().__init__(builder, stream)
        self._window = window

    def join(self, other: KStreamWindowed, joiner: Callable[[Any, Any], Any]) -> KStream:
        """Return `joiner(value, other_value)` for each pair of elements of one key of which neither is older than the
        window of its stream when the other one comes."""
        windows = self._join_windows(other).before(other._window.span_ms).after(self._window.span_ms)
        return self._wrapped(self.stream.join(other.stream, joiner, windows))

    def join_prior(self, other: KStreamWindowed, joiner: Callable[[Any, Any], Any]) -> KStream:
        """As `join`, for pairs only whose element of `other` is strictly older than that of this stream; raises
        ValueError if the window of `other` is shorter than 1 ms. (At the timestamp 0 there is nothing older; as in all
        joins of Kafka the span then ends at 0, so that equal ones meet.)"""
        windows = self._join_windows(other).before(other._window.span_ms).after(-1)
        return self._wrapped(self.stream.join(other.stream, joiner, windows))

    def _join_windows(self, other: KStreamWindowed) -> JoinWindows:
        if not isinstance(other, KStreamWindowed):
            raise TypeError(
                f"Expected a stream with a window to join with, got {type(other).__name__}: write "
                "join(other.with_window(Window(span_ms=1000)), joiner), for example."
            )
        spans = self._window.span_ms + other._window.span_ms
        grace_ms = max(min(self._window.retention_ms, other._window.retention_ms) - spans, 0)
        return JoinWindows.of_time_difference_and_grace(spans, grace_ms)
