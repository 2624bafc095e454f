"""Numbers of values, sums and means. All three can subtract."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Final

from penstock.aggregations.api import VR, Aggregation, V
from penstock.aggregations.exact_number import (
    ExactNumber,
    as_float,
    exact,
    packed_number,
    rounded,
    sum_of,
    sum_of_column,
    unpacked_number,
)
from penstock.aggregations.state_serde import StateSerde
from penstock.serdes import DoubleSerde, FloatSerde, IntegerSerde, LongSerde, Serde, ShortSerde

_COUNT: Final = struct.Struct(">q")
_WIDER: Final[dict[type, type[Serde]]] = {ShortSerde: LongSerde, IntegerSerde: LongSerde, FloatSerde: DoubleSerde}


@dataclass(frozen=True, slots=True)
class Mean:
    """The state of a mean.

    Args:
        count: the number of values.
        total: their exact sum.
    """

    count: int
    total: ExactNumber


@dataclass(frozen=True, kw_only=True)
class _Total(Aggregation[V, VR]):
    """The common base: all can subtract and work on columns."""

    @property
    def subtractable(self) -> bool:
        """Whether values can be subtracted."""
        return True

    def takes_column(self, parts: Sequence[Any], reads_back: Callable[[type], bool]) -> bool:
        """Return True: columns are faster than single values."""
        return True


@dataclass(frozen=True, kw_only=True)
class Count(_Total[V, int]):
    """The number of values."""

    def initial(self) -> int:
        """Return 0."""
        return 0

    def result(self, state: int | None) -> int | None:
        """Return the number."""
        return state

    def state_serde(self, part_serde: Serde | None) -> Serde:
        """Return the serde of numbers of values."""
        return CountSerde()

    def result_serde(self, part_serde: Serde | None) -> Serde:
        """Return the serde of 8-byte integers."""
        return LongSerde()

    def added_column(self, state: int, parts: Sequence[Any]) -> int:
        """Return the number after `parts`."""
        return state + len(parts)

    def added_part(self, state: int, part: Any) -> int:
        """Return the state after `part`."""
        return state + 1

    def merged_states(self, one: int, other: int) -> int:
        """Return the state of the values of both states."""
        return one + other

    def subtracted_part(self, state: int, part: Any) -> int:
        """Return the state without `part`."""
        return state - 1


@dataclass(frozen=True, kw_only=True)
class Sum(_Total[V, VR]):
    """The sum of numbers; its state is an ExactNumber."""

    def result(self, state: ExactNumber | None) -> Any:
        """Return the sum: an int if all numbers were ints, else the nearest float."""
        return None if state is None else rounded(state)

    def state_serde(self, part_serde: Serde | None) -> Serde:
        """Return the serde of exact numbers."""
        return SumSerde()

    def result_serde(self, part_serde: Serde | None) -> Serde | None:
        """Return the serde of the numbers, with 8 bytes for numbers of fewer bytes."""
        wider = _WIDER.get(type(part_serde))
        return part_serde if wider is None else wider()

    def added_column(self, state: ExactNumber | None, parts: Sequence[Any]) -> ExactNumber:
        """Return the sum after `parts`."""
        total = sum_of_column(parts)
        return total if state is None else sum_of(state, total)

    def added_part(self, state: ExactNumber | None, part: Any) -> ExactNumber:
        """Return the state after `part`."""
        number = exact(part)
        return number if state is None else sum_of(state, number)

    def merged_states(self, one: ExactNumber, other: ExactNumber) -> ExactNumber:
        """Return the state of the values of both states."""
        return sum_of(one, other)

    def subtracted_part(self, state: ExactNumber, part: Any) -> ExactNumber:
        """Return the state without `part`."""
        return sum_of(state, -exact(part))


@dataclass(frozen=True, kw_only=True)
class MeanAggregation(_Total[V, float]):
    """The arithmetic mean of numbers; its state is a Mean."""

    def result(self, state: Mean | None) -> float | None:
        """Return the float nearest to the exact mean."""
        if state is None:
            return None
        total = state.total
        return total if isinstance(total, float) else as_float(Fraction(total) / state.count)

    def state_serde(self, part_serde: Serde | None) -> Serde:
        """Return the serde of Mean."""
        return MeanSerde()

    def result_serde(self, part_serde: Serde | None) -> Serde:
        """Return the serde of 8-byte floating-point numbers."""
        return DoubleSerde()

    def added_column(self, state: Mean | None, parts: Sequence[Any]) -> Mean:
        """Return the state after `parts`."""
        added = Mean(len(parts), sum_of_column(parts))
        return added if state is None else self.merged_states(state, added)

    def added_part(self, state: Mean | None, part: Any) -> Mean:
        """Return the state after `part`."""
        added = Mean(1, exact(part))
        return added if state is None else self.merged_states(state, added)

    def merged_states(self, one: Mean, other: Mean) -> Mean:
        """Return the state of the values of both states."""
        return Mean(one.count + other.count, sum_of(one.total, other.total))

    def subtracted_part(self, state: Mean, part: Any) -> Mean | None:
        """Return the state without `part`."""
        return None if state.count == 1 else Mean(state.count - 1, sum_of(state.total, -exact(part)))

    def __str__(self) -> str:
        return "mean()"


class CountSerde(StateSerde):
    """The serde of numbers of values, in 8 bytes."""

    kind: ClassVar[bytes] = b"N"
    aggregation: ClassVar[str] = "count"
    unchanging_types = frozenset({int})

    def _packed(self, topic: str, state: int) -> bytes:
        return _COUNT.pack(state)

    def _unpacked(self, topic: str, data: bytes) -> int:
        count: int = _COUNT.unpack(data)[0]
        return count


class SumSerde(StateSerde):
    """The serde of sums as exact numbers."""

    kind: ClassVar[bytes] = b"S"
    aggregation: ClassVar[str] = "sum"
    unchanging_types = frozenset({int, float, Fraction})

    def _packed(self, topic: str, state: ExactNumber) -> bytes:
        return packed_number(state)

    def _unpacked(self, topic: str, data: bytes) -> ExactNumber:
        return unpacked_number(data)


class MeanSerde(StateSerde):
    """The serde of Mean: the number of values in 8 bytes, and the sum."""

    kind: ClassVar[bytes] = b"M"
    aggregation: ClassVar[str] = "mean"
    unchanging_types = frozenset({Mean})

    def _packed(self, topic: str, state: Mean) -> bytes:
        return _COUNT.pack(state.count) + packed_number(state.total)

    def _unpacked(self, topic: str, data: bytes) -> Mean:
        return Mean(_COUNT.unpack_from(data)[0], unpacked_number(data[_COUNT.size :]))
