"""Each example runs on Spark and gives the results of the test driver, as does the topology of docs/topologies.md."""

from __future__ import annotations

import runpy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest

from penstock.broker.process import BrokerProcess
from penstock.config import StreamsConfig
from penstock.plan.topology import Topology
from penstock.serdes import Serdes
from penstock.testing import TopologyTestDriver
from tests.docs.pages import run_blocks
from tests.host.spark.support import InputRecord, SparkRunner

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
DATA = ROOT / "tests" / "examples" / "data"
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
    "delays_in_a_row.py": flights(lambda row: str(row["flight"])),
    "wind_at_departure.py": [
        *flights(lambda row: row["origin"]),
        *rows("weather", "weather", lambda row: row["origin"], lambda at, row: row["observed"]),
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


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[str]:
    """The address of a broker of the test's own: examples share names of topics."""
    with BrokerProcess(tmp_path / "broker", auto_create_topics=False) as broker:
        yield broker.bootstrap_servers


def on_the_test_driver(program: Program, piped: Sequence[Piped]) -> dict[str, Counter[tuple[Any, ...]]]:
    """Return what each topic gets, as bytes."""
    with TopologyTestDriver(program.topology, {**program.config, **EACH_RESULT}) as driver:
        for topic, key, value, timestamp in sorted(piped, key=lambda each: each.timestamp):
            driver.pipe_bytes(topic, key, value, timestamp)
        raw = Serdes.bytes()
        found = {}
        for topic in driver.produced_topic_names():
            records = driver.create_output_topic(topic, raw, raw).read_records_to_list()
            found[topic] = Counter((record.key, record.value, record.timestamp) for record in records)
        return found


def check_on_spark(program: Program, piped: Sequence[Piped], runner: SparkRunner, servers: str, tmp_path: Path) -> None:
    """Assert that each topic gets on Spark what it gets on the test driver."""
    expected = on_the_test_driver(program, piped)
    here = SparkRunner(servers, tmp_path)
    try:
        built = program.topology.build("x")
        named = {topic for each in built.subtopologies for topic in (*each.source_topics, *each.sink_topics)}
        outputs = {topic for each in built.subtopologies for topic in each.sink_topics} - set(built.repartition_topics)
        topics = named - set(built.repartition_topics)
        topics |= {each.topic for each in piped}  # topics of global tables too
        here.create_topics(dict.fromkeys([*topics, *expected.keys() & {"topic-sink"}], 1))
        for topic in {each.topic for each in piped}:
            ordered = sorted((each for each in piped if each.topic == topic), key=lambda each: each.timestamp)
            here.write(topic, [InputRecord(key, value, time) for _, key, value, time in ordered])
        config: StreamsConfig = here.config(str(program.config["application.id"]), {**program.config})
        sources = {topic for each in built.subtopologies for topic in each.source_topics}
        for _ in range(2 if sources & outputs else 1):  # a run reads to the ends that topics have when it starts
            here.run(program.topology, config.overridden(EACH_RESULT), session=runner.session)
        for topic in outputs:
            found = Counter((record.key, record.value, record.timestamp) for record in here.read(topic))
            assert found == expected.get(topic, Counter()), topic
    finally:
        here.close()


def test_each_example_has_records() -> None:
    assert INPUTS.keys() == {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.py")}


@pytest.mark.slow
@pytest.mark.one_broker
@pytest.mark.parametrize("name", INPUTS)
def test_an_example_runs_on_spark(
    name: str, spark_runner: SparkRunner, own_broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # of the store in a file
    defined = runpy.run_path(str(EXAMPLES / name), run_name="example")
    given = defined["config"]
    program = Program(defined["topology"], given.given() if isinstance(given, StreamsConfig) else given)
    check_on_spark(program, INPUTS[name], spark_runner, own_broker, tmp_path)


@pytest.mark.one_broker
def test_the_topology_of_the_documentation_runs_on_spark(
    spark_runner: SparkRunner, own_broker: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = run_blocks("docs/topologies.md")
    capsys.readouterr()
    piped = [
        Piped("companies", b"ABC", orjson.dumps({"name": "Abc Inc"}), 1),
        *(
            Piped("trades", b"ABC", orjson.dumps({"ticker": "ABC", "price": price}), time)
            for price, time in ((1.0, 1000), (3.0, 2000), (4.0, 200_000))
        ),
    ]
    program = Program(names["topology"], {"application.id": "page"})
    check_on_spark(program, piped, spark_runner, own_broker, tmp_path)
