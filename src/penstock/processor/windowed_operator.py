"""What all aggregations by key and window have in common: the store, the operator's clock, and how results leave.

What a record does to windows is the business of each kind.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Generic, TypeVar, cast

from penstock.processor.aggregate import Aggregator, Initializer
from penstock.processor.api import EngineContext, Processor, ProcessorContext
from penstock.processor.first_results import AGGREGATOR, INITIALIZER, Held, UsesResults
from penstock.processor.operator_time import ObservedStreamTime
from penstock.processor.window_emission import WindowEmission

W = TypeVar("W")
"""The kind of windows."""
S = TypeVar("S")
"""The store of the results."""


class WindowedAggregation(Processor, UsesResults, Generic[W, S]):
    """An aggregation by key and window, for both ways of emitting (Kafka class:
    AbstractKStreamTimeWindowAggregateProcessor)."""

    held: ClassVar[tuple[Held, ...]] = (INITIALIZER, AGGREGATOR)

    def __init__(
        self, name: str, store_name: str, windows: W, initializer: Initializer, aggregator: Aggregator
    ) -> None:
        """Take the name of the node, the name of its store, and the user's functions."""
        self._name = name
        self._store_name = store_name
        self._windows = windows
        self._initializer = initializer
        self._aggregator = aggregator

    @abstractmethod
    def _emission(self, store: S, context: EngineContext) -> WindowEmission:
        """Return how results leave."""
        raise NotImplementedError

    def init(self, context: ProcessorContext) -> None:
        """Get the store and what the operator remembers; raises StreamsError if the store is not connected."""
        super().init(context)
        self._engine = cast(EngineContext, context)
        self._store: S = context.get_state_store(self._store_name)
        self._time = ObservedStreamTime(self._engine.processor_metadata(), self._name)
        self._results = self._emission(self._store, self._engine)
