"""The writer of epochs without transactions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.client.confluent.at_least_once import AtLeastOnceWriter
from penstock.client.confluent.refusals import RefusedRecord
from penstock.config import StreamsConfig
from penstock.errors import KafkaError, RecordTooLargeError, RetriableError
from penstock.record import PartitionBatch, RecordBatch
from penstock.testing import EmbeddedBroker
from tests.client.confluent.places import LARGE, Place, place_on


def test_without_transactions_everything_is_written_each_time(place: Place) -> None:
    writer = AtLeastOnceWriter(place.config)
    assert writer.write(1, "q", place.output("a", "b"))
    assert writer.write(1, "q", place.output("a", "b"))
    writer.close()
    assert place.read() == [b"a", b"b", b"a", b"b"]


def test_without_transactions_a_record_that_is_refused_is_an_error(place: Place) -> None:
    writer = AtLeastOnceWriter(place.config, timeout_ms=5_000)
    rows = [(None, b"x", 1, 0, ())]
    with pytest.raises(KafkaError, match="writing epoch 1"):
        writer.write(1, "q", [PartitionBatch(place.topic, 99, RecordBatch.of(rows))])


def test_a_record_that_is_too_large_is_an_error_by_its_name(place: Place) -> None:
    with pytest.raises(RecordTooLargeError, match=f"topic {place.topic}, partition 0"):
        AtLeastOnceWriter(place.config).write(1, "q", place.output("a", LARGE))


def test_what_shares_a_batch_with_a_refused_record_is_not_overtaken(place: Place) -> None:
    small = place.small_topic()
    config = StreamsConfig({**place.config.given(), "producer.batch.num.messages": 7})
    refused: list[bytes | None] = []

    def drop(record: RefusedRecord) -> list[PartitionBatch]:
        refused.append(record.value)
        return []

    bad = {30: "x" * 5_000, 33: "y" * 5_000, 120: LARGE, 150: "z" * 5_000}
    (one,) = place.output(*(bad.get(number, f"{number}") for number in range(200)))
    writer = AtLeastOnceWriter(config)
    assert writer.write(1, "q", [PartitionBatch(small, 0, one.batch), *place.output("elsewhere")], drop)
    writer.close()
    assert place.read_topic(small) == [b"%d" % number for number in range(200) if number not in bad]
    assert sorted(len(value or b"") for value in refused) == [5_000, 5_000, 5_000, 3_000_000]
    assert set(place.read()) == {b"elsewhere"}


def test_a_setting_that_is_on_purpose_is_not_warned_of(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    writer = AtLeastOnceWriter(place.config)
    assert writer.write(1, "q", place.output("a"))
    writer.close()
    assert "gapless" not in caplog.text


def test_a_record_that_no_broker_accepts_in_time_fails_without_transactions_too(
    unique_name: Callable[[str], str],
) -> None:
    settings = {"producer.delivery.timeout.ms": 4_000}
    with EmbeddedBroker() as broker, place_on(broker.bootstrap_servers, unique_name, **settings) as made:
        writer = AtLeastOnceWriter(made.config)
        broker.fail("Produce", "NOT_ENOUGH_REPLICAS", times=1_000_000)
        with pytest.raises(RetriableError, match=f"writing epoch 1 to {made.topic}-0.*min.insync.replicas"):
            writer.write(1, "q", made.output("a"))
        broker.clear_faults()
        assert writer.write(1, "q", made.output("a"))
        assert made.read() == [b"a"]
