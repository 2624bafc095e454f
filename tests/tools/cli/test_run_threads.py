"""`penstock run --host threads` as a user runs it, where the packages of Spark are not installed, and that it leaves
nothing behind."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import orjson
import pytest

from penstock.client.confluent import ConfluentAdmin, ConfluentFetcher
from penstock.config import StreamsConfig
from penstock.host.threads.directories import StateDirectory
from penstock.record import TopicPartition
from tests.support.answers import check_answer
from tests.support.commands import Command, Ended
from tests.support.plain_producer import PlainProducer
from tests.support.waiting import until

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "word_count.py"
WITHOUT_SPARK = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in ("pyspark", "py4j", "pandas"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from penstock.tools.cli.main import main
main()
"""
"""Runs the command where an import of these packages fails, as if they were not installed."""
NAMED = """
from penstock import Materialized, Serdes, StreamsBuilder
config = {"default.key.serde": Serdes.string(), "default.value.serde": Serdes.string()}
topologies = {}
for name in ("orders", "returns"):
    builder = StreamsBuilder()
    builder.stream(f"{name}-in").group_by_key().count(Materialized.as_("counts")).to_stream().map_values(str).to("out")
    topologies[name] = builder.build()
"""
STUCK = """
import sys
import threading
from penstock import Serdes, StreamsBuilder
config = {"default.key.serde": Serdes.string(), "default.value.serde": Serdes.string()}
def wait(value):
    print("stuck", sys.getswitchinterval(), flush=True)
    threading.Event().wait()
builder = StreamsBuilder()
builder.stream("plaintext-input").map_values(wait).to("out")
topology = builder.build()
"""


def run(directory: Path, program: Path, *options: str, command: str = "run") -> Command:
    """Run a program with its own broker, or another command of it."""
    state = f"state.dir={directory / 'state'}"
    own = ("--port", "0", "--data-dir", str(directory / "data"), "-c", state)
    return Command((command, str(program), *own, *options), directory, program=("-c", WITHOUT_SPARK))


def servers_of(command: Command) -> str:
    """Return where the broker of a command is, when its application runs."""
    assert until(lambda: ": at least once; broker" in command.output()), command.output()
    return command.output().partition("A broker runs at ")[2].partition(" ")[0]


def write(servers: str, *lines: str) -> None:
    producer = PlainProducer(StreamsConfig({"bootstrap.servers": servers}))
    for line in lines:
        producer.send("plaintext-input", None, line.encode())
    producer.close()


def counts(servers: str) -> dict[str, int]:
    """Return the latest count of each word in the output."""
    config = StreamsConfig({"bootstrap.servers": servers})
    place = TopicPartition("word-count-output", 0)
    admin, fetcher = ConfluentAdmin(config), ConfluentFetcher(config)
    try:
        end = admin.end_offsets([place])[place]
        batches = list(fetcher.fetch(place, 0, end, read_committed=True)) if end else []
    finally:
        fetcher.close()
        admin.close()
    return {k.decode(): int.from_bytes(v) for each in batches for k, v in zip(each.keys, each.values, strict=True)}


@pytest.mark.slow
def test_reset_finds_what_a_run_with_its_own_broker_has_left(tmp_path: Path) -> None:
    def ended(command: str, *options: str) -> Ended:
        with run(tmp_path, EXAMPLE, "--host", "threads", *options, command=command) as started:
            return started.ended()

    assert ended("run", "--until-end").code == 0
    planned = json.loads(ended("reset", "--dry-run", "--json").out)
    assert planned["state_directory"] == str(tmp_path / "state" / "streams-wordcount")
    assert "streams-wordcount-counts-store-changelog" in planned["topics"]
    done = ended("reset", "--json")
    assert (done.code, json.loads(done.out)) == (0, {**planned, "dry_run": False})
    assert ended("reset").out == "There is nothing to delete of streams-wordcount.\n"


def test_an_example_runs_without_spark_and_sigterm_ends_it_behind_a_commit(tmp_path: Path) -> None:
    with run(tmp_path, EXAMPLE, "--host", "threads", "--ui-port", "0", "-c", "commit.interval.ms=50") as command:
        servers = servers_of(command)
        shown_at = command.output().partition("shows itself at ")[2].split()[0]
        with urlopen(f"{shown_at}health/live", timeout=60) as answer:
            assert answer.status == 200
        write(servers, "a b a")
        assert until(lambda: counts(servers) == {"a": 2, "b": 1}), command.output()
        command.terminate()
        ended = command.ended()
        assert command.nothing_left()
    assert ended.code == 143, ended.err
    # Two words, and one record more if a commit came between the two of "a".
    assert re.search(r"1 record read, [23] written\.", ended.err)
    directory = StateDirectory(StreamsConfig({"application.id": "streams-wordcount", "state.dir": f"{tmp_path}/state"}))
    directory.acquire()
    directory.release()


def test_the_pages_say_what_the_saved_program_would_change(tmp_path: Path) -> None:
    program = tmp_path / "words.py"
    program.write_text(EXAMPLE.read_text())
    with run(tmp_path, program, "--host", "threads", "--ui-port", "0") as command:
        servers_of(command)
        address = command.output().partition("shows itself at ")[2].split()[0]

        def changes() -> dict[str, Any]:
            with urlopen(f"{address}api/v1/changes", timeout=120) as answer:
                read: dict[str, Any] = orjson.loads(answer.read())
            return read

        assert changes() == {"compared": f"{program} has not changed since the start.", "changes": []}
        program.write_text(EXAMPLE.read_text().replace("counts-store", "other-store"))
        changed = changes()
        assert changed["compared"] == f"{program} was saved since the start."
        assert changed["changes"][:2] == [
            "store other-store is new and starts empty",
            "store counts-store is no longer in the program; its state is kept until you drop it by name",
        ]
        with urlopen(f"{address}changes", timeout=120) as answer:
            assert "other-store is new" in answer.read().decode()
        command.terminate()
        assert command.ended().code == 143
        assert command.nothing_left()


@pytest.mark.slow
def test_named_topologies_run_and_are_watched(tmp_path: Path) -> None:
    program = tmp_path / "shop.py"
    program.write_text(NAMED)
    with run(tmp_path, program, "--host", "threads", "--ui-port", "0", "-c", "commit.interval.ms=50") as command:
        assert until(lambda: "2 named topologies" in command.output()), command.output()
        servers = command.output().partition("A broker runs at ")[2].partition(" ")[0]
        assert "Created topics " in command.output()
        address = command.output().partition("shows itself at ")[2].split()[0]

        def get(address: str, path: str) -> Any:
            with urlopen(f"{address}{path}", timeout=120) as answer:
                read = orjson.loads(answer.read())
            check_answer(f"/{path}", read)
            return read

        producer = PlainProducer(StreamsConfig({"bootstrap.servers": servers}))
        producer.send("orders-in", b"a", b"1")
        producer.close()

        def entries(topology: str) -> list[Any] | None:
            """Return the entries of the store, None while a rebalance keeps it from being read."""
            try:
                return list(get(address, f"api/v1/stores/counts?topology={topology}")["entries"])
            except HTTPError as error:
                if error.code != 503:
                    raise
                return None

        assert until(lambda: bool(entries("orders")))
        assert until(lambda: entries("returns") == [])
        with pytest.raises(HTTPError, match="400"):
            get(address, "api/v1/changes")
        at = ("-c", f"bootstrap.servers={servers}", "-c", f"state.dir={tmp_path / 'state'}")
        with Command(("ui", str(program), "--port", "0", "-c", "penstock.host=threads", *at), tmp_path) as watcher:
            assert until(lambda: "shows itself at" in watcher.output()), watcher.output()
            watching = watcher.output().partition("shows itself at ")[2].split()[0]
            assert until(lambda: get(watching, "api/v1/overview")["lag"] == 0)
            overview = get(watching, "api/v1/overview")
            assert (overview["watched"], overview["members"], overview["records_out"]) == (True, 2, None)
            assert [each["name"] for each in get(watching, "api/v1/topology")["topologies"]] == ["orders", "returns"]
            compared = f"{program} was compared with the internal topics of the brokers."
            assert get(watching, "api/v1/changes") == {"compared": compared, "changes": []}
            watcher.interrupt()
            assert watcher.nothing_left()
        command.terminate()
        ended = command.ended()
        assert command.nothing_left()
    assert ended.code == 143, ended.err
    assert "1 record read, 1 written." in ended.err


def test_a_second_ctrl_c_ends_a_program_whose_function_does_not_return(tmp_path: Path) -> None:
    program = tmp_path / "stuck.py"
    program.write_text(STUCK)
    with run(tmp_path, program, "--host", "threads") as command:
        write(servers_of(command), "a")
        assert until(lambda: "stuck 0.0005" in command.output())  # of the process, which is Penstock's
        command.interrupt()
        assert until(lambda: "Ctrl-C again gives that commit up" in command.output())
        command.interrupt()
        ended = command.ended()
        assert command.nothing_left()
    assert ended.code == 130, ended.err
    assert "Traceback" not in ended.err


@pytest.mark.slow
def test_the_demo_counts_exactly_in_this_process(tmp_path: Path) -> None:
    arguments = ("demo", "--host", "threads", "--repeat", "1", "--data-dir", str(tmp_path / "demo"))
    with Command(arguments, tmp_path, program=("-c", WITHOUT_SPARK)) as demo:
        ended = demo.ended()
        assert demo.nothing_left()
    assert ended.code == 0, ended.err
    assert "Every count equals a plain count of the text, and each update is in the topic exactly once." in ended.out
    assert "word_count.py --host threads" in ended.out
