"""`penstock run` and `penstock demo` as a user runs them, on Spark, and that they leave nothing behind."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client.api import NewTopic
from penstock.client.confluent import ConfluentAdmin, ConfluentFetcher
from penstock.config import StreamsConfig
from penstock.record import TopicPartition
from penstock.serdes import Serdes
from penstock_broker.process import BrokerProcess
from tests.support.commands import Command, penstock
from tests.support.plain_producer import PlainProducer
from tests.support.ports import free_port
from tests.support.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("cli-on-spark")]

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "word_count.py"
LINES = ["all streams lead to kafka", "hello kafka streams", "join kafka summit"]
FAILS = """
from penstock import Serdes, StreamsBuilder
config = {"default.key.serde": Serdes.string(), "default.value.serde": Serdes.string()}
def to_number(value):
    return int(value)
builder = StreamsBuilder()
builder.stream("plaintext-input").map_values(to_number, named="numbers").to("out")
topology = builder.build()
"""


DROPS = """
from penstock import Serdes, StreamsBuilder
config = {
    "application.id": "drops", "default.key.serde": Serdes.string(), "default.value.serde": Serdes.string(),
}
builder = StreamsBuilder()
builder.stream("plaintext-input").group_by_key().count()
topology = builder.build()
"""


@pytest.fixture
def broker_of_the_test(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker with the lines in the topic plaintext-input."""
    with BrokerProcess(tmp_path / "broker-data", port=free_port()) as broker:
        config = StreamsConfig({"bootstrap.servers": broker.bootstrap_servers})
        admin = ConfluentAdmin(config)
        admin.create_topics([NewTopic(name, 1) for name in ("plaintext-input", "word-count-output", "out")])
        admin.close()
        producer = PlainProducer(config)
        for line in LINES:
            producer.send("plaintext-input", None, line.encode())
        producer.close()
        yield broker


def counts(servers: str) -> dict[str, int]:
    """Return the latest count of each word in the topic word-count-output."""
    config = StreamsConfig({"bootstrap.servers": servers})
    partition = TopicPartition("word-count-output", 0)
    admin, fetcher = ConfluentAdmin(config), ConfluentFetcher(config)
    end = admin.end_offsets([partition])[partition]
    found: dict[str, int] = {}
    for batch in fetcher.fetch(partition, 0, end, read_committed=True):
        for key, value in zip(batch.keys, batch.values, strict=True):
            found[key.decode()] = Serdes.long().deserialize("", value)
    fetcher.close()
    admin.close()
    return found


def expected(lines: list[str]) -> Counter[str]:
    return Counter(word for line in lines for word in line.split())


def settings(broker: BrokerProcess, directory: Path) -> dict[str, str]:
    return {"PENSTOCK_BOOTSTRAP_SERVERS": broker.bootstrap_servers, "PENSTOCK_STATE_DIR": str(directory / "state")}


@pytest.mark.slow
def test_the_example_counts_what_is_there_continues_from_there_and_reports_a_broker_that_is_away(
    broker_of_the_test: BrokerProcess, tmp_path: Path
) -> None:
    environment = settings(broker_of_the_test, tmp_path)
    with Command(("run", str(EXAMPLE), "--until-end"), tmp_path, environment) as first:
        ended = first.ended()
        assert first.nothing_left()
    assert (ended.code, ended.out) == (0, "")
    *said, done = ended.err.splitlines()
    (promised,) = [line for line in said if not re.fullmatch(r"\d records read, \d left\.", line)]
    assert done.startswith("3 records read, ")
    for part in ("streams-wordcount: exactly_once_v2", broker_of_the_test.bootstrap_servers, str(tmp_path / "state")):
        assert part in promised
    assert counts(broker_of_the_test.bootstrap_servers) == expected(LINES)

    with Command(("run", str(EXAMPLE)), tmp_path, environment) as second:
        written = penstock(tmp_path, "produce", "plaintext-input", standard_input="hello again\n", **environment)
        assert written.code == 0
        whole = expected([*LINES, "hello again"])
        assert until(lambda: counts(broker_of_the_test.bootstrap_servers) == whole)
        broker_of_the_test.kill()
        absence = f"no broker of bootstrap.servers={broker_of_the_test.bootstrap_servers} has answered for"
        assert until(lambda: absence in second.output())
        broker_of_the_test.start()
        assert until(lambda: "answers again, after" in second.output())
        second.interrupt()
        assert second.ended().code == 130
        assert second.nothing_left()


@pytest.mark.slow
def test_a_users_own_program_lives_as_long_as_its_application(
    broker_of_the_test: BrokerProcess, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    body = EXAMPLE.read_text().partition("if __name__")[0]
    program.write_text(f"{body}\nKafkaStreams(topology, config).start()\nprint('the last line', flush=True)\n")
    environment = settings(broker_of_the_test, tmp_path)
    with Command((), tmp_path, environment, program=(str(program),)) as running:
        assert until(lambda: "the last line" in running.output())
        assert until(lambda: counts(broker_of_the_test.bootstrap_servers) == expected(LINES))
        running.interrupt()
        ended = running.ended()
        assert running.nothing_left()
    assert ended.code == 0
    assert "Traceback" not in ended.err


@pytest.mark.slow
def test_a_function_that_fails_is_reported_in_a_few_lines(broker_of_the_test: BrokerProcess, tmp_path: Path) -> None:
    program = tmp_path / "fails.py"
    program.write_text(FAILS)
    with Command(("run", str(program)), tmp_path, settings(broker_of_the_test, tmp_path)) as failing:
        ended = failing.ended()
        assert failing.nothing_left()
    assert ended.code == 1
    for part in ("numbers", "plaintext-input", "partition=0", "offset=0", "return int(value)", "ValueError"):
        assert part in ended.err
    assert "org.apache.spark" not in ended.err
    assert len(ended.err.splitlines()) < 30


def test_dropped_records_are_reported(broker_of_the_test: BrokerProcess, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(DROPS)
    arguments = ("run", str(program), "--until-end", "--host", "threads")
    with Command(arguments, tmp_path, settings(broker_of_the_test, tmp_path)) as command:
        ended = command.ended()
    assert ended.code == 0
    assert "drops dropped 3 records, 3 since its start: 3 null-key in " in ended.err
    assert "3 records read, 0 written, 3 dropped." in ended.err


def test_a_run_without_brokers_starts_its_own_and_ends_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    arguments = ("run", str(EXAMPLE), "--host", "threads", "--port", "0", "--data-dir", str(data))
    keys = ("-c", f"state.dir={tmp_path / 'state'}", "-c", "commit.interval.ms=100")
    with Command((*arguments, *keys), tmp_path) as running:
        assert until(lambda: "state" in running.output())
        assert f"its data is in {data}." in running.output()
        assert "Created topics plaintext-input, word-count-output." in running.output()
        servers = running.output().partition("A broker runs at ")[2].partition(" ")[0]
        penstock(tmp_path, "produce", "plaintext-input", "-b", servers, standard_input="a b a\n")
        assert until(lambda: counts(servers) == {"a": 2, "b": 1})
        running.terminate()
        assert running.ended().code == 143
        assert running.nothing_left()


ENRICHES = """
from penstock import Serdes, StreamsBuilder

builder = StreamsBuilder()
names = builder.global_table("names")
joined = builder.stream("events").join(names, lambda event, name: name, key_selector=lambda key, event: event)
joined.to("named-events")
topology = builder.build()
config = {
    "application.id": "enriches",
    "default.key.serde": Serdes.string(),
    "default.value.serde": Serdes.string(),
    "errors.dead.letter.queue.topic.name": "dead-letters",
}
"""


def test_a_run_without_brokers_creates_the_topics_of_global_tables_and_of_dead_letters_too(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(ENRICHES)
    arguments = ("run", str(program), "--host", "threads", "--port", "0", "--data-dir", str(tmp_path / "data"))
    with Command((*arguments, "--until-end", "-c", f"state.dir={tmp_path / 'state'}"), tmp_path) as command:
        ended = command.ended()
    assert ended.code == 0, ended.err
    assert "Created topics dead-letters, events, named-events, names." in ended.err


@pytest.mark.slow
def test_ctrl_c_during_the_demo_leaves_no_process_and_the_next_one_counts_exactly(tmp_path: Path) -> None:
    with Command(("demo", "--data-dir", str(tmp_path / "demo")), tmp_path) as demo:
        assert until(lambda: "streams-wordcount:" in demo.output())
        assert len(demo.processes()) > 2
        demo.interrupt()
        ended = demo.ended()
        assert ended.code == 130
        assert "Traceback" not in ended.err
        assert demo.nothing_left()
    with Command(("demo", "--repeat", "1", "--data-dir", str(tmp_path / "demo")), tmp_path) as demo:
        ended = demo.ended()
        assert demo.nothing_left()
    assert ended.code == 0, ended.err
    assert "Every count equals a plain count of the text, and each update is in the topic exactly once." in ended.out
    assert "Where to look next" in ended.out


@pytest.mark.slow
def test_ctrl_c_while_the_jvm_starts_leaves_no_process(broker_of_the_test: BrokerProcess, tmp_path: Path) -> None:
    servers = f"bootstrap.servers={broker_of_the_test.bootstrap_servers}"
    with Command(("run", str(EXAMPLE), "--config", servers, "--config", f"state.dir={tmp_path}"), tmp_path) as command:
        assert until(lambda: any(b"SparkSubmit" in line for line in command.command_lines()))
        command.interrupt()
        assert command.ended().code == 130
        assert command.nothing_left()


SLOW = """
import time
from penstock import Produced, Serdes, StreamsBuilder
config = {"application.id": "slow", "default.key.serde": Serdes.string(), "default.value.serde": Serdes.string()}
def slow(value):
    print("at work", flush=True)
    time.sleep(1)
    return value
def words(value):
    return value.lower().split()
builder = StreamsBuilder()
lines = builder.stream("plaintext-input").map_values(slow)
counts = lines.flat_map_values(words).group_by(lambda key, word: word).count()
counts.to_stream().to("word-count-output", Produced.with_(Serdes.string(), Serdes.long()))
topology = builder.build()
"""


@pytest.mark.slow
def test_ctrl_c_twice_gives_the_epoch_up_leaves_no_process_and_loses_nothing(
    broker_of_the_test: BrokerProcess, tmp_path: Path
) -> None:
    program, environment = tmp_path / "slow.py", settings(broker_of_the_test, tmp_path)
    program.write_text(SLOW)
    more = [f"line {number}" for number in range(30)]
    text = "\n".join(more) + "\n"
    assert penstock(tmp_path, "produce", "plaintext-input", standard_input=text, **environment).code == 0
    with Command(("run", str(program)), tmp_path, environment) as command:
        assert until(lambda: "slow:" in command.output())
        command.interrupt()
        assert until(lambda: "Ctrl-C again gives that commit up" in command.output())
        command.interrupt()
        ended = command.ended()
        assert ended.code == 130
        assert "Traceback" not in ended.err
        assert command.nothing_left()
    fast = program.read_text().replace("time.sleep(1)", "pass")
    program.write_text(fast)
    assert penstock(tmp_path, "run", str(program), "--until-end", **environment).code == 0
    assert counts(broker_of_the_test.bootstrap_servers) == expected([*LINES, *more])


def test_a_directory_with_other_things_in_it_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    refused = penstock(tmp_path, "demo", "--data-dir", str(tmp_path / "mine"))
    assert refused.code == 1
    assert "thesis.txt" in refused.err
    assert (tmp_path / "mine" / "thesis.txt").exists()


@pytest.mark.slow
def test_without_java_the_demo_says_what_to_install(tmp_path: Path) -> None:
    refused = penstock(tmp_path, "demo", "--repeat", "1", "--data-dir", str(tmp_path / "demo"), PATH="/nowhere")
    assert refused.code == 1
    assert "Java 17" in refused.err
    assert "penstock demo --host threads" in refused.err
    assert "Traceback" not in refused.err
