"""`head` of streams and tables: the first records of real topics, through the program, without a trace of it."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient

from penstock import (
    Consumed,
    Grouped,
    KStream,
    Materialized,
    Processor,
    ProcessorContext,
    Record,
    Serdes,
    Stores,
    StreamsBuilder,
    TimeWindows,
)
from penstock.client.api import NewTopic
from penstock.client.confluent import ConfluentAdmin, ConfluentProducer
from penstock.config import StreamsConfig
from penstock.errors import ConfigError, MissingSourceTopicError, StreamsError
from penstock.host.inline.head import Head
from penstock.notebook import HTML, TEXT
from tests.support.brokers import RunningBroker
from tests.support.frames import rows_for_all

STRING, LONG = Serdes.string(), Serdes.long()
TEXTS = Consumed.with_(STRING, STRING)

Row = tuple[int, str | None, str | None, int]
"""Partition, key, value, timestamp (ms)."""

Topic = Callable[..., str]


ON_ONE_BROKER = pytest.mark.one_broker


@pytest.fixture
def config(broker: RunningBroker) -> dict[str, Any]:
    return {"bootstrap.servers": broker.bootstrap_servers}


@pytest.fixture
def topic(config: Mapping[str, Any], unique_name: Callable[[str], str]) -> Topic:
    """Make a topic with records and return its name."""

    def make(base: str, rows: Iterable[Row] = (), partitions: int = 1, **topic_config: str) -> str:
        name = unique_name(base)
        admin, producer = ConfluentAdmin(StreamsConfig(config)), ConfluentProducer(StreamsConfig(config))
        admin.create_topics([NewTopic(name, partitions, config=topic_config)])
        for partition, key, value, timestamp in rows:
            producer.send(
                name,
                None if key is None else key.encode(),
                None if value is None else value.encode(),
                partition,
                timestamp,
            )
        producer.close()
        admin.close()
        return name

    return make


def read(head: Iterable[Record[Any, Any]]) -> list[tuple[Any, Any, int]]:
    return [(record.key, record.value, record.timestamp) for record in head]


def test_the_first_records_of_all_partitions_by_timestamp(topic: Topic, config: Mapping[str, Any]) -> None:
    name = topic("in", [(1, "b", "y z", 2_000), (0, "a", "x", 1_000), (0, "c", "u v w", 3_000)], partitions=2)
    stream = StreamsBuilder().stream(name, TEXTS).flat_map_values(str.split)
    assert read(stream.head(config=config)) == [
        ("a", "x", 1_000),
        ("b", "y", 2_000),
        ("b", "z", 2_000),
        *(("c", word, 3_000) for word in "uvw"),
    ]
    assert read(stream.head(2, config)) == [("a", "x", 1_000), ("b", "y", 2_000)]


@ON_ONE_BROKER
def test_it_shows_itself_and_is_a_table(topic: Topic, config: Mapping[str, Any]) -> None:
    name = topic("in", [(0, "a", "<1>", 1_000), (0, None, None, 2_000)])
    head = StreamsBuilder().stream(name, TEXTS).head(1, config)
    lines = head._repr_mimebundle_()[TEXT].splitlines()
    assert lines == [
        f"Head (records: 1, read: 1 of about 2 in {name})",
        "key  value  timestamp                headers",
        "'a'  '<1>'  1970-01-01 00:00:01.000  ()",
    ]
    assert repr(head).splitlines() == lines
    assert "<td>&#x27;&lt;1&gt;&#x27;</td>" in head._repr_mimebundle_()[HTML]
    assert rows_for_all(head) == [
        {"key": "a", "value": "<1>", "timestamp": datetime.fromtimestamp(1, UTC), "headers": []}
    ]
    assert head.to_polars()["value"].to_list() == head.to_pandas()["value"].to_list() == ["<1>"]
    assert (len(head), head[0].value, [record.key for record in head[:5]]) == (1, "<1>", ["a"])


def test_it_leaves_nothing_behind_and_changes_no_program(
    topic: Topic, config: Mapping[str, Any], tmp_path: Path
) -> None:
    def seen() -> set[str]:
        admin = AdminClient(dict(config))
        groups = admin.list_consumer_groups().result(timeout=30).valid
        topics = {topic for topic in admin.list_topics(timeout=30).topics if not topic.startswith("__")}
        return {*topics, *(f"group {group.group_id}" for group in groups)}

    name = topic("in", [(0, "a", "x y x", 1_000)])
    builder = StreamsBuilder()
    words = builder.stream(name, TEXTS).flat_map_values(str.split)
    counts = words.group_by(lambda key, word: word, Grouped.with_(STRING, STRING)).count(Materialized.as_("counts"))
    counts.to_stream().to(f"{name}-counts")
    before, program = seen(), str(builder.build().describe())
    assert read(counts.head(config={**config, "state.dir": str(tmp_path)})) == [
        ("x", 1, 1_000),
        ("y", 1, 1_000),
        ("x", 2, 1_000),
    ]
    assert read(words.head(1, config)) == read(words.head(1, config)) == [("a", "x", 1_000)]
    assert not seen() - before
    assert not list(tmp_path.iterdir())
    assert str(builder.build().describe()) == program


@ON_ONE_BROKER
def test_joins_have_what_they_need(topic: Topic, config: Mapping[str, Any]) -> None:
    users = topic("users", [(0, "ann", "Ann", 1_000), (1, "bob", "Bob", 5_000)], partitions=2)
    pages = topic("pages", [(0, "/", "home", 9_000)])
    clicks = topic("clicks", [(0, "ann", "/", 2_000), (0, "bob", "/", 2_000), (0, "bob", "/", 6_000)])
    builder = StreamsBuilder()
    named = builder.stream(clicks, TEXTS).left_join(builder.table(users, TEXTS), lambda page, user: f"{user} {page}")
    titles = builder.global_table(pages, TEXTS)
    titled = named.join(titles, lambda value, title: f"{value} {title}", key_selector=lambda key, value: value[-1])
    assert [record.value for record in titled.head(config=config)] == ["Ann / home", "None / home", "Bob / home"]


@ON_ONE_BROKER
def test_processors_read_stores_that_other_processors_write(topic: Topic, config: Mapping[str, Any]) -> None:
    class Writes(Processor[str, str, str, str]):
        def init(self, context: ProcessorContext[str, str]) -> None:
            self.store: Any = context.get_state_store("last")

        def process(self, record: Record[str, str]) -> None:
            self.store.put(record.key, record.value)

    class Reads(Writes):
        def init(self, context: ProcessorContext[str, str]) -> None:
            super().init(context)
            self.context = context

        def process(self, record: Record[str, str]) -> None:
            self.context.forward(record.with_value(self.store.get(record.key)))

    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value_store_builder(Stores.in_memory_key_value_store("last"), STRING, STRING))
    written = topic("written", [(0, "a", "1", 1_000), (0, "a", "2", 3_000)])
    asked = topic("asked", [(0, "a", "", 2_000), (0, "a", "", 4_000)])
    builder.stream(written, TEXTS).process(Writes, "last")
    builder.stream(topic("beside"), TEXTS).foreach(lambda key, value: pytest.fail("is not upstream"))
    assert [record.value for record in builder.stream(asked, TEXTS).process(Reads, "last").head(config=config)] == [
        "1",
        "2",
    ]


@ON_ONE_BROKER
def test_windowed_keys_and_objects_have_columns(topic: Topic, config: Mapping[str, Any]) -> None:
    @dataclass
    class Visit:
        page: str

    name = topic("in", [(0, "a", "x", 1_000)])
    stream: KStream[str, str] = StreamsBuilder().stream(name, TEXTS)
    windows = stream.group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(500)).count()
    assert pa.table(windows.head(config=config)).schema.names[:4] == ["key", "window_start", "window_end", "value"]
    shown = {
        "struct": stream.map_values(lambda value: {"page": value}),
        "object": stream.map_values(Visit),
        "mixed": stream.flat_map_values(lambda value: [1, value]),
        "id": stream.map_values(lambda value: uuid.UUID(int=1)),
    }
    values = {kind: pa.table(each.head(config=config)).column("value").to_pylist() for kind, each in shown.items()}
    assert values["struct"] == [{"page": "x"}]
    assert values["object"] == [{"page": "x"}]
    assert values["mixed"] == ["1", "x"]
    assert values["id"] == [str(uuid.UUID(int=1))]
    assert pa.table(stream.filter(lambda key, value: False).head(config=config)).num_rows == 0
    mixed = pa.table(stream.merge(windows.to_stream()).head(config=config))
    assert mixed.column("key").to_pylist() == ["a", "[a@1000/1500]"]


@ON_ONE_BROKER
def test_no_more_than_the_limit_is_read(topic: Topic, config: Mapping[str, Any]) -> None:
    name = topic("in", [(0, "a", str(number), number) for number in range(100)])
    calls: list[str] = []
    stream = StreamsBuilder().stream(name, TEXTS).peek(lambda key, value: calls.append(value))
    nothing = stream.filter(lambda key, value: False).head(config=config, max_records=10)
    assert len(nothing) == 0
    assert len(calls) == 10
    assert f"read: 10 of about 100 in {name}" in repr(nothing)
    assert stream.head(50, config)._repr_mimebundle_()[HTML].count("<tr>") == 51


@ON_ONE_BROKER
def test_patterns_and_empty_topics(topic: Topic, config: Mapping[str, Any]) -> None:
    name = topic("in", [(0, "a", "x", 1_000)])

    assert len(StreamsBuilder().stream(re.compile(re.escape(name)), TEXTS).head(config=config)) == 1
    assert len(StreamsBuilder().stream(topic("empty"), TEXTS).head(config=config)) == 0


@ON_ONE_BROKER
def test_the_environment_names_the_brokers(
    topic: Topic, config: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic("in", [(0, "a", "x", 1_000)])
    stream = StreamsBuilder().stream(name, TEXTS)
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP_SERVERS", config["bootstrap.servers"])
    assert isinstance(stream.head(), Head)


@ON_ONE_BROKER
def test_errors(topic: Topic, config: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_BOOTSTRAP_SERVERS", raising=False)
    name = topic("in", [(0, "a", "1", 1_000), (0, "a", "x", 2_000)])
    stream = StreamsBuilder().stream(name, TEXTS)
    with pytest.raises(ConfigError, match=r"bootstrap\.servers.*PENSTOCK_BOOTSTRAP_SERVERS"):
        stream.head()
    with pytest.raises(ValueError, match="n must be 1 or more, got 0"):
        stream.head(0, config)
    with pytest.raises(MissingSourceTopicError, match=f"{name}-missing"):
        StreamsBuilder().stream(f"{name}-missing", TEXTS).head(config=config)
    with pytest.raises(StreamsError) as failed:
        stream.map_values(int).head(config=config)
    assert f"This was the record at offset 1 of {name}-0." in failed.value.__notes__
    with pytest.raises(StreamsError, match=r"DataFrame\.show\(\)"):
        StreamsBuilder().stream_from(object(), TEXTS).head(config=config)
