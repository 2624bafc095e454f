"""The result of a comparison of two versions, as plain data, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from penstock.application.store_entries import plain
from penstock.errors import counted
from penstock.record import Headers

_LONGEST: Final = 200
"""Most characters of a key or a value in a line of text."""


@dataclass(frozen=True)
class ProgramPlace:
    """A node or a store in the program.

    Args:
        name: of the node or store.
        line: the line of the program that created it, as `program.py:12`; None if unknown.
    """

    name: str
    line: str | None = None

    def __str__(self) -> str:
        return self.name if self.line is None else f"{self.name} ({self.line})"


@dataclass(frozen=True)
class Recorded:
    """The content of a record, or of an entry of a store.

    Args:
        value: deserialised; bytes if that fails.
        timestamp: in ms; None for an entry of a store without timestamps.
        headers: of a record.
    """

    value: Any
    timestamp: int | None
    headers: Headers = ()


@dataclass(frozen=True)
class Difference:
    """A record or an entry that only one version has, or that has different contents.

    Args:
        key: deserialised; bytes if that fails. Entries of windows and sessions have a dict with key and times.
        old: the content of the old version; None without one.
        new: the content of the new version; None without one.
    """

    key: Any
    old: Recorded | None
    new: Recorded | None

    def to_dict(self) -> dict[str, Any]:
        """Return the difference as values of JSON."""
        sides = {"old": self.old, "new": self.new}
        shown = {
            name: None if side is None else {**vars(side), "value": orjson.Fragment(_json(side.value))}
            for name, side in sides.items()
        }
        found: dict[str, Any] = orjson.loads(
            orjson.dumps({"key": orjson.Fragment(_json(self.key)), **shown}, default=plain)
        )
        return found

    def __str__(self) -> str:
        known = self.old or self.new
        time = "" if known is None or known.timestamp is None else f" at {known.timestamp}"
        return f"key {_text(self.key)}{time}: old {self._side(self.old)}, new {self._side(self.new)}"

    def _side(self, side: Recorded | None) -> str:
        if side is None:
            return "has none"
        shown = _text(side.value)
        other = None if self.old is None or self.new is None else (self.new if side is self.old else self.old)
        if other is None or side.value != other.value:
            return shown
        if side.timestamp != other.timestamp:
            return f"{shown} at {side.timestamp}"
        return f"{shown} with headers {_text([list(each) for each in side.headers])}"


@dataclass(frozen=True)
class Counts:
    """The numbers of records of a topic, or of entries of a store.

    Args:
        equal: with the same key, time, value and headers in both versions.
        different: with the same key and time, and another value or other headers.
        only_old: only in the old version.
        only_new: only in the new version.
    """

    equal: int = 0
    different: int = 0
    only_old: int = 0
    only_new: int = 0

    @property
    def are_equal(self) -> bool:
        """Whether both versions have the same records."""
        return not (self.different or self.only_old or self.only_new)

    def __str__(self) -> str:
        parts = [f"{self.equal:,} equal"]
        parts += [f"{self.different:,} different"] * bool(self.different)
        parts += [f"{self.only_old:,} only in the old version"] * bool(self.only_old)
        parts += [f"{self.only_new:,} only in the new version"] * bool(self.only_new)
        return ", ".join(parts)


@dataclass(frozen=True)
class TopicComparison:
    """An output topic of both versions.

    Args:
        topic: its name in the program.
        old: the sinks of the old version that write to it.
        new: the sinks of the new version that write to it.
        counts: of its records.
        other_final_values: the number of keys whose last value differs.
        examples: the first differences, by key.
    """

    topic: str
    old: tuple[ProgramPlace, ...]
    new: tuple[ProgramPlace, ...]
    counts: Counts
    other_final_values: int
    examples: tuple[Difference, ...]

    @property
    def is_equal(self) -> bool:
        """Whether both versions write the same records, in any order."""
        return self.counts.are_equal

    def lines(self) -> Iterator[str]:
        """Yield the comparison as lines of text."""
        yield f"topic {self.topic}: {self.counts}"
        if self.other_final_values:
            why = ", because their records come in another order" if self.is_equal else ""
            yield f"  the final values of {counted(self.other_final_values, 'key')} differ{why}"
        if not self.is_equal:
            if not self.other_final_values:
                yield "  the final values of all keys are the same"
            yield from _places(self.old, self.new)
            yield from (f"  {each}" for each in self.examples)


@dataclass(frozen=True)
class StoreComparison:
    """A store of both versions, as of their last commits.

    Args:
        store: its name.
        old: the store of the old version.
        new: the store of the new version.
        counts: of its entries.
        examples: the first differences, by key.
    """

    store: str
    old: ProgramPlace
    new: ProgramPlace
    counts: Counts
    examples: tuple[Difference, ...]

    def lines(self) -> Iterator[str]:
        """Yield the comparison as lines of text."""
        yield f"store {self.store}: {self.counts}"
        if not self.counts.are_equal:
            yield from _places((self.old,), (self.new,))
            yield from (f"  {each}" for each in self.examples)


@dataclass(frozen=True)
class VersionComparison:
    """The comparison of two versions of an application.

    Args:
        application_id: of the old version.
        start: where both versions began: "beginning", or the directory of a savepoint.
        topics: the output topics of either version, by name.
        stores: the stores of both versions, by name.
        not_compared: the reason for each store that is not compared.
    """

    application_id: str
    start: str
    topics: tuple[TopicComparison, ...]
    stores: tuple[StoreComparison, ...]
    not_compared: Mapping[str, str]

    @property
    def is_equal(self) -> bool:
        """Whether all topics and all compared stores are equal."""
        return all(each.is_equal for each in self.topics) and self._stores_are_equal

    @property
    def has_equal_final_values(self) -> bool:
        """Whether the last value of each key and all compared stores are equal."""
        return not any(each.other_final_values for each in self.topics) and self._stores_are_equal

    @property
    def _stores_are_equal(self) -> bool:
        return all(each.counts.are_equal for each in self.stores)

    def summary(self) -> str:
        """Return the result in one sentence."""
        topics = [each.topic for each in self.topics if not each.is_equal]
        stores = [each.store for each in self.stores if not each.counts.are_equal]
        parts = [f"topics {', '.join(topics)}"] * bool(topics) + [f"stores {', '.join(stores)}"] * bool(stores)
        if not parts:
            return f"Both versions of {self.application_id} are equal (from {self.start})."
        same = " The final values are the same." if self.has_equal_final_values else ""
        return f"The versions of {self.application_id} differ (from {self.start}): {'; '.join(parts)}.{same}"

    def lines(self) -> Iterator[str]:
        """Yield the comparison as lines of text."""
        for topic in self.topics:
            yield from topic.lines()
        for store in self.stores:
            yield from store.lines()
        for name, reason in self.not_compared.items():
            yield f"store {name} is not compared: {reason}"

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as values of JSON."""
        answer = {
            "application_id": self.application_id,
            "start": self.start,
            "equal": self.is_equal,
            "final_values_equal": self.has_equal_final_values,
            "topics": [{**vars(each), **_examples(each), "equal": each.is_equal} for each in self.topics],
            "stores": [{**vars(each), **_examples(each), "equal": each.counts.are_equal} for each in self.stores],
            "not_compared": self.not_compared,
        }
        found: dict[str, Any] = orjson.loads(orjson.dumps(answer, default=plain))
        return found


def _places(old: tuple[ProgramPlace, ...], new: tuple[ProgramPlace, ...]) -> Iterator[str]:
    for name, places in (("old", old), ("new", new)):
        yield f"  {name}: {', '.join(map(str, places)) or 'nothing writes it'}"


def _examples(part: TopicComparison | StoreComparison) -> dict[str, Any]:
    return {"examples": [each.to_dict() for each in part.examples]}


def _json(value: Any) -> bytes:
    try:
        return orjson.dumps(value, default=plain, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:  # such as an integer of more than 64 bits
        return orjson.dumps(repr(value))


def _text(value: Any) -> str:
    text = _json(value).decode()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
