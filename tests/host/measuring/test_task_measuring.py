"""What hosts measure of a task: the ages of its output."""

from __future__ import annotations

import pytest

from penstock import StreamsBuilder
from penstock.host.measuring.task_measuring import ROWS_TOGETHER, TaskMeasuring, measured_drops
from penstock.metrics.drop_reasons import Dropped, DropReason
from penstock.metrics.host_metrics import (
    NODE_ID,
    RECORD_E2E_LATENCY,
    Operation,
    dropped_for,
    dropped_of,
    operation_of,
    output_age,
)
from penstock.metrics.measurements import Measurement, bucket_of
from penstock.record import PartitionBatch, RecordBatch
from tests.task.topologies import only_subtopology


def measuring() -> TaskMeasuring:
    builder = StreamsBuilder()
    records = builder.stream("in")
    records.to("out")
    records.to("between")
    return TaskMeasuring(only_subtopology(builder.build()), {"between"})


def sent(topic: str, *timestamps: int) -> PartitionBatch:
    return PartitionBatch(topic, 0, RecordBatch.of([(b"k", b"v", time, 0, ()) for time in timestamps]))


def latency_of(measured: dict[str, Measurement], number: int) -> Measurement:
    (sink,) = (name for name in measured if name.startswith(RECORD_E2E_LATENCY) and measured[name].number == number)
    assert sink == operation_of(RECORD_E2E_LATENCY, NODE_ID, sink.rpartition("/")[2])
    return measured[sink]


@pytest.mark.parametrize("more", [0, ROWS_TOGETHER])
def test_each_record_has_the_age_of_when_it_was_written(more: int) -> None:
    task = measuring()
    task.written([sent("out", 900, 990), sent("between", 0)], 1_000)
    task.written([sent("out")], 1_500)
    task.written([sent("out", *[1_990] * (1 + more))], 2_000)
    measured = task.take()
    assert latency_of(measured, 3 + more) == Measurement(3 + more, 120.0 + 10 * more, 10.0, 100.0)
    assert latency_of(measured, 1) == Measurement(1, 1_000.0, 1_000.0, 1_000.0)
    ages = {name: each for name, each in measured.items() if not name.startswith(RECORD_E2E_LATENCY)}
    assert ages == {
        output_age(bucket_of(100)): Measurement(1, 1_000.0, 1_000.0, 1_000.0),
        output_age(bucket_of(10)): Measurement(2 + more, 3_000.0 + 2_000 * more, 1_000.0, 2_000.0),
    }
    assert task.take() == {}


def test_newly_dropped_records_are_measured_by_place_and_by_reason() -> None:
    late, null = Dropped("GLOBAL", DropReason.LATE), Dropped("GLOBAL", DropReason.NULL_KEY)
    measured = [(name, each.number) for name, each in measured_drops({late: 2}, {late: 5, null: 0})]
    of_place = operation_of("dropped-records", "processor-node-id", "GLOBAL")
    assert measured == [(of_place, 3), (dropped_for(late), 3)]
    assert dropped_of(Operation.reported(dropped_for(late), "-1_0")) == late
    assert dropped_of(Operation.reported(of_place, "-1_0")) is None
