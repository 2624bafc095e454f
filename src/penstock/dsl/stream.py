"""KStream: the operators of a stream of records.

Every method adds a node and returns an object for its records; nothing runs.

Rules: an operator that may change keys marks its stream, so that the next operator by key repartitions it; serdes are
inherited together with keys and values; the return annotation of a function selects the serde of its result if the
configuration has no default.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, overload

from penstock.config import StreamsConfig
from penstock.dsl.arguments import check_same_builder, checked_partitions, inherited, option
from penstock.dsl.branched import BranchedKStream
from penstock.dsl.calls import Calls
from penstock.dsl.column_functions import ArrayFunction, C, D
from penstock.dsl.functions import checked
from penstock.dsl.graph import Graph
from penstock.dsl.internal_sinks import internal_sink, lake_sink
from penstock.dsl.late_records import LateRecords
from penstock.dsl.options import Grouped, Materialized, Named, Produced, Repartitioned, name_of
from penstock.dsl.printed import Printed
from penstock.dsl.stateless import StatelessOperators
from penstock.dsl.stream_deduplication import StreamDeduplication
from penstock.dsl.stream_joins import StreamJoins
from penstock.dsl.type_variables import KR, K, V
from penstock.lake.tables import Delta, Iceberg, LakeMode
from penstock.notebook import mime_bundle
from penstock.plan import names, nodes
from penstock.plan.broadcast import every_partition
from penstock.plan.internal_topics import DATA_FRAME_SINK_SUFFIX
from penstock.plan.processor_calls import processor_calls
from penstock.plan.subtopology import DataFrameSink, TopicNameExtractor
from penstock.plan.suppliers import (
    FixedKeySupplierLike,
    SupplierLike,
    checked_fixed_key_supplier,
    checked_supplier,
    forwarded_types,
)
from penstock.processor.api import ProcessorSupplier
from penstock.processor.column_functions import Vectorized
from penstock.serdes import Serde
from penstock.serdes.annotated import (
    serde_of_annotation,
)
from penstock.serdes.format import are_alike

if TYPE_CHECKING:
    from penstock.dsl.grouped import KGroupedStream
    from penstock.dsl.table import KTable
    from penstock.host.inline.head import Head


class KStream(StatelessOperators[K, V], StreamJoins[K, V], StreamDeduplication[K, V], LateRecords[K, V]):
    """A stream of records (Kafka class: KStream); created by `StreamsBuilder.stream` and by operators.

    The parameter `named` names the node of an operator: a string or `Named.as_("x")`; TopologyError if it is invalid. A
    function with the wrong parameters raises TypeError. The parameter `on_error` is for records on which the function
    of an operator raises: None leaves them to `processing.exception.handler`, a `Park` lets them wait for another
    attempt, with later records of their keys.

    Args:
        graph: the graph.
        id: the node with the records.
        key_serde, value_serde: their serdes.
        repartition_required: whether the keys may have changed since the last topic.
    """

    _instead: ClassVar[Mapping[str, str]] = {
        "aggregate": "group_by_key().aggregate(...)",
        "branch": "split().branch(predicate).default_branch()",
        "cogroup": "group_by_key().cogroup(...)",
        "count": "group_by_key().count()",
        "flat_transform": "process(...)",
        "flat_transform_values": "process_values(...)",
        "reduce": "group_by_key().reduce(...)",
        "suppress": "to_table().suppress(...), or suppress the table of an aggregation",
        "through": "repartition(...)",
        "transform": "process(...)",
        "transform_values": "process_values(...)",
        "windowed_by": "group_by_key().windowed_by(...)",
    }

    def __init__(
        self,
        graph: Graph,
        id: nodes.NodeId,
        key_serde: Serde | None,
        value_serde: Serde | None,
        repartition_required: bool,
    ) -> None:
        self._graph = graph
        self._id = id
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._repartition_required = repartition_required

    @property
    def key_serde(self) -> Serde | None:
        """The key serde inherited by operators, as in Kafka's AbstractStream.

        None means the configured default.
        """
        return self._key_serde

    @property
    def value_serde(self) -> Serde | None:
        """The value serde inherited by operators; None means the configured default."""
        return self._value_serde

    def _repr_mimebundle_(
        self, include: Collection[str] | None = None, exclude: Collection[str] | None = None
    ) -> dict[str, str]:
        return mime_bundle(self._graph.forms("KStream", self._id, self._key_serde, self._value_serde), include, exclude)

    def head(
        self, n: int = 20, config: StreamsConfig | Mapping[str, Any] | None = None, max_records: int = 100_000
    ) -> Head[K, V]:
        """Return the first records of this stream, for inspection in a notebook.

        The inline host processes the source topics from the beginning up to this operator, and stops; it commits,
        writes and creates nothing.

        Args:
            n: maximum number of records to return.
            config: the configuration, with bootstrap.servers, which may also be set by the environment
                (PENSTOCK_BOOTSTRAP_SERVERS), and the default serdes.
            max_records: maximum number of records read from the source topics, and from each global table.

        Raises:
            ValueError: `n` or `max_records` is below 1.
            ConfigError: bootstrap.servers is missing, or a value is invalid.
            TopologyError: the program cannot be built.
            StreamsError: a source topic is missing, no broker answers, or a processor fails.
        """
        return self._graph.head(self._id, (self._key_serde, self._value_serde), n, config, max_records)

    # ---------------------------------------- texts, and processors of the user's own

    def print(self, printed: Printed) -> None:
        """Print each record with the options `printed`; a terminal operator."""
        if not isinstance(printed, Printed):
            raise TypeError(f"Expected Printed, got {printed!r}: write Printed.to_sys_out().")
        name = self._name(printed.name, names.STREAM_PRINTER)
        label = self._graph.name_of(self._id) if printed.label is None else printed.label
        node = nodes.PrintNode(name=name, parents=(self._id,), label=label, mapper=printed.mapper, path=printed.path)
        self._graph.add(node)

    def process(
        self,
        supplier: SupplierLike,
        *store_names: str,
        named: Named | str | None = None,
        calls: Calls | None = None,
        call_functions: Sequence[Callable[..., Any]] = (),
    ) -> KStream:
        """Return the records that your own processor forwards.

        Args:
            supplier: a ProcessorSupplier, or any callable without arguments that returns a new Processor; its stores
                are added and connected.
            store_names: names of further stores to connect.
            named: name of the node.
            calls: how `ProcessorContext.call` calls functions outside of the task; None if the processor calls none.
            call_functions: these functions, each with one argument and a name of its own.

        Raises:
            ValueError: the supplier returns the same processor twice.
            TypeError: the processor has calls, but no method `answered` or no functions.
        """
        processors = checked_supplier(supplier)
        key, value = forwarded_types(processors)
        name = self._process_name(named, names.STREAM_PROCESSOR)
        return self._other_key_and_value(
            self._process(name, processors, store_names, (calls, call_functions)),
            serde_of_annotation(key, is_key=True),
            serde_of_annotation(value),
        )

    def process_values(
        self,
        supplier: FixedKeySupplierLike,
        *store_names: str,
        named: Named | str | None = None,
        calls: Calls | None = None,
        call_functions: Sequence[Callable[..., Any]] = (),
    ) -> KStream[K, Any]:
        """Return the records that your own fixed-key processor forwards.

        It cannot change keys, so no repartition follows.

        Args:
            supplier: a FixedKeyProcessorSupplier, or any callable without arguments that returns a new
                FixedKeyProcessor; its stores are added and connected.
            store_names: names of further stores to connect.
            named: name of the node.
            calls: how `FixedKeyProcessorContext.call` calls functions outside of the task; None without calls.
            call_functions: these functions, each with one argument and a name of its own.

        Raises:
            ValueError: the supplier returns the same processor twice.
            TypeError: the processor has calls, but no method `answered` or no functions.
        """
        processors = checked_fixed_key_supplier(supplier)
        _, value = forwarded_types(processors)
        name = self._process_name(named, names.STREAM_PROCESS_VALUES)
        node = self._process(name, processors, store_names, (calls, call_functions))
        return self._other_value(node, serde_of_annotation(value))

    def _process_name(self, named: Named | str | None, prefix: str) -> str:
        name = name_of(named)  # unlike in all other operators, a user-defined name takes no number here
        return self._graph.names.new_processor_name(prefix) if name is None else name

    def _process(
        self,
        name: str,
        supplier: ProcessorSupplier,
        store_names: tuple[str, ...],
        how: tuple[Calls | None, Sequence[Callable[..., Any]]],
    ) -> nodes.ProcessNode:
        self._check_then(name, how[0])
        return nodes.ProcessNode(
            name=name,
            parents=(self._id,),
            supplier=supplier,
            store_names=store_names,
            calling=processor_calls(name, supplier, *how, self._key_serde),
        )

    # ---------------------------------------- several streams, groups, topics

    def merge(self, other: KStream[K, V], named: Named | str | None = None) -> KStream[K, V]:
        """Return the records of this stream and of `other`, in processing order.

        The result inherits the serdes that both share.
        """
        if not isinstance(other, KStream):
            raise TypeError(f"Expected a KStream to merge with, got {other!r}.")
        check_same_builder(self._graph, other._graph)
        parents = tuple(dict.fromkeys((self._id, other._id)))
        id = self._graph.add(nodes.MergeNode(name=self._name(named, names.STREAM_MERGE), parents=parents))
        required = self._repartition_required or other._repartition_required
        key_serde = self._key_serde if are_alike(self._key_serde, other._key_serde) else None
        value_serde = self._value_serde if are_alike(self._value_serde, other._value_serde) else None
        return self._graph.stream(id, key_serde, value_serde, repartition_required=required)

    def split(self, named: Named | str | None = None) -> BranchedKStream[K, V]:
        """Split the stream into branches.

        Call `branch` for each branch, then `default_branch` or `no_default_branch`; `named` is the prefix of their
        names.
        """
        name = self._name(named, names.STREAM_BRANCH)
        split = nodes.SplitNode(name=name, parents=(self._id,))

        def stream(id: nodes.NodeId) -> KStream[K, V]:
            return self._graph.stream(
                id, self._key_serde, self._value_serde, repartition_required=self._repartition_required
            )

        return BranchedKStream(self._graph, self._graph.add(split), split, stream)

    def repartition(self, repartitioned: Repartitioned | None = None) -> KStream[K, V]:
        """Return the records after writing them to an internal topic and reading them again.

        The topic puts them on the partition of their key; records without a key are dropped.
        """
        options = option(repartitioned, Repartitioned())
        name = self._graph.names.new_processor_name(names.STREAM_REPARTITION) if options.name is None else options.name
        return self._through("repartition", name, options)

    def broadcast(self, repartitioned: Repartitioned | None = None) -> KStream[K, V]:
        """Return the records in every task that uses the result, in each task exactly once.

        For control messages, such as rules and thresholds. An internal topic has each record in every partition, and
        one partition for each task of the sub-topology that reads it. A processor, a shared store or `merge` connects
        the result with another stream. Records without a key are kept.

        Args:
            repartitioned: serdes, if they differ from those of the stream; name, which gives the topic
                `<application.id>-<name>-broadcast-repartition`; the number of partitions, at least that of the tasks.

        Raises:
            ValueError: the options have a partitioner.
        """
        options = option(repartitioned, Repartitioned())
        if options.partitioner is not None:
            raise ValueError(
                "broadcast() writes each record to every partition, so its options cannot have a partitioner: remove "
                "it, or write repartition(...) with a partitioner that returns several partitions."
            )
        generated = self._graph.names.new_processor_name(names.STREAM_BROADCAST)
        name = generated if options.name is None else f"{options.name}-broadcast"
        return self._through("broadcast", name, options.with_stream_partitioner(every_partition))

    def _through(self, operator: str, prefix: str, given: Repartitioned) -> KStream[K, V]:
        options = inherited(operator, given, self._key_serde, self._value_serde)
        node = nodes.RepartitionNode.below(self._id, prefix, self._graph.names, options.key_serde, options.value_serde)
        fixed = replace(node, movable=False, partitioner=options.partitioner, partitions=options.number_of_partitions)
        id = self._graph.add(fixed)
        return self._graph.stream(id, options.key_serde, options.value_serde, repartition_required=False)

    def group_by_key(self, grouped: Grouped | None = None) -> KGroupedStream[K, V]:
        """Return the records grouped by key, repartitioned if an earlier operator may have changed keys."""
        options = inherited("group_by_key", option(grouped, Grouped()), self._key_serde, self._value_serde)
        return self._grouped(self._id, options, self._repartition_required)

    @overload
    def group_by(
        self, key_selector: Vectorized[tuple[K, V], KR], grouped: Grouped | None = None, *, calls: Calls | None = None
    ) -> KGroupedStream[KR, V]: ...
    @overload
    def group_by(
        self, key_selector: Callable[..., Awaitable[KR]], grouped: Grouped | None = None, *, calls: Calls
    ) -> KGroupedStream[KR, V]: ...
    @overload
    def group_by(
        self, key_selector: Callable[[K, V], KR], grouped: Grouped | None = None, *, calls: Calls | None = None
    ) -> KGroupedStream[KR, V]: ...
    @overload
    def group_by(
        self, key_selector: Callable[..., KR], grouped: Grouped | None = None, *, calls: Calls
    ) -> KGroupedStream[KR, V]: ...
    @overload
    def group_by(
        self, key_selector: ArrayFunction[C, D, KR], grouped: Grouped | None = None
    ) -> KGroupedStream[KR, V]: ...
    def group_by(
        self, key_selector: Callable[..., Any], grouped: Grouped | None = None, *, calls: Calls | None = None
    ) -> KGroupedStream[Any, V]:
        """Return the records grouped by `key_selector(key, value)`, repartitioned by that key."""
        options = option(grouped, Grouped())
        id, key_serde = self._select_key(key_selector, options.name, (None, calls))
        return self._grouped(id, inherited("group_by", options, key_serde, self._value_serde), True)

    def _grouped(self, id: nodes.NodeId, options: Grouped, repartition_required: bool) -> KGroupedStream:
        return self._graph.grouped_stream(
            id, options.key_serde, options.value_serde, options.name, repartition_required=repartition_required
        )

    def to_table(self, named: Named | str | None = None, materialized: Materialized | None = None) -> KTable[K, V]:
        """Return the table of the last value of each key; None deletes.

        The records are the updates of the table. They are repartitioned if an earlier operator may have changed keys.

        `materialized` is the store of the table; without a name, the table gets a store only if an operator needs it.
        """
        name = self._name(named, names.STREAM_TO_TABLE)
        options = inherited(
            f"to_table {name}", option(materialized, Materialized()), self._key_serde, self._value_serde
        )
        queryable = options.user_store_name
        store_name = self._graph.names.new_store_name(names.STREAM_TO_TABLE) if queryable is None else queryable
        parent = self._id
        if self._repartition_required:
            parent = self._graph.add(
                nodes.RepartitionNode.below(self._id, name, self._graph.names, options.key_serde, options.value_serde)
            )
        node = nodes.StreamToTableNode(
            name=name,
            parents=(parent,),
            store=options.store_builder(store_name, None, None),
            queryable=queryable is not None,
        )
        return self._graph.table(self._graph.add(node), options.key_serde, options.value_serde, queryable)

    def to(self, topic: str | TopicNameExtractor, produced: Produced | None = None) -> None:
        """Write the records to a topic.

        Args:
            topic: the topic, or a function of key, value and RecordMetadata that returns the topic of each record.
            produced: serdes, if they differ from those of the stream; partitioner; name of the node.
        """
        if not isinstance(topic, str):
            if not callable(topic):
                raise TypeError(
                    f"Expected the name of a topic or a function topic(key, value, metadata) for to(), got {topic!r}."
                )
            checked(topic, "topic(key, value, metadata)")
        options = option(produced, Produced())
        name = self._name(options.name, names.STREAM_SINK)
        options = inherited(f"Sink {name} of topic {topic}", options, self._key_serde, self._value_serde)
        self._graph.add(
            nodes.StreamSinkNode(
                name=name,
                parents=(self._id,),
                topic=topic,
                key_serde=options.key_serde,
                value_serde=options.value_serde,
                partitioner=options.partitioner,
            )
        )

    def to_spark(
        self, function: Callable[[Any, int], None], produced: Produced | None = None, partitions: int | None = None
    ) -> None:
        """Pass the records to Spark as DataFrames, batch by batch.

        The topology writes them to the topic `<application.id>-<name>-sink`; a Spark query reads it and calls
        `function(data_frame, epoch)` in the program, like `foreachBatch`: a batch that runs again after a failure has
        the same number and the same rows, so a function that replaces its output of that number writes exactly once.
        Numbers increase, also over a reset; the first is a time in ms. Columns are those of Spark's own Kafka source:
        `key` and `value` (binary), `topic`, `partition`, `offset`, `timestamp`, `timestampType` and `headers`.

        Args:
            function: receives a DataFrame and its number.
            produced: serdes, if they differ from those of the stream; partitioner; name of the node and thus of the
                topic; a name keeps both when the program changes.
            partitions: of a new topic; None for the number of Spark's cores.

        Raises:
            ValueError: `partitions` is below 1.
        """
        checked(function, "function(data_frame, epoch)")
        sink = internal_sink(self._graph, self._id, DATA_FRAME_SINK_SUFFIX, produced)
        self._graph.add(replace(sink, data_frame=DataFrameSink(function, checked_partitions(partitions))))

    def to_lake(self, table: Iceberg | Delta, produced: Produced | None = None, partitions: int | None = None) -> None:
        """Append the records to a table of a data lake, each once.

        The topology writes them to the topic `<application.id>-<name>-lake`. The application copies that topic to the
        table: each commit has the offsets of its records, so neither a crash nor a reset repeats or skips a record of
        the topic. Columns are `_key` (for windowed keys also `_window_start` and `_window_end`), the fields of the
        value (`value` for a value without fields), and `_timestamp`. A table gets columns that it lacks. Commits follow
        `penstock.lake.commit.interval.ms` and `penstock.lake.commit.max.bytes`.

        Args:
            table: `Iceberg` or `Delta`, of `penstock.lake`.
            produced: serdes, if they differ from those of the stream; partitioner; name of the node and thus of the
                topic; a name keeps both when the program changes.
            partitions: of a new topic; None for `num.partitions`.

        Raises:
            ValueError: `partitions` is below 1.
            TypeError: `table` is not a table of a lake.
        """
        self._graph.add(lake_sink(self._graph, self._id, table, LakeMode.APPEND, produced, partitions))
