"""Records for each example, and what the test driver makes of them: what every host must make of them too."""

from __future__ import annotations

import runpy
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from penstock.config import StreamsConfig
from penstock.plan.partitioning import partition_for
from penstock.plan.topology import Topology
from penstock.serdes import Serdes
from penstock.testing import TopologyTestDriver

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
DATA = ROOT / "tests" / "examples" / "data"
PARTITIONS = 3
"""Of each topic on threads and on Spark."""

TABLES = {"customers-by-city"}
"""Topics with the updates of a table that tasks for several partitions make at the same time."""

GROUPED_BY_KEY = {"delays-in-a-row"}
"""Applications that group by what is the key here: so records stay in their partitions behind a repartition, too."""


EACH_RESULT = {"statestore.cache.max.bytes": 0, "penstock.emit.interval.ms": 0}
"""No cache leaves out updates, and results without a partner are emitted when they are due."""

SECOND = 1_000
"""Timestamps begin after 0, which brokers take for none."""


class Piped(NamedTuple):
    """A record of an input topic, as bytes."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int


def partition_of(key: bytes | None) -> int:
    """Return the partition that a producer gives to a record on threads and on Spark."""
    assert key is not None
    return partition_for(key, PARTITIONS)


def rows(name: str, topic: str, key: Callable[[dict[str, Any]], str], time: Callable[[int, Any], int]) -> list[Piped]:
    """Return the rows of a file as records of `topic`; time: of the number of a row, and the row."""
    read = [(line, orjson.loads(line)) for line in (DATA / f"{name}.jsonl").read_bytes().splitlines()]
    return [Piped(topic, key(row).encode(), line, time(at, row)) for at, (line, row) in enumerate(read)]


def texts(topic: str, *records: tuple[str, str, int]) -> list[Piped]:
    return [Piped(topic, key.encode(), value.encode(), time) for key, value, time in records]


def numbers(topic: str, *records: tuple[str, int, int]) -> list[Piped]:
    serde = Serdes.integer()
    return [Piped(topic, key.encode(), serde.serialize(topic, value), time) for key, value, time in records]


def clicks(topic: str, *records: tuple[int, dict[str, Any], int]) -> list[Piped]:
    serde = Serdes.integer()
    return [Piped(topic, serde.serialize(topic, user), orjson.dumps(value), time) for user, value, time in records]


def flights(key: Callable[[dict[str, Any]], str]) -> list[Piped]:
    return rows("flights", "flights", key, lambda at, row: row["departed"])


INPUTS: Mapping[str, Sequence[Piped]] = {
    "word_count.py": texts("plaintext-input", ("k", "all is well", 1), ("k", "is it", 2)),
    "word_count_without_the.py": texts("wordcount-input", ("k", "All the is well!", 1), ("k", "Is it? The", 2)),
    "word_count_processor.py": texts("source-topic", ("k", "all is", 1000), ("k", "is", 1500), ("k", "it", 2100)),
    "database_changes.py": [
        *texts(
            "customers", ("1", '{"city":"Ulm"}', 1000), ("2", '{"city":"Ulm"}', 1100), ("1", '{"city":"Bonn"}', 1200)
        ),
        Piped("customers", b"2", None, 1400),
        *texts("orders", ("1", '{"item":"book"}', 1150), ("2", '{"item":"pen"}', 1300), ("2", '{"item":"ink"}', 1500)),
    ],
    "stock_market_statistics.py": rows(
        "stocks", "stocks", lambda row: row["ticker"], lambda at, row: SECOND + SECOND * at
    ),
    "click_stream_enrichment.py": [
        *clicks("clicks.user.profile", (1, {"name": "Mathias", "zipcode": "94301", "interests": ["surfing"]}, 1)),
        *clicks("clicks.search", (1, {"terms": "surf boards"}, SECOND), (1, {"terms": "later"}, 9 * SECOND)),
        *clicks("clicks.pages.views", (1, {"page": "wetsuits"}, 1500), (2, {"page": "board"}, 1600)),
    ],
    "flights_with_planes.py": [
        *flights(lambda row: f"{row['carrier']}{row['flight']}"),
        *rows("planes", "planes", lambda row: row["tailnum"], lambda at, row: 1_357_035_420_000 + 60_000 * at),
    ],
    "delays_in_a_row.py": flights(lambda row: row["origin"]),
    "wind_at_departure.py": [
        *flights(lambda row: row["origin"]),
        # one ms later: which of two topics comes first at equal timestamps is left to the host
        *rows("weather", "weather", lambda row: row["origin"], lambda at, row: row["observed"] + 1),
    ],
    "kip28/kstream_job.py": texts("topic1", ("a", "10", 1), ("b", "11", 2), ("c", "-3", 3)),
    "kip28/kstream_topology_job.py": texts("topic-source", ("a", "13", 1), ("b", "14", 2), ("c", "4", 3)),
    "kip28/processor_job.py": numbers("topic-source", ("a", 1, 100), ("b", 5, 200), ("a", 2, 1300), ("a", 2, 2500)),
    "kip28/stateful_process_job.py": numbers("topic-source", ("a", 6, 10), ("b", 5, 30), ("b", 20, 1100)),
    "kip28/windowed_join_job.py": [
        *texts("quotes", ("A", "q0", 3999), ("A", "q1", 4000), ("A", "q2", 4999)),
        *texts("trades", ("A", "t", 5000), ("B", "u", 5001)),
    ],
    "stores/sqlite_store.py": texts("orders", ("ann", "book", 1), ("bob", "pen", 2), ("ann", "ink", 3)),
}


class Program(NamedTuple):
    """What a program defines."""

    topology: Topology
    config: Mapping[str, Any]

    def topics(self) -> tuple[set[str], set[str]]:
        """Return the topics that the program reads or writes, and of these those that it writes; internal ones are left
        out."""
        built = self.topology.build("x")
        named = {topic for each in built.subtopologies for topic in (*each.source_topics, *each.sink_topics)}
        outputs = {topic for each in built.subtopologies for topic in each.sink_topics}
        return named - set(built.repartition_topics), outputs - set(built.repartition_topics)


def example(name: str) -> Program:
    """Return what an example defines."""
    defined = runpy.run_path(str(EXAMPLES / name), run_name="example")
    given = defined["config"]
    return Program(defined["topology"], given.given() if isinstance(given, StreamsConfig) else given)


def on_the_test_driver(program: Program, piped: Sequence[Piped]) -> dict[str, Counter[tuple[Any, ...]]]:
    """Return what each topic gets, as bytes (`seen`): of each partition alone, since each task has a stream time of its
    own, if records stay in their partitions; tables that every task reads get all of their records."""
    built = program.topology.build("x")
    read = {topic for each in built.subtopologies for topic in each.source_topics}
    stay = not built.repartition_topics or program.config["application.id"] in GROUPED_BY_KEY
    parts = range(PARTITIONS) if stay else [None]
    found: dict[str, Counter[tuple[Any, ...]]] = {}
    for part in parts:
        records = [each for each in piped if part in (None, partition_of(each.key)) or each.topic not in read]
        for topic, counted in _on_one_driver(program, records).items():
            found[topic] = found.get(topic, Counter()) + counted
    return found


def _on_one_driver(program: Program, piped: Sequence[Piped]) -> dict[str, Counter[tuple[Any, ...]]]:
    with TopologyTestDriver(program.topology, {**program.config, **EACH_RESULT}) as driver:
        for topic, key, value, timestamp in sorted(piped, key=lambda each: each.timestamp):
            driver.pipe_bytes(topic, key, value, timestamp)
        raw = Serdes.bytes()
        found = {}
        for topic in driver.produced_topic_names():
            records = driver.create_output_topic(topic, raw, raw).read_records_to_list()
            found[topic] = seen(topic, ((record.key, record.value, record.timestamp) for record in records))
        return found


def seen(topic: str, records: Iterable[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """Return what is compared of the records (key, value, timestamp) of a topic: all; of a table that several tasks
    update at the same time, the last value of each key."""
    return Counter({key: (key, value) for key, value, _ in records}.values() if topic in TABLES else records)
