"""Serdes that write headers: in records of a sink in both executions, in stores, and on the threads host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Consumed, Materialized, Produced, Serdes, StreamsBuilder, Topology
from penstock.errors import SerializationError
from penstock.record import Headers, Record, RecordBatch
from penstock.serdes.headers import HeaderSerde, last_header, split_headers, with_headers
from penstock.testing import TestRecord, TopologyTestDriver
from tests.task.topologies import nodes_of

TEXT = Serdes.string()


class TailSerde(HeaderSerde[str]):
    """Texts whose last letter is the header `tail`."""

    def write(self, topic: str, value: Any) -> tuple[bytes, Headers]:
        if not isinstance(value, str):
            raise TypeError(f"expected a text, got {value!r}")
        return value[:-1].encode(), (("tail", value[-1:].encode()),)

    def read(self, topic: str, data: bytes, headers: Headers) -> str:
        tail = last_header(headers, "tail")
        if tail is None:
            raise SerializationError(f"Cannot read {data!r} from {topic!r}: no header tail.")
        return data.decode() + tail.decode()

    def is_own(self, name: str) -> bool:
        return name == "tail"


TAIL = TailSerde()
headers = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=3).map(tuple)


@given(st.text(min_size=1, max_size=4), headers)
def test_a_value_comes_back_from_a_record_and_from_data_alone(value: str, others: Headers) -> None:
    data, written = TAIL.serialize_record("t", value, others)
    assert TAIL.deserialize("t", data, written) == value
    assert [each for each in written if each[0] != "tail"] == [each for each in others if each[0] != "tail"]
    assert [name for name, _ in written].count("tail") == 1
    assert TAIL.deserialize("t", TAIL.serialize("t", value), (("tail", b"?"),)) == value


@given(st.binary(), headers)
def test_data_contains_its_headers(data: bytes, own: Headers) -> None:
    assert split_headers("t", with_headers(data, own), ()) == (data, own)


def test_data_without_headers_is_passed_on_with_those_of_the_record() -> None:
    assert split_headers("t", b"abc", (("a", b"1"),)) == (b"abc", (("a", b"1"),))
    with pytest.raises(SerializationError, match="'t'"):
        split_headers("t", with_headers(b"abc", ())[:-1], ())


def test_the_last_header_of_a_name_counts() -> None:
    assert last_header((("a", b"1"), ("a", b"2"), ("b", None)), "a") == b"2"
    assert last_header((("b", None),), "b") is None
    assert last_header((), "b") is None


def test_a_subclass_with_another_serialize_writes_no_headers() -> None:
    class Plain(TailSerde):
        def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
            return str(value).encode()

    assert not Plain().writes_headers
    assert Plain().serialize_record("t", "ab", (("x", b"1"),)) == (b"ab", (("x", b"1"),))


def test_a_sink_writes_the_same_headers_record_by_record_and_by_column() -> None:
    sent = []
    for take in ("process", "process_columns"):
        nodes = nodes_of(Topology().add_source("S", "in").add_sink("K", "out", "S", key_serde=TEXT, value_serde=TAIL))
        sink: Any = nodes.topology.nodes["K"]
        batch = RecordBatch(
            ["k", "k", None], ["ab", None, "cd"], np.arange(3), np.arange(3), [(("tail", b"?"),), (("x", b"1"),), ()]
        )
        if take == "process":
            for row in range(3):
                sink.process(Record(batch.keys[row], batch.values[row], row, batch.headers_at(row)))
        else:
            sink.process_columns(batch, np.arange(3))
        sent.append([(each.key, each.value, each.headers) for each in nodes.collector.drain_in_order()])
    assert sent[0] == sent[1]
    assert sent[0] == [(b"k", b"a", (("tail", b"b"),)), (b"k", None, (("x", b"1"),)), (None, b"c", (("tail", b"d"),))]


@pytest.mark.parametrize("execution", ["record", "auto"])
def test_values_in_a_store_do_not_depend_on_the_headers_of_the_current_record(execution: str) -> None:
    builder = StreamsBuilder()
    kept = Materialized.as_("kept").with_key_serde(TEXT).with_value_serde(TAIL)
    joined = builder.stream("in", Consumed.with_(TEXT, TAIL)).group_by_key().reduce(lambda old, new: old + new, kept)
    joined.to_stream().to("out", Produced.with_(TEXT, TAIL))
    with TopologyTestDriver(builder.build(), {"penstock.execution": execution}) as driver:
        source = driver.create_input_topic("in", TEXT, TAIL)
        for value in ("ab", "cd", "ef"):
            source.pipe_input(TestRecord("k", value, headers=[("tail", b"?"), ("x", b"1")]))
        target = driver.create_output_topic("out", TEXT, TAIL)
        *_, last = target.read_records_to_list()
        assert (last.value, last.headers) == ("abcdef", (("x", b"1"), ("tail", b"f")))
        store = driver.get_key_value_store("kept")
        assert store is not None
        assert store.get("k") == "abcdef"


def test_key_and_value_both_write_headers_and_the_value_sees_those_of_the_key() -> None:
    builder = StreamsBuilder()
    builder.stream("in", Consumed.with_(TEXT, TEXT)).to("out", Produced.with_(TAIL, TAIL))
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("key", "value")
        record = driver.create_output_topic("out", TEXT, TEXT).read_record()
        assert (record.key, record.value, record.headers) == ("ke", "valu", (("tail", b"e"),))


def headers_of_two_sinks() -> list[Headers]:
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed.with_(TEXT, TEXT))
    stream.to("first", Produced.with_(TEXT, TAIL))
    stream.to("second", Produced.with_(TEXT, TEXT))
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("key", "value")
        return [
            tuple(driver.create_output_topic(topic, TEXT, TEXT).read_record().headers) for topic in ("first", "second")
        ]


def test_headers_belong_to_the_record_of_their_sink() -> None:
    assert headers_of_two_sinks() == [(("tail", b"e"),), ()]


@pytest.mark.xfail(strict=True, reason="In Kafka, headers of one sink reach later sinks: DIVERGENCES.md")
def test_headers_reach_later_sinks_as_in_kafka() -> None:
    first, second = headers_of_two_sinks()
    assert first == second


def test_a_type_that_the_serde_does_not_write_names_sink_and_topic() -> None:
    builder = StreamsBuilder()
    builder.stream("in", Consumed.with_(TEXT, TEXT)).map_values(len).to("out", Produced.with_(TEXT, TAIL))
    with TopologyTestDriver(builder.build()) as driver, pytest.raises(Exception, match=r"KSTREAM-SINK.*topic out"):
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("key", "value")
