"""A ready aggregation as the argument of `aggregate`: its functions, its store and its table of results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import TypeIs

from penstock.aggregations import Aggregation
from penstock.aggregations.api import call_of
from penstock.dsl.arguments import option
from penstock.dsl.options import Materialized, Named, name_of
from penstock.plan.user_lines import at_line
from penstock.processor.added_values import AddedValues, MergedStates, SubtractedValues
from penstock.serdes import Serde

if TYPE_CHECKING:
    from penstock.dsl.table import KTable


def is_ready(initializer: object) -> TypeIs[Aggregation[Any, Any]]:
    """Return whether the first argument of `aggregate` is a ready aggregation, not an initializer.

    Raises TypeError for a function of `penstock.aggregations` that was not called.
    """
    if (call := call_of(initializer)) is not None:
        raise TypeError(
            f"aggregate(){at_line()} expected a ready aggregation, got the function that "
            f"creates it: call it, aggregate({call})."
        )
    return isinstance(initializer, Aggregation)


@dataclass(frozen=True)
class ReadyAggregation:
    """A ready aggregation of the values of a grouped stream or table.

    Args:
        aggregation: the aggregation.
        value_serde: the serde of the values.
        materialized: the user's options; their value serde is that of the results.
    """

    aggregation: Aggregation[Any, Any]
    value_serde: Serde | None
    materialized: Materialized | None

    @staticmethod
    def of(
        aggregation: Aggregation[Any, Any],
        value_serde: Serde | None,
        materialized: Materialized | None,
        *functions: object,
    ) -> ReadyAggregation:
        """Return the aggregation with its options; raises TypeError for further `functions`."""
        for given in functions:
            if isinstance(given, Materialized):
                raise TypeError(f"Name the options of aggregate({aggregation}): write materialized={given!r:.100}.")
            if given is not None:
                raise TypeError(f"{aggregation} has its own functions: leave out {given!r:.100}.")
        return ReadyAggregation(aggregation, value_serde, materialized)

    @property
    def adder(self) -> AddedValues:
        """The aggregator."""
        return AddedValues(self.aggregation)

    @property
    def merger(self) -> MergedStates:
        """The merger of sessions."""
        return MergedStates(self.aggregation)

    @property
    def subtractor(self) -> SubtractedValues:
        """The subtractor; TypeError if the aggregation cannot subtract."""
        if not self.aggregation.subtractable:
            raise TypeError(
                f"{self.aggregation} cannot subtract the old value of a changed entry, as a grouped table requires. "
                "Aggregate a grouped stream, or write an adder and a subtractor that keep what they need."
            )
        return SubtractedValues(self.aggregation)

    @property
    def store_serde(self) -> Serde | None:
        """The serde of the store without an option: that of the states."""
        return self._state_serde or self._result_serde

    @property
    def store_options(self) -> Materialized | None:
        """The options of the store: a value serde of results is not for states."""
        if self.materialized is None or self._state_serde is None:
            return self.materialized
        return option(self.materialized, Materialized()).with_value_serde(self._state_serde)

    @property
    def result_serde(self) -> Serde | None:
        """The serde of the results: of the options, else that of the aggregation; None for `default.value.serde`."""
        return option(self.materialized, Materialized()).value_serde or self._result_serde

    def results(self, states: KTable[Any, Any], named: Named | str | None) -> KTable[Any, Any]:
        """Return the table of the results of `states`."""
        if self._state_serde is None:
            return states
        given = name_of(named)
        options = Materialized(value_serde=self.result_serde)
        return states.map_values(self.aggregation.result, None if given is None else f"{given}-result", options)

    @property
    def _state_serde(self) -> Serde | None:
        return self.aggregation.state_serde(self.aggregation.part_serde(self.value_serde))

    @property
    def _result_serde(self) -> Serde | None:
        return self.aggregation.result_serde(self.aggregation.part_serde(self.value_serde))
