"""The common base of aggregations by key and window.

It has the store, the operator's clock and the emission of results. Subclasses define the effect of a record on windows.
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
"""The type of windows."""
S = TypeVar("S")
"""The type of the results' store."""


class WindowedAggregation(Processor, UsesResults, Generic[W, S]):
    """An aggregation by key and window, for both emission strategies.

    Kafka class: AbstractKStreamTimeWindowAggregateProcessor.

    Args:
        name: the name of the node.
        store_name: the name of its store.
        windows: the windows.
        initializer: returns the initial aggregate of a window.
        aggregator: returns the next aggregate from key, value and aggregate; None deletes it.
    """

    held: ClassVar[tuple[Held, ...]] = (INITIALIZER, AGGREGATOR)

    def __init__(
        self, name: str, store_name: str, windows: W, initializer: Initializer, aggregator: Aggregator
    ) -> None:
        self._name = name
        self._store_name = store_name
        self._windows = windows
        self._initializer = initializer
        self._aggregator = aggregator

    @abstractmethod
    def _emission(self, store: S, context: EngineContext) -> WindowEmission:
        """Return the emission of the results."""
        raise NotImplementedError

    def init(self, context: ProcessorContext) -> None:
        """Get the store, the clock and the emission.

        Raises StreamsError if the store is not connected.
        """
        super().init(context)
        self._engine = cast(EngineContext, context)
        self._store: S = context.get_state_store(self._store_name).of_operators()
        self._time = ObservedStreamTime(self._engine.processor_metadata(), self._name)
        self._results = self._emission(self._store, self._engine)
