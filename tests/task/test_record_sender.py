"""Records that are sent outside the sinks, and their partitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StreamsError
from penstock.exception_handlers import ProducerRecord
from penstock.plan.partitioning import partition_for
from penstock.plan.subtopology import TaskId
from penstock.record import Record, RecordBatch
from penstock.task.record_collector import RecordCollector
from penstock.task.record_sender import DeadLetterSink, RecordSender


def sender_to(collector: RecordCollector, partitions: int = 4) -> RecordSender:
    return RecordSender(collector, {"out": partitions}, TaskId(1, 2), lambda: 5)


def letter(value: bytes, partition: int | None = None) -> ProducerRecord:
    return ProducerRecord("out", b"k", value, 7, (), partition)


def test_a_record_goes_to_its_own_partition_or_to_that_of_its_key() -> None:
    sender = sender_to(RecordCollector())
    assert sender.partition_of(letter(b"v", 3), 0) == 3
    assert sender.partition_of(letter(b"v"), 0) == partition_for(b"k", 4)


@pytest.mark.parametrize("partition", [-1, 4])
def test_a_partition_that_does_not_exist_is_refused(partition: int) -> None:
    with pytest.raises(StreamsError, match=rf"out has partitions 0 to 3; a record was sent to {partition}\."):
        sender_to(RecordCollector()).send(letter(b"v", partition))


def test_a_topic_that_does_not_exist_is_refused_with_a_command() -> None:
    with pytest.raises(StreamsError, match=r"topic gone for task 1_2.*penstock topics create gone"):
        sender_to(RecordCollector()).partition_count("gone")


@given(st.lists(st.tuples(st.sampled_from([None, b"a", b"b"]), st.integers(0, 99)), min_size=1), st.integers(1, 5))
def test_a_column_goes_to_the_partitions_of_its_records(rows: list[tuple[bytes | None, int]], partitions: int) -> None:
    sender = sender_to(RecordCollector(), partitions)
    keys = list(dict.fromkeys(key for key, _ in rows))
    places = np.array([keys.index(key) for key, _ in rows])
    offsets = np.array([offset for _, offset in rows], np.int64)
    column = sender.partitions_of("out", keys, places, offsets, offsets * 3)
    single = [sender.partition_of(ProducerRecord("out", key, b"v", offset * 3), offset) for key, offset in rows]
    assert column.tolist() == single


def test_dead_letters_are_counted_and_keep_their_place_in_the_output() -> None:
    collector = RecordCollector()
    sender = sender_to(collector)
    sink = DeadLetterSink(sender)
    first = collector.reserve(2)
    sink.process(Record("k", letter(b"last", 0), 7))
    batch = RecordBatch.of([(None, letter(value, 0), 7, offset, ()) for offset, value in enumerate((b"b", b"a"))])
    sink.process_columns(batch, np.array([first + 1, first]))
    sender.send(letter(b"no letter", 0))
    assert [record.value for record in collector.drain_in_order()] == [b"a", b"b", b"last", b"no letter"]
    assert sender.dead_letters == 3
