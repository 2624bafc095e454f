"""The task of a topology's global stores (Kafka classes: GlobalStateUpdateTask, GlobalProcessorContextImpl).

There is one per process, not one per partition: it receives the records of all partitions of the global topics, in any
order across topics, and passes each to the processor that writes it to its store. It has no output, no stream time and
no schedules.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.config import StreamsConfig
from penstock.errors import StreamsError, UnsupportedOperationError
from penstock.exception_handlers import DeserializationExceptionHandler
from penstock.metrics.drop_reasons import Dropped
from penstock.plan.subtopology import SubtopologySpec, TaskId
from penstock.processor.api import Cancellable, ProcessorContext, PunctuationType, Punctuator
from penstock.record import Record, RecordBatch, RecordMetadata
from penstock.state.api import Base, Changes, StateStore
from penstock.state.read_only import read_only
from penstock.state.record_cache import RecordCache
from penstock.task.context import NodeContext, ServedNode, TaskContext, TaskStores
from penstock.task.error_handling import ErrorHandling, ProcessingError
from penstock.task.processor_state_manager import ProcessorStateManager
from penstock.task.processor_topology import ProcessorTopology
from penstock.task.punctuation import LivingSchedules
from penstock.task.record_collector import RecordCollector
from penstock.task.record_sender import RecordSender
from penstock_broker.common.durations import Duration

GLOBAL_TASK_ID = "-1_-1"


class GlobalProcessorContext(NodeContext):
    """The context of a global store's processor, without forwarding and stream time."""

    def schedule(
        self,
        interval_ms: Duration,
        punctuation_type: PunctuationType,
        callback: Punctuator,
        start_time_ms: int | None = None,
    ) -> Cancellable:
        """Raise UnsupportedOperationError."""
        raise UnsupportedOperationError("this should not happen: schedule() not supported in global processor context.")

    def current_stream_time_ms(self) -> int:
        """Raise UnsupportedOperationError."""
        raise UnsupportedOperationError("There is no concept of stream-time for a global processor.")


class _GlobalTaskContext(TaskContext):
    def node_context(self, node: ServedNode) -> ProcessorContext:
        return GlobalProcessorContext(self, node)


class GlobalStateUpdateTask:
    """Updates all global stores of one topology.

    A processor's error ends it, unless `processing.exception.handler.global.enabled` is set (KIP-1270). The constructor
    creates nodes and stores; no user code runs before `initialize`.

    Args:
        topology: the global nodes and stores.
        config: the configuration.
        base: the committed state.
        deserialization_handler: the handler for unreadable records.
        wall_clock_ms: the wall-clock time.
        processor_metadata: persistent values of the stores besides entries, at the last commit; None for a new base.
        node_lines: the lines of the user's program that created the nodes, by name, for errors.
    """

    def __init__(
        self,
        topology: SubtopologySpec,
        config: StreamsConfig,
        base: Base,
        deserialization_handler: DeserializationExceptionHandler,
        wall_clock_ms: int = 0,
        processor_metadata: Mapping[str, int] | None = None,
        node_lines: Mapping[str, str] | None = None,
    ) -> None:
        self._base = base
        self._context = _GlobalTaskContext(
            GLOBAL_TASK_ID, config, LivingSchedules(), wall_clock_ms, node_lines=node_lines
        )
        self._context.processor_metadata.update(processor_metadata or {})
        self._state = ProcessorStateManager(
            topology,
            f"global-task [{GLOBAL_TASK_ID}] ",
            self._context,
            base,
            RecordCache(0),
        )
        self._context.stores = TaskStores(self._state.stores)
        handles = config["processing.exception.handler.global.enabled"]
        errors = ErrorHandling(
            self._context,
            None,
            deserialization_handler,
            config["processing.exception.handler"] if handles else None,
            config["production.exception.handler"],
        )
        collector = RecordCollector()
        sender = RecordSender(collector, {}, TaskId.parse(GLOBAL_TASK_ID), self._context.offset)
        self._nodes = ProcessorTopology(topology, self._context, collector, sender, errors)
        self._sources = {topic: source for source in self._nodes.sources for topic in source.spec.topics}

    def initialize(self) -> None:
        """Call `init` of every processor; raises StreamsError with the name of a failed one."""
        for node in self._nodes.processors:
            node.init()

    @property
    def topics(self) -> frozenset[str]:
        """The topics that fill the stores."""
        return frozenset(self._sources)

    def update(self, topic: str, partition: int, batch: RecordBatch, now_ms: int) -> None:
        """Process records of one partition of a global topic at the wall-clock time `now_ms`.

        Keys and values are bytes. Raises StreamsError for a topic that no global store reads, and the errors of
        processors.
        """
        if topic not in self._sources:
            raise StreamsError(
                f"No global store reads topic {topic}: expected one of {', '.join(sorted(self._sources))}."
            )
        source, context = self._sources[topic], self._context
        context.wall_clock = now_ms
        records = source.deserialize(topic, partition, batch)
        for row, (key, value, timestamp, offset) in enumerate(
            zip(records.keys, records.values, records.timestamps.tolist(), records.offsets.tolist(), strict=True)
        ):
            context.metadata = RecordMetadata(topic, partition, offset)
            # it stays the current record: concurrent readers of the stores use its context, as in Kafka
            record = context.record = Record(key, value, timestamp, records.headers_at(row))
            try:
                for child in source.children:
                    child.process(record)
            except ProcessingError as failure:
                failure.error.add_note(
                    f"At {context.described(failure.node)}, the processor of a global store, with the record of topic "
                    f"{topic}, partition {partition}, offset {offset}."
                )
                raise failure.error from failure.error.__cause__
        context.metadata = None
        self._state.flush_caches()

    def changes(self) -> Changes:
        """Return the changes of the stores since the last commit."""
        return self._state.changes()

    def committed(self, changes: Changes, stamp: bytes) -> None:
        """Apply `changes` to the base with `stamp`, after the host has made the offsets durable."""
        self._state.committed(changes, stamp)

    def stores(self) -> Mapping[str, StateStore]:
        """Return the stores by name, to read and write."""
        return {name: store.exposed() for name, store in self._state.stores.items()}

    def read_only_stores(self) -> Mapping[str, StateStore]:
        """Return read-only views of the stores by name, for processors of other tasks."""
        return {name: read_only(store.exposed()) for name, store in self._state.stores.items()}

    @property
    def processor_metadata(self) -> Mapping[str, int]:
        """Persistent values of the stores besides entries, such as clocks.

        A host stores them with each commit.
        """
        return self._context.processor_metadata

    @property
    def dropped_records(self) -> Mapping[Dropped, int]:
        """The number of records dropped since the creation of the task, by node or store, and reason."""
        return self._context.dropped_records

    def close(self) -> None:
        """Close the processors, then the stores.

        The base stays open, since it belongs to the host.
        """
        try:
            for node in self._nodes.processors:
                node.close()
        finally:
            self._state.close()
