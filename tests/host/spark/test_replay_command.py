"""`penstock replay`: an epoch of a program, with its output, what differs, and Python's debugger in its functions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.tools.cli.program import load_program
from tests.host.spark.inline import InlineQuery, failure_of
from tests.host.spark.support import SparkRunner
from tests.host.support import lines

pytestmark = pytest.mark.one_broker

PROGRAM = """
from penstock import Materialized, Produced, Serdes, StreamsBuilder

config = {config}
builder = StreamsBuilder()


def shout(word):
    louder = word.upper()
    assert louder != "BAD"
    print("shouting", word)
    return louder


words = builder.stream({source!r}).flat_map_values(str.split).map_values(shout, named="shouted")
counts = words.group_by(lambda key, word: word).count(Materialized.as_("counts"), named="counted")
counts.to_stream().to({target!r}, Produced.with_(None, Serdes.long()))
topology = builder.build()
"""


class Program:
    """A program in a file, which has run for some epochs, and the command."""

    def __init__(self, runner: SparkRunner, application: str, topics: tuple[str, str], directory: Path) -> None:
        self.file = directory / "words.py"
        self._runner, self._source = runner, topics[0]
        given = runner.config(application).given()
        config = {name: value for name, value in given.items() if isinstance(value, str | int | bool)}
        text = PROGRAM.format(config=config, source=topics[0], target=topics[1])
        serdes = 'config["default.key.serde"] = config["default.value.serde"] = Serdes.string()\n'
        self.file.write_text(text.replace("builder = ", f"{serdes}builder = ", 1))
        program = load_program(self.file)
        self.query = InlineQuery(program.topology, program.configured({}), runner.admin)

    def epoch(self, *texts: str) -> None:
        self._runner.write(self._source, lines(texts))
        self.query.run_to_end()

    def fails(self, *texts: str) -> None:
        self._runner.write(self._source, lines(texts))
        failure_of(self.query.run_to_end)

    def replay(self, *arguments: str, typed: str = "") -> tuple[int, str, str]:
        """Run the command; returns its exit code, standard output and standard error."""
        command = [sys.executable, "-m", "penstock.tools.cli.main", "replay", str(self.file), *arguments]
        ended = subprocess.run(
            command, input=typed, capture_output=True, text=True, timeout=240, check=False, env={**os.environ}
        )
        return ended.returncode, ended.stdout, ended.stderr


@pytest.fixture
def program(spark_runner: SparkRunner, application: str, topics: tuple[str, str], tmp_path: Path) -> Program:
    return Program(spark_runner, application, topics, tmp_path)


@pytest.mark.slow
@pytest.mark.partitions(1, 1)
def test_an_epoch_is_replayed_with_and_without_a_debugger(program: Program, topics: tuple[str, str]) -> None:
    program.epoch("a b", "a")
    program.epoch("b")
    program.fails("good bad")
    program.query.close()
    code, out, err = program.replay("--epoch", "1")
    assert (code, "it is the same as what was committed" in err) == (0, True), err
    assert f'{topics[1]}-0\t{{"key":"A","value":2,"timestamp":1001}}' in out
    assert "shouting a" in out
    code, out, err = program.replay("--epoch", "2", "--json")
    answer = json.loads(out)
    assert (code, answer["epoch"], answer["committed"], answer["same"]) == (0, 2, True, True)
    assert [(each["key"], each["value"]) for each in answer["output"]] == [("B", 2)]
    assert [task["task"] for task in answer["tasks"]] == ["0_0", "1_0"]
    assert "shouting b" in err
    code, out, err = program.replay("--epoch", "1", "--break", "shouted", typed="p word\nc\np word\nq\n")
    assert code == 1
    assert "Task 0_0, node shouted: key None, value 'a'" in out
    assert "louder = word.upper()" in out  # the first line of the user's function
    assert "(Pdb) 'a'" in out
    assert "(Pdb) 'b'" in out
    code, out, err = program.replay("--pdb", typed="p louder\nq\n")
    assert code == 1
    assert '-> assert louder != "BAD"' in out
    assert "(Pdb) 'BAD'" in out
    code, out, err = program.replay()
    assert (code, "processor=shouted" in err, "nothing was written" in err) == (1, True, True)
    program.file.write_text(program.file.read_text().replace("word.upper()", "word.title()"))
    code, out, err = program.replay()
    assert (code, "it was not committed, so there is nothing to compare with" in err) == (0, True), err
    program.file.write_text(program.file.read_text().replace("word.title()", "word.lower()"))
    code, out, err = program.replay("--epoch", "1")
    assert (code, "task 1_0: its state, schedules or times differ" in err) == (1, True)
    code, out, err = program.replay("--break", "nothing")
    assert (code, "there is no processor or sink 'nothing'" in err) == (2, True), err
    code, out, err = program.replay("--task", "x")
    assert (code, "expected a task such as 0_2" in err) == (2, True), err
