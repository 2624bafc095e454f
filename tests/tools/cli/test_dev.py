"""`penstock dev`: a program is changed while it runs, and goes on with its state; what cannot run changes nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.tools.cli import dev
from penstock_broker.process import BrokerProcess
from tests.support.commands import Command, Run
from tests.support.waiting import until
from tests.tools.transfers.topics import Sent, Topics

PROGRAM = """
from penstock import Materialized, Serdes, StreamsBuilder
from shouting import shout

config = {{
    "application.id": "{name}",
    "default.key.serde": Serdes.string(),
    "default.value.serde": Serdes.string(),
    "commit.interval.ms": 50,
    "processing.guarantee": "exactly_once_v2",
}}
builder = StreamsBuilder()
words = builder.stream("{name}-in")
counts = words.group_by(lambda key, word: word).count(Materialized.as_("counts"))
counts.to_stream().map_values(lambda word, count: shout(f"{{word}} {{count}}")).to("{name}-out")
topology = builder.build()
"""


class Development:
    """A program of two files that `penstock dev` runs on the embedded broker."""

    def __init__(self, topics: Topics, servers: str, directory: Path, name: str, host: str = "threads") -> None:
        self.topics = topics
        self.name = name
        self.directory = directory / "program"
        self.directory.mkdir()
        self.file = self.directory / "words.py"
        self.helper = self.directory / "shouting.py"
        self.helper.write_text("def shout(text):\n    return text\n")
        self.text = PROGRAM.format(name=name)
        self.file.write_text(self.text)
        topics.create(f"{name}-in")
        topics.create(f"{name}-out")
        settings = ("-c", f"bootstrap.servers={servers}", "-c", f"state.dir={directory / 'state'}")
        self.command = Command(("dev", str(self.file), "--host", host, "--json", *settings), directory)

    def save(self, file: Path, text: str) -> None:
        """Write a file at once, as editors do."""
        new = self.directory / "new"
        new.write_text(text)
        new.replace(file)

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.command.output().splitlines() if line.startswith('{"event"')]

    def saw(self, *names: str) -> None:
        """Wait until these events, and no others, have happened."""
        assert until(lambda: len(self.events()) >= len(names)), self.command.output()
        assert [event["event"] for event in self.events()] == list(names), self.command.output()

    def count(self, word: str) -> None:
        self.topics.write(f"{self.name}-in", [Sent(0, None, word.encode(), 1)])

    def counted(self, *results: str) -> None:
        """Wait until the output is `results`."""
        assert until(lambda: len(self.results()) >= len(results)), self.command.output()
        assert self.results() == list(results), self.command.output()

    def results(self) -> list[str]:
        return [(each.value or b"").decode() for each in self.topics.read(f"{self.name}-out")]


@pytest.fixture
def development(
    embedded_broker: BrokerProcess, tmp_path: Path, unique_name: Callable[[str], str]
) -> Iterator[Development]:
    servers = embedded_broker.bootstrap_servers
    with Topics(servers) as topics:
        made = Development(topics, servers, tmp_path, unique_name("dev"))
        with made.command:
            yield made


@pytest.mark.slow
def test_a_program_goes_on_with_its_state_whenever_it_is_saved(development: Development) -> None:
    development.saw("started")
    development.count("a")
    development.counted("a 1")
    development.save(development.helper, "def shout(text):\n    return text.upper()\n")
    development.saw("started", "changed", "started")
    assert development.events()[1]["lines"] == ["nothing changes"]
    development.count("a")
    development.counted("a 1", "A 2")
    development.save(development.file, development.text + "topology = (\n")
    development.saw("started", "changed", "started", "failed")
    assert "SyntaxError" in development.events()[3]["error"]
    development.count("a")
    development.counted("a 1", "A 2", "A 3")
    windowed = ".windowed_by(TimeWindows.of_size_with_no_grace(1000)).count("
    text = development.text.replace("import Mat", "import TimeWindows, Mat").replace(".count(", windowed)
    development.save(development.file, text)
    development.saw("started", "changed", "started", "failed", "refused")
    assert "store counts has the layout" in development.events()[4]["lines"][0]
    development.count("a")
    development.counted("a 1", "A 2", "A 3", "A 4")
    more = (
        '\nwords.group_by(lambda key, word: word[0]).count(Materialized.as_("initials"))\ntopology = builder.build()\n'
    )
    development.save(development.file, development.text + more)
    development.saw("started", "changed", "started", "failed", "refused", "changed", "started")
    lines = development.events()[5]["lines"]
    assert "store counts keeps its state" in lines[0]
    assert "store initials is new and starts empty" in lines
    development.count("a")
    development.counted("a 1", "A 2", "A 3", "A 4", "A 5")
    development.command.interrupt()
    assert development.command.ended().code == 130
    assert development.command.nothing_left()


@pytest.mark.slow
def test_a_program_that_ends_starts_again_when_it_is_saved_and_a_kill_leaves_nothing(development: Development) -> None:
    development.saw("started")
    development.count("a")
    development.counted("a 1")
    development.save(development.helper, "def shout(text):\n    raise ValueError(text)\n")
    development.saw("started", "changed", "started")
    development.count("a")
    development.saw("started", "changed", "started", "ended")
    assert development.events()[3]["code"] == 1
    development.save(development.helper, "def shout(text):\n    return text\n")
    development.saw("started", "changed", "started", "ended", "changed", "started")
    development.counted("a 1", "a 2")
    os.kill(development.command.processes()[0], 9)
    assert development.command.nothing_left()


@pytest.mark.spark
@pytest.mark.xdist_group("cli-on-spark")
@pytest.mark.slow
def test_on_spark_a_saved_program_continues_with_the_state_of_the_checkpoint(
    embedded_broker: BrokerProcess, tmp_path: Path, unique_name: Callable[[str], str]
) -> None:
    servers = embedded_broker.bootstrap_servers
    with Topics(servers) as topics:
        development = Development(topics, servers, tmp_path, unique_name("dev"), "spark")
        with development.command:
            development.saw("started")
            development.count("a")
            development.counted("a 1")
            development.save(development.helper, "def shout(text):\n    return text.upper()\n")
            development.saw("started", "changed", "started")
            assert development.events()[1]["lines"] == ["nothing changes"]
            development.count("a")
            development.counted("a 1", "A 2")
            development.command.interrupt()
            assert development.command.ended().code == 130
            assert development.command.nothing_left()


def test_a_program_that_cannot_be_loaded_at_the_start_is_an_error(penstock_here: Run, tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text("topology = (\n")
    ended = penstock_here("dev", str(tmp_path / "words.py"))
    assert (ended.code, "SyntaxError" in ended.err) == (1, True)


def test_files_that_a_program_may_import_are_watched(tmp_path: Path) -> None:
    program, helper = tmp_path / "words.py", tmp_path / "package" / "helper.py"
    others = [tmp_path / "notes.txt", tmp_path / ".venv" / "x.py", tmp_path / "package" / "__pycache__" / "y.py"]
    for path in (program, helper, *others):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1")
    before = dev._files(program)
    assert set(before) == {str(program), str(helper)}
    for path in others:
        path.write_text("22")
    assert dev._files(program) == before
    helper.write_text("22")
    assert dev._files(program) != before
    helper.unlink()
    program.unlink()
    assert dev._files(program) == {str(program): (-1, -1)}


def test_of_very_many_files_some_are_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dev, "_MOST_FILES", 3)
    for number in range(9):
        (tmp_path / f"m{number}.py").write_text("1")
    assert set(dev._files(tmp_path / "m8.py")) == {str(tmp_path / f"m{number}.py") for number in (0, 1, 8)}
