"""Rows between the stages, and errors and prints on their way to the program."""

from __future__ import annotations

import random
import threading
from base64 import b64encode
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import KafkaError, StreamsError, TopologyError
from penstock.host.packing.record_blobs import decode_batch, encode_batch
from penstock.host.spark.protocol.epoch_offset import EpochOffset
from penstock.host.spark.protocol.failures import (
    QueryFailedError,
    decode_failure,
    encode_failure,
    error_of_spark,
    failure_in,
)
from penstock.host.spark.protocol.messages import SinkControl, TaskControl, TaskReport
from penstock.host.spark.protocol.rows import DATA, Row, read_rows, write_rows
from penstock.host.spark.protocol.task_entry import TaskEntry
from penstock.host.spark.worker.printing import MAXIMUM_CHARACTERS, captured_print
from penstock.plan.topology import Topology
from penstock.processor.api import SimpleSupplier
from penstock.processor.stateless import StreamMapValues
from penstock.record import DictionaryColumn, FailedRecord, RecordBatch, TopicPartition, size_of
from penstock.serdes import Serdes
from penstock.testing import TopologyTestDriver
from tests.host.spark.forged import failure_that_makes

maybe_bytes = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=5), maybe_bytes), max_size=2).map(tuple)
numbers = st.integers(-(2**63), 2**63 - 1) | st.integers(1_700_000_000_000, 1_700_000_000_010)
record_rows = st.lists(st.tuples(maybe_bytes, maybe_bytes, numbers, numbers, headers))


def rows_of(batch: RecordBatch) -> list[object]:
    return [
        (
            key,
            value,
            int(batch.timestamps[index]),
            int(batch.offsets[index]),
            tuple(map(tuple, batch.headers_at(index))),
        )
        for index, (key, value) in enumerate(zip(batch.keys, batch.values, strict=True))
    ]


@given(record_rows.filter(bool), st.integers(1024, 4096))
def test_a_batch_goes_through_rows_of_bounded_size_unchanged(rows: list[Any], max_bytes: int) -> None:
    blobs = encode_batch("topic", 3, RecordBatch.of(rows), max_bytes)
    decoded = [decode_batch(blob) for blob in blobs]
    assert all((topic, partition) == ("topic", 3) for topic, partition, _, _ in decoded)
    assert [row for _, _, batch, _ in decoded for row in rows_of(batch)] == rows_of(RecordBatch.of(rows))
    assert sum(size_of(each.batch) for each in decoded) == sum(len(part or b"") for row in rows for part in row[:2])
    assert all(len(blob) <= max_bytes or len(batch) == 1 for blob, (_, _, batch, _) in zip(blobs, decoded, strict=True))


@given(st.lists(st.integers(0, 3), min_size=8, max_size=400), st.integers(0, 50), st.booleans())
def test_a_dictionary_of_few_keys_goes_through_rows_unchanged(
    places: list[int], first_offset: int, with_values: bool
) -> None:
    keys = DictionaryColumn.of([b"a", None, b"long" * 40, b""], np.array(places, np.int32))
    count = len(places)
    times, offsets = np.full(count, 7, np.int64), np.arange(first_offset, first_offset + count, dtype=np.int64)
    values = [b"%d" % row for row in range(count)] if with_values else keys
    batch = RecordBatch(keys, values, times, offsets)
    decoded = [decode_batch(blob).batch for blob in encode_batch("topic", 3, batch, 600)]
    assert [row for each in decoded for row in rows_of(each)] == rows_of(batch)
    assert size_of(batch) == sum(len(part or b"") for column in (batch.keys, batch.values) for part in column)
    assert all((each.values is each.keys) == (not with_values) for each in decoded)


def test_rows_come_out_of_arrow_frames_as_they_went_in() -> None:
    rows = [
        Row(DATA, 1, number % 5, number % 3, number, random.Random(number).randbytes(1 << 20)) for number in range(20)
    ]
    frames = list(write_rows(rows, partitions=2))
    assert len(frames) > 1
    assert list(read_rows(frames)) == rows
    assert [d for frame in frames for d in frame["dst"].to_pylist()] == [row.task % 2 for row in rows]


def test_no_rows_are_one_empty_frame() -> None:
    (frame,) = write_rows([], partitions=2)
    assert frame.num_rows == 0


def test_messages_of_the_protocol_are_read_as_they_were_written() -> None:
    entry = TaskEntry("ab", {"deltas": [{"id": "ab"}], "snapshots": []}, 17)
    control = TaskControl(4, 1000, entry, global_positions={"rates": [7, 0]})
    assert TaskControl.decode(control.encode()) == control
    control = control._replace(taps={"node": 3}, call_again_before={TopicPartition("answers", 1): 7})
    assert TaskControl.decode(control.encode()) == control
    report = TaskReport("0_1", 4, 2, "aa", entry, (("t", 3, 40),), "printed")
    assert TaskReport.decode(report.encode()) == report
    report = report._replace(worker="here (pid 1)", awaited=(TopicPartition("t", 1),))
    assert TaskReport.decode(report.encode()) == report
    sink = SinkControl(EpochOffset("q", 4, 1000, {"t": [1, 2]}, [2, 2], 2))
    assert SinkControl.decode(sink.encode()) == sink


@pytest.mark.parametrize(
    ("head", "due", "idle"), [("", None, False), ("ab", None, True), ("ab", 1000, False), ("ab", 1001, True)]
)
def test_a_task_is_idle_once_it_was_initialised_and_while_nothing_is_due(
    head: str, due: int | None, idle: bool
) -> None:
    assert TaskControl(4, 1000, TaskEntry(head, {}, due)).is_idle() == idle


def test_an_error_keeps_class_message_and_the_users_lines() -> None:
    try:
        try:
            dict[str, int]()["absent"]  # the user's line
        except KeyError as cause:
            raise StreamsError("Exception caught in process. offset=3") from cause
    except StreamsError as error:
        error.failed_record = FailedRecord("map", "in", 0, 3, "'k'", "'v'")
        failure = encode_failure(error, "printed before\n")
    decoded, printed = decode_failure(failure)
    assert type(decoded) is StreamsError
    assert decoded.failed_record == FailedRecord("map", "in", 0, 3, "'k'", "'v'")
    assert str(decoded) == "Exception caught in process. offset=3"
    assert repr(decoded.__cause__) == "KeyError('absent')"
    (note,) = decoded.__notes__
    assert "# the user's line" in note
    assert note.endswith("KeyError: 'absent'")
    assert printed == "printed before\n"


def test_an_error_keeps_its_notes_besides_the_users_lines() -> None:
    error = StreamsError("failed")
    error.__cause__ = KeyError("absent")
    error.add_note("KeyError: 'absent'\n  the line, as a task notes it")
    error.add_note("at topic in, partition 0, offset 3")
    decoded, _ = decode_failure(encode_failure(error, ""))
    assert decoded.__notes__ == ["at topic in, partition 0, offset 3", "KeyError: 'absent'"]


class _WithoutCopyError(Exception):
    def __init__(self, lock: object) -> None:
        super().__init__("holds a lock")
        self.lock = lock


class _OpaqueError(Exception):
    def __init__(self, lock: object) -> None:
        super().__init__(lock)

    def __str__(self) -> str:
        return f"holds {type(self.args[0]).__name__}"


def test_an_error_whose_cause_cannot_be_sent_arrives_with_its_class_and_text() -> None:
    error = StreamsError("failed")
    error.__cause__ = _WithoutCopyError(threading.Lock())
    error.__cause__.__cause__ = KeyError("absent")
    decoded, _ = decode_failure(encode_failure(error, ""))
    assert str(decoded) == "failed"
    assert isinstance(decoded.__cause__, _WithoutCopyError)
    assert str(decoded.__cause__) == "holds a lock"
    assert repr(decoded.__cause__.__cause__) == "KeyError('absent')"
    assert "holds a lock" in decoded.__notes__[0]


def test_an_error_whose_cause_cannot_be_made_again_names_it() -> None:
    error = StreamsError("failed")
    error.__cause__ = _OpaqueError(threading.Lock())
    decoded, _ = decode_failure(encode_failure(error, ""))
    assert isinstance(decoded.__cause__, StreamsError)
    assert str(decoded.__cause__) == "_OpaqueError: holds lock"


@pytest.mark.parametrize("error", [TopologyError("x"), KafkaError("y"), StreamsError("with indeterminate output")])
def test_an_error_is_found_in_what_spark_reports(error: StreamsError) -> None:
    raised = QueryFailedError(encode_failure(error, ""), b"key")
    text = (
        f"[STREAM_FAILED] Query [id = 1] terminated with exception: {raised} SQLSTATE: XXKST\n\tat org.apache.spark.X"
    )
    found = failure_in(text, b"key")
    assert found is not None
    assert type(found[0]) is type(error)
    assert str(found[0]) == str(error)
    assert failure_in("no mark", b"key") is None


def test_an_error_that_a_record_has_written_is_not_decoded(tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    encoded = b64encode(failure_that_makes(proof)).decode()
    forged = [
        f"[penstock-failure:{encoded}]",
        f"[penstock-failure::{encoded}]",
        f"[penstock-failure:{'0' * 64}:{encoded}]",
        f"[penstock-failure:{'0' * 64}:A]",
        str(QueryFailedError(failure_that_makes(proof), b"key of another query")),
    ]
    text = f"[CAST_INVALID_INPUT] The value '{' '.join(forged)}' cannot be cast to INT"
    assert failure_in(text, b"key") is None
    assert str(error_of_spark("of app", text)).endswith(text)
    genuine = QueryFailedError(encode_failure(StreamsError("genuine"), ""), b"key")
    found = failure_in(f"{text}\n{genuine}", b"key")
    assert found is not None, "the marks of the record do not hide it"
    assert str(found[0]) == "genuine"
    assert not proof.exists()
    decode_failure(failure_that_makes(proof))
    assert proof.exists(), "the attack would work"


def test_of_any_other_report_the_lines_that_help_are_kept() -> None:
    text = "\n".join(
        ["Job aborted", "  File x, line 3", "ValueError: the cause", "\tat org.apache.spark.A", "\t... 14 more"]
    )
    failed = "The Spark query of app failed: "
    assert str(error_of_spark("of app", text)) == f"{failed}ValueError: the cause"
    plain = "Something\n\tat java.lang.B\n=== Streaming Query ===\nIdentifier: x"
    assert str(error_of_spark("of app", plain)) == f"{failed}Something"
    lost = str(error_of_spark("of app", "Broken pipe\nIdentifier: x", "java.io.IOException: Broken pipe\n\tat A"))
    assert lost.startswith(f"{failed}one of its Python processes ended")
    assert lost.count("\n") == 0


def test_prints_are_kept_up_to_a_bound() -> None:
    with captured_print() as printed:
        print("a" * MAXIMUM_CHARACTERS)
        print("b" * 9)
    assert printed.text().startswith("a" * 100)
    assert "b" not in printed.text()[:MAXIMUM_CHARACTERS]
    assert "11 more characters" in printed.text()


def test_the_traceback_of_an_error_shows_lines_of_the_user_alone() -> None:
    def explode(value: str) -> str:
        raise LookupError(value)

    topology = Topology()
    topology.add_source("S", "in")
    topology.add_processor("M", SimpleSupplier(lambda: StreamMapValues(explode, False)), "S")
    config = {"application.id": "app", "default.key.serde": Serdes.string(), "default.value.serde": Serdes.string()}
    with TopologyTestDriver(topology, config) as driver, pytest.raises(StreamsError) as raised:
        driver.create_input_topic("in", Serdes.string(), Serdes.string()).pipe_input("k", "v")
    decoded, _ = decode_failure(encode_failure(raised.value, ""))
    notes = "".join(decoded.__notes__)
    assert "in explode" in notes
    assert "penstock/processor" not in notes
