"""Taps on Spark: the tasks of each epoch report the last records that reach a node, and the driver shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import KafkaStreams, Produced, StreamsBuilder, Topology
from penstock.host.packing.tapped_records import decoded_records, encoded_records
from penstock.host.spark.planner.taps import read_tapped, read_taps, write_tapped, write_taps
from penstock.host.spark.protocol.mailbox import Mailbox
from penstock.task.taps import TappedRecord
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.support import lines, wait_for
from tests.host.test_topologies import STRING, TEXT, word_count

pytestmark = pytest.mark.one_broker


@pytest.mark.partitions(2, 1)
def test_the_last_records_of_the_epochs_are_kept(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    config = spark_runner.config(application)
    spark_runner.write(topics[0], lines(["a b", "c"], partitions=2))
    query = InlineQuery(word_count(*topics), config, spark_runner.admin)
    mailbox = Mailbox(query.description.control_directory)
    mailbox.create()
    query.epoch()
    assert read_tapped(mailbox) == {}  # nothing is kept without a tap
    counted = next(
        node.name
        for part in query.description.topology.subtopologies
        for node in part.nodes
        if "counts" in getattr(node, "stores", ())
    )
    write_taps(mailbox, {counted: 3})
    for words in (["d", "e"], [], ["f g"]):
        spark_runner.write(topics[0], lines(words, partitions=2))
        query.epoch()
    tapped = decoded_records(read_tapped(mailbox)[counted])
    assert len(tapped) == 3
    assert {record.key for record in tapped[1:]} == {"f", "g"}
    assert {record.task.partition("_")[0] for record in tapped} == {"1"}
    write_taps(mailbox, {})
    spark_runner.write(topics[0], lines(["h"]))
    query.epoch()
    assert decoded_records(read_tapped(mailbox)[counted]) == tapped
    query.close()


def test_taps_of_a_query_that_has_ended_are_harmless(tmp_path: Path) -> None:
    gone = Mailbox(str(tmp_path / "gone"))
    write_taps(gone, {"node": 1})
    write_tapped(gone, [{"node": [b""]}])
    assert (read_taps(gone), read_tapped(gone)) == ({}, {})
    assert not (tmp_path / "gone").exists()


class Unsendable:
    def __reduce__(self) -> str:
        raise TypeError("no")

    def __repr__(self) -> str:
        return "Unsendable()"


def test_a_value_that_cannot_be_pickled_is_shown_as_text() -> None:
    record = TappedRecord("k", Unsendable(), 1, (), "0_0", "in", 0, 7, 9)
    assert decoded_records(encoded_records([record])) == [record._replace(value="Unsendable()")]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.xdist_group("spark")
@pytest.mark.partitions(2, 1)
def test_a_tap_of_an_application_on_spark(spark_runner: SparkRunner, application: str, topics: tuple[str, str]) -> None:
    def shouting(change: str) -> Topology:
        builder = StreamsBuilder()
        words = builder.stream(topics[0], consumed=TEXT).map_values(lambda word: word + change, named="changed")
        words.to(topics[1], Produced.with_(STRING, STRING).with_name("written"))
        return builder.build()

    with KafkaStreams(shouting("!"), spark_runner.config(application), **spark_runner.options()) as streams:
        wait_for(lambda: streams.state().value == "RUNNING")
        with streams.tap("written", n=2) as tap:
            spark_runner.write(topics[0], lines(["a", "b", "c"], partitions=2))
            wait_for(lambda: len(tap) == 2)
            assert {record.value for record in tap.records()} < {"a!", "b!", "c!"}
            streams.edit(shouting("?"))
            wait_for(lambda: streams.state().value == "RUNNING")
            tap.records()  # the tap goes on with the changed topology
            spark_runner.write(topics[0], lines(["d"]))
            wait_for(lambda: [record.value for record in tap.records()][-1] == "d?")
    assert not tap.is_open
