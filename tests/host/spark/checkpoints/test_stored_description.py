"""Stored descriptions: what their functions do when they are loaded again, whatever became of their modules."""

from __future__ import annotations

import importlib
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from penstock import StreamsBuilder, Topology
from penstock.config import StreamsConfig
from penstock.errors import StreamsError
from penstock.host.spark.checkpoints.stored_description import (
    StoredDescription,
    dump_for_checkpoint,
    load_from_checkpoint,
)
from penstock.host.spark.planner.call_stores import task_inboxes
from penstock.host.spark.protocol.application_description import (
    ApplicationDescription,
    dump_description,
    load_description,
)
from penstock.host.spark.protocol.user_modules import changed_modules, loaded_digests
from penstock.plan.subtopology import SinkSpec
from penstock.record import RecordMetadata
from tests.host.spark.crashes import Crashes, KilledError
from tests.host.spark.inline import InlineQuery
from tests.host.spark.protocol.test_application_description import description_of
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord, lines
from tests.host.test_topologies import TEXT, TEXT_OUT

OF_0_2_0 = Path(__file__).parents[1] / "data" / "description_0_2_0" / "description"

WORDS = """
import functools

SUFFIX = {suffix!r}

class Word:
    def __init__(self, text):
        self.text = text

    def ended(self):
        return self.text + SUFFIX

@functools.lru_cache(maxsize=8)
def cached(text, more=1):
    return cached(text, 0) if more else Word(text).ended()
"""

HANDLING = """
import of_words as words

def handle(value):
    return words.cached(value)

def topic_of(key, value, metadata):
    return handle(key)

{extra}
"""

WITH_A_LOCK = "import threading; LOCK = threading.Lock(); handle = lambda value: LOCK and words.cached(value)\n\n"


class Modules:
    """Two modules of a user's, of which one imports the other; they can be edited."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def write(self, suffix: str, extra: str = "") -> None:
        """Write them; the next program loads what was written."""
        (self.directory / "of_words.py").write_text(WORDS.format(suffix=suffix))
        (self.directory / "of_handling.py").write_text(HANDLING.format(extra=extra))
        self.forget()

    def forget(self) -> None:
        """Load them again, as a restarted program does."""
        importlib.invalidate_caches()
        for name in ("of_words", "of_handling"):
            sys.modules.pop(name, None)

    def dump(self, tmp_path: Path) -> StoredDescription:
        """Return a program that asks a function of the module for its topic."""
        handling = importlib.import_module("of_handling")
        topology = Topology().add_source("s", "in").add_sink("k", handling.topic_of, "s")
        return dump_for_checkpoint(description_of(topology, tmp_path))


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Modules]:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # two edits in one second look alike to it
    monkeypatch.syspath_prepend(str(tmp_path))
    written = Modules(tmp_path)
    written.write("-old")
    yield written
    written.forget()


PROGRAM = """
import enum, sys
from dataclasses import dataclass
from pathlib import Path
from penstock import Consumed, Processor, Produced, Serdes, StreamsBuilder
from penstock.host.spark.checkpoints.stored_description import dump_for_checkpoint
from tests.host.spark.protocol.test_application_description import description_of

@dataclass
class Word:
    text: str
    def ends(self):
        return self.text[-1:] in {{"a", "b", "c", {more!r}}}

class Kind(enum.Enum):
    SHORT = 1
    LONG = 2

class Upper(Processor):
    def process(self, record):
        kind = Kind.SHORT if len(record.value) < 3 else Kind.LONG
        self.context.forward(record.with_value(record.value.upper() + kind.name))

TEXT = Serdes.string()
builder = StreamsBuilder()
words = builder.stream("in", consumed=Consumed.with_(key_serde=TEXT, value_serde=TEXT))
words = words.filter(lambda key, value: Word(value).ends()).process(Upper)
words.to("out", produced=Produced.with_(key_serde=TEXT, value_serde=TEXT))
sys.path.append({directory!r})
print(dump_for_checkpoint(description_of(builder.build(), Path({directory!r}))).digest)
"""


def test_a_program_has_the_same_digest_in_each_process(tmp_path: Path) -> None:
    digests = []
    for number, more in enumerate(("x", "x", "y")):
        program = tmp_path / "program.py"
        program.write_text("\n" * number + PROGRAM.format(directory=str(tmp_path / f"{number}"), more=more))
        environment = {**os.environ, "PYTHONHASHSEED": str(number), "PYTHONPATH": os.pathsep.join(sys.path)}
        run = subprocess.run(
            [sys.executable, str(program)], env=environment, capture_output=True, text=True, check=True
        )
        digests.append(run.stdout)
    assert digests[0] == digests[1]
    assert digests[0] != digests[2]


def topic_of(description: ApplicationDescription) -> str:
    """Return what the program of `description` answers for `a` when it has come to a worker."""
    loaded = load_description(dump_description(description))
    sink = loaded.topology.subtopologies[0].nodes[1]
    assert isinstance(sink, SinkSpec)
    assert sink.topic_extractor is not None
    return sink.topic_extractor("a", None, RecordMetadata("in", 0, 0))


def test_a_program_is_what_it_was_when_its_modules_were_edited(modules: Modules, tmp_path: Path) -> None:
    stored = modules.dump(tmp_path)
    modules.write("-new")
    edited = modules.dump(tmp_path)
    assert edited.digest != stored.digest
    assert topic_of(load_from_checkpoint(stored.data)) == "a-old"
    assert topic_of(load_from_checkpoint(edited.data)) == "a-new"


def test_a_program_is_what_it_was_when_a_module_was_reloaded(modules: Modules, tmp_path: Path) -> None:
    stored = modules.dump(tmp_path)
    words = sys.modules["of_words"]
    Path(str(words.__file__)).write_text(WORDS.format(suffix="-new"))
    again = modules.dump(tmp_path)
    assert again.digest == stored.digest, "what is loaded is what counts, not what an editor has written"
    importlib.reload(words)
    assert topic_of(load_from_checkpoint(stored.data)) == "a-old"


@pytest.mark.parametrize("gone", ["of_words", "of_handling"])
def test_a_program_is_what_it_was_when_a_module_is_gone(modules: Modules, tmp_path: Path, gone: str) -> None:
    stored = modules.dump(tmp_path)
    (tmp_path / f"{gone}.py").unlink()
    modules.forget()
    assert topic_of(load_from_checkpoint(stored.data)) == "a-old"


def test_modules_that_cannot_be_kept_are_reported_by_name(
    modules: Modules, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    modules.write("-old", WITH_A_LOCK)
    with caplog.at_level(logging.WARNING):
        stored = modules.dump(tmp_path)
    assert "Functions of of_handling cannot be stored by value" in caplog.text
    modules.forget()
    assert topic_of(load_from_checkpoint(stored.data)) == "a-old", "nothing has changed"
    modules.write("-new", WITH_A_LOCK)
    with pytest.raises(StreamsError, match="modules have changed since, or are missing: of_words"):
        load_from_checkpoint(stored.data)


def test_equal_programs_have_equal_digests(modules: Modules, tmp_path: Path) -> None:
    stored = modules.dump(tmp_path)
    modules.forget()
    assert modules.dump(tmp_path).digest == stored.digest


def test_the_configuration_of_the_lineage_is_of_the_run_and_stays_out(tmp_path: Path) -> None:
    description = description_of(Topology().add_source("s", "in"), tmp_path)
    plain = dump_for_checkpoint(description)
    client = {"transport": {"type": "http", "url": "http://receiver", "auth": {"apiKey": "a secret"}}}
    keys = {"penstock.openlineage.enabled": True, "penstock.openlineage.config": client}
    config = StreamsConfig({**description.config.given(), **keys}, environment={})
    stored = dump_for_checkpoint(replace(description, config=config))
    assert stored.digest == plain.digest
    assert b"a secret" not in stored.data


class PassesForModule:
    """As objects of cffi do, which are in sys.modules and cannot be referred to weakly."""

    __slots__ = ()

    @property
    def __class__(self) -> type:
        return ModuleType


def test_objects_that_pass_for_modules_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "passes_for_module", PassesForModule())
    assert isinstance(sys.modules["passes_for_module"], ModuleType)
    assert "passes_for_module" not in loaded_digests()
    assert changed_modules({"passes_for_module": "digest"}) == ["passes_for_module"]


@pytest.mark.partitions(2, 2)
@pytest.mark.one_broker
def test_an_epoch_left_half_committed_is_finished_with_the_modules_of_the_program_that_began_it(
    spark_runner: SparkRunner,
    application: str,
    topics: tuple[str, str],
    crashes: Callable[..., Crashes],
    modules: Modules,
) -> None:
    source, target = topics

    def program() -> Topology:
        handling = importlib.import_module("of_handling")
        builder = StreamsBuilder()
        builder.stream(source, consumed=TEXT).map_values(handling.handle).to(target, produced=TEXT_OUT)
        return builder.build()

    query = InlineQuery(program(), spark_runner.config(application), spark_runner.admin)
    query.run_to_end()
    spark_runner.write(source, [InputRecord(each.encode(), each.encode(), 1_000) for each in "abcd"])  # go to both
    crashes(at="transaction.after")
    with pytest.raises(KilledError, match=r"transaction\.after"):
        query.run_to_end()
    assert 0 < len(spark_runner.read(target)) < 4
    modules.write("-new")
    query.change(program())
    spark_runner.write(source, lines(["e"]))
    query.run_to_end()
    values = sorted(str(record.value, "utf-8") for record in spark_runner.read(target) if record.value)
    assert values == ["a-old", "b-old", "c-old", "d-old", "e-new"]


def test_a_description_of_0_2_0_has_the_defaults_of_later_fields() -> None:
    description = load_from_checkpoint(OF_0_2_0.read_bytes())
    assert (description.placement.task_topics, description.topology.task_topics) == ({}, {})
    assert task_inboxes(description) == []
    assert {str(task): inputs for task, inputs in description.placement.awaitable.items()} == dict.fromkeys(
        ("0_0", "0_1", "1_0", "1_1"), ()
    )
    again = load_from_checkpoint(dump_for_checkpoint(description).data)
    assert again.placement == description.placement
