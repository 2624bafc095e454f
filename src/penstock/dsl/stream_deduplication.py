"""The deduplication of KStream: by key, or by key and an id (KIP-655).

Only nodes are added; a stream whose keys may have changed is repartitioned first, so that duplicates meet in one task.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic

from penstock.dsl.arguments import first, inherited, option
from penstock.dsl.deduplicated import Deduplicated
from penstock.dsl.functions import checked, name_of_function
from penstock.dsl.graph import Graph
from penstock.dsl.shell import Shell
from penstock.dsl.type_variables import K, V
from penstock.plan import names, nodes
from penstock.plan.user_lines import at_line
from penstock.processor.column_functions import result_annotation
from penstock.serdes import Serde, Serdes
from penstock.serdes.annotated import serde_of_result
from penstock.serdes.key_and_id import KeyAndIdSerde
from penstock.state.api import StoreBuilder
from penstock.state.suppliers import WindowBytesStoreSupplier
from penstock.windows import LONG_MAX
from penstock_broker.common.durations import Duration, milliseconds

if TYPE_CHECKING:
    from penstock.dsl.stream import KStream


class StreamDeduplication(Shell, Generic[K, V]):
    """The deduplication of KStream.

    The first record of a key, or of a key and an id, is forwarded as it is. Others are dropped as duplicates until
    stream time has advanced by more than the interval, and if they are earlier than the first one, by at most the
    interval. Records without a key are forwarded.
    """

    _graph: Graph
    _id: nodes.NodeId
    _key_serde: Serde | None
    _value_serde: Serde | None
    _repartition_required: bool

    def deduplicate_by_key(self, interval: Duration, deduplicated: Deduplicated | None = None) -> KStream[K, V]:
        """Return the first record of each key within `interval` (KIP-655).

        Args:
            interval: stream time after the first record in which others of its key are duplicates, both ends
                inclusive (ms, or a timedelta).
            deduplicated: serdes, and names of node and store.

        Raises:
            ValueError: the interval is negative.
            TypeError: the interval is no duration, or the options have a serde of ids.
        """
        operator = "deduplicate_by_key"
        options = option(deduplicated, Deduplicated())
        if options.id_serde is not None:
            raise TypeError(
                f"{operator}{at_line()} has no ids, but Deduplicated has the id_serde {options.id_serde!r}: leave it "
                "out, or write deduplicate_by_key_value(mapper, interval, deduplicated)."
            )
        return self._deduplicated(operator, interval, options, None)

    def deduplicate_by_key_value(
        self, mapper: Callable[[K, V], Any], interval: Duration, deduplicated: Deduplicated | None = None
    ) -> KStream[K, V]:
        """Return the first record of each key and id within `interval` (KIP-655).

        Args:
            mapper: `mapper(key, value)` returns the id, which is compared within the key; records with None are
                forwarded.
            interval: stream time after the first record in which others of its key and id are duplicates, both ends
                inclusive (ms, or a timedelta).
            deduplicated: serdes, and names of node and store; the serde of the ids is required unless the return
                annotation of `mapper` selects one.

        Raises:
            ValueError: the interval is negative.
            TypeError: the interval is no duration, or there is no serde of ids.
        """
        operator = "deduplicate_by_key_value"
        checked(mapper, "mapper(key, value)")
        options = option(deduplicated, Deduplicated())
        annotated = serde_of_result(mapper)
        id_serde = first(options.id_serde, None if annotated is None else annotated.with_defaults(None, None))
        if id_serde is None:
            raise TypeError(f"{operator}{at_line()} has no serde of ids: {_how_to_name_ids(mapper)}.")
        return self._deduplicated(operator, interval, options.with_id_serde(id_serde), mapper)

    def _deduplicated(
        self, operator: str, interval: Duration, options: Deduplicated, mapper: Callable[[Any, Any], Any] | None
    ) -> KStream:
        interval_ms = milliseconds(interval, "the interval")
        if interval_ms < 0:
            raise ValueError(f"The interval of {operator}{at_line()} must not be negative, got {interval!r}.")
        provider = self._graph.names
        name = provider.processor_name(options.name, names.STREAM_DEDUPLICATE)
        generated = provider.new_store_name(names.STREAM_DEDUPLICATE)
        options = inherited(f"{operator} {name}", options, self._key_serde, self._value_serde)
        node = nodes.DeduplicateNode(
            name=name,
            parents=(self._repartitioned(name, options),),
            store=_store(options.store_name or options.name or generated, min(interval_ms, LONG_MAX - 1), options),
            interval_ms=min(interval_ms, LONG_MAX - 1),
            mapper=mapper,
        )
        return self._graph.stream(
            self._graph.add(node), options.key_serde, options.value_serde, repartition_required=False
        )

    def _repartitioned(self, name: str, options: Deduplicated) -> nodes.NodeId:
        """Return the node of the records by key: this one, or a repartition below it."""
        if not self._repartition_required:
            return self._id
        return self._graph.add(
            nodes.RepartitionNode.below(self._id, name, self._graph.names, options.key_serde, options.value_serde)
        )


def _how_to_name_ids(mapper: Callable[..., Any]) -> str:
    """Return how to give the ids of `mapper` a serde."""
    annotation = result_annotation(mapper)
    if annotation is None:
        return "name one, such as Deduplicated(id_serde=Serdes.string()), or annotate the result of the mapper"
    example = "long" if annotation is int else "string"
    return (
        f"the annotation {getattr(annotation, '__name__', annotation)} of {name_of_function(mapper)} selects no serde, "
        f"so name one, such as Deduplicated(id_serde=Serdes.{example}())"
    )


def _store(name: str, interval_ms: int, options: Deduplicated) -> StoreBuilder:
    """Return the store of the first records' times, which keeps them while they have duplicates.

    The interval includes both of its ends, so an entry lives one ms longer.
    """
    key_serde = options.key_serde
    return StoreBuilder(
        WindowBytesStoreSupplier(
            name, retention_ms=interval_ms + 1, window_size_ms=interval_ms + 1, retain_duplicates=False, in_memory=None
        ),
        key_serde if options.id_serde is None else KeyAndIdSerde(key_serde, options.id_serde),
        Serdes.boolean(),
    )
