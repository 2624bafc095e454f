"""A tap shows the last records that reach a node of a running application, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock import Consumed, KafkaStreams, Materialized, Produced, Serdes, StreamsBuilder, Topology
from penstock.client.api import NewTopic
from penstock.client.confluent import ConfluentAdmin
from penstock.config import StreamsConfig
from penstock.errors import StreamsError, StreamsNotStartedError, UnsupportedOperationError
from penstock.notebook import HTML, TEXT
from penstock_broker.process import BrokerProcess
from tests.host.support import wait_for
from tests.support.frames import rows_for_all
from tests.support.plain_producer import PlainProducer

STRING = Serdes.string()


@dataclass(frozen=True)
class Word:
    """A value of a class of the program."""

    text: str


def topology(topic: str) -> Topology:
    builder = StreamsBuilder()
    builder.global_table(f"{topic}-table", Consumed.with_(STRING, STRING), Materialized.as_("all"))
    words = builder.stream(topic, Consumed.with_(STRING, STRING)).map_values(Word, named="words")
    words.map_values(lambda word: word.text.upper(), named="upper").to(
        f"{topic}-out", Produced.with_(STRING, STRING).with_name("written")
    )
    return builder.build()


class Application:
    """Shouts words on the threads host."""

    def __init__(self, brokers: str, topic: str, directory: Path, workers: int) -> None:
        self._config, self.topic = StreamsConfig({"bootstrap.servers": brokers}), topic
        admin = ConfluentAdmin(self._config)
        admin.create_topics([NewTopic(topic, 2), NewTopic(f"{topic}-out", 1), NewTopic(f"{topic}-table", 1)])
        admin.close()
        config = {
            "application.id": topic,
            "bootstrap.servers": brokers,
            "penstock.host": "threads",
            "num.stream.threads": workers,
            "state.dir": str(directory),
            "commit.interval.ms": 50,
        }
        self.streams = KafkaStreams(topology(topic), config)

    def write(self, *values: str) -> None:
        producer = PlainProducer(self._config)
        for number, value in enumerate(values):
            producer.send(self.topic, b"k", value.encode(), number % 2, 1_000 + number)
        producer.close()


@pytest.fixture
def application(
    embedded_broker: BrokerProcess, unique_name: Callable[[str], str], tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Application]:
    made = Application(embedded_broker.bootstrap_servers, unique_name("in"), tmp_path, getattr(request, "param", 1))
    yield made
    made.streams.close()


@pytest.mark.parametrize("application", [1, pytest.param(2, marks=pytest.mark.slow)], indirect=True)
def test_a_tap_shows_the_last_records_until_it_is_closed(application: Application) -> None:
    with pytest.raises(StreamsNotStartedError):
        application.streams.tap("upper")
    with application.streams as streams:
        wait_for(lambda: streams.task_metadata() if streams.state().value == "RUNNING" else None)
        with streams.tap("upper", n=3) as tap:
            application.write("a", "b", "c", "d")
            wait_for(lambda: {"c", "d"} <= {record.value.text for record in tap.records()})
            assert len(tap) == 3
            shown = tap._repr_mimebundle_()
            assert shown[TEXT].startswith("Tap of upper (records: 3, state: open)")
            assert "Word(text=" in shown[HTML]
        assert not tap.is_open
        application.write("e")
        written = streams.tap("written")
        application.write("f")
        wait_for(lambda: "F" in written.to_arrow()["value"].to_pylist())
        assert "e" not in {record.value.text for record in tap.records()}
        frame = written.to_arrow()
        assert frame.column_names == ["key", "value", "timestamp", "headers", "task", "topic", "partition", "offset"]
        last = frame.to_pylist()[-1]
        assert (last["key"], last["task"], last["topic"], last["partition"], last["offset"]) == (
            "k", "1_0", application.topic, 0, 3,
        )  # fmt: skip
        again = streams.tap("written")  # as a cell that is run again
        assert (written.is_open, again.is_open) == (False, True)
    frame = written.to_arrow()  # what was seen before it was closed
    assert rows_for_all(written) == frame.to_pylist()
    assert written.to_polars()["value"].to_list() == frame["value"].to_pylist()
    assert {row["value"] for row in rows_for_all(tap)} <= {f"Word(text={letter!r})" for letter in "abcd"}
    again.close()
    assert again.records() == []


def test_what_cannot_be_tapped_is_refused(application: Application) -> None:
    with application.streams as streams:
        wait_for(lambda: streams.state().value == "RUNNING")
        with pytest.raises(StreamsError, match=r"no node 'lower'\. It has: KSTREAM-SOURCE.*, words, upper, written"):
            streams.tap("lower")
        with pytest.raises(UnsupportedOperationError, match="fills a global store"):
            streams.tap("KTABLE-SOURCE-0000000001")
        with pytest.raises(ValueError, match="n must be 1 or more, got 0"):
            streams.tap("upper", n=0)
