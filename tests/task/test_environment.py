"""The services of a host: how a task behaves without them, and with them."""

from __future__ import annotations

import pytest

from penstock.config import StreamsConfig
from penstock.errors import ProcessorStateError
from penstock.plan.subtopology import TaskId
from penstock.plan.topology import Topology
from penstock.processor.api import Processor
from penstock.record import Record
from penstock.state.memory import MemoryBase
from penstock.task.environment import TaskEnvironment
from penstock.task.stream_task import StreamTask
from tests.task.topologies import STRING, AnyTopic, batch_of, counting, only_subtopology, supplier


def task_in(environment: TaskEnvironment | None, topology: Topology | None = None) -> StreamTask:
    settings = {"default.key.serde": STRING, "default.value.serde": STRING, "metrics.recording.level": "DEBUG"}
    config = StreamsConfig(settings, environment={})
    spec = only_subtopology(topology or counting())
    return StreamTask(spec, TaskId(0, 0), config, MemoryBase(), AnyTopic(1), environment=environment)


def test_environments_do_not_share_their_schedules() -> None:
    assert TaskEnvironment().schedules is not TaskEnvironment().schedules


@pytest.mark.parametrize("has_clock", [False, True])
def test_durations_are_measured_only_with_a_clock(has_clock: bool) -> None:
    task = task_in(TaskEnvironment(nanoseconds=lambda: 0) if has_clock else None)
    task.initialize()
    task.add_records("in", 0, batch_of(("k", "v", 1)))
    task.process()
    measured, _ = task.take_measured()
    assert any("process" in operation for operation in measured) == has_clock


class Refusing(Processor):
    def process(self, record: Record[object, object]) -> None:
        raise ValueError("no")


@pytest.mark.parametrize(("prefix", "shown"), [(None, "stream-thread [main] task [0_0] "), ("mine: ", "mine: ")])
def test_errors_of_stores_begin_with_the_prefix_of_the_host(prefix: str | None, shown: str) -> None:
    topology = counting().add_processor("refuse", supplier(Refusing), "C")
    task = task_in(TaskEnvironment(state_log_prefix=prefix), topology)
    task.initialize()
    task.add_records("in", 0, batch_of(("k", "v", 1)))
    task.process()
    with pytest.raises(ProcessorStateError) as caught:
        task.flush()
    assert str(caught.value) == f"{shown}Failed to flush cache of store counts"


@pytest.mark.parametrize(("cache_bytes", "sent"), [(None, 0), (0, 1)])
def test_the_share_of_the_host_bounds_the_cache(cache_bytes: int | None, sent: int) -> None:
    task = task_in(TaskEnvironment(cache_bytes=cache_bytes))
    task.initialize()
    task.add_records("in", 0, batch_of(("k", "v", 1)))
    task.process()
    assert len(list(task.drain_in_order())) == sent
