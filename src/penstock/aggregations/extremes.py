"""Least, largest, first and last values. Their states are the values themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.aggregations.api import VR, Aggregation, V
from penstock.serdes import Serde

_NUMBERS: Final = frozenset({int, float})


@dataclass(frozen=True, kw_only=True)
class _OneValue(Aggregation[V, VR]):
    """The common base: the state is one of the values."""

    def result(self, state: Any) -> Any:
        """Return the value."""
        return state

    def result_serde(self, part_serde: Serde | None) -> Serde | None:
        """Return the serde of the values."""
        return part_serde

    def merged_states(self, one: Any, other: Any) -> Any:
        """Return the state of the values of both states."""
        return self.added_part(one, other)


@dataclass(frozen=True, kw_only=True)
class _Extreme(_OneValue[V, VR]):
    """The common base of the least and the largest value: floats that are not a number have no order."""

    def takes_column(self, parts: Sequence[Any], reads_back: Callable[[type], bool]) -> bool:
        """Return whether all parts are numbers that the store returns unchanged."""
        kinds = set(map(type, parts))
        return kinds <= _NUMBERS and all(map(reads_back, kinds)) and not any(map(is_nan, parts))


@dataclass(frozen=True, kw_only=True)
class Min(_Extreme[V, VR]):
    """The least value; the first one of equal values."""

    def added_part(self, state: Any, part: Any) -> Any:
        """Return the lesser one of `state` and `part`."""
        return state if is_nan(part) or (state is not None and not part < state) else part

    def added_column(self, state: Any, parts: Sequence[Any]) -> Any:
        """Return the least one of `state` and `parts`."""
        return self.added_part(state, min(parts))


@dataclass(frozen=True, kw_only=True)
class Max(_Extreme[V, VR]):
    """The largest value; the first one of equal values."""

    def added_part(self, state: Any, part: Any) -> Any:
        """Return the larger one of `state` and `part`."""
        return state if is_nan(part) or (state is not None and not part > state) else part

    def added_column(self, state: Any, parts: Sequence[Any]) -> Any:
        """Return the largest one of `state` and `parts`."""
        return self.added_part(state, max(parts))


@dataclass(frozen=True, kw_only=True)
class First(_OneValue[V, VR]):
    """The value that was processed first."""

    def added_part(self, state: Any, part: Any) -> Any:
        """Return the state after `part`."""
        return part if state is None else state


@dataclass(frozen=True, kw_only=True)
class Last(_OneValue[V, VR]):
    """The value that was processed last."""

    def added_part(self, state: Any, part: Any) -> Any:
        """Return the state after `part`."""
        return part


def is_nan(value: Any) -> bool:
    """Return whether a value is a float that is not a number."""
    return isinstance(value, float) and value != value
