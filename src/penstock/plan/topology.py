"""Topology: nodes and stores by name, added one by one, with Kafka's checks.

It runs nothing.

Rules: parents are added before their children, a topic has one source, and names are unique. `StreamsBuilder` also ends
here: lowering adds its nodes by the same methods, and repartition topics and co-partitioned sources by the methods of
the base class of `Topology`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from penstock.config.offset_reset import EARLIEST
from penstock.errors import TopologyError
from penstock.plan.internal_topics import check_topic_name
from penstock.plan.internal_topology_builder import InternalTopologyBuilder
from penstock.plan.java_order import Positional, global_order, merged, sink_order, source_order
from penstock.plan.offset_reset import check_offset_reset
from penstock.plan.processor_calls import (
    ProcessorCalls,
    add_calling_processor,
    check_dead_letters_do_not_return,
    processor_calls,
)
from penstock.plan.subtopology import (
    BuiltTopology,
    ProcessorSpec,
    SinkSpec,
    SourceSpec,
    StreamPartitioner,
    TopicNameExtractor,
)
from penstock.plan.suppliers import SupplierLike, check_store_builder, checked_supplier, wrapped_supplier
from penstock.processor.timestamps import TimestampExtractor
from penstock.serdes import Serde
from penstock.state.api import StoreBuilder, filled_by_topic


class Topology(InternalTopologyBuilder):
    """A graph of sources, processors, sinks and stores (Kafka class: Topology).

    It is built by hand or by `StreamsBuilder`. Every method returns the topology itself, so that calls can be chained.
    """

    def add_source(
        self,
        name: str | TimestampExtractor,
        *topics: Positional,
        pattern: re.Pattern[str] | str | None = None,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        offset_reset: str | None = None,
    ) -> Topology:
        """Add a source of records.

        Options may also be positional, in Java's order.

        Args:
            name: name of the node.
            topics: the topics to read; alternatively, give `pattern`.
            pattern: a regular expression; topics whose whole name matches are read.
            key_serde: serde of keys; None for `default.key.serde`.
            value_serde: serde of values; None for `default.value.serde`.
            timestamp_extractor: returns the timestamp of each record in ms; None for `default.timestamp.extractor`.
            offset_reset: first position without a committed offset, a value of AutoOffsetReset; None for
                `auto.offset.reset`.

        Raises:
            TopologyError: the name or a topic is taken, or topics are missing.
            ValueError: topics and pattern are both given, or offset_reset is unknown.
            TypeError: a positional argument is not allowed there, or is also given by keyword.
        """
        node, read, by_position = source_order(name, *topics)
        options = merged(
            by_position,
            pattern=pattern,
            key_serde=key_serde,
            value_serde=value_serde,
            timestamp_extractor=timestamp_extractor,
            offset_reset=None if offset_reset is None else str(offset_reset),
        )
        self._check_new(node)
        check_offset_reset(options["offset_reset"])
        chosen = options.pop("pattern")
        if chosen is not None and read:
            raise ValueError(f"Source {node}: give topics or a pattern, not both.")
        compiled = None if chosen is None else re.compile(chosen)
        if compiled is not None:
            self._check_pattern(compiled)
        elif not read:
            raise TopologyError("topics cannot be empty")
        for each in read:  # one by one: the second of two equal topics is refused
            self._check_topic(each)
            self._source_topics.add(each)
        self._add_node(SourceSpec(name=node, topics=read, pattern=compiled, **options))
        return self

    def add_processor(
        self,
        name: str,
        supplier: SupplierLike,
        *parents: str,
        calls: ProcessorCalls | None = None,
        call_functions: Sequence[Callable[..., Any]] = (),
    ) -> Topology:
        """Add a processor.

        Args:
            name: name of the node.
            supplier: a ProcessorSupplier, or any callable without arguments that returns a new Processor; its stores
                are added and connected.
            parents: names of the nodes whose records it receives.
            calls: a Calls, how `ProcessorContext.call` calls functions outside of the task; None without such calls.
            call_functions: these functions, each with one argument and a name of its own.

        Raises:
            TopologyError: the name is taken, a parent is missing, unknown or a sink, or the records that fail would
                come back.
            ValueError: the supplier returns the same processor twice.
            TypeError: the processor has calls, but no method `answered` or no functions.
        """
        self._check_new(name)
        self._check_parents(name, parents)
        processors = checked_supplier(supplier)
        calling = processor_calls(name, processors, calls, call_functions, None)
        if calling is not None:
            check_dead_letters_do_not_return(self, name, parents, calling.dead_letters)
            add_calling_processor(self, name, processors, parents, calling)
            return self
        checked = wrapped_supplier(self._wrapper, name, processors)
        self._add_node(ProcessorSpec(name=name, supplier=checked, parents=parents))
        for store in checked.stores():
            self.add_state_store(store, name)
        return self

    def add_sink(
        self,
        name: str,
        topic: str | TopicNameExtractor,
        *parents: Positional,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        partitioner: StreamPartitioner | None = None,
    ) -> Topology:
        """Add a sink, which writes the records of its parents to a topic.

        Options may also be positional, in Java's order.

        Args:
            name: name of the node.
            topic: the topic, or a function of key, value and RecordMetadata that returns it for each record.
            parents: names of the nodes whose records are written.
            key_serde: serde of keys; None for `default.key.serde`.
            value_serde: serde of values; None for `default.value.serde`.
            partitioner: chooses the partitions of each record; None for Kafka's default, by key.

        Raises:
            TopologyError: the name is taken, or a parent is missing, unknown or a sink.
            TypeError: an option is given by position and by keyword.
        """
        named, by_position = sink_order(*parents)
        options = merged(by_position, key_serde=key_serde, value_serde=value_serde, partitioner=partitioner)
        self._check_new(name)
        if topic is None:
            raise TypeError("topic cannot be null")
        self._check_parents(name, named)
        if isinstance(topic, str):
            check_topic_name(topic)
        self._add_node(
            SinkSpec(
                name=name,
                parents=named,
                topic=topic if isinstance(topic, str) else None,
                topic_extractor=None if isinstance(topic, str) else topic,
                **options,
            )
        )
        return self

    def add_state_store(self, store_builder: StoreBuilder, *processors: str, allow_override: bool = False) -> Topology:
        """Add a store and connect it to `processors`.

        Args:
            store_builder: describes the store.
            processors: names of processors that use it, in addition to those already connected.
            allow_override: replace an earlier store of the same name (Kafka class: InternalTopologyBuilder).

        Raises:
            TopologyError: another store has the name, or a processor is unknown, a source or a sink.
        """
        check_store_builder(store_builder)
        self._add_store(store_builder, allow_override)
        for processor in processors:
            self._connect(processor, store_builder.name)
        return self

    def add_global_store(
        self,
        store_builder: StoreBuilder,
        source: str,
        topic: Positional,
        processor: str | Serde | None,
        supplier: SupplierLike | Serde | str | None,
        *others: SupplierLike | Serde | str | None,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
    ) -> Topology:
        """Add a store that is filled from all partitions of a topic.

        Every task can read it without a connection. Options may also be positional, in Java's order.

        Args:
            store_builder: describes the store; it gets no changelog, since its topic serves as one.
            source: name of the node that reads the topic.
            topic: the topic, which no other source reads.
            processor: name of the node that writes each record to the store.
            supplier: makes that processor, which forwards nothing.
            others: the remaining arguments in Java's order, in which serdes precede the topic.
            key_serde: serde of keys; None for `default.key.serde`.
            value_serde: serde of values; None for `default.value.serde`.
            timestamp_extractor: unused, as in Kafka: records of global stores keep their own timestamps.

        Raises:
            TopologyError: a name or the topic is taken, or both nodes have the same name.
            ValueError: the supplier returns the same processor twice.
            TypeError: the arguments are in no known order, or an option is given by position and by keyword.
        """
        read, node, makes, by_position = global_order(topic, processor, supplier, *others)
        options = merged(
            by_position, key_serde=key_serde, value_serde=value_serde, timestamp_extractor=timestamp_extractor
        )
        _check_given(storeBuilder=store_builder, sourceName=source, topic=read, processorName=node)
        checked = wrapped_supplier(self._wrapper, node, checked_supplier(makes))
        self._add_global_store(
            store_builder,
            SourceSpec(name=source, topics=(read,), **options),
            ProcessorSpec(name=node, supplier=checked, parents=(source,), stores=(store_builder.name,)),
        )
        return self

    def add_read_only_state_store(
        self,
        store_builder: StoreBuilder,
        source: str,
        topic: Positional,
        processor: str | Serde | None,
        supplier: SupplierLike | Serde | str | None,
        *others: SupplierLike | Serde | str | None,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
    ) -> Topology:
        """Add a partitioned store that is filled from a topic, its changelog (KIP-813).

        Processors that read it are connected as to any other store, and share its partitions.

        Arguments and errors are those of `add_global_store`, but the timestamp extractor is used.
        """
        read, node, makes, by_position = global_order(topic, processor, supplier, *others)
        options = merged(
            by_position, key_serde=key_serde, value_serde=value_serde, timestamp_extractor=timestamp_extractor
        )
        _check_given(storeBuilder=store_builder, sourceName=source, topic=read, processorName=node)
        store = filled_by_topic(store_builder)
        self.add_source(source, read, **options, offset_reset=EARLIEST)
        self.add_processor(node, makes, source)
        self.add_state_store(store, node)
        self.connect_source_store_and_topic(store.name, read)
        return self

    def connect_processor_and_state_stores(self, processor: str, *stores: str) -> Topology:
        """Connect `processor` with `stores` (names).

        Nodes that share a store run in one sub-topology.

        Raises:
            TopologyError: no store is given, one of the names is unknown, or `processor` is a source or a sink.
        """
        if processor is None:
            raise TypeError("processorName cannot be null")
        if not stores:
            raise TopologyError("stateStoreNames cannot be empty")
        if isinstance(self._nodes.get(processor), SourceSpec | SinkSpec):
            raise TopologyError("State stores cannot be connect to sources or sinks.")
        for store in stores:
            self._connect(processor, store)
        return self


def _check_given(**arguments: object) -> None:
    for name, value in arguments.items():
        if value is None:
            raise TypeError(f"{name} must not be null")


def built_topology(topology: object, application_id: str) -> BuiltTopology:
    """Return `topology` as plain data (`Topology.build`); raises TypeError if it is not a Topology."""
    if not isinstance(topology, Topology):
        raise TypeError(f"Expected a Topology, got {topology!r}: StreamsBuilder.build() returns one.")
    return topology.build(application_id)
