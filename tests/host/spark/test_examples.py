"""Each example runs on Spark and gives the results of the test driver, as does the topology of docs/topologies.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import orjson
import pytest

from penstock.config import StreamsConfig
from penstock_broker.process import BrokerProcess
from tests.docs.pages import run_blocks
from tests.examples.inputs import (
    EACH_RESULT,
    EXAMPLES,
    INPUTS,
    PARTITIONS,
    Piped,
    Program,
    example,
    on_the_test_driver,
    partition_of,
    seen,
)
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord, run_to_end

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[str]:
    """The address of a broker of the test's own: examples share names of topics."""
    with BrokerProcess(tmp_path / "broker", auto_create_topics=False) as broker:
        yield broker.bootstrap_servers


def check_on_spark(program: Program, piped: Sequence[Piped], runner: SparkRunner, servers: str, tmp_path: Path) -> None:
    """Assert that each topic gets on Spark what it gets on the test driver."""
    expected = on_the_test_driver(program, piped)
    here = SparkRunner(servers, tmp_path)
    try:
        topics, outputs = program.topics()
        topics |= {each.topic for each in piped}  # topics of global tables too
        here.create_topics(dict.fromkeys([*topics, *expected.keys() & {"topic-sink"}], PARTITIONS))
        for topic in {each.topic for each in piped}:
            ordered = sorted((each for each in piped if each.topic == topic), key=lambda each: each.timestamp)
            here.write(topic, [InputRecord(key, value, time, partition_of(key)) for _, key, value, time in ordered])
        config: StreamsConfig = here.config(str(program.config["application.id"]), {**program.config})
        sources = {topic for each in program.topology.build("x").subtopologies for topic in each.source_topics}
        for _ in range(2 if sources & outputs else 1):  # a run reads to the ends that topics have when it starts
            run_to_end(here.host(program.topology, config.overridden(EACH_RESULT), True, runner.session))
        for topic in outputs:
            found = seen(topic, ((record.key, record.value, record.timestamp) for record in here.read(topic)))
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
    check_on_spark(example(name), INPUTS[name], spark_runner, own_broker, tmp_path)


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
