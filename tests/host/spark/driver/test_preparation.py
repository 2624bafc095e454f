"""What the Spark host refuses before it asks a broker for anything."""

from __future__ import annotations

import io
import logging
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from penstock import RocksDBConfigSetter, Serdes, StreamsBuilder, StreamsConfig
from penstock.dsl.options import Consumed, Produced
from penstock.errors import MissingSourceTopicError, StreamsError
from penstock.host.spark.driver.preparation import check, prepare
from penstock.host.spark.driver.session_use import SessionUse
from penstock.serdes.avro import AvroSerde
from penstock.streams import KafkaStreams
from tests.support.brokers import RunningBroker

TEXT = Serdes.string()


class NoTopics:
    """Brokers without topics, which are the first thing that a start asks for."""

    def topics(self) -> dict[str, int]:
        return {}

    def topic_ids(self, names: Collection[str]) -> dict[str, str]:
        return {}


class Untouched(RocksDBConfigSetter):
    """Leaves the options of RocksDB as they are."""

    def set_config(self, name: str, options: Any, config: StreamsConfig) -> None:
        pass

    def close(self, name: str, options: Any) -> None:
        pass


def test_keys_that_change_nothing_on_spark_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    config = StreamsConfig(
        {"application.id": "app", "rocksdb.config.setter": Untouched(), "penstock.execution": "record"}
    )
    builder = StreamsBuilder()
    builder.stream("t", Consumed.with_(key_serde=TEXT, value_serde=TEXT))
    admin: Any = NoTopics()
    untouched: Any = None
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            with pytest.raises(MissingSourceTopicError):
                prepare(builder.build().build("app"), config, untouched, admin, 1, "")
    assert [record.getMessage().split()[2] for record in caplog.records] == ["rocksdb.config.setter"]


def test_the_topic_of_a_global_table_must_exist() -> None:
    builder = StreamsBuilder()
    builder.global_table("rates", Consumed.with_(key_serde=TEXT, value_serde=TEXT))
    admin: Any = NoTopics()
    untouched: Any = None
    with pytest.raises(MissingSourceTopicError, match=r"Source topics that do not exist: rates\."):
        prepare(builder.build().build("app"), StreamsConfig({"application.id": "app"}), untouched, admin, 1, "")


def test_a_missing_serde_ends_the_start() -> None:
    builder = StreamsBuilder()
    builder.stream("in", Consumed.with_(TEXT, TEXT)).map_values(len).to("out")
    nobody: Any = None
    with pytest.raises(StreamsError, match="value serdes for sink node KSTREAM-SINK-0000000002") as refused:
        prepare(builder.build().build("app"), StreamsConfig({"application.id": "app"}), nobody, nobody, 1, "")
    assert "which writes to topic out" in refused.value.__notes__[0]


def test_a_schema_registry_in_memory_is_refused_before_a_session_is_opened() -> None:
    builder = StreamsBuilder()
    builder.stream("in", Consumed.with_(TEXT, TEXT)).to("out", Produced.with_(value_serde=AvroSerde("mock://one")))
    nobody: Any = None
    expected = r"which writes to topic out .* AvroSerde for values .*mock://.* penstock\.host=spark runs .* processes"
    with pytest.raises(StreamsError, match=expected):
        check(builder.build().build("app"), StreamsConfig({"application.id": "app"}), nobody)


@pytest.mark.parametrize("captured", [threading.Lock(), io.TextIOWrapper(io.BytesIO())])
def test_a_function_that_cannot_be_sent_to_workers_ends_the_start_before_a_session_is_opened(captured: object) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed.with_(TEXT, TEXT))
    stream.filter(lambda key, value: captured is not None, named="seen")
    nobody: Any = None
    expected = (
        r"Node seen \(created at .*test_preparation.py:\d+\) cannot be sent to Spark's workers: "
        r"function .*<lambda> \(.*test_preparation.py:\d+\) refers to `captured`, which is of type "
    )
    with pytest.raises(StreamsError, match=expected):
        check(builder.build().build("app"), StreamsConfig({"application.id": "app"}), nobody)


@pytest.mark.one_broker
def test_no_session_is_opened_for_a_program_whose_topics_are_missing(
    broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[SessionUse] = []
    monkeypatch.setattr(SessionUse, "open", opened.append)
    builder = StreamsBuilder()
    builder.stream("no-such-topic", Consumed.with_(key_serde=TEXT, value_serde=TEXT))
    config = {"application.id": "app", "bootstrap.servers": broker.bootstrap_servers, "state.dir": str(tmp_path)}
    with pytest.raises(MissingSourceTopicError, match=f"create no-such-topic .* {broker.bootstrap_servers}"):
        KafkaStreams(builder.build(), config).start()
    assert opened == []


class HasTopics(NoTopics):
    """Brokers with some topics."""

    def __init__(self, *topics: str) -> None:
        self._topics = dict.fromkeys(topics, 2)

    def topics(self) -> dict[str, int]:
        return self._topics


@pytest.mark.parametrize("there", [(), ("app-rows-source",), ("app-rows-source", "app-counts-sink")])
def test_the_topics_of_data_frames_need_not_exist_before_the_session(there: tuple[str, ...]) -> None:
    builder = StreamsBuilder()
    rows = builder.stream_from("a frame", consumed=Consumed.with_(TEXT, TEXT).with_name("rows"))
    rows.to_spark(print, produced=Produced.with_(TEXT, TEXT).with_name("counts"))
    admin: Any = HasTopics(*there)
    check(builder.build().build("app"), StreamsConfig({"application.id": "app"}), admin)


class HearsLater(HasTopics):
    """Brokers of which the first that is asked does not know the topics yet."""

    has_answered = False

    def topics(self) -> dict[str, int]:
        known = self._topics if self.has_answered else {}
        self.has_answered = True
        return known


def test_a_topic_that_is_new_is_no_missing_topic() -> None:
    builder = StreamsBuilder()
    builder.stream("in", Consumed.with_(TEXT, TEXT)).to("out", Produced.with_(TEXT, TEXT))
    admin: Any = HearsLater("in", "out")
    check(builder.build().build("app"), StreamsConfig({"application.id": "app"}), admin)
