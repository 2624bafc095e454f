"""The base of ready aggregations.

An aggregation has a state for each key, a result for each state, and the serdes of both. States are immutable, and the
state None means that no value was added yet.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic

from typing_extensions import TypeVar

from penstock.serdes.annotated import serde_of_result
from penstock.serdes.api import Serde
from penstock.signatures import misfit, signature_of

V = TypeVar("V", contravariant=True, default=Any)
VR = TypeVar("VR", covariant=True, default=Any)

_FUNCTIONS: Final = "penstock.aggregations.functions"
"""The module of the functions that create aggregations."""


@dataclass(frozen=True, kw_only=True)
class Aggregation(ABC, Generic[V, VR]):
    """A ready aggregation, the argument of `aggregate` of a grouped stream or table.

    Created by the functions of `penstock.aggregations`, such as `mean`. A table's store keeps the state of each key,
    and the table has the results.

    Args:
        of: returns the aggregated part of a record's value; None for the whole value. None results are skipped.
    """

    of: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        if self.of is not None:
            check_part_of(self.of, "of")

    def initial(self) -> Any:
        """Return the state without values: None, except for counts."""
        return None

    def added(self, state: Any, value: Any) -> Any:
        """Return the state after a record with `value`; a value of None changes nothing."""
        part = self.part(value)
        return state if part is None else self.added_part(state, part)

    def merged(self, one: Any, other: Any) -> Any:
        """Return the state of the values of two states, those of `one` first."""
        if one is None or other is None:
            return other if one is None else one
        return self.merged_states(one, other)

    def subtracted(self, state: Any, value: Any) -> Any:
        """Return the state without a value that was added before.

        Raises TypeError if the aggregation is not `subtractable`.
        """
        part = self.part(value)
        return state if part is None or state is None else self.subtracted_part(state, part)

    @property
    def subtractable(self) -> bool:
        """Whether values can be subtracted, as a grouped table requires."""
        return False

    @abstractmethod
    def result(self, state: Any) -> VR | None:
        """Return the result of a state, such as one from a store; None for None."""
        raise NotImplementedError

    def part(self, value: Any) -> Any:
        """Return the aggregated part of a value, or None without one."""
        return value if self.of is None or value is None else self.of(value)

    # ---------- serdes

    def part_serde(self, value_serde: Serde | None) -> Serde | None:
        """Return the serde of the aggregated parts, or None if unknown.

        value_serde: the serde of the records' values.
        """
        return value_serde if self.of is None else serde_of_result(self.of)

    def state_serde(self, part_serde: Serde | None) -> Serde | None:
        """Return the serde of the states; None if the states are the results."""
        return None

    @abstractmethod
    def result_serde(self, part_serde: Serde | None) -> Serde | None:
        """Return the serde of the results; None for `default.value.serde`."""
        raise NotImplementedError

    # ---------- columns

    def takes_column(self, parts: Sequence[Any], reads_back: Callable[[type], bool]) -> bool:
        """Return whether `added_column` takes `parts` and is faster than single parts.

        reads_back: returns whether values of a type survive the round trip through the store unchanged.
        """
        return False

    def added_column(self, state: Any, parts: Sequence[Any]) -> Any:
        """Return the state after `parts`, which are not empty and contain no None.

        It equals the state after one part after the other, even if a store writes and reads the states between them.
        """
        for part in parts:
            state = self.added_part(state, part)
        return state

    # ---------- for subclasses

    @abstractmethod
    def added_part(self, state: Any, part: Any) -> Any:
        """Return the state after `part`, not None; `state` may be None."""
        raise NotImplementedError

    @abstractmethod
    def merged_states(self, one: Any, other: Any) -> Any:
        """Return the state of the values of two states, not None."""
        raise NotImplementedError

    def subtracted_part(self, state: Any, part: Any) -> Any:
        """Return the state without `part`; both are not None."""
        raise TypeError(f"{self} cannot subtract values.")

    def __str__(self) -> str:
        return f"{type(self).__name__.lower()}()"


def check_part_of(function: Any, name: str) -> None:
    """Raise TypeError unless `function` can be called with a value; `name` is that of the argument."""
    if not callable(function):
        raise TypeError(f"Expected a function {name}(value), got {function!r}.")
    if (why := misfit(function, "value")) is not None:
        raise TypeError(
            f"The function cannot be called as {name}(value): {signature_of(function)} does not fit ({why})."
        )


def call_of(given: object) -> str | None:
    """Return the call of a function that creates aggregations, such as `aggregations.top(n)`; None for other objects.

    The call has the required arguments of the function.
    """
    if not inspect.isfunction(given) or given.__module__ != _FUNCTIONS:
        return None
    parameters = inspect.signature(given).parameters.values()
    any_number = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    required = [each.name for each in parameters if each.kind not in any_number and each.default is each.empty]
    named = ["name=aggregations.count()" for each in parameters if each.kind is each.VAR_KEYWORD]
    return f"aggregations.{given.__name__}({', '.join(required + named)})"
