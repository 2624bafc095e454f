"""The intake of a task: reports, the order trace, and stream time."""

from __future__ import annotations

import pytest

from penstock.config import StreamsConfig
from penstock.record import TopicPartition
from penstock.task.intake import order_trace
from tests.task.calls import ANSWERS, add_answers, answer_to, calling, commit
from tests.task.topologies import batch_of, counting, task_of


def test_the_order_trace_has_each_record_also_answers() -> None:
    task = task_of(calling(), config={"penstock.trace.order": "trace"})
    task.add_records("in", 0, batch_of(("a", "1", 5), ("b", "2", 6)))
    task.process()
    commit(task)
    (first, _) = task.take_calls()["call"]
    add_answers(task, answer_to(first, "one"))
    task.process()
    order = task.prepare_commit().order
    assert order is not None
    assert [(each.partition, each.first_offset, each.records) for each in order.ranges] == [
        (TopicPartition(ANSWERS, 0), 0, 1)
    ]


@pytest.mark.parametrize(("directory", "is_traced"), [(None, False), ("trace", True)])
def test_the_order_is_traced_if_a_directory_is_configured(directory: str | None, is_traced: bool) -> None:
    config = StreamsConfig({"application.id": "a", "penstock.trace.order": directory}, environment={})
    assert (order_trace(config) is not None) == is_traced


def test_taps_see_the_records_of_a_source() -> None:
    task = task_of(counting())
    task.tap("S", 5)
    task.add_records("in", 0, batch_of(("a", "1", 5), ("b", "2", 6)))
    task.process()
    assert [(each.key, each.timestamp) for each in task.tapped("S")] == [("a", 5), ("b", 6)]


def test_stream_time_is_that_of_the_records() -> None:
    task = task_of(counting())
    task.add_records("in", 0, batch_of(("a", "1", 5), ("b", "2", 3)))
    task.process()
    assert task.checkpoint().stream_time == 5
