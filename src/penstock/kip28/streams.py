"""Streams of the second draft: their sources, operators, and windowed joins.

Aggregations, tables and everything else are in the current API, on `KStream.stream`.
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
    """Creates streams (second draft)."""

    def __init__(self) -> None:
        self._builder = StreamsBuilder()

    def from_(self, topic: str, key_serde: Serde | None = None, value_serde: Serde | None = None) -> KStream:
        """Return the stream of `topic`; serdes default to those of the configuration."""
        consumed = Consumed.with_(key_serde=key_serde, value_serde=value_serde)
        return KStream(self, self._builder.stream(topic, consumed))

    def build(self) -> Topology:
        """Return the topology of all streams created so far."""
        return self._builder.build()


@dataclass(frozen=True)
class Window:
    """The window of a stream for joins (the papers' `Window`).

    Args:
        span_ms: the maximum age of this stream's elements when they join an element of the other stream.
        retention_ms: the maximum delay of an element relative to its own time, by default a day.
    """

    span_ms: int
    retention_ms: int = DAY_MS

    def until(self, retention_ms: int) -> Window:
        """Return a window with another retention."""
        return replace(self, retention_ms=retention_ms)


W = TypeVar("W", bound=TimeWindows | SessionWindows)


def until(windows: W, retention_ms: int = DAY_MS) -> W:
    """Return `windows` for aggregations with the retention of `Windows.until`; older records are late.

    Kafka Streams now expresses this with a grace period. Raises ValueError if the retention is shorter than a window.
    """
    span_ms = windows.inactivity_gap_ms if isinstance(windows, SessionWindows) else windows.size_ms
    if retention_ms < span_ms:
        raise ValueError(f"Window retention time ({retention_ms} ms) cannot be smaller than the window ({span_ms} ms).")
    return replace(windows, grace_period_ms=retention_ms - span_ms)


class KStream:
    """A stream in the API of the papers; `stream` is the underlying current KStream.

    Created by `KStreamBuilder.from_`.
    """

    def __init__(self, builder: KStreamBuilder, stream: penstock.KStream) -> None:
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
        """Return the stream with a window for joins (the papers: `with`).

        Raises TypeError for windows of aggregations.
        """
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
        """Return a stream for each of `predicates`; an element goes to the first match."""
        split = self.stream.split()
        for predicate in predicates:
            split = split.branch(predicate)
        return [self._wrapped(branch) for branch in split.no_default_branch().values()]

    def send_to(self, topic: str, key_serde: Serde | None = None, value_serde: Serde | None = None) -> None:
        """Write the elements to `topic`.

        Serdes default to those of the stream, else to those of the configuration.
        """
        self.stream.to(topic, Produced.with_(key_serde=key_serde, value_serde=value_serde))

    def through(self, topic: str, key_serde: Serde | None = None, value_serde: Serde | None = None) -> KStream:
        """Write the elements to the existing `topic`, and return the stream of that topic.

        Serdes, for both, are as in `send_to`.
        """
        self.send_to(topic, key_serde, value_serde)
        return self._builder.from_(topic, key_serde or self.stream.key_serde, value_serde or self.stream.value_serde)

    def process(self, definition: ProcessorDefLike) -> KStream:
        """Return the output of a user's processor.

        The node has the name of a KafkaProcessor. `send` of its context uses the serdes of this stream.
        """
        named = name_of(definition) if isinstance(definition, KafkaProcessor) else None
        supplier = adapted(definition, self.stream.key_serde, self.stream.value_serde)
        return self._wrapped(self.stream.process(supplier, named=named))


class KStreamWindowed(KStream):
    """A stream with a window, for joins; created by `KStream.with_window`."""

    def __init__(self, builder: KStreamBuilder, stream: penstock.KStream, window: Window) -> None:
        super().__init__(builder, stream)
        self._window = window

    def join(self, other: KStreamWindowed, joiner: Callable[[Any, Any], Any]) -> KStream:
        """Return `joiner(value, other_value)` for each matching pair of elements with the same key.

        A pair matches if neither element is older than the window of its stream when the other arrives.
        """
        windows = self._join_windows(other).before(other._window.span_ms).after(self._window.span_ms)
        return self._wrapped(self.stream.join(other.stream, joiner, windows))

    def join_prior(self, other: KStreamWindowed, joiner: Callable[[Any, Any], Any]) -> KStream:
        """Like `join`, for pairs with a strictly older element of `other`.

        Raises ValueError if the window of `other` is shorter than 1 ms. (No element is older than timestamp 0; as in
        all joins of Kafka the span then ends at 0, so elements with equal timestamps match.)
        """
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
