"""Small topologies by hand and tasks over them, for the tests of the task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from penstock.config import StreamsConfig
from penstock.plan.subtopology import SubtopologySpec, TaskId
from penstock.plan.topology import Topology
from penstock.processor.aggregate import StreamCount
from penstock.processor.api import Processor, SimpleSupplier
from penstock.processor.table import TableToStream
from penstock.record import Headers, RecordBatch
from penstock.serdes import Serdes
from penstock.state.api import Base, StoreBuilder
from penstock.state.change_logging_store import ChangeLog
from penstock.state.memory import MemoryBase
from penstock.state.suppliers import KeyValueBytesStoreSupplier
from penstock.task.batch_tracing import BatchTracing
from penstock.task.context import TaskContext
from penstock.task.environment import TaskEnvironment
from penstock.task.error_handling import ErrorHandling
from penstock.task.processor_topology import ProcessorTopology
from penstock.task.punctuation import LivingSchedules, Schedules
from penstock.task.record_collector import RecordCollector
from penstock.task.record_sender import RecordSender
from penstock.task.stream_task import StreamTask
from penstock.task.task_checkpoint import TaskCheckpoint
from tests.support.tables import Row

STRING = Serdes.string()
LONG = Serdes.long()


class AnyTopic(Mapping[str, int]):
    """Every topic has the same number of partitions."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions

    def __getitem__(self, topic: str) -> int:
        return self.partitions

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def supplier(factory: Callable[[], Processor]) -> SimpleSupplier:
    return SimpleSupplier(factory)


def counting() -> Topology:
    """Count the records of each key in `counts`, and write the counts to `out`."""
    topology = Topology()
    topology.add_source("S", "in")
    topology.add_processor("C", supplier(lambda: StreamCount("counts")), "S")
    topology.add_state_store(StoreBuilder(KeyValueBytesStoreSupplier("counts", True), STRING, LONG, True, True), "C")
    topology.add_processor("T", supplier(TableToStream), "C")
    topology.add_sink("K", "out", "T", value_serde=LONG)
    return topology


def only_subtopology(topology: Topology) -> SubtopologySpec:
    (spec,) = topology.build("test").subtopologies
    return spec


def task_of(
    topology: Topology,
    *,
    execution: str = "auto",
    cache_bytes: int = 0,
    base: Base | None = None,
    checkpoint: TaskCheckpoint | None = None,
    schedules: Schedules | None = None,
    partitions: int = 1,
    config: Mapping[str, Any] | None = None,
    first_of_several: bool = False,
    tracing: BatchTracing | None = None,
    change_log: ChangeLog | None = None,
    global_stores: Mapping[str, Any] | None = None,
) -> StreamTask:
    spec = topology.build("test").subtopologies[0] if first_of_several else only_subtopology(topology)
    settings = {
        "application.id": "test",
        "default.key.serde": STRING,
        "default.value.serde": STRING,
        "penstock.execution": execution,
        "statestore.cache.max.bytes": cache_bytes,
        **(config or {}),
    }
    task = StreamTask(
        spec,
        TaskId(0, 0),
        StreamsConfig(settings, environment={}),
        base or MemoryBase(),
        AnyTopic(partitions),
        checkpoint,
        environment=TaskEnvironment(
            schedules=schedules or LivingSchedules(),
            tracing=tracing,
            change_log=change_log,
            global_stores=global_stores or {},
        ),
    )
    task.initialize()
    return task


class Nodes(NamedTuple):
    """The nodes of a task without its stores, and what they work with."""

    topology: ProcessorTopology
    task: TaskContext
    collector: RecordCollector
    errors: ErrorHandling


def nodes_of(topology: Topology, *, partitions: int = 1, **config: Any) -> Nodes:
    settings = {"application.id": "test", "default.key.serde": STRING, "default.value.serde": STRING, **config}
    task = TaskContext("0_0", StreamsConfig(settings, environment={}), LivingSchedules(), 0)
    collector = RecordCollector()
    sender = RecordSender(collector, AnyTopic(partitions), TaskId(0, 0), task.offset)
    errors = ErrorHandling.of_task(task, sender)
    made = ProcessorTopology(only_subtopology(topology), task, collector, sender, errors)
    return Nodes(made, task, collector, errors)


def batch_of(*rows: tuple[str | None, str | None, int], first_offset: int = 0, headers: Headers = ()) -> RecordBatch:
    """Return a batch of texts: rows are (key, value, timestamp in ms)."""
    return RecordBatch.of(
        [
            (
                None if k is None else k.encode(),
                None if v is None else v.encode(),
                timestamp,
                first_offset + row,
                headers,
            )
            for row, (k, v, timestamp) in enumerate(rows)
        ]
    )


def sent(task: StreamTask) -> list[tuple[str, str | None, str | None, int]]:
    """Give up the output as (topic, key, value, timestamp) in the order of sending."""
    return [
        (r.topic, None if r.key is None else r.key.decode(), None if r.value is None else r.value.decode(), r.timestamp)
        for r in task.drain_in_order()
    ]


def output_of(topology: Topology, rows: Iterable[Row], **options: Any) -> list[tuple[str | None, str | None, int]]:
    """Return key, value and timestamp of the output for `rows` of topic "in", which a task takes as one batch."""
    task = task_of(topology, **options)
    task.add_records("in", 0, batch_of(*rows))
    task.process()
    task.flush()
    return [sent_record[1:] for sent_record in sent(task)]
