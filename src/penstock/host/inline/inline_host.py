"""Runs a complete topology in this process, synchronously, without a broker, for TopologyTestDriver and notebooks.

Rules, as in Kafka's TopologyTestDriver: every topic has one partition, and all sub-topologies are one task, `0_0`, with
a common stream time and record cache; global stores have a separate task. Each record is processed completely before
the next: the record, stream-time punctuation, a commit (which flushes caches); then its output to topics that the
topology reads is added to the task. `PartitionGroup.take_next` selects the next record. A commit also writes to the
changelog topics, one record for each changed key. Records are bytes: the host has no serdes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.config import StreamsConfig
from penstock.errors import StreamsError
from penstock.exception_handlers import LogAndContinueExceptionHandler
from penstock.host.deployment.layout import own_topics
from penstock.host.inline.inline_calls import InlineCalls
from penstock.host.measuring.batch_tracing import batch_tracing
from penstock.metrics import Metric, MetricName
from penstock.metrics.host_metrics import HostMeasurements, Operation, streams_metrics
from penstock.metrics.record_counts import RecordCounts
from penstock.plan.dead_letters import check_dead_letters, unread_dead_letters
from penstock.plan.serde_check import check_serdes
from penstock.plan.subtopology import BuiltTopology, NodeSpec, ProcessorSpec, SourceSpec, SubtopologySpec, TaskId
from penstock.processor.parked_requests import ParkedRequest, ParkedRequestSerde
from penstock.record import Headers, RecordBatch, TopicPartition
from penstock.state.api import StateStore, StoreBuilder
from penstock.state.change_logging_store import ChangeLog
from penstock.state.memory import MemoryBase
from penstock.task.environment import TaskEnvironment
from penstock.task.global_task import GlobalStateUpdateTask
from penstock.task.idling import InputWait
from penstock.task.punctuation import LivingSchedules, Schedules
from penstock.task.stream_task import StreamTask
from penstock.task.task_checkpoint import TaskCheckpoint
from penstock_broker.common.clock import Clock, SystemClock

PARTITION = 0

MAXIMUM_FOLLOWING = 1_000_000
"""Maximum number of further records caused by one record. Only a topology with an endless loop exceeds it."""


class ProducedRecord(NamedTuple):
    """A record written by the topology. number: its position among all records written; timestamp: ms."""

    number: int
    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


class _OnePartitionEach(Mapping[str, int]):
    """The number of partitions of any topic, including those that only an extractor names: one."""

    def __getitem__(self, topic: str) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


_Record = tuple[bytes | None, bytes | None, int, Headers]
"""Key, value, timestamp in ms, headers."""


@dataclass
class _Counts:
    """The numbers of commits and of processed records."""

    commits: int = 0
    processed: int = 0


class InlineHost:
    """Runs one topology record by record, and keeps its output until `take_output`.

    The constructor creates the task with empty stores and initialises its processors; it raises StreamsError if one of
    them fails.

    Args:
        topology: the topology.
        config: the configuration of the application.
        clock: the wall clock.
    """

    def __init__(self, topology: BuiltTopology, config: StreamsConfig, clock: Clock) -> None:
        check_serdes(topology, config)
        check_dead_letters(topology, config)
        spec, config = whole_topology(topology), config.overridden(topology.config_overrides)
        self._node_lines = topology.node_lines
        self._spec, self._config, self._clock = spec, config, clock
        self._global_task = _global_task(topology, config, clock)
        self._sources = [node for node in spec.nodes if isinstance(node, SourceSpec)]
        self._calls = InlineCalls(spec, config)
        self._unmatched = own_topics(topology) | unread_dead_letters(config)
        self._topics: dict[str, None] = {}
        self._wait = self._wait_for(topic for source in self._sources for topic in source.topics)
        self._offsets: Counter[str] = Counter()
        self._output: list[ProducedRecord] = []
        self._produced = 0
        self._counts = _Counts()
        self._measurements = HostMeasurements(config["metrics.num.samples"], config["metrics.sample.window.ms"])
        self._closed = False
        self._change_log = ChangeLog(_changelog_topics(spec))
        self._base = MemoryBase()
        self._task = self._make_task(TaskCheckpoint(), LivingSchedules())
        self._stores = {name: self._task.store(name) for name in spec.stores}
        if self._global_task is not None:
            self._stores.update(self._global_task.stores())

    def _make_task(self, checkpoint: TaskCheckpoint, schedules: Schedules) -> StreamTask:
        task = StreamTask(
            self._spec,
            TaskId(0, PARTITION),
            self._config,
            self._base,
            _OnePartitionEach(),
            checkpoint,
            wall_clock_ms=self._clock.milliseconds(),
            environment=TaskEnvironment(
                schedules=schedules,
                state_log_prefix="topology-test-driver ",
                global_stores={} if self._global_task is None else self._global_task.read_only_stores(),
                change_log=self._change_log,
                nanoseconds=SystemClock().nanoseconds,
                node_lines=self._node_lines,
                tracing=batch_tracing(self._config),
            ),
        )
        task.initialize()
        return task

    def pipe(self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers = ()) -> None:
        """Process one record (timestamp in ms), and all further records that it causes.

        Raises ValueError for a topic that the topology does not read, StreamsError if a node fails.
        """
        if not self._accept(topic, (key, value, timestamp, headers)):
            error = ValueError(f"Unknown topic: {topic}")
            error.add_note(f"The topology reads: {', '.join(self._read()) or 'no topic'}.")
            raise error
        self._process_queues()

    def punctuate_wall_clock(self) -> None:
        """Run due wall-clock punctuations, commit, and process their output; raises StreamsError if one fails."""
        self._task.advance_wall_clock(self._clock.milliseconds())
        self._commit()
        self._process_queues()

    def take_output(self) -> list[ProducedRecord]:
        """Return and remove all records written since the last call.

        They are in the order of sending, across topics.
        """
        output, self._output = self._output, []
        return output

    def stores(self) -> Mapping[str, StateStore]:
        """Return the stores of the task and the global stores by name."""
        return self._stores

    def builders(self) -> Mapping[str, StoreBuilder]:
        """Return the builders of the stores of the task by name."""
        return self._spec.stores

    def dropped_records(self) -> int:
        """Return the number of dropped records, over all nodes."""
        dropped = sum(self._task.dropped_records.values())
        if self._global_task is not None:
            dropped += sum(self._global_task.dropped_records.values())
        return dropped

    def metrics(self) -> Mapping[MetricName, Metric]:
        """Return the metrics of the task and its sensors by name, as in `host_metrics`.

        Rates, averages and extremes are those of the time before now.
        """
        task, now = str(self._task.task_id), self._clock.milliseconds()
        measured, sensors = self._task.take_measured()
        for name, measurement in measured.items():
            self._measurements.take(Operation.reported(name, task), measurement, now)
        self._measurements.take_sensors(sensors, now)
        counts = RecordCounts(processed={task: self._counts.processed}, dropped={task: self.dropped_records()})
        return streams_metrics(self._config.client_id(), {}, counts, self._measurements.at(now))

    def close(self) -> None:
        """Close processors and stores, without a commit; idempotent."""
        if not self._closed:
            self._closed = True
            try:
                self._calls.close()
            finally:
                self._close_tasks()

    def _close_tasks(self) -> None:
        try:
            self._task.close()
        finally:
            if self._global_task is not None:
                self._global_task.close()

    def _read(self) -> list[str]:
        """Return the topics and patterns that the topology reads."""
        patterns = [node.pattern.pattern for node in self._sources if node.pattern is not None]
        named = {topic for node in self._sources if not node.has_task_topic for topic in node.topics}
        return sorted(named.union(() if self._global_task is None else self._global_task.topics, patterns))

    def _accept(self, topic: str, record: _Record) -> bool:
        """Deliver a record to the reader of its topic; return whether it has one.

        The reader is a source or a global store.
        """
        source = self._source_of(topic)
        if source is not None:
            self._enqueue(source, topic, record)
            return True
        task = self._global_task
        if task is None or topic not in task.topics:
            return False
        key, value, timestamp, headers = record
        row = (key, value, timestamp, self._offsets[topic], headers)
        self._offsets[topic] += 1
        task.update(topic, PARTITION, RecordBatch.of([row]), self._clock.milliseconds())
        task.committed(task.changes(), self._offsets[topic].to_bytes(8, "big"))
        return True

    def _source_of(self, topic: str) -> SourceSpec | None:
        for source in self._sources:
            if topic in source.topics:
                return source
            if source.pattern is not None and source.pattern.fullmatch(topic) and topic not in self._unmatched:
                return source
        return None

    def _log_of(self, source: SourceSpec, topic: str) -> str:
        """Return the key for the offsets of a topic. As in Kafka's driver, all topics of a pattern count as one."""
        return topic if source.pattern is None else source.pattern.pattern

    def _enqueue(self, source: SourceSpec, topic: str, record: _Record) -> None:
        log = self._log_of(source, topic)
        if topic not in self._topics and not source.has_task_topic:
            self._topics[topic] = None
            self._task.add_source_topic(topic, source.name)
            self._wait = self._wait_for([*(partition.topic for partition in self._wait.partitions), topic])
        key, value, timestamp, headers = record
        self._buffer(topic, RecordBatch.of([(key, value, timestamp, self._offsets[log], headers)]))
        self._offsets[log] += 1

    def _buffer(self, topic: str, batch: RecordBatch) -> None:
        """Buffer one record until it is processed."""
        self._task.add_records(topic, PARTITION, batch)

    def _process_queues(self) -> None:
        """Process buffered records, and all resulting records, until the task has to wait."""
        followed = 0
        while True:
            while (taken := self._task.process_next(self._wait)) is not None:
                self._counts.processed += 1
                followed += 1
                if followed > MAXIMUM_FOLLOWING:
                    raise StreamsError(
                        f"One record caused more than {MAXIMUM_FOLLOWING} further records, the last in topic "
                        f"{taken.topic}: does the topology write to a topic that it reads, in an endless loop?"
                    )
                self._commit()
            if self._take_answers():
                continue
            if not self._take_sent():  # by a handler, for records that cannot be deserialized
                return

    def _take_answers(self) -> bool:
        """Make the calls of committed records, and process the answers; return whether there were any."""
        for topic, key, value, timestamp in self._calls.answers(self._task.take_calls()):
            self._accept(topic, (key, value, timestamp, ()))
        answers = self._task.process_answers()
        if answers:
            self._commit()
        return answers > 0

    def give_answers(self, node: str, answers: Iterable[Any]) -> None:
        """Use `answers` for the calls of the operator `node`, each an attempt: a result, or an error to raise.

        Raises ValueError if no operator of this name has calls, TypeError for other objects than answers.
        """
        self._calls.give_answers(node, answers)

    def requests_topic(self, store: str) -> str:
        """Return the topic with requests about the records parked in a store.

        Raises ValueError if no operator parks records in a store of this name.
        """
        topics = {parked: topic for topic, parked in self._spec.requests_topics.items()}
        if store not in topics:
            known = ", ".join(sorted(topics)) or "no store"
            raise ValueError(f"Store {store!r} has no parked records; those with parked records: {known}.")
        return topics[store]

    def request_parked(self, store: str, request: ParkedRequest) -> None:
        """Do what a request says with the records parked in a store, and what follows at once.

        Raises ValueError if no operator parks records in a store of this name, StreamsError if a node fails.
        """
        topic = self.requests_topic(store)
        data = ParkedRequestSerde().serialize(topic, request)
        self._accept(topic, (None, data, self._clock.milliseconds(), ()))
        self._process_queues()
        self.punctuate_wall_clock()

    def _wait_for(self, topics: Iterable[str]) -> InputWait:
        """Return a wait for `topics`, all of whose records are already buffered."""
        partitions = dict.fromkeys(TopicPartition(topic, PARTITION) for topic in topics)
        return InputWait(tuple(partitions), idle_ms=self._config["max.task.idle.ms"])

    def _commit(self) -> None:
        self._task.flush()
        changes = self._task.changes()
        for topic, change in self._change_log.take():
            timestamp = self._clock.milliseconds() if change.timestamp is None else max(change.timestamp, 0)
            self._produce(topic, (change.key, change.value, timestamp, change.headers))
        self._take_sent()
        self._counts.commits += 1
        self._task.committed(changes, self._counts.commits.to_bytes(8, "big"))

    def _take_sent(self) -> bool:
        """Move the task's sent records to the output; return whether it had any."""
        sent = list(self._task.drain_in_order())
        for record in sent:
            self._produce(record.topic, (record.key, record.value, record.timestamp, record.headers))
        return bool(sent)

    def _produce(self, topic: str, record: _Record) -> None:
        self._output.append(ProducedRecord(self._produced, topic, *record))
        self._produced += 1
        self._accept(topic, record)


def _global_task(topology: BuiltTopology, config: StreamsConfig, clock: Clock) -> GlobalStateUpdateTask | None:
    if topology.global_topology is None:
        return None
    task = GlobalStateUpdateTask(
        topology.global_topology,
        config,
        MemoryBase(),
        LogAndContinueExceptionHandler(),  # as Kafka's driver does, whatever the configuration
        clock.milliseconds(),
        node_lines=topology.node_lines,
    )
    task.initialize()
    return task


def _changelog_topics(spec: SubtopologySpec) -> dict[str, str]:
    """Return the changelog topics by store, omitting source topics used as changelogs."""
    return {name: topic for name, (topic, _) in spec.changelogs.items() if topic not in spec.source_topics}


def whole_topology(topology: BuiltTopology) -> SubtopologySpec:
    """Return all sub-topologies as one, number 0.

    Nodes are in the order of their addition, stores in that of the first node that uses each.
    """
    parts = topology.subtopologies
    places = {name: place for place, name in enumerate(topology.node_order)}
    nodes = sorted((node for part in parts for node in part.nodes), key=lambda node: places.get(node.name, 0))
    users = {name: place for place, node in reversed([*enumerate(nodes)]) for name in _stores_of(node)}
    stores = {name: store for part in parts for name, store in part.stores.items()}
    return SubtopologySpec(
        id=0,
        nodes=tuple(nodes),
        stores=dict(sorted(stores.items(), key=lambda item: users.get(item[0], len(nodes)))),
        source_topics=tuple(dict.fromkeys(topic for part in parts for topic in part.source_topics)),
        sink_topics=tuple(dict.fromkeys(topic for part in parts for topic in part.sink_topics)),
        changelogs={name: changelog for part in parts for name, changelog in part.changelogs.items()},
    )


def _stores_of(node: NodeSpec) -> tuple[str, ...]:
    return node.stores if isinstance(node, ProcessorSpec) else ()
