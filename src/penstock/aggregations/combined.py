"""Several aggregations of the same values in one table, each with a name.

Names are part of the state: a program may add an aggregation, which starts with the next record, or leave one out.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from penstock.aggregations.api import Aggregation, V, call_of
from penstock.aggregations.default_value_serde import DefaultValueSerde
from penstock.aggregations.scalar_serde import ScalarSerde
from penstock.aggregations.state_serde import StateSerde
from penstock.serdes import JsonSerde, Serde
from penstock.serdes.api import any_uses_headers

_SIZE: Final = struct.Struct(">i")


@dataclass(frozen=True, kw_only=True)
class Combined(Aggregation[V, dict[str, Any]]):
    """Several aggregations of the same values; its state is the tuple of their states.

    Args:
        aggregations: the aggregations by name.
    """

    aggregations: Mapping[str, Aggregation[Any, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.aggregations:
            raise TypeError("combined() needs an aggregation, such as combined(total=aggregations.sum()).")
        for name, aggregation in self.aggregations.items():
            if not isinstance(aggregation, Aggregation):
                raise TypeError(f"Expected {_call_for(aggregation)} for {name} of combined(), got {aggregation!r}.")

    @property
    def subtractable(self) -> bool:
        """Whether all of the aggregations can subtract values."""
        return all(aggregation.subtractable for aggregation in self._each)

    def initial(self) -> tuple[Any, ...]:
        """Return the states of all aggregations without values."""
        return tuple(aggregation.initial() for aggregation in self._each)

    def result(self, state: tuple[Any, ...] | None) -> dict[str, Any] | None:
        """Return the results by name; None for an aggregation without values."""
        if state is None:
            return None
        named = zip(self.aggregations.items(), state, strict=True)
        return {name: aggregation.result(own) for (name, aggregation), own in named}

    def state_serde(self, part_serde: Serde | None) -> Serde:
        """Return the serde of the states of all aggregations."""
        return CombinedSerde(
            {
                name: (_state_serde(aggregation, part_serde), aggregation.initial())
                for name, aggregation in self.aggregations.items()
            }
        )

    def result_serde(self, part_serde: Serde | None) -> Serde:
        """Return the serde of JSON."""
        return JsonSerde()

    def takes_column(self, parts: Sequence[Any], reads_back: Callable[[type], bool]) -> bool:
        """Return whether all of the aggregations take their columns."""
        columns = zip(self._each, self._columns(parts), strict=True)
        return all(aggregation.takes_column(column, reads_back) for aggregation, column in columns)

    def added_column(self, state: tuple[Any, ...] | None, parts: Sequence[Any]) -> tuple[Any, ...]:
        """Return the states after `parts`."""
        states = self.initial() if state is None else state
        return tuple(
            aggregation.added_column(own, column) if column else own
            for aggregation, own, column in zip(self._each, states, self._columns(parts), strict=True)
        )

    @property
    def _each(self) -> tuple[Aggregation[Any, Any], ...]:
        return tuple(self.aggregations.values())

    @staticmethod
    def _columns(parts: Sequence[Any]) -> list[list[Any]]:
        """Return the column of each aggregation, without None."""
        return [[part for part in column if part is not None] for column in zip(*parts, strict=True)]

    def part(self, value: Any) -> Any:
        """Return the aggregated parts of a value, one for each aggregation."""
        return None if value is None else tuple(aggregation.part(value) for aggregation in self._each)

    def added_part(self, state: tuple[Any, ...] | None, part: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the state after `part`."""
        states = self.initial() if state is None else state
        return tuple(
            own if each is None else aggregation.added_part(own, each)
            for aggregation, own, each in zip(self._each, states, part, strict=True)
        )

    def merged_states(self, one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the state of the values of both states."""
        return tuple(aggregation.merged(*states) for aggregation, *states in zip(self._each, one, other, strict=True))

    def subtracted_part(self, state: tuple[Any, ...], part: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the state without `part`."""
        return tuple(
            own if each is None else aggregation.subtracted_part(own, each)
            for aggregation, own, each in zip(self._each, state, part, strict=True)
        )


class CombinedSerde(StateSerde):
    """The serde of the states of several aggregations, each with its name and size; a size of -1 means None.

    Args:
        named: the serde of each state and the state without values, by name.

    Attributes:
        unchanging_types: the types of numbers that survive unchanged within the states.
    """

    kind: ClassVar[bytes] = b"C"
    aggregation: ClassVar[str] = "combined"

    def __init__(self, named: Mapping[str, tuple[Serde, Any]]) -> None:
        self._named = named
        parts = [serde for serde, _ in named.values()]
        self.repeatable = all(serde.repeatable for serde in parts)
        of_values = [serde for serde in parts if isinstance(serde, CombinedSerde) or not isinstance(serde, StateSerde)]
        self.unchanging_types = frozenset({int, float}).intersection(*(serde.unchanging_types for serde in of_values))

    @property
    def inner_serdes(self) -> tuple[Serde | None, ...]:
        """The serde of each state."""
        return tuple(serde for serde, _ in self._named.values())

    @property
    def uses_headers(self) -> bool:
        """Whether one of the serdes uses the headers."""
        return any_uses_headers(*(serde for serde, _ in self._named.values()))

    def with_defaults(self, key_serde: Serde | None, value_serde: Serde | None) -> Serde:
        """Return this serde with the defaults in its parts."""
        return CombinedSerde(
            {
                name: (serde.with_defaults(key_serde, value_serde), initial)
                for name, (serde, initial) in self._named.items()
            }
        )

    def _packed(self, topic: str, state: tuple[Any, ...]) -> bytes:
        packed: list[bytes] = []
        for (name, (serde, _)), own in zip(self._named.items(), state, strict=True):
            written = name.encode()
            packed += _SIZE.pack(len(written)), written
            data = None if own is None else serde.serialize(topic, own)
            packed += (_SIZE.pack(-1),) if data is None else (_SIZE.pack(len(data)), data)
        return b"".join(packed)

    def _unpacked(self, topic: str, data: bytes) -> tuple[Any, ...]:
        found: dict[str, bytes | None] = {}
        at = 0
        while at < len(data):
            name, at = _sized(data, at)
            found[(name or b"").decode()], at = _sized(data, at)
        states = []
        for known, (serde, initial) in self._named.items():
            own = found.get(known)
            states.append(initial if own is None else serde.deserialize(topic, own))
        return tuple(states)


def _call_for(given: object) -> str:
    """Return the correct form of an argument of `combined`, for a message."""
    call = call_of(given)
    return "an aggregation, such as aggregations.sum()," if call is None else f"the call {call}"


def _sized(data: bytes, at: int) -> tuple[bytes | None, int]:
    """Return the bytes after their size at `at`, and the place after them; None for a size of -1."""
    (size,) = _SIZE.unpack_from(data, at)
    start = at + _SIZE.size
    if size < 0:
        return None, start
    if start + size > len(data):
        raise ValueError("the end is missing")
    return data[start : start + size], start + size


def _state_serde(aggregation: Aggregation[Any, Any], value_serde: Serde | None) -> Serde:
    """Return the serde of one of several states.

    Neither options nor defaults can name it: without an annotation, parts of values are plain values.
    """
    known = aggregation.part_serde(value_serde)
    part: Serde = DefaultValueSerde() if aggregation.of is None else ScalarSerde()
    if known is not None:
        part = known if aggregation.of is None else known.with_defaults(None, None)
    return aggregation.state_serde(part) or aggregation.result_serde(part) or part
