"""Commands about topics and records, on the embedded broker: in this process where nothing speaks against it."""

from __future__ import annotations

import io
import json
import re
import socket
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from typer.core import TyperGroup

from penstock.client.api import OffsetAndMetadata
from penstock.client.confluent import ConfluentAdmin
from penstock.config import StreamsConfig
from penstock.errors import StreamsError
from penstock.host.api import STATE_ELSEWHERE, HostStatistics
from penstock.record import TopicPartition
from penstock.tools.cli import main as commands
from penstock.tools.cli import records
from penstock.tools.cli.common import parsed_settings
from penstock.tools.cli.program import load_program
from penstock.tools.cli.run import showing_progress
from penstock_broker.process import BrokerProcess
from tests.support.commands import Command, Ended, Run, penstock
from tests.support.waiting import until


@pytest.fixture
def run(embedded_broker: BrokerProcess, penstock_here: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in this process with the broker's address in the environment."""
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP_SERVERS", embedded_broker.bootstrap_servers)
    return penstock_here


def test_topics_from_their_creation_to_their_end(run: Run, unique_name: Callable[[str], str]) -> None:
    name = unique_name("t")
    created = run("topics", "create", name, "-p", "3", "--topic-config", "segment.bytes=1048576")
    assert (created.code, created.out) == (0, f"Created topic {name} with 3 partitions.\n")
    assert name in run("topics", "list").out
    described = run("topics", "describe", name).out
    assert f"{name}: 3 partitions; configuration: segment.bytes=1048576" in described
    again = run("topics", "create", name)
    assert again.code == 1
    assert name in again.err
    assert "Traceback" not in again.err
    assert run("topics", "delete", name).code == 0
    run("topics", "create", name)
    assert f"{name}: 1 partition; configuration: the defaults of the broker" in run("topics", "describe", name).out
    assert run("topics", "delete", name).code == 0
    assert run("topics", "delete", name).code == 1


def test_topics_that_exist_or_are_missing_do_not_stop_the_others(run: Run, unique_name: Callable[[str], str]) -> None:
    known, new = unique_name("t"), unique_name("t")
    run("topics", "create", known)
    created = run("topics", "create", known, new)
    assert (created.code, created.out) == (1, f"Created topic {new} with 1 partition.\n")
    assert f"'{known}' already exists" in created.err
    missing = unique_name("t")
    deleted = run("topics", "delete", missing, known, new)
    assert (deleted.code, deleted.out) == (1, f"Deleted topic {known}.\nDeleted topic {new}.\n")
    assert missing in deleted.err


def test_an_error_that_ends_a_command_does_not_hide_what_was_done(run: Run, unique_name: Callable[[str], str]) -> None:
    name = unique_name("t")
    ended = run("topics", "create", name, "no name", unique_name("t"), "--json")
    assert (ended.code, json.loads(ended.out)) == (1, {"created": [name]})
    assert "no name" in ended.err


def test_lines_become_records_and_records_become_lines(run: Run, unique_name: Callable[[str], str]) -> None:
    name = unique_name("t")
    run("topics", "create", name)
    lines = "a:1\nnull:2\nb:null\n"
    written = run("produce", name, "--key-separator", ":", standard_input=lines)
    assert (written.code, written.err) == (0, f"Wrote 3 records to {name}.\n")
    read = run("consume", name, "--from-beginning", "--max-messages", "3")
    assert (read.code, read.out) == (0, "a\t1\nnull\t2\nb\tnull\n")


def test_lines_end_as_on_any_system(run: Run, unique_name: Callable[[str], str]) -> None:
    name = unique_name("t")
    run("topics", "create", name)
    lines = "\ufeffa:1\r\nb:null\r\nc:3\rd:\n"
    assert run("produce", name, "--key-separator", ":", standard_input=lines).err == f"Wrote 4 records to {name}.\n"
    assert run("produce", name, "--json", standard_input='{"key": "e"}\r\n').code == 0
    read = run("consume", name, "--from-beginning", "--max-messages", "5", "--json")
    shown = [json.loads(line) for line in read.out.splitlines()]
    expected = [("a", "1"), ("b", None), ("c", "3"), ("d", ""), ("e", None)]
    assert [(each["key"], each["value"]) for each in shown] == expected


def test_a_line_that_is_not_utf_8_is_named() -> None:
    text = "good\nä\n".encode() + "caf\xe9\n".encode("latin-1")
    lines = records._lines(io.TextIOWrapper(io.BytesIO(text)))
    assert [next(lines), next(lines)] == ["good", "ä"]
    with pytest.raises(StreamsError, match=r"Line 3 is not UTF-8: it has the byte 0xe9 after 'caf'\. .*iconv"):
        next(lines)


def test_a_topic_that_does_not_exist_is_created_only_if_asked(run: Run, unique_name: Callable[[str], str]) -> None:
    name = unique_name("orders")
    run("topics", "create", name)
    for command in (["produce"], ["consume", "--timeout-ms", "1"]):
        refused = run(*command, name[:-1], standard_input="x\n")
        assert refused.code == 1
        assert f"There is no topic '{name[:-1]}' at" in refused.err
        assert f"did you mean {name}?" in refused.err
    written = run("produce", name[:-1], "--create", standard_input="x\n")
    assert (written.code, written.err) == (0, f"Created topic {name[:-1]}.\nWrote 1 record to {name[:-1]}.\n")


def test_a_tab_between_key_and_value_may_be_two_characters(run: Run, unique_name: Callable[[str], str]) -> None:
    name = unique_name("t")
    run("topics", "create", name)
    assert run("produce", name, "--key-separator", r"\t", standard_input="a\t1\n").code == 0
    read = run("consume", name, "--from-beginning", "--max-messages", "1", "--key-separator", r"\t=\t")
    assert (read.code, read.out) == (0, "a\t=\t1\n")


@pytest.mark.parametrize(
    ("serde", "texts"),
    [
        ("string", ["a", "", "ü"]),
        ("bytes", ["00ff", "61"]),
        ("integer", ["-5", "7"]),
        ("long", ["-5", "9000000000"]),
        ("double", ["0.5", "1e+20"]),
        ("json", ['{"a":[1,null]}', '"x"']),
    ],
)
def test_every_serde_reads_what_it_wrote(
    run: Run, unique_name: Callable[[str], str], serde: str, texts: list[str]
) -> None:
    name = unique_name("t")
    run("topics", "create", name)
    assert run("produce", name, "--value-serde", serde, standard_input="\n".join(texts) + "\n").code == 0
    read = run("consume", name, "--from-beginning", "--value-serde", serde, "--max-messages", str(len(texts)))
    assert read.out.splitlines() == [f"null\t{text}" for text in texts]


def test_text_that_is_no_value_is_one_line_of_error(run: Run, unique_name: Callable[[str], str]) -> None:
    name = unique_name("t")
    run("topics", "create", name)
    refused = run("produce", name, "--value-serde", "long", standard_input="five\n")
    assert refused.code == 1
    assert f"Cannot write 'five' to '{name}' as long" in refused.err
    without_key = run("produce", name, "--key-separator", "|", standard_input="x\n")
    assert without_key.code == 1
    assert "Line 1 has no key" in without_key.err


def test_bytes_that_are_no_value_are_named_with_their_record_and_the_option(
    run: Run, unique_name: Callable[[str], str]
) -> None:
    name = unique_name("t")
    run("topics", "create", name)
    run("produce", name, standard_input="five\n")
    refused = run("consume", name, "--from-beginning", "--value-serde", "long", "--max-messages", "1")
    assert refused.code == 1
    told = " ".join(refused.err.split())
    assert f"Cannot read the value b'five' of the record at topic {name}, partition 0, offset 0 as long" in told
    assert "--value-serde" in told


def test_headers_and_timestamps_are_written_and_shown(run: Run, unique_name: Callable[[str], str]) -> None:
    name = unique_name("t")
    run("topics", "create", name)
    given = ("--timestamp", "1500", "-H", "trace=a=b", "-H", "trace=null")
    assert run("produce", name, *given, standard_input="x\n").code == 0
    assert run("produce", name, "--timestamp", "1600", standard_input="y\n").code == 0
    shown = ("--print", "headers", "--print", "offset", "--print", "timestamp", "--print", "partition")
    read = run("consume", name, "--from-beginning", "--max-messages", "2", *shown)
    assert read.out.splitlines() == [
        "Timestamp:1500\tPartition:0\tOffset:0\ttrace:a=b,trace:null\tnull\tx",
        "Timestamp:1600\tPartition:0\tOffset:1\tNO_HEADERS\tnull\ty",
    ]
    refused = run("produce", name, "-H", "trace", standard_input="x\n")
    assert refused.code == 2
    assert "expected NAME=VALUE, got 'trace'" in refused.err


@pytest.mark.parametrize(
    ("serde", "value"),
    [
        ("string", "null"),
        ("bytes", "00ff"),
        ("long", 9_000_000_000),
        ("double", 0.5),
        ("double", "nan"),
        ("boolean", False),
        ("uuid", "0c8e1a5e-6c1e-4b5b-9d5c-5b8a6f3c1d2e"),
        ("json", {"a": [1, None]}),
        ("json", "5"),
        ("string", None),
    ],
)
def test_records_in_json_are_copied_with_all_they_have(
    run: Run, unique_name: Callable[[str], str], serde: str, value: Any
) -> None:
    one, other = unique_name("t"), unique_name("t")
    run("topics", "create", one, other)
    serdes = ("--value-serde", serde, "--header-serde", "bytes")
    record = {"key": "k\t1", "value": value, "timestamp": 1500, "headers": [["a", "00ff"], ["a", None]]}
    assert run("produce", one, "--json", *serdes, standard_input=json.dumps(record) + "\n{}\n").code == 0
    shown = run("consume", one, "--from-beginning", "--max-messages", "2", "--json", *serdes).out
    assert json.loads(shown.splitlines()[0]) == {"topic": one, "partition": 0, "offset": 0, **record}
    assert run("produce", other, "--json", *serdes, standard_input=shown).code == 0
    copied = run("consume", other, "--from-beginning", "--max-messages", "2", "--json", *serdes).out
    assert copied.replace(other, one) == shown


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("five", "Line 2 is not JSON"),
        ("[]", "Line 2 is not a record: expected an object with key, value, timestamp, headers"),
        ('{"vlaue": "x"}', "Line 2 is not a record"),
        ('{"timestamp": 9223372036854775808}', "Line 2 has the timestamp 9223372036854775808"),
        ('{"timestamp": "now"}', "Line 2 has the timestamp 'now': expected milliseconds"),
        ('{"timestamp": -1}', "Line 2 has the timestamp -1"),
        ('{"headers": {"a": "b"}}', """Line 2 has the headers {'a': 'b'}: expected a list of pairs"""),
        ('{"value": []}', "Cannot write '[]' to"),
    ],
)
def test_a_line_that_is_no_record_in_json_is_named(
    run: Run, unique_name: Callable[[str], str], line: str, expected: str
) -> None:
    name = unique_name("t")
    run("topics", "create", name)
    refused = run("produce", name, "--json", "--value-serde", "long", standard_input=f'{{"value": 1}}\n{line}\n')
    assert refused.code == 1
    assert expected in " ".join(refused.err.split())
    assert f"Wrote 1 record to {name}." in refused.err


def test_consume_waits_for_records_that_come(
    embedded_broker: BrokerProcess, run: Run, tmp_path: Path, unique_name: Callable[[str], str]
) -> None:
    name = unique_name("t")
    run("topics", "create", name)
    run("produce", name, standard_input="before\n")
    arguments = ("consume", name, "--max-messages", "1", "-b", embedded_broker.bootstrap_servers)
    with Command(arguments, tmp_path) as consuming:

        def seen() -> bool:
            run("produce", name, standard_input="after\n")
            return "after" in consuming.output()

        assert until(seen)
        assert consuming.ended().out == "null\tafter\n"


def test_ctrl_c_ends_consume_in_order(
    embedded_broker: BrokerProcess, run: Run, tmp_path: Path, unique_name: Callable[[str], str]
) -> None:
    name = unique_name("t")
    run("topics", "create", name)
    run("produce", name, standard_input="x\n")
    arguments = ("consume", name, "--from-beginning", "-b", embedded_broker.bootstrap_servers)
    with Command(arguments, tmp_path) as consuming:
        assert until(lambda: "x" in consuming.output())
        consuming.interrupt()
        ended = consuming.ended()
    assert (ended.code, ended.err) == (130, f"1 record of {name}.\n")


def test_missing_topics_and_brokers_without_an_answer_are_named(run: Run) -> None:
    missing = run("consume", "nowhere")
    assert missing.code == 1
    assert "There is no topic 'nowhere'" in missing.err
    assert "penstock topics create nowhere" in missing.err
    illegal = run("consume", "in,in2")
    assert illegal.code == 1
    assert "'in,in2' cannot be the name of a topic: it has characters other than" in illegal.err
    silent = run("topics", "list", "-b", "127.0.0.1:1")
    assert silent.code == 1
    assert "127.0.0.1:1" in silent.err
    assert "penstock broker" in silent.err
    assert len(silent.err.strip().splitlines()) == 1


def test_a_traceback_is_shown_on_request(penstock_here: Run) -> None:
    assert "Traceback" not in penstock_here("describe", "nowhere.py").err
    assert "Traceback" in penstock_here("-v", "describe", "nowhere.py").err


def test_wrong_usage_has_its_own_code(penstock_here: Run) -> None:
    assert penstock_here("topics", "create").code == 2
    assert penstock_here("topics", "list", "--config", "novalue").code == 2


def test_help_knows_each_command_and_loads_none(penstock_here: Run, tmp_path: Path) -> None:
    heavy = ("confluent_kafka", "kio", "numpy", "pandas", "pyarrow", "pyspark")
    program = (
        "import sys; sys.argv = ['penstock', '--help']; import penstock.tools.cli.main as m\ntry: m.main()\nfinally: "
    )
    program += f"print('loaded', [each for each in {heavy} if each in sys.modules])"
    with Command((), tmp_path, program=("-c", program)) as command:
        shown = command.ended().out
    assert "loaded []" in shown
    commands = [line.split()[1] for line in shown.splitlines() if line.startswith("│ ") and line[2].isalpha()]
    assert "run" in commands
    assert "savepoint" in commands
    for name in commands:
        ended = penstock_here(name, "--help")
        assert ended.code == 0, name
        assert re.search(rf"Usage: .* {name} ", ended.out)


def test_a_command_that_does_not_exist_is_wrong_usage(penstock_here: Run) -> None:
    ended = penstock_here("rnu")
    assert ended.code == 2
    assert "No such command 'rnu'" in ended.err


def test_the_broker_runs_until_ctrl_c(tmp_path: Path) -> None:
    arguments = ("broker", "--data-dir", str(tmp_path / "data"), "--port", "0", "--schema-registry-port", "0")
    with Command(arguments, tmp_path) as broker:
        assert until(lambda: "The schema registry is http://127.0.0.1:" in broker.output())
        address = broker.output().partition("Listening at ")[2].partition(";")[0]
        assert penstock(tmp_path, "topics", "create", "kept", "-b", address).code == 0
        second = penstock(tmp_path, "broker", "--data-dir", str(tmp_path / "data"), "--port", "0")
        assert second.code == 1
        assert "in use by another broker" in second.err
        broker.interrupt()
        assert broker.ended().code == 0
        assert broker.nothing_left()


def test_run_beside_a_broker_that_is_there_says_how_to_use_it(
    run: Run, embedded_broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PENSTOCK_BOOTSTRAP_SERVERS")
    port = embedded_broker.bootstrap_servers.rpartition(":")[2]
    example = Path(__file__).resolve().parents[3] / "examples" / "word_count.py"
    refused = run("run", str(example), "--port", port, "--data-dir", str(tmp_path))
    assert refused.code == 1
    assert f"port {port} of 127.0.0.1 is in use" in refused.err
    assert "--config bootstrap.servers=HOST:PORT" in refused.err


@pytest.mark.parametrize("host", ["spark", "threads"])
def test_a_key_that_does_not_exist_is_reported_before_a_broker_runs(
    penstock_here: Run, tmp_path: Path, host: str
) -> None:
    example = Path(__file__).resolve().parents[3] / "examples" / "word_count.py"
    data = tmp_path / "data"
    wrong = ("--config", "fetch.max.bites=1")
    refused = penstock_here("run", str(example), "--host", host, "--port", "0", "--data-dir", str(data), *wrong)
    assert refused.code == 1
    assert "Unknown configuration fetch.max.bites: did you mean fetch.max.bytes?" in refused.err
    assert not data.exists()


def test_a_port_in_use_is_reported(penstock_here: Run, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = penstock_here("broker", "--data-dir", str(tmp_path / "data"), "--port", str(port))
    assert refused.code == 1
    assert str(port) in refused.err
    assert "in use" in refused.err


def test_describe_is_kafkas_text(penstock_here: Run) -> None:
    example = Path(__file__).resolve().parents[3] / "examples" / "word_count.py"
    described = penstock_here("describe", str(example))
    assert (described.code, described.out) == (0, str(load_program(example).topology.describe()))
    assert "Processor: KSTREAM-AGGREGATE-0000000003 (stores: [counts-store])" in described.out


@pytest.mark.parametrize(
    "name", ["run", "dev", "lineage", "query", "ui", "diff", "takeover", "reset", "recover", "produce", "consume"]
)
def test_brokers_are_given_to_every_command_by_the_same_option(name: str) -> None:
    context = commands.command(name).make_context(name, ["x", "-b", "host:1"])
    assert context.params["servers"] == "host:1"
    assert parsed_settings(["bootstrap.servers=other:1"], servers="host:1") == {"bootstrap.servers": "host:1"}


@pytest.mark.parametrize("name", ["take", "restore", "drop", "import", "export"])
def test_brokers_are_given_to_savepoints_as_to_other_commands(name: str) -> None:
    group = commands.command("savepoint")
    assert isinstance(group, TyperGroup)
    arguments = ["x"] if name == "import" else ["x", "y"]
    context = group.commands[name].make_context(name, [*arguments, "-b", "host:1"])
    assert context.params["servers"] == "host:1"


def test_progress_is_shown_while_the_topics_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    asked = threading.Semaphore(0)

    def statistics() -> HostStatistics:
        asked.release()
        return HostStatistics(records_in=1_500, lag=20_000)

    with showing_progress(statistics, 0.001):
        assert all(asked.acquire(timeout=60) for _ in range(2))
    assert "1,500 records read, 20,000 left.\n" in capsys.readouterr().err


def test_describe_shows_named_topologies(penstock_here: Run, tmp_path: Path) -> None:
    program = tmp_path / "shop.py"
    program.write_text(NAMED)
    described = penstock_here("describe", str(program)).out
    assert [line for line in described.splitlines() if line.startswith("Topology: ")] == [
        "Topology: orders:",
        "Topology: returns:",
    ]
    chosen = penstock_here("describe", str(program), "--topology", "returns", "--format", "mermaid").out
    assert "returns-in" in chosen
    assert "orders-in" not in chosen
    several = penstock_here("describe", str(program), "--format", "svg")
    assert (several.code, "Draw one of them: --topology orders|returns." in several.err) == (1, True)
    assert "This command takes a program with one `topology`" in penstock_here("diff", str(program)).err


ADDS = """
from dataclasses import dataclass
from penstock import *
@dataclass
class T:
    n: int
S, J = Serdes.string(), Serdes.json(T)
config = {"application.id": "APP", "default.key.serde": S, "default.value.serde": S, "penstock.host": "threads"}
b = StreamsBuilder()
stored = Materialized.as_("s").with_value_serde(J)
b.stream("IN").group_by_key().aggregate(lambda: T(0), lambda k, v, t: T(t.n + 1), stored)
topology = b.build()
"""


def test_diff_on_threads_compares_with_the_changelogs(
    run: Run, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    app, source, program = unique_name("app"), unique_name("in"), tmp_path / "adds.py"

    def diff(old: str = "", new: str = "") -> Ended:
        program.write_text(ADDS.replace(old, new).replace("APP", app).replace("IN", source))
        return run("diff", str(program))

    run("topics", "create", source)
    assert diff().out == "store s is new and starts empty\n"
    run("topics", "create", f"{app}-s-changelog", f"{app}-gone-changelog")
    run("produce", f"{app}-s-changelog", "--key-separator", "=", standard_input='a={"n":1}\n')
    gone = f"topic {app}-gone-changelog is not of this program; it is kept\n"
    assert (diff().code, diff().out) == (0, f"store s keeps its state\n{gone}")
    run("topics", "delete", f"{app}-gone-changelog")
    assert (diff().code, diff().out) == (0, "nothing changes\n")
    refused = diff("n: int", "n: int\n    total: float")
    assert refused.code == 1
    assert f"REFUSED: Store s, {app}-s-changelog-0: " in refused.out
    assert """cannot read the value b'{"n":1}' of offset 0""" in refused.out


def test_query_on_threads_reads_the_changelogs(run: Run, unique_name: Callable[[str], str], tmp_path: Path) -> None:
    app, source, program = unique_name("app"), unique_name("in"), tmp_path / "adds.py"
    program.write_text(ADDS.replace("APP", app).replace("IN", source))
    run("topics", "create", source, "-p", "2")
    assert run("query", str(program)).out.split()[:3] == ["store", "kind", "s"]
    early = run("query", str(program), "s")
    assert (early.code, f"there is no changelog topic {app}-s-changelog" in early.err) == (1, True)
    run("topics", "create", f"{app}-s-changelog", "-p", "2")
    lines = 'a={"n":1}\nb={"n":2}\nc={"n":3}\na={"n":4}\nb=null\n'
    run("produce", f"{app}-s-changelog", "--key-separator", "=", standard_input=lines)
    found = run("query", str(program), "s")
    assert (found.code, sorted(found.out.splitlines())) == (0, ['a\t{"n":4}', 'c\t{"n":3}'])
    assert found.err == "As of the present end of the changelog topics.\n"
    assert [run("query", str(program), "s", key).out for key in "ab"] == ['a\t{"n":4}\n', "b\tnull\n"]


NAMED = """
from penstock import StreamsBuilder
topologies = {}
for name in ("orders", "returns"):
    builder = StreamsBuilder()
    builder.stream(f"{name}-in").to(f"{name}-out")
    topologies[name] = builder.build()
"""


def test_describe_shows_the_lines_of_the_program(penstock_here: Run) -> None:
    example = Path(__file__).resolve().parents[3] / "examples" / "word_count.py"
    described = penstock_here("describe", str(example), "-v").out
    (line,) = (n for n, text in enumerate(example.read_text().splitlines(), 1) if "flat_map_values" in text)
    assert f"Processor: KSTREAM-FLATMAPVALUES-0000000001 (stores: []) (created at {example}:{line})\n" in described
    assert re.sub(r" \(created at [^)]*\)", "", described) == str(load_program(example).topology.describe())
    assert described.count("created at") == described.count("-->") + described.count("Sink: ")


def test_describe_answers_in_json(penstock_here: Run, tmp_path: Path) -> None:
    example = Path(__file__).resolve().parents[3] / "examples" / "word_count.py"
    (described,) = json.loads(penstock_here("describe", str(example), "--json").out)["topologies"]
    assert (described["name"], described["global_stores"]) == ("", [])
    nodes = {node["name"]: node for part in described["subtopologies"] for node in part["nodes"]}
    counting = nodes["KSTREAM-AGGREGATE-0000000003"]
    assert (counting["kind"], counting["stores"]) == ("processor", ["counts-store"])
    assert counting["line"].startswith(f"{example}:")
    program = tmp_path / "shop.py"
    program.write_text(NAMED)
    answer = json.loads(penstock_here("describe", str(program), "--json").out)
    assert [each["name"] for each in answer["topologies"]] == ["orders", "returns"]
    both = penstock_here("describe", str(example), "--json", "--format", "svg")
    assert (both.code, "cannot be used together with --format" in both.err) == (2, True)


def test_describe_draws_the_topology(penstock_here: Run) -> None:
    example = Path(__file__).parents[3] / "examples" / "word_count.py"
    description = load_program(example).topology.describe()
    assert penstock_here("describe", str(example), "--format", "mermaid").out == description.to_mermaid()
    assert penstock_here("describe", str(example), "-f", "svg").out == description.to_svg()


PROGRAM = """
from penstock import StreamsBuilder

config = {{"application.id": {name!r}, "state.dir": {state!r}}}
builder = StreamsBuilder()
builder.stream({source!r}).to({target!r})
topology = builder.build()
"""


def test_a_directory_without_savepoints_is_reported(penstock_here: Run, tmp_path: Path) -> None:
    ended = penstock_here("savepoint", "list", str(tmp_path))
    assert ended.code == 1
    assert f"There is no savepoint in {tmp_path}" in ended.err


def test_reset_says_what_it_deletes_and_deletes_it(run: Run, unique_name: Callable[[str], str], tmp_path: Path) -> None:
    name = unique_name("app")
    commits = f"{name}-penstock-commits"
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(name=name, state=str(tmp_path), source=f"{name}-in", target=f"{name}-out"))
    manifests = tmp_path / name / "checkpoint" / "manifests"
    manifests.mkdir(parents=True)
    (manifests / "000000000007").touch()
    planned = run("reset", str(program), "--dry-run", "--json")
    assert planned.code == 0
    assert json.loads(planned.out) == {
        "application_id": name,
        "checkpoint": str(manifests.parent),
        "epoch": 7,
        "state_directory": str(tmp_path / name),
        "groups": [],
        "topics": [],
        "dry_run": True,
    }
    on_threads = run("reset", str(program), "--dry-run", "--json", "-c", "penstock.host=threads")
    assert (json.loads(on_threads.out)["checkpoint"], on_threads.code) == (None, 0)
    assert manifests.exists()
    assert run("topics", "create", commits).code == 0
    would = run("reset", str(program), "--dry-run")
    assert would.code == 0
    assert f"Would delete of {name}:" in would.out
    assert f"groups      {name}, {commits}" in would.out
    assert run("topics", "delete", commits).code == 0
    done = run("reset", str(program))
    assert (done.code, done.err) == (0, "")
    assert f"Deleted of {name}:" in done.out
    assert not (tmp_path / name).exists()
    for options in ([], ["--dry-run"], []):  # what a reset creates itself, such as its lock, is nothing to delete
        assert run("reset", str(program), *options).out == f"There is nothing to delete of {name}.\n"
    nothing = {"checkpoint": None, "epoch": None, "state_directory": None, "groups": [], "topics": []}
    assert json.loads(run("reset", str(program), "--json").out).items() >= nothing.items()


COUNTING = """
from penstock import Materialized, Serdes, StreamsBuilder

serdes = {{"default.key.serde": Serdes.string(), "default.value.serde": Serdes.string()}}
config = {{"application.id": {name!r}, "state.dir": {state!r}, **serdes}}
builder = StreamsBuilder()
builder.table({source!r}, materialized=Materialized.as_("kept"))
topology = builder.build()
"""


def test_the_state_of_an_application_is_imported_and_exported(
    run: Run, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    name = unique_name("app")
    source, changelog = f"{name}-in", f"{name}-kept-changelog"
    program = tmp_path / "program.py"
    program.write_text(COUNTING.format(name=name, state=str(tmp_path / "state"), source=source))
    assert run("topics", "create", source, changelog).code == 0
    for topic in (source, changelog):
        run("produce", topic, "--key-separator", ":", standard_input="a:1\n")
    assert run("savepoint", "import", str(program)).code == 2
    nothing = run("savepoint", "import", str(program), "--from-kafka")
    assert nothing.code == 1
    assert f"The group {name} has committed no offset" in nothing.err
    assert run("groups", "reset", name, "--topic", source, "--to", "latest").code == 0
    imported = run("savepoint", "import", str(program), "--from-kafka")
    assert (imported.code, imported.err) == (0, "")
    assert "stores kept (1 record)" in imported.out
    elsewhere = str(tmp_path / "elsewhere")
    asked = "savepoint", "import", str(program), "--from-kafka", "--json", "-c", f"penstock.checkpoint.dir={elsewhere}"
    answer = json.loads(run(*asked).out)
    assert (answer["application_id"], answer["checkpoint"]) == (name, elsewhere)
    assert answer["stores"] == [{"name": "kept", "changelog": changelog, "records": 1}]
    assert answer["inputs"] == [{"topic": source, "partition": 0, "committed": 1, "end": 1, "time": None}]
    saved = str(tmp_path / "saved")
    assert run("savepoint", "take", str(program), saved).code == 0
    assert run("savepoint", "export", saved, str(program)).code == 2
    assert "wrote 0 records" in run("savepoint", "export", saved, str(program), "--to-kafka").out
    assert run("topics", "delete", changelog).code == 0
    assert "wrote 1 record, and the offsets" in run("savepoint", "export", saved, str(program), "--to-kafka").out
    exported = run("savepoint", "export", saved, str(program), "--to-kafka", "--json")
    assert json.loads(exported.out) == {"savepoint": saved, "group": name, "records": 0}


def test_a_moved_offset_still_says_that_the_state_is_on_spark(
    run: Run, embedded_broker: BrokerProcess, unique_name: Callable[[str], str]
) -> None:
    name, group = unique_name("t"), unique_name("g")
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)
    run("topics", "create", name, "-p", "2")
    config = StreamsConfig({"application.id": group, "bootstrap.servers": embedded_broker.bootstrap_servers})
    with closing(ConfluentAdmin(config)) as admin:
        committed = {first: OffsetAndMetadata(0, STATE_ELSEWHERE), second: OffsetAndMetadata(0, "AgAAAaIDuPUC")}
        admin.commit_offsets(group, committed)
        assert run("groups", "reset", group, "--topic", name, "--to", "latest").code == 0
        found = admin.committed_offsets(group, [first, second])
    assert {partition: each.metadata for partition, each in found.items()} == {first: STATE_ELSEWHERE, second: ""}


def test_topics_are_changed(run: Run, unique_name: Callable[[str], str]) -> None:
    name = unique_name("t")
    run("topics", "create", name, "--topic-config", "retention.ms=5")
    changed = run("topics", "alter", name, "--set", "segment.ms=7", "--unset", "retention.ms", "-p", "2")
    assert (changed.code, changed.out) == (0, f"Changed topic {name}.\n")
    assert run("topics", "configs", name).out == "segment.ms=7\n"
    assert json.loads(run("topics", "configs", name, "--json").out) == {"topic": name, "configs": {"segment.ms": "7"}}
    assert "max.message.bytes=1048588" in run("topics", "configs", name, "--all").out
    [listed] = [each for each in json.loads(run("topics", "list", "--json").out) if each["topic"] == name]
    assert listed == {"topic": name, "partitions": 2, "records": 0}
    refused = run("topics", "alter", name, "--set", "preallocate=true")
    assert refused.code == 1
    assert "it does not reserve space" in refused.err
    assert run("topics", "alter", name).code == 2
    assert json.loads(run("topics", "delete", name, "--json").out) == {"deleted": [name]}
    assert json.loads(run("topics", "create", name, "--json").out) == {"created": [name]}


def test_a_missing_topic_does_not_stop_changes_of_the_others(run: Run, unique_name: Callable[[str], str]) -> None:
    known, missing = unique_name("t"), unique_name("t")
    run("topics", "create", known)
    changed = run("topics", "alter", missing, known, "--set", "retention.ms=1000")
    assert (changed.code, changed.out) == (1, f"Changed topic {known}.\n")
    assert f"changing the configuration of topic {missing})" in changed.err
    in_json = run("topics", "alter", missing, known, "--set", "retention.ms=1000", "--json")
    assert (in_json.code, json.loads(in_json.out)) == (1, {"changed": [known]})
    assert run("topics", "configs", known).out == "retention.ms=1000\n"


def test_a_topic_that_cannot_be_is_named(run: Run) -> None:
    refused = run("produce", "no such!", standard_input="x\n")
    assert refused.code == 1
    assert "Request failed (writing to 'no such!')" in refused.err


def test_a_group_is_listed_described_reset_and_deleted(
    run: Run, embedded_broker: BrokerProcess, unique_name: Callable[[str], str]
) -> None:
    name, group = unique_name("t"), unique_name("g")
    run("topics", "create", name, "-p", "2")
    run("produce", name, standard_input="a\nb\nc\n")
    settings = {"bootstrap.servers": embedded_broker.bootstrap_servers, "group.id": group, "log_level": 0}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.subscribe([name])
    assert len(consumer.consume(3, 120)) == 3
    consumer.commit(asynchronous=False)

    def described() -> Any:
        return json.loads(run("groups", "describe", group, "--json").out)

    [member] = described()["members"]
    assert {one["member"] for one in described()["partitions"]} == {member["member"]}
    refused = run("groups", "reset", group, "-t", name, "--to", "earliest")
    assert refused.code == 1
    assert "has 1 member, which would overwrite its positions" in refused.err
    refused = run("groups", "delete", group, "--json")
    assert (refused.code, json.loads(refused.out)) == (1, {"deleted": []})
    consumer.close()
    assert {"group": group, "type": "Classic", "state": "Empty"} in json.loads(run("groups", "list", "--json").out)
    assert sum(one["lag"] or 0 for one in described()["partitions"]) == 0
    assert "Would reset" in run("groups", "reset", group, "-t", name, "--to", "earliest", "--dry-run").out
    assert run("groups", "reset", group, "-t", name, "--to", "earliest").code == 0
    assert sum(one["lag"] for one in described()["partitions"]) == 3
    for to, lag in (("latest", 0), ("0", 3), ("2000-01-01T00:00", 3), ("99", 0)):
        assert run("groups", "reset", group, "-t", name, "--to", to).code == 0
        assert sum(one["lag"] for one in described()["partitions"]) == lag
    assert f"{group}: Empty, 0 members" in run("groups", "describe", group).out
    assert run("groups", "reset", group, "-t", name, "--to", "never").code == 2
    assert json.loads(run("groups", "delete", group, "--json").out) == {"deleted": [group]}
    for command in ("describe", "delete"):
        missing = run("groups", command, group)
        assert (missing.code, missing.out) == (1, "")
        assert f"There is no group '{group}'" in missing.err
