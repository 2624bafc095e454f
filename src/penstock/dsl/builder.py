"""StreamsBuilder: the start of a program, which builds its Topology."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from penstock.config.offset_reset import EARLIEST
from penstock.dsl.arguments import checked_partitions, inheriting, option
from penstock.dsl.global_table import GlobalKTable
from penstock.dsl.graph import Graph, Shells
from penstock.dsl.grouped import KGroupedStream
from penstock.dsl.grouped_table import KGroupedTable
from penstock.dsl.options import Consumed, Materialized
from penstock.dsl.shell import Shell
from penstock.dsl.stream import KStream
from penstock.dsl.table import KTable
from penstock.dsl.type_variables import K, V
from penstock.errors import TopologyError
from penstock.notebook import failed, mime_bundle
from penstock.plan import names, nodes
from penstock.plan.explicit_names import generated_names
from penstock.plan.internal_topics import DATA_FRAME_SOURCE_SUFFIX, check_no_pattern
from penstock.plan.optimize import optimizations
from penstock.plan.subtopology import DataFrameSource
from penstock.plan.suppliers import SupplierLike, check_store_builder, checked_supplier
from penstock.plan.topic_history import topic_history
from penstock.plan.topology import Topology
from penstock.plan.topology_config import TopologyConfig
from penstock.processor.api import ProcessorSupplier
from penstock.state.api import StoreBuilder, filled_by_topic
from penstock.state.suppliers import VersionedBytesStoreSupplier


class StreamsBuilder(Shell):
    """Creates streams, tables and stores, and builds their Topology (Kafka class: StreamsBuilder).

    Args:
        topology_config: the part of the configuration that is needed while the program is built.
    """

    def __init__(self, topology_config: TopologyConfig | None = None) -> None:
        self._topology_config = topology_config
        self._graph = Graph(
            Shells(stream=KStream, table=KTable, grouped_stream=KGroupedStream, grouped_table=KGroupedTable),
            topology_config,
        )

    def stream(
        self, topic: str | Iterable[str] | re.Pattern[str], consumed: Consumed[K, V] | None = None
    ) -> KStream[K, V]:
        """Return the stream of the records of one or more topics.

        Args:
            topic: a topic, several topics, or a compiled regular expression for complete topic names.
            consumed: serdes, timestamp extractor, offset reset, name of the node.

        Raises:
            TopologyError: the name of a topic is a regular expression.
            TypeError: a topic is not a string.
        """
        options: Consumed[K, V] = option(consumed, Consumed())
        pattern = topic if isinstance(topic, re.Pattern) else None
        topics = () if isinstance(topic, re.Pattern) else (topic,) if isinstance(topic, str) else tuple(topic)
        for each in topics:
            _check_topic(each)
        node = nodes.StreamSourceNode(
            name=self._graph.names.processor_name(options.name, names.STREAM_SOURCE),
            topics=topics,
            pattern=pattern,
            key_serde=options.key_serde,
            value_serde=options.value_serde,
            timestamp_extractor=options.timestamp_extractor,
            offset_reset=options.offset_reset,
        )
        return self._graph.stream(
            self._graph.add(node), options.key_serde, options.value_serde, repartition_required=False
        )

    def stream_from(
        self, data_frame: Any, consumed: Consumed[K, V] | None = None, partitions: int | None = None
    ) -> KStream[K, V]:
        """Return the stream of the rows of a streaming Spark DataFrame, each row once.

        The host writes them to the topic `<application.id>-<name>-source`, and the topology reads it. Columns are those
        of Spark's own Kafka sink: `value` (string or binary), and optionally `key` (string or binary), `timestamp` (the
        time of the row; by default that of Spark's batch), `headers` and `partition`. Kafka's default partitioner
        chooses the partition of rows without one.

        Args:
            data_frame: the DataFrame, such as from `spark.readStream.parquet(...)`.
            consumed: serdes, timestamp extractor, name of the node and thus of the topic; a name keeps both when the
                program changes.
            partitions: of a new topic; None for the number of Spark's cores.

        Raises:
            ValueError: `partitions` is below 1.
        """
        options: Consumed[K, V] = option(consumed, Consumed())
        name = self._graph.names.processor_name(options.name, names.STREAM_SOURCE)
        node = nodes.StreamSourceNode(
            name=name,
            topics=(f"{name}{DATA_FRAME_SOURCE_SUFFIX}",),
            key_serde=options.key_serde,
            value_serde=options.value_serde,
            timestamp_extractor=options.timestamp_extractor,
            offset_reset=EARLIEST,
            data_frame=DataFrameSource(data_frame, checked_partitions(partitions)),
        )
        return self._graph.stream(
            self._graph.add(node), options.key_serde, options.value_serde, repartition_required=False
        )

    def stream_from_history(
        self, history: Any, then: str, at: int | datetime | Mapping[int, int], consumed: Consumed[K, V] | None = None
    ) -> KStream[K, V]:
        """Return the stream of past records outside of a topic, then of the records of that topic.

        The results are those of a topic that still has the past records, in the order of their timestamps. Only the
        Spark host reads the history; with TopologyTestDriver, pipe its records into the topic. The rows have the
        columns of Spark's own Kafka source: `value` (string or binary), `timestamp`, and optionally `key` (string or
        binary), `headers`, `partition` and `offset`. Kafka's default partitioner chooses the partition of rows without
        one.

        Args:
            history: a DataFrame that does not stream, or the paths of Parquet files.
            then: the topic that follows the history.
            at: the change-over, as the time (a datetime with a time zone, truncated to ms, or ms since the epoch), or
                as the first offset to read of each partition. The rest of the history is left out: rows at or after
                that time, or rows with such an `offset` and its `partition`.
            consumed: serdes, timestamp extractor, offset reset, name of the node.

        Raises:
            TopologyError: the name of the topic is illegal, or there are no files or no offsets.
            TypeError: an argument has another type.
            ValueError: a partition or an offset is negative, or a datetime has no time zone.
        """
        _check_one_topic(then, "stream from a history")
        options: Consumed[K, V] = option(consumed, Consumed())
        node = nodes.StreamSourceNode(
            name=self._graph.names.processor_name(options.name, names.STREAM_SOURCE),
            topics=(then,),
            key_serde=options.key_serde,
            value_serde=options.value_serde,
            timestamp_extractor=options.timestamp_extractor,
            offset_reset=options.offset_reset,
            history=topic_history(history, then, at),
        )
        return self._graph.stream(
            self._graph.add(node), options.key_serde, options.value_serde, repartition_required=False
        )

    def table(
        self,
        topic: str,
        consumed: Consumed[K, V] | Materialized | None = None,
        materialized: Materialized | None = None,
    ) -> KTable[K, V]:
        """Return the table of a topic: the last value of each key, None deletes.

        The topic's records are the updates of the table.

        Args:
            topic: the topic.
            consumed: serdes, timestamp extractor, offset reset, name of the node; its serdes take precedence over those
                of `materialized`, which may be given alone.
            materialized: the store of the table; without a name, the table gets a store only if an operator needs it.
        """
        _check_one_topic(topic, "table")
        consumed, materialized = _in_order(consumed, materialized)
        options = option(materialized, Materialized())
        reading = inheriting(option(consumed, Consumed()), options.key_serde, options.value_serde)
        options = options.with_key_serde(reading.key_serde).with_value_serde(reading.value_serde)
        queryable = options.user_store_name
        store_name = self._graph.names.new_store_name(f"{topic}-") if queryable is None else queryable
        source_name = self._graph.names.suffixed_name(reading.name, "-source", names.STREAM_SOURCE)
        node = nodes.TableSourceNode(
            name=self._graph.names.processor_name(reading.name, names.TABLE_SOURCE),
            source_name=source_name,
            topic=topic,
            store=options.store_builder(store_name, None, None),
            queryable=queryable is not None,
            key_serde=reading.key_serde,
            value_serde=reading.value_serde,
            timestamp_extractor=reading.timestamp_extractor,
            offset_reset=reading.offset_reset,
        )
        return self._graph.table(self._graph.add(node), reading.key_serde, reading.value_serde, queryable)

    def global_table(
        self,
        topic: str,
        consumed: Consumed[K, V] | Materialized | None = None,
        materialized: Materialized | None = None,
    ) -> GlobalKTable[K, V]:
        """Return the global table of a topic: every task can read all keys, whatever its partitions.

        Args:
            topic: the topic; nothing else in the program reads it.
            consumed: serdes and name of the node; its serdes take precedence over those of `materialized`, which may be
                given alone.
            materialized: name and base of the store; it gets no changelog, because the topic serves as one.

        Raises TopologyError for a versioned store, TypeError for one with a time to live.
        """
        _check_one_topic(topic, "global table")
        consumed, materialized = _in_order(consumed, materialized)
        options = option(materialized, Materialized())
        if isinstance(options.store_supplier, VersionedBytesStoreSupplier):
            raise TopologyError("GlobalTables cannot be versioned.")
        reading = inheriting(option(consumed, Consumed()), options.key_serde, options.value_serde)
        queryable = options.user_store_name
        store_name = self._graph.names.new_store_name(f"{topic}-") if queryable is None else queryable
        options = options.with_key_serde(reading.key_serde).with_value_serde(reading.value_serde)
        store = filled_by_topic(options.store_builder(store_name, None, None))
        id = self._add_global_source(topic, reading, store, None)
        return GlobalKTable(id, reading.key_serde, store_name, queryable)

    def add_global_store(
        self, store_builder: StoreBuilder, topic: str, consumed: Consumed | None, supplier: SupplierLike
    ) -> StreamsBuilder:
        """Add a store filled from all partitions of a topic.

        Every processor can read it without being connected.

        Args:
            store_builder: describes the store; it gets no changelog, because the topic serves as one.
            topic: the topic; nothing else in the program reads it.
            consumed: serdes and name of the node; None for the defaults.
            supplier: creates the processor that writes each record to the store; it forwards nothing.

        Returns this builder.
        """
        self._add_global_source(topic, option(consumed, Consumed()), store_builder, checked_supplier(supplier))
        return self

    def _add_global_source(
        self, topic: str, consumed: Consumed, store: StoreBuilder, supplier: ProcessorSupplier | None
    ) -> nodes.NodeId:
        source = None if consumed.name is None else f"{consumed.name}-source"
        source = self._graph.names.processor_name(source, names.STREAM_SOURCE)
        node = nodes.GlobalSourceNode(
            name=self._graph.names.processor_name(consumed.name, names.TABLE_SOURCE),
            source=source,
            topic=topic,
            store=store,
            supplier=supplier,
            key_serde=consumed.key_serde,
            value_serde=consumed.value_serde,
            timestamp_extractor=consumed.timestamp_extractor,
        )
        return self._graph.add(node)

    def add_state_store(self, store_builder: StoreBuilder) -> StreamsBuilder:
        """Add a store that processors connect to by name; returns this builder."""
        check_store_builder(store_builder)
        self._graph.add(nodes.AddStateStoreNode(name=store_builder.name, store=store_builder))
        return self

    def build(self, config: Mapping[str, Any] | None = None) -> Topology:
        """Return the current topology, optimised according to `topology.optimization` of `config`.

        Raises TopologyError if it is invalid, or has generated names that the TopologyConfig forbids, and ConfigError
        for unknown optimisations.
        """
        topology = self._graph.topology(optimizations(config or {}))
        unnamed = generated_names(self._graph.plan())
        if unnamed and self._topology_config is not None and self._topology_config.ensure_explicit_names:
            raise TopologyError(unnamed)
        return topology

    def _repr_mimebundle_(
        self, include: Collection[str] | None = None, exclude: Collection[str] | None = None
    ) -> dict[str, str]:
        try:
            forms = self._graph.topology().describe().forms("StreamsBuilder")
        except TopologyError as error:
            forms = failed("StreamsBuilder", error)
        return mime_bundle(forms, include, exclude)


def _in_order(
    consumed: Consumed[K, V] | Materialized | None, materialized: Materialized | None
) -> tuple[Consumed[K, V] | None, Materialized | None]:
    """Return both options of a table; Java also accepts only the second one."""
    if not isinstance(consumed, Materialized):
        return consumed, materialized
    if materialized is not None:
        raise TypeError("Expected Consumed before Materialized, got Materialized twice.")
    return None, consumed


def _check_topic(topic: object) -> None:
    """Raise an error unless `topic`, one of a stream's topics, is a topic name."""
    if isinstance(topic, re.Pattern):
        raise TypeError(f"Expected the names of topics, got {topic!r} among them: a pattern must be the only argument.")
    if not isinstance(topic, str):
        raise TypeError(f"Expected the name of a topic, several of them or a compiled pattern, got {topic!r}.")
    check_no_pattern(topic, "stream(re.compile({0!r}))")


def _check_one_topic(topic: object, what: str) -> None:
    """Raise an error unless `topic` is a topic name; `what` has exactly one topic."""
    if isinstance(topic, re.Pattern):
        raise TypeError(
            f"A {what} reads one topic, got {topic!r}: stream() takes a pattern, and to_table() creates a table."
        )
    if not isinstance(topic, str):
        raise TypeError(f"A {what} reads one topic, by its name, got {topic!r}.")
    check_no_pattern(topic, "stream(re.compile({0!r})).to_table()")
