"""Keys that no operator uses go from a source to a sink as bytes, with the results of keys that are read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StreamsError
from penstock.plan.topology import Topology
from penstock.processor.stateless import StreamFlatMapValues, StreamMapValues
from penstock.record import RecordBatch
from penstock.serdes import BytesSerde, Serdes, StringSerde
from penstock.serdes.unread_column import UnreadColumn
from penstock.task.written_keys import written_keys
from tests.task.topologies import sent, supplier, task_of

KEYS = st.sampled_from([None, b"", b"a", b"b", "\u00e9".encode(), b"\xff\xfe"])
DATA = [b"a", b"b", None, b"a"]


def batch(keys: list[bytes | None]) -> RecordBatch:
    return RecordBatch.of([(key, b"%d" % row, 1_000 + row, row, ()) for row, key in enumerate(keys)])


def passing(**sink: Any) -> Topology:
    """Return a chain of operators on values."""
    topology = Topology().add_source("S", "in")
    topology.add_processor("A", supplier(lambda: StreamMapValues(lambda value: value + "!", False)), "S")
    topology.add_processor("B", supplier(lambda: StreamFlatMapValues(lambda value: [value, value], False)), "A")
    return topology.add_sink("K", "out", "B", **sink)


def output(topology: Topology, keys: list[bytes | None], execution: str, **options: Any) -> Any:
    task = task_of(topology, execution=execution, **options)
    task.add_records("in", 0, batch(keys))
    task.process()
    return sent(task)


@given(st.lists(KEYS, min_size=25, max_size=40), st.sampled_from([1, 3]))
def test_keys_have_the_bytes_and_the_partitions_of_keys_that_are_read(
    keys: list[bytes | None], partitions: int
) -> None:
    found = output(passing(), keys, "auto", partitions=partitions)
    assert found == output(passing(), keys, "record", partitions=partitions)
    assert len(found) == 2 * len(keys)


def test_a_sink_with_another_serde_reads_the_keys() -> None:
    keys: list[bytes | None] = [b"%d" % number for number in range(30)]
    with_json = passing(key_serde=Serdes.json())
    assert output(with_json, keys, "auto") == output(with_json, keys, "record")
    assert {key for _, key, *_ in output(with_json, keys, "auto")} == {f'"{number}"' for number in range(30)}


def test_a_failure_names_its_record_as_with_keys_that_are_read() -> None:
    def fail(value: str) -> str:
        if value == "7":
            raise ValueError("seven")
        return value

    topology = Topology().add_source("S", "in")
    topology.add_processor("A", supplier(lambda: StreamMapValues(fail, False)), "S").add_sink("K", "out", "A")
    keys: list[bytes | None] = [b"k%d" % number for number in range(30)]
    raised = []
    for execution in ("auto", "record"):
        with pytest.raises(StreamsError) as failure:
            output(topology, keys, execution)
        raised.append((type(failure.value), str(failure.value)))
    assert raised[0] == raised[1]


@pytest.mark.parametrize("partitions", [1, 2])
def test_unread_keys_are_written_as_they_are(partitions: int) -> None:
    unread = UnreadColumn(StringSerde(), "in", DATA)
    rows = RecordBatch(unread, DATA, *[batch(DATA).timestamps] * 2)
    keys, entries, places = written_keys(StringSerde(), "out", rows, partitions)
    assert [*keys] == DATA
    if partitions > 1:
        assert [entries[place] for place in places] == DATA


def test_other_keys_are_written_by_the_serde() -> None:
    rows = RecordBatch(["a", "b", None, "a"], DATA, *[batch(DATA).timestamps] * 2)
    keys, entries, places = written_keys(StringSerde(), "out", rows, 1)
    assert [*keys] == DATA
    assert (entries, places.tolist()) == ([b"a", b"b", None], [0, 1, 2, 0])
    unread = UnreadColumn(StringSerde(), "in", DATA)
    with pytest.raises(TypeError):
        written_keys(BytesSerde(), "out", RecordBatch(unread, DATA, *[batch(DATA).timestamps] * 2), 1)
