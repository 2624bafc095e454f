"""The nodes of one task, created from a sub-topology's specification.

Kafka classes: ProcessorTopology, ProcessorNode, SourceNode, SinkNode.

Here a record is processed alone, depth first; `execution.py` runs the same nodes column by column. An error of a user's
function gets the name of the node that called it, and passes through all others unchanged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import attrgetter, index
from typing import Any, Final, Protocol

import numpy as np

from penstock.config import StreamsConfig
from penstock.errors import StreamsError, TaskCorruptedError, TaskMigratedError
from penstock.exception_handlers import ProducerRecord, SerializationExceptionOrigin
from penstock.metrics.drop_reasons import DropReason
from penstock.metrics.host_metrics import NODE_ID, PARKED_RECORDS, operation_of
from penstock.metrics.measurements import Measurement, measured_once
from penstock.metrics.observer import TaskObserver
from penstock.plan.broadcast import every_partition
from penstock.plan.serde_check import node_serde
from penstock.plan.subtopology import DroppedSinkSpec, ProcessorSpec, SinkSpec, SourceSpec, SubtopologySpec
from penstock.processor.api import Processor
from penstock.processor.call_answers import StreamCallAnswers
from penstock.processor.columns import FEWEST_ROWS
from penstock.processor.first_results import WARN_NONE_RESULTS, watch_results
from penstock.processor.not_awaited import not_awaited_hint
from penstock.processor.park import StreamPark
from penstock.processor.stream_partitioner import PartitionerWithHeaders, with_headers
from penstock.record import (
    NO_METADATA,
    ConsumerRecord,
    Headers,
    Int64Array,
    Record,
    RecordBatch,
    RecordMetadata,
    are_same,
    entries_of,
)
from penstock.serdes import BytesSerde, Serde, StringSerde
from penstock.serdes.api import Library, read_column
from penstock.serdes.unread_column import unread_column
from penstock.state.api import RecordContext
from penstock.state.suppliers import KeyValueBytesStoreSupplier, LruMapBytesStoreSupplier
from penstock.task.context import TaskContext
from penstock.task.dropped_records import DroppedRow
from penstock.task.error_handling import ErrorHandling, ProcessingError, told_cause
from penstock.task.record_collector import RecordCollector
from penstock.task.record_sender import RecordSender
from penstock.task.shared_values import SharedValues
from penstock.task.written_keys import written_keys
from penstock.topic_names import why_illegal
from penstock.windows import Windowed
from penstock_broker.common.log_limits import limit_rate

_log = limit_rate(logging.getLogger(__name__))

_DROPPED: Final = object()
"""Replaces the bytes of an unwritable key or value if the handler drops the record."""


class Flusher(Protocol):
    """Runs the children of a node on entries flushed from its store's cache.

    The execution of the task implements it.
    """

    def run_flushed(self, node: ProcessorNode, batch: RecordBatch, contexts: Sequence[RecordContext]) -> None:
        """Pass each record to the children of `node` in its context."""
        ...


class ProcessorNode:
    """A node with a processor.

    Args:
        spec: the specification of the node.
        task: the context of the task.
        errors: handles its errors.
    """

    def __init__(self, spec: ProcessorSpec, task: TaskContext, errors: ErrorHandling) -> None:
        self._errors = errors
        self.name = spec.name
        self.stores: Sequence[str] = spec.stores
        self.children: list[ProcessorNode | SinkNode] = []
        self.dropped_sinks: list[DroppedSink] = []
        self.dropped_rows: list[DroppedRow] = []
        self._supplier = spec.supplier
        self.processor: Processor = spec.supplier.get()
        self.initializing = False
        self.flusher: Flusher | None = None
        self._task = task
        _report_records(self, task.observer)

    def init(self) -> None:
        """Call the processor's `init`; raises StreamsError with the node's name if it fails."""
        self.initializing = True
        try:
            self.processor.init(self._task.node_context(self))
        except Exception as error:
            failure = StreamsError(f"failed to initialize processor {self.name}")
            failure.add_note(told_cause(error, self.name, self._task.described(self.name)))
            raise failure from error
        finally:
            self.initializing = False
        if self._task.config[WARN_NONE_RESULTS]:
            watch_results(self.processor, self._supplier, self._task.described(self.name))

    def process(self, record: Record[Any, Any]) -> None:
        """Process one record and all records that follow from it.

        Raises ProcessingError unless the handler drops the record.
        """
        task = self._task
        outer = task.record
        task.record = record
        try:
            self.processor.process(record)
        except (ProcessingError, TaskCorruptedError, TaskMigratedError):
            raise
        except Exception as error:
            self._errors.processing_failed(self.name, record, error)
        finally:
            task.record = outer

    def flushed(self, batch: RecordBatch, contexts: Sequence[RecordContext]) -> None:
        """Pass on entries flushed from the cache of the node's store."""
        if self.flusher is not None:
            self.flusher.run_flushed(self, batch, contexts)

    def count_dead_letter(self) -> None:
        """Count a record that is written as a dead letter."""
        self._errors.count_dead_letter()

    def take_dropped_rows(self) -> list[DroppedRow]:
        """Remove and return the dropped rows of the last batch, in the order of the rows."""
        taken, self.dropped_rows = self.dropped_rows, []
        return sorted(taken, key=attrgetter("row"))

    def close(self) -> None:
        """Call the processor's `close`; raises StreamsError with the node's name if it fails."""
        try:
            self.processor.close()
        except Exception as error:
            raise StreamsError(f"failed to close processor {self.name}") from error


class SourceNode:
    """A node that reads topics: turns bytes into objects.

    Args:
        spec: the specification of the node.
        config: the configuration.
        errors: handles records that its serdes cannot read.

    Raises:
        StreamsError: a serde is missing.
    """

    def __init__(self, spec: SourceSpec, config: StreamsConfig, errors: ErrorHandling) -> None:
        self._errors = errors
        self.name = spec.name
        self.spec = spec
        self.children: list[ProcessorNode | SinkNode] = []
        self.key_serde = node_serde(spec, "key", config)
        self._value_serde = node_serde(spec, "value", config)
        self.libraries: tuple[Library | None, Library | None] = (None, None)
        """The libraries of the arrays in which children take keys and values; None for objects."""
        self.passes_keys = False
        """Whether the nodes below it, but sinks, do not look at keys."""

    def is_canonical(self, batch: RecordBatch) -> bool:
        """Return whether all bytes of `batch` are readable, and its keys survive the round trip."""
        return self._value_serde.is_readable_column(entries_of(batch.values)) and self.key_serde.is_canonical_column(
            entries_of(batch.keys)
        )

    def deserialize(self, topic: str, partition: int, batch: RecordBatch) -> RecordBatch:
        """Return `batch` with objects instead of bytes, without unreadable rows.

        The handler drops those rows; raises StreamsError for the first one that it does not drop.
        """
        with suppress(Exception):  # the rows identify the failed one, without this error as their context
            are_few = len(batch) < FEWEST_ROWS
            of_keys, of_values = (None, None) if are_few else self.libraries
            unread = unread_column(self.key_serde, topic, batch.keys) if self.passes_keys and not are_few else None
            keys: Sequence[Any] | None = unread
            if keys is None:
                keys = read_column(self.key_serde, topic, batch.keys, batch.headers, of_keys)
            values = read_column(self._value_serde, topic, batch.values, batch.headers, of_values)
            return RecordBatch(keys, values, batch.timestamps, batch.offsets, batch.headers)
        return self._deserialize_rows(topic, partition, batch)

    def _deserialize_rows(self, topic: str, partition: int, batch: RecordBatch) -> RecordBatch:
        keys: list[Any] = []
        values: list[Any] = []
        kept: list[int] = []
        for row, (key, value) in enumerate(zip(batch.keys, batch.values, strict=True)):
            headers = batch.headers_at(row)
            part, serde = "key", self.key_serde
            try:
                read_key = None if key is None else serde.deserialize(topic, key, headers)
                part, serde = "value", self._value_serde
                read_value = None if value is None else serde.deserialize(topic, value, headers)
            except Exception as error:
                offset, timestamp = int(batch.offsets[row]), int(batch.timestamps[row])
                record = ConsumerRecord(topic, partition, offset, timestamp, key, value, headers)
                self._errors.deserialization_failed(self.name, record, error, f"{part}, with {type(serde).__name__},")
                continue
            keys.append(read_key)
            values.append(read_value)
            kept.append(row)
        rows = np.array(kept, np.int64)
        taken_headers = None if batch.headers is None else [batch.headers[row] for row in kept]
        return RecordBatch(keys, values, batch.timestamps[rows], batch.offsets[rows], taken_headers)


class SinkNode:
    """A node that writes to a topic, or to topics named by an extractor.

    It turns objects into bytes and chooses the partition.

    Args:
        spec: the specification of the node.
        task: the context of the task.
        collector: receives columns.
        sender: receives single records.
        errors: handles records that cannot be written.
    """

    children: Sequence[ProcessorNode | SinkNode] = ()

    def __init__(
        self,
        spec: SinkSpec,
        task: TaskContext,
        collector: RecordCollector,
        sender: RecordSender,
        errors: ErrorHandling,
    ) -> None:
        self.name = spec.name
        self.spec = spec
        self._task = task
        self._collector = collector
        self._sender = sender
        self._errors = errors
        self._key_serde = node_serde(spec, "key", task.config)
        self._value_serde = node_serde(spec, "value", task.config)
        self._partitioner = None if spec.partitioner is None else with_headers(spec.partitioner)
        self._same_serde = type(self._key_serde) is type(self._value_serde) and type(self._key_serde) in (
            StringSerde,
            BytesSerde,
        )
        writes_headers = self._key_serde.writes_headers or self._value_serde.writes_headers
        has_columns = spec.partitioner is None or spec.partitioner is every_partition
        self._writes_rows = writes_headers or not has_columns
        _report_records(self, task.observer)

    def process(self, record: Record[Any, Any]) -> None:
        """Send one record; raises StreamsError for an unwritable one that the handler does not drop."""
        for sent in self._prepared(record, self._task.metadata or NO_METADATA):
            self._sender.send(sent)

    def process_columns(self, batch: RecordBatch, sequence: Int64Array) -> None:
        """Send all rows, each with its sequence number.

        Raises StreamsError for an unwritable row that the handler does not drop.
        """
        self._task.observer.processed(self.name, len(batch))
        self._task.taps.take(self.name, self._task.sources, batch, self._task.wall_clock)
        topic = self.spec.topic
        if topic is None or self._writes_rows:
            self._send_rows(batch, sequence)
            return
        try:
            keys, entries, places = written_keys(self._key_serde, topic, batch, self._sender.partition_count(topic))
            if self._same_serde and are_same(
                batch.keys, batch.values
            ):  # such as after group_by(lambda key, value: value)
                values = keys
            else:
                values = self._value_serde.serialize_column(topic, batch.values, batch.headers)
        except Exception:
            self._send_rows(batch, sequence)
            return
        columns = RecordBatch(keys, values, batch.timestamps, batch.offsets, batch.headers)
        if self.spec.partitioner is every_partition:
            for number in range(self._sender.partition_count(topic)):
                self._collector.send_columns(topic, np.full(len(batch), number, np.int64), sequence, columns)
            return
        partitions = self._sender.partitions_of(topic, entries, places, batch.offsets, batch.timestamps)
        self._collector.send_columns(topic, partitions, sequence, columns)

    def _send_rows(self, batch: RecordBatch, sequence: Int64Array) -> None:
        sources = self._task.sources
        rows: dict[str, list[tuple[int, int, tuple[Any, Any, int, int, Any]]]] = {}
        for row, (key, value, timestamp, offset, number) in enumerate(
            zip(
                batch.keys,
                batch.values,
                batch.timestamps.tolist(),
                batch.offsets.tolist(),
                sequence.tolist(),
                strict=True,
            )
        ):
            metadata = RecordMetadata(*sources.at(row), offset)
            self._task.metadata = metadata
            for sent in self._prepared(Record(key, value, timestamp, batch.headers_at(row)), metadata):
                partition = self._sender.partition_of(sent, offset)
                content = (sent.key, sent.value, timestamp, offset, sent.headers)
                rows.setdefault(sent.topic, []).append((partition, number, content))
        for topic, sent_rows in rows.items():
            columns = RecordBatch.of([entry[2] for entry in sent_rows])
            numbers = np.fromiter((entry[1] for entry in sent_rows), np.int64, len(sent_rows))
            partitions = np.fromiter((entry[0] for entry in sent_rows), np.int64, len(sent_rows))
            self._collector.send_columns(topic, partitions, numbers, columns)

    def _prepared(self, record: Record[Any, Any], metadata: RecordMetadata) -> Sequence[ProducerRecord]:
        """Return the records to be sent for `record`.

        The list is empty if the partitioner or a handler drops it, and has several records if the partitioner returns
        several partitions.
        """
        topic, partitions = self._route(record, metadata)
        if partitions is not None and not partitions:
            _log.warning("Skipping record as partitioner returned empty partitions. topic=[%s]", topic)
            self._task.count_dropped(self.name, DropReason.NO_PARTITION)
            return ()
        key, headers = self._serialized(topic, record, record.headers, SerializationExceptionOrigin.KEY)
        if key is _DROPPED:
            return ()
        value, headers = self._serialized(topic, record, headers, SerializationExceptionOrigin.VALUE)
        if value is _DROPPED:
            return ()
        sent = ProducerRecord(topic, key, value, record.timestamp, headers)
        return [sent] if partitions is None else [sent._replace(partition=each) for each in sorted(partitions)]

    def _route(self, record: Record[Any, Any], metadata: RecordMetadata) -> tuple[str, set[int] | None]:
        """Return the topic and the partitioner's partitions (None: the default).

        Raises StreamsError for a topic without a name and a partition that does not exist.
        """
        spec = self.spec
        topic = spec.topic
        if topic is None:
            if spec.topic_extractor is None:
                raise StreamsError(f"Sink {self.name} has neither a topic nor a topic name extractor.")
            context = RecordContext(record.timestamp, record.headers, *metadata)
            topic = spec.topic_extractor(record.key, record.value, context)
            if not isinstance(topic, str):
                raise StreamsError(
                    f"The function that names the topics of sink {self._task.described(self.name)} returned {topic!r} "
                    f"for the input record at topic {metadata.topic}, partition {metadata.partition}, offset "
                    f"{metadata.offset}: expected the name of a topic."
                )
            if (why := why_illegal(topic)) is not None:
                raise StreamsError(
                    f"The function that names the topics of sink {self._task.described(self.name)} returned {topic!r} "
                    f"for the input record at topic {metadata.topic}, partition {metadata.partition}, offset "
                    f"{metadata.offset}, which cannot be the name of a topic: it {why}."
                )
        return topic, None if self._partitioner is None else self._chosen(self._partitioner, topic, record)

    def _chosen(self, partitioner: PartitionerWithHeaders, topic: str, record: Record[Any, Any]) -> set[int] | None:
        """Return the partitions that the user's `partitioner` chooses.

        Raises StreamsError for a partition that does not exist.
        """
        count = self._sender.partition_count(topic)
        given = partitioner(topic, record.key, record.value, record.headers, count)
        if given is None:
            return None
        try:
            partitions = {index(each) for each in given}
        except TypeError:
            raise StreamsError(
                f"The partitioner of sink {self._task.described(self.name)} returned {given!r} for topic {topic}: "
                "expected a set of partitions, an empty one to drop the record, or None for the default."
            ) from None
        wrong = [partition for partition in partitions if not 0 <= partition < count]
        if wrong:
            raise StreamsError(
                f"The partitioner of sink {self._task.described(self.name)} chose partition {wrong[0]} of topic "
                f"{topic}, which has partitions 0 to {count - 1}."
            )
        return partitions

    def _serialized(
        self, topic: str, record: Record[Any, Any], headers: Headers, origin: SerializationExceptionOrigin
    ) -> tuple[Any, Headers]:
        """Serialise the key or the value of `record`, and return the headers after that.

        Returns _DROPPED if it is unwritable and the handler drops the record; otherwise raises StreamsError.
        """
        is_key = origin is SerializationExceptionOrigin.KEY
        serde, part = (self._key_serde, record.key) if is_key else (self._value_serde, record.value)
        if part is None:
            return None, headers
        try:
            return serde.serialize_record(topic, part, headers)
        except TypeError as error:
            raise StreamsError(self._wrong_type(serde, topic, part, origin.value)) from error
        except Exception as error:
            unsent = ProducerRecord(topic, record.key, record.value, record.timestamp, record.headers)
            self._errors.serialization_failed(self.name, unsent, record, error, origin)
            return _DROPPED, headers

    def _wrong_type(self, serde: Serde, topic: str, part: Any, what: str) -> str:
        """Return the message for a key or value of a type not supported by `serde`.

        what: "key" or "value".
        """
        metadata = self._task.metadata or NO_METADATA
        option = "Grouped, Repartitioned or the options of the join" if self.spec.repartition else "Produced"
        example = "such as WindowedSerdes.time_windowed(Serdes.string(), size_ms), " if type(part) is Windowed else ""
        return (
            f"Sink {self._task.described(self.name)} cannot write the {what} to topic {topic}: "
            f"{type(serde).__name__} was given {type(part).__name__} {part!r:.100}, for the input record at topic "
            f"{metadata.topic}, partition {metadata.partition}, offset {metadata.offset}. Name the serde of the "
            f"{what}s in {option}, {example}set default.{what}.serde, or convert the {what}s before."
            f"{not_awaited_hint(part)}"
        )


class DroppedSink(SinkNode):
    """A sink of the records that its parents drop.

    It writes the bytes of the source record, which the record in the operator replaces if they are no longer known.
    Arguments are those of SinkNode.
    """

    def __init__(
        self,
        spec: SinkSpec,
        task: TaskContext,
        collector: RecordCollector,
        sender: RecordSender,
        errors: ErrorHandling,
    ) -> None:
        super().__init__(spec, task, collector, sender, errors)
        self._writes_rows = True

    def _serialized(
        self, topic: str, record: Record[Any, Any], headers: Headers, origin: SerializationExceptionOrigin
    ) -> tuple[Any, Headers]:
        kept = self._task.source_records.kept(self._task.metadata or NO_METADATA)
        if kept is None:
            return super()._serialized(topic, record, headers, origin)
        key, value = kept
        return (key if origin is SerializationExceptionOrigin.KEY else value), headers


class ProcessorTopology:
    """The nodes of one task, each connected to its parents.

    Args:
        spec: the specification of the nodes.
        task: the context of the task.
        collector: receives the sinks' columns.
        sender: receives their single records.
        errors: the error handlers.
    """

    def __init__(
        self,
        spec: SubtopologySpec,
        task: TaskContext,
        collector: RecordCollector,
        sender: RecordSender,
        errors: ErrorHandling,
    ) -> None:
        self.key_value_stores = frozenset(
            name for name, builder in spec.stores.items() if isinstance(builder.supplier, KeyValueBytesStoreSupplier)
        )
        self.bounded_stores = frozenset(
            name
            for name, builder in spec.stores.items()
            if isinstance(builder.supplier, LruMapBytesStoreSupplier) or builder.ttl is not None
        )
        self.sources: list[SourceNode] = []
        self.processors: list[ProcessorNode] = []
        self.nodes = by_name = dict[str, SourceNode | ProcessorNode | SinkNode]()
        self.writes_dropped = False
        self._untapped: dict[str, Callable[[Record[Any, Any]], None] | None] = {}
        self._task = task
        for node_spec in spec.nodes:
            node: SourceNode | ProcessorNode | SinkNode
            match node_spec:
                case SourceSpec():
                    node = SourceNode(node_spec, task.config, errors)
                    self.sources.append(node)
                case ProcessorSpec():
                    node = ProcessorNode(node_spec, task, errors)
                    self.processors.append(node)
                    self._connect(node, node_spec.parents, by_name)
                case DroppedSinkSpec():
                    node = DroppedSink(node_spec, task, collector, sender, errors)
                    self.writes_dropped = True
                    self._connect_dropped(node, node_spec.parents)
                case SinkSpec():
                    node = SinkNode(node_spec, task, collector, sender, errors)
                    self._connect(node, node_spec.parents, by_name)
            by_name[node_spec.name] = node
        if task.config["penstock.check.shared.values"]:
            shared = SharedValues(task)
            for each in by_name.values():
                if not isinstance(each, SourceNode):
                    shared.watch(each)

    def parked_records(self) -> dict[str, Measurement]:
        """Return the number of parked records of each node that parks records, by operation."""
        return {
            operation_of(PARKED_RECORDS, NODE_ID, node.name): measured_once(node.processor.parked_records)
            for node in self.processors
            if isinstance(node.processor, StreamPark)
        }

    def before_each(self, name: str, call: Callable[[Record[Any, Any]], None]) -> bool:
        """Call `call` with each record before a node processes it alone.

        Returns False for a source, which processes no single records.
        """
        node = self.nodes[name]
        if isinstance(node, SourceNode):
            return False
        process = node.process

        def call_and_process(record: Record[Any, Any]) -> None:
            call(record)
            process(record)

        vars(node)["process"] = call_and_process
        return True

    def tap(self, name: str) -> None:
        """Pass each record that a node processes alone to the task's taps, without answers of calls."""
        node, tap = self.nodes[name], partial(self._task.tap, name)
        before = vars(node).get("process")
        has_calls = isinstance(node, ProcessorNode) and isinstance(node.processor, StreamCallAnswers)
        if self.before_each(name, self._stored_only(tap) if has_calls else tap):
            self._untapped[name] = before

    def _stored_only(self, tap: Callable[[Record[Any, Any]], None]) -> Callable[[Record[Any, Any]], None]:
        """Return `tap` for records that waited in a store, not for the answers that release them."""
        return lambda record: tap(record) if self._task.source_records.are_stored else None

    def untap(self, name: str) -> None:
        """Restore a node to its state before `tap`."""
        if name in self._untapped:
            own, before = vars(self.nodes[name]), self._untapped.pop(name)
            if before is None:
                del own["process"]  # restores the method of the class
            else:
                own["process"] = before

    def _connect_dropped(self, sink: DroppedSink, parents: Sequence[str]) -> None:
        for node in self.processors:
            if node.name in parents:
                node.dropped_sinks.append(sink)

    @staticmethod
    def _connect(
        node: ProcessorNode | SinkNode,
        parents: Sequence[str],
        by_name: Mapping[str, SourceNode | ProcessorNode | SinkNode],
    ) -> None:
        for name in parents:
            parent = by_name[name]
            if isinstance(parent, SinkNode):
                raise StreamsError(f"Sink {name} cannot be a parent of {node.name}.")
            parent.children.append(node)


def _report_records(node: ProcessorNode | SinkNode, observer: TaskObserver) -> None:
    """Report each record that `node` processes alone to `observer`, if records are measured."""
    if not observer.should_record:
        return
    name, process = node.name, node.process

    def report_and_process(record: Record[Any, Any]) -> None:
        observer.processed(name, 1)
        process(record)

    vars(node)["process"] = report_and_process  # on the instance, not the class: other nodes stay as fast
