"""The blocks of all pages that are not Python: command lines are understood, data can be parsed, and what README.md and
the page of the broker say to type works on a broker. Python blocks have their own tests."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from confluent_kafka import Consumer, Producer
from typer.core import TyperGroup

from penstock.testing import EmbeddedBroker
from penstock.tools.cli.main import COMMANDS, command
from tests.docs.pages import PAGES, ROOT, command_lines, fences, parsed, subcommand
from tests.support.commands import Command, Run
from tests.support.waiting import until

_LOADERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "yaml": lambda text: list(yaml.safe_load_all(text)),
    "toml": tomllib.loads,
    "json": json.loads,
}
_FOREIGN: Final = {"py", "java"}
"""Programs of other libraries, which nothing here can run."""
_LANGUAGES: Final = {*_LOADERS, *_FOREIGN, "python", "sh", "console", "text", "dockerfile", "{toctree}"}

_PENSTOCK: Final = re.compile(r"(?:^|[|;] )penstock ")
LINES: Final = [(page, line) for page in PAGES for line in command_lines(page)]
OURS: Final = [line for _, line in LINES if _PENSTOCK.search(line)]
DATA: Final = [(page, language, text) for page in PAGES for language, text in fences(page) if language in _LOADERS]
INLINE: Final = sorted(
    {
        " ".join(found.split())
        for page in PAGES
        if page != "CHANGELOG.md"  # what it says of old versions stays
        for found in re.findall(r"`penstock ([a-z][^`]*)`", (ROOT / page).read_text(encoding="utf-8"))
    }
)
"""What sentences say of commands, which may lack arguments."""


@pytest.mark.parametrize("page", PAGES)
def test_each_block_names_its_language(page: str) -> None:
    assert {language for language, _ in fences(page)} <= _LANGUAGES


@pytest.mark.parametrize("line", OURS)
def test_a_command_line_is_understood(line: str) -> None:
    assert parsed(line).params


def test_the_command_lines_of_all_kinds_of_blocks_are_found() -> None:
    assert len(OURS) > 60
    assert any("produce" in line and line.startswith("echo") for line in OURS)


@pytest.mark.parametrize("text", INLINE)
def test_a_sentence_names_commands_and_options_that_exist(text: str) -> None:
    name, *arguments = shlex.split(text)
    assert name in COMMANDS, f"there is no command {name}"
    found = command(name)
    if isinstance(found, TyperGroup) and arguments:
        found, arguments = subcommand(found, arguments)
    options = {option for parameter in found.params for option in parameter.opts} | {"--help"}
    assert {argument.partition("=")[0] for argument in arguments if argument.startswith("-")} <= options


def test_the_shell_can_read_all_lines() -> None:
    script = "\n".join(line for _, line in LINES)
    ended = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr


def test_the_targets_files_and_extras_of_command_lines_exist() -> None:
    targets = re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for page, line in LINES:
        words = shlex.split(line, comments=True)
        for before, word in pairwise(words):
            if before == "make":
                assert word in targets, page
            if before == "python" and "/" in word:
                assert (ROOT / word).is_file(), page
        for extra in re.findall(r"pip install '(?:\.|penstock-streams)\[(\w+)\]'", line):
            assert extra in extras, page


@pytest.mark.parametrize(("page", "language", "text"), DATA)
def test_data_can_be_parsed(page: str, language: str, text: str) -> None:
    assert _LOADERS[language](text), page


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a broker, which the commands of this process use."""
    with EmbeddedBroker() as broker:
        monkeypatch.setenv("PENSTOCK_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
        yield broker.bootstrap_servers


@pytest.mark.slow
def test_the_word_count_of_the_readme(kafka: str, penstock_here: Run, tmp_path: Path) -> None:
    lines = [shlex.split(line, comments=True)[1:] for line in command_lines("README.md") if _PENSTOCK.match(line)]
    [run] = [line for line in lines if line[0] == "run" and "--host" in line]
    [produce] = [line for line in lines if line[0] == "produce"]
    [consume] = [line for line in lines if line[0] == "consume"]
    assert penstock_here("topics", "create", "plaintext-input", "word-count-output").code == 0
    environment = {"PENSTOCK_STATE_DIR": str(tmp_path), "PENSTOCK_BOOTSTRAP_SERVERS": kafka}
    arguments = [str(ROOT / word) if word.endswith(".py") else word for word in run]
    with Command([*arguments, "-c", "commit.interval.ms=50"], tmp_path, environment) as running:
        assert until(lambda: "; broker" in running.output()), running.output()
        assert penstock_here(*produce, standard_input="hello streams\n").code == 0
        counted = penstock_here(*consume, "--max-messages", "2")
        assert sorted(counted.out.splitlines()) == ["hello\t1", "streams\t1"]
        running.interrupt()
        assert running.nothing_left()


@pytest.mark.slow
def test_the_commands_of_the_page_of_the_broker(kafka: str, penstock_here: Run) -> None:
    assert penstock_here("topics", "create", "orders").code == 0
    transactional = Producer({"bootstrap.servers": kafka, "transactional.id": "billing-1"})
    transactional.init_transactions(60)
    transactional.begin_transaction()
    transactional.produce("orders", b"bought")
    transactional.flush(60)
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "billing", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    consumer.poll(0)
    assert until(lambda: consumer.poll(0.1) is not None or bool(consumer.assignment()))
    consumer.close()
    ran = []
    for language, block in fences("docs/broker.md"):
        if language != "console" or "--port" in block or "--start-offset" in block or "kafka-configs.sh" in block:
            continue  # a broker in the foreground, a hanging transaction, and a tool of Kafka
        for session in re.split(r"^\$ penstock ", block, flags=re.MULTILINE)[1:]:
            line, _, shown = session.partition("\n")
            ended = penstock_here(*shlex.split(line))
            assert ended.code == 0, (line, ended.err)
            assert shown in ended.out
            ran.append(line)
    transactional.abort_transaction(60)
    assert len(ran) == 7
