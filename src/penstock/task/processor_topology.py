"""The nodes of one task, made from a sub-topology's specification (Kafka classes: ProcessorTopology, ProcessorNode,
SourceNode, SinkNode).

Here a record is processed alone, depth first; `execution.py` runs the same nodes column by column. An error of a user's
function is named at the node that called it, and passes all others unchanged.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from operator import is_
from typing import Any, Protocol

import numpy as np

from penstock.config import StreamsConfig
from penstock.errors import ConfigError, StreamsError, TaskCorruptedError, TaskMigratedError
from penstock.plan.partitioning import partition_column, partition_for
from penstock.plan.subtopology import ProcessorSpec, SinkSpec, SourceSpec, SubtopologySpec
from penstock.processor.api import Processor
from penstock.record import NO_METADATA, Int64Array, Record, RecordBatch, RecordMetadata, take_from
from penstock.serdes import BytesSerde, Serde, StringSerde
from penstock.state.api import RecordContext
from penstock.task.context import TaskContext
from penstock.task.record_collector import RecordCollector

DESERIALIZATION_FAILED = (
    "Deserialization exception handler is set to fail upon a deserialization error. If you would rather have the "
    "streaming pipeline continue after a "
    "deserialization error, please set the deserialization.exception.handler appropriately."
)


class ProcessingError(Exception):
    """An error in one node on its way out of the task: passes the nodes above unchanged (Kafka class:
    FailedProcessingException)."""

    def __init__(self, node: str, error: Exception) -> None:
        """Name the node in which `error` was raised."""
        super().__init__(node, error)
        self.node = node
        self.error = error


def user_line(error: BaseException) -> str | None:
    """Return where the user's own code raised `error`: the innermost line outside this package, None if there is
    none."""
    own = __name__.partition(".")[0]
    frames = [
        frame
        for frame, _ in traceback.walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__", "").partition(".")[0] != own
    ]
    if not frames:
        return None
    summary = traceback.StackSummary.extract(
        ((frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if frame is frames[-1])
    )[-1]
    return f'File "{summary.filename}", line {summary.lineno}, in {summary.name}: {summary.line}'


class Flusher(Protocol):
    """Runs the children of a node on what left the cache before its store; the execution of the task is one."""

    def run_flushed(self, node: ProcessorNode, batch: RecordBatch, contexts: Sequence[RecordContext]) -> None:
        """Hand each record to the children of `node` in the context given."""
        ...


class ProcessorNode:
    """A node with a processor."""

    def __init__(self, spec: ProcessorSpec, task: TaskContext) -> None:
        """Make the node's processor."""
        self.name = spec.name
        self.stores: Sequence[str] = spec.stores
        self.children: list[ProcessorNode | SinkNode] = []
        self.processor: Processor = spec.supplier.get()
        self.initializing = False
        self.flusher: Flusher | None = None
        self._task = task

    def init(self) -> None:
        """Call the processor's `init`; raises StreamsError naming the node if that fails."""
        self.initializing = True
        try:
            self.processor.init(self._task.node_context(self))
        except Exception as error:
            raise StreamsError(f"failed to initialize processor {self.name}") from error
        finally:
            self.initializing = False

    def process(self, record: Record[Any, Any]) -> None:
        """Process one record and all that follows from it; raises ProcessingError."""
        task = self._task
        outer = task.record
        task.record = record
        try:
            self.processor.process(record)
        except (ProcessingError, TaskCorruptedError, TaskMigratedError):
            raise
        except Exception as error:
            raise ProcessingError(self.name, error) from error
        finally:
            task.record = outer

    def flushed(self, batch: RecordBatch, contexts: Sequence[RecordContext]) -> None:
        """Hand on what left the cache before the node's store."""
        if self.flusher is not None:
            self.flusher.run_flushed(self, batch, contexts)

    def close(self) -> None:
        """Call the processor's `close`; raises StreamsError naming the node if that fails."""
        try:
            self.processor.close()
        except Exception as error:
            raise StreamsError(f"failed to close processor {self.name}") from error


class SourceNode:
    """A node that reads topics: turns bytes into objects."""

    def __init__(self, spec: SourceSpec, config: StreamsConfig) -> None:
        """Find the serdes; raises StreamsError naming the node if one is missing."""
        self.name = spec.name
        self.spec = spec
        self.children: list[ProcessorNode | SinkNode] = []
        self.key_serde = _serde(spec.key_serde, config, "key", f"source node {self.name}")
        self._value_serde = _serde(spec.value_serde, config, "value", f"source node {self.name}")

    def is_canonical(self, batch: RecordBatch) -> bool:
        """Return whether the bytes of `batch` can all be read, and its keys would be written the same way again."""
        return self._value_serde.is_readable_column(batch.values) and self.key_serde.is_canonical_column(batch.keys)

    def deserialize(self, topic: str, partition: int, batch: RecordBatch) -> RecordBatch:
        """Return `batch` with objects for bytes; raises StreamsError for the first row that cannot be read."""
        try:
            keys = self.key_serde.deserialize_column(topic, batch.keys)
            values = self._value_serde.deserialize_column(topic, batch.values)
        except Exception:
            keys, values = self._deserialize_rows(topic, partition, batch)
        return RecordBatch(keys, values, batch.timestamps, batch.offsets, batch.headers)

    def _deserialize_rows(self, topic: str, partition: int, batch: RecordBatch) -> tuple[list[Any], list[Any]]:
        keys: list[Any] = []
        values: list[Any] = []
        for row, (key, value) in enumerate(zip(batch.keys, batch.values, strict=True)):
            headers = batch.headers_at(row)
            try:
                keys.append(None if key is None else self.key_serde.deserialize(topic, key, headers))
                values.append(None if value is None else self._value_serde.deserialize(topic, value, headers))
            except Exception as error:
                failure = StreamsError(DESERIALIZATION_FAILED)
                failure.add_note(
                    f"at source node {self.name}, topic {topic}, partition {partition}, offset "
                    f"{int(batch.offsets[row])}"
                )
                raise failure from error
        return keys, values


class SinkNode:
    """A node that writes to a topic, or to the topic that an extractor names: turns objects into bytes and chooses the
    partition."""

    children: Sequence[ProcessorNode | SinkNode] = ()

    def __init__(
        self,
        spec: SinkSpec,
        task: TaskContext,
        collector: RecordCollector,
        partitions: Mapping[str, int],
        null_key_partition: int,
    ) -> None:
        """Find the serdes; records without a key go to partition `null_key_partition` modulo the number of
        partitions."""
        self.name = spec.name
        self.spec = spec
        self._task = task
        self._collector = collector
        self._partitions = partitions
        self._null_key_partition = null_key_partition
        self._key_serde = _serde(spec.key_serde, task.config, "key", f"sink node {self.name}")
        self._value_serde = _serde(spec.value_serde, task.config, "value", f"sink node {self.name}")
        self._same_serde = type(self._key_serde) is type(self._value_serde) and type(self._key_serde) in (
            StringSerde,
            BytesSerde,
        )

    def process(self, record: Record[Any, Any]) -> None:
        """Send one record; raises StreamsError if it cannot be written."""
        topic, partitions = self._route(record.key, record.value, self._task.metadata or NO_METADATA)
        key, value = self._serialize(topic, record.key, record.value, record.timestamp, record.headers)
        for partition in self._chosen(topic, partitions, key):
            self._collector.send(topic, partition, key, value, record.timestamp, record.headers)

    def process_columns(self, batch: RecordBatch, sequence: Int64Array) -> None:
        """Send all rows, each with its sequence number; raises StreamsError for a row that cannot be written."""
        topic, partitioner = self.spec.topic, self.spec.partitioner
        if topic is None or partitioner is not None:
            self._send_rows(batch, sequence)
            return
        try:
            entries, places = self._key_serde.serialize_distinct(topic, batch.keys)
            keys = take_from(entries, places)
            if self._same_serde and all(
                map(is_, batch.keys, batch.values)
            ):  # as after group_by(lambda key, value: value)
                values = keys
            else:
                values = self._value_serde.serialize_column(topic, batch.values)
        except Exception:
            self._send_rows(batch, sequence)
            return
        count = self._count(topic)
        partitions = partition_column(entries, count, self._null_key_partition % count)[places]
        self._collector.send_columns(
            topic, partitions, sequence, RecordBatch(keys, values, batch.timestamps, batch.offsets, batch.headers)
        )

    def _send_rows(self, batch: RecordBatch, sequence: Int64Array) -> None:
        source = self._task.source
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
            metadata = RecordMetadata(source.topic, source.partition, offset)
            self._task.metadata = metadata
            topic, partitions = self._route(key, value, metadata)
            headers = batch.headers_at(row)
            serialized = self._serialize(topic, key, value, timestamp, headers)
            for partition in self._chosen(topic, partitions, serialized[0]):
                rows.setdefault(topic, []).append((partition, number, (*serialized, timestamp, offset, headers)))
        for topic, sent in rows.items():
            columns = RecordBatch.of([entry[2] for entry in sent])
            numbers = np.fromiter((entry[1] for entry in sent), np.int64, len(sent))
            self._collector.send_columns(
                topic, np.fromiter((entry[0] for entry in sent), np.int64, len(sent)), numbers, columns
            )

    def _route(self, key: Any, value: Any, metadata: RecordMetadata) -> tuple[str, set[int] | None]:
        """Return the topic and what the partitioner says of the partitions (None: the default)."""
        spec = self.spec
        topic = spec.topic
        if topic is None:
            if spec.topic_extractor is None:
                raise StreamsError(f"Sink {self.name} has neither a topic nor a topic name extractor.")
            topic = spec.topic_extractor(key, value, metadata)
        if spec.partitioner is None:
            return topic, None
        return topic, spec.partitioner(topic, key, value, self._count(topic))

    def _chosen(self, topic: str, partitions: set[int] | None, key: bytes | None) -> Sequence[int]:
        count = self._count(topic)
        if partitions is None:
            return (self._null_key_partition % count if key is None else partition_for(key, count),)
        if not partitions:
            self._task.dropped_records[self.name] += 1
        wrong = [partition for partition in partitions if not 0 <= partition < count]
        if wrong:
            raise StreamsError(
                f"The partitioner of sink {self.name} chose partition {wrong[0]} of topic {topic}, which has "
                f"partitions 0 to {count - 1}."
            )
        return sorted(partitions)

    def _serialize(
        self, topic: str, key: Any, value: Any, timestamp: int, headers: Any
    ) -> tuple[bytes | None, bytes | None]:
        try:
            return (
                None if key is None else self._key_serde.serialize(topic, key, headers),
                None if value is None else self._value_serde.serialize(topic, value, headers),
            )
        except TypeError as error:
            failure = StreamsError(
                f"ClassCastException while producing data to topic {topic}. The key or value serializer of sink "
                f"{self.name} is not compatible to the actual "
                f"key type {type(key).__name__} or value type {type(value).__name__}. "
                "Change the default serdes in the config or provide the correct serdes via Produced."
            )
            raise failure from error
        except Exception as error:
            metadata = self._task.metadata or NO_METADATA
            failure = StreamsError(
                f"Unable to serialize record. ProducerRecord(topic=[{topic}], partition=[null], timestamp=[{timestamp}]"
            )
            failure.add_note(
                f"at sink node {self.name}, input record {metadata.topic}-{metadata.partition} at offset "
                f"{metadata.offset}"
            )
            raise failure from error

    def _count(self, topic: str) -> int:
        count = self._partitions.get(topic)
        if count is None:
            raise StreamsError(
                f"Could not get partition information for topic {topic} for task {self._task.task_id}. This can "
                "happen if the topic does not exist: "
                f"create it before the program starts (penstock topics create {topic})."
            )
        return count


def _serde(own: Serde | None, config: StreamsConfig, what: str, node: str) -> Serde:
    serde: Serde | None = own or config[f"default.{what}.serde"]
    if serde is None:
        missing = ConfigError(
            f"Please specify a {what} serde or set one through StreamsConfig#DEFAULT_{what.upper()}_SERDE_CLASS_CONFIG"
        )
        missing.add_note(f"in the options of the operator, or as default.{what}.serde")
        raise StreamsError(f"Failed to initialize {what} serdes for {node}") from missing
    return serde


class ProcessorTopology:
    """The nodes of one task, connected."""

    def __init__(
        self,
        spec: SubtopologySpec,
        task: TaskContext,
        collector: RecordCollector,
        partitions: Mapping[str, int],
        null_key_partition: int,
    ) -> None:
        """Make every node of `spec` and connect it to its parents."""
        self.sources: list[SourceNode] = []
        self.processors: list[ProcessorNode] = []
        by_name: dict[str, SourceNode | ProcessorNode | SinkNode] = {}
        for node_spec in spec.nodes:
            node: SourceNode | ProcessorNode | SinkNode
            match node_spec:
                case SourceSpec():
                    node = SourceNode(node_spec, task.config)
                    self.sources.append(node)
                case ProcessorSpec():
                    node = ProcessorNode(node_spec, task)
                    self.processors.append(node)
                    self._connect(node, node_spec.parents, by_name)
                case SinkSpec():
                    node = SinkNode(node_spec, task, collector, partitions, null_key_partition)
                    self._connect(node, node_spec.parents, by_name)
            by_name[node_spec.name] = node

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
