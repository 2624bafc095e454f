"""Processors that call functions, on each host: answers, stores, failures, restarts, a changed program."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    CallContext,
    Calls,
    Consumed,
    Processor,
    ProcessorContext,
    ProcessorSupplier,
    Produced,
    PunctuationType,
    Record,
    Serdes,
    Stores,
    StreamsBuilder,
    Topology,
)
from penstock.errors import CallFailedError, StreamsError
from tests.host.support import WITH_PROCESSES, InputRecord, OutputRecord, Program, Runner, wait_for

pytestmark = [WITH_PROCESSES, pytest.mark.one_broker, pytest.mark.partitions(1, 1)]

STRING = Serdes.string()
TEXT = Consumed.with_(STRING, STRING)
COUNTS = Stores.key_value_store_builder(Stores.in_memory_key_value_store("counts"), STRING, Serdes.integer())


async def risk(calls: Path, text: str, *, call: CallContext) -> float:
    """Return a score, and note the call."""
    with calls.open("a") as file:
        file.write(f"{call.idempotency_key}\n")
    gate = calls.with_name("closed")
    while gate.exists():
        await asyncio.sleep(0.005)
    if calls.with_name("down").exists():
        raise ConnectionError(f"no answer for {text}")
    return len(text) / 10


async def place(text: str) -> str:
    return f"home of {text}"


class Scoring(Processor[str, str, str, str]):
    """Asks for the risk of each record, then for the place, counts the answers of a key, and forwards both."""

    def __init__(self, first: Callable[..., Any]) -> None:
        self._first = first

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._counts = context.get_state_store("counts")

    def process(self, record: Record[str, str]) -> None:
        self.context.call(self._first, record.value)

    def answered(self, record: Record[str, str], answer: float | str) -> None:
        count = (self._counts.get(record.key) or 0) + 1
        self._counts.put(record.key, count)
        if isinstance(answer, float):
            self.context.call(place, f"{record.value} {answer}")
        else:
            self.context.forward(record.with_value(f"{answer} {count}"))


class Scorings(ProcessorSupplier[str, str, str, str]):
    def __init__(self, first: Callable[..., Any]) -> None:
        self._first = first

    def get(self) -> Scoring:
        return Scoring(self._first)

    def stores(self) -> list[Any]:
        return [COUNTS]


def scoring(
    topics: tuple[str, str], calls: Path, options: Calls | None = None, make: type[Scorings] = Scorings
) -> Topology:
    first = partial(risk, calls)
    builder = StreamsBuilder()
    scored = builder.stream(topics[0], TEXT).process(
        make(first), named="score", calls=options or Calls(), call_functions=(first, place)
    )
    scored.to(topics[1], Produced.with_(STRING, STRING))
    return builder.build()


def rows(*texts: str) -> list[InputRecord]:
    """Return a record for each text, whose first letter is its key."""
    return [
        InputRecord(text[0].encode(), text.encode(), 1_000 + number, 0, (("n", str(number).encode()),))
        for number, text in enumerate(texts)
    ]


def run_to(program: Program, runner: Runner, topic: str, count: int) -> list[OutputRecord]:
    """Run until a topic has so many records, and return them."""

    def has_come() -> bool:
        program.run_to_end()
        return len(runner.read(topic)) >= count

    wait_for(has_come)
    return runner.read(topic)


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    """The file in which the function notes its calls."""
    path = tmp_path / "calls"
    path.touch()
    return path


@pytest.mark.parametrize("execution", ["auto", "record"])
def test_answers_come_in_the_order_of_their_key_and_call_again(
    runner: Runner,
    start: Callable[..., Program],
    application: str,
    topics: tuple[str, str],
    calls: Path,
    execution: str,
) -> None:
    program = start(scoring(topics, calls), runner.config(application, {"penstock.execution": execution}))
    runner.write(topics[0], rows("a1", "b1", "a2"))
    found = run_to(program, runner, topics[1], 3)
    assert sorted((each.key, each.value, each.timestamp, each.headers) for each in found) == [
        (b"a", b"home of a1 0.2 3", 1_000, (("n", b"0"),)),
        (b"a", b"home of a2 0.2 4", 1_002, (("n", b"2"),)),
        (b"b", b"home of b1 0.2 2", 1_001, (("n", b"1"),)),
    ]
    assert sorted(calls.read_text().split()) == [f"{topics[0]}-0-{offset}-score" for offset in range(3)]


def test_a_call_survives_a_restart_and_an_answer_is_used_once(
    runner: Runner, start: Callable[..., Program], application: str, topics: tuple[str, str], calls: Path
) -> None:
    gate = calls.with_name("closed")
    gate.touch()
    config = runner.config(application, {"processing.guarantee": "exactly_once_v2"})
    program = start(scoring(topics, calls), config)
    runner.write(topics[0], rows("a1", "b1"))
    program.run_to_end()

    def are_called() -> bool:
        program.run_to_end()
        return len(calls.read_text().split()) == 2

    wait_for(are_called)
    program.restart()
    gate.unlink()
    found = run_to(program, runner, topics[1], 2)
    assert sorted(each.value or b"" for each in found) == [b"home of a1 0.2 2", b"home of b1 0.2 2"]
    program.restart()
    runner.write(topics[0], rows("a2"))
    assert run_to(program, runner, topics[1], 3)[-1].value == b"home of a2 0.2 4"
    assert Counter(calls.read_text().split())[f"{topics[0]}-0-2-score"] == 1


def test_a_failed_call_is_a_dead_letter(
    runner: Runner,
    start: Callable[..., Program],
    application: str,
    topics: tuple[str, str],
    calls: Path,
    unique_name: Callable[[str], str],
) -> None:
    letters = unique_name("letters")
    runner.create_topics({letters: 1})
    calls.with_name("down").touch()
    program = start(scoring(topics, calls, Calls(then=letters)), runner.config(application))
    runner.write(topics[0], rows("a1"))
    (letter,) = run_to(program, runner, letters, 1)
    assert (letter.key, letter.value) == (b"a", b"a1")
    assert b"no answer for a1" in (dict(letter.headers)["__streams.errors.message"] or b"")
    calls.with_name("down").unlink()
    runner.write(topics[0], rows("a2"))
    (found,) = run_to(program, runner, topics[1], 1)
    assert found.value == b"home of a2 0.2 2"


def test_a_processor_of_a_topology_that_is_built_by_hand_calls(
    runner: Runner, start: Callable[..., Program], application: str, topics: tuple[str, str], calls: Path
) -> None:
    first = partial(risk, calls)
    topology = Topology().add_source("in", topics[0], key_serde=STRING, value_serde=STRING)
    options = Calls(key_serde=STRING)
    topology.add_processor("score", Scorings(first), "in", calls=options, call_functions=(first, place))
    topology.add_sink("out", topics[1], "score", key_serde=STRING, value_serde=STRING)
    program = start(topology, runner.config(application))
    runner.write(topics[0], rows("a1"))
    program.run_to_end()
    program.restart()
    (found,) = run_to(program, runner, topics[1], 1)
    assert found.value == b"home of a1 0.2 2"


class Recovering(Scoring):
    """Counts the failures of a key, and forwards each."""

    def failed(self, record: Record[str, str], error: CallFailedError) -> None:
        count = (self._counts.get(record.key) or 0) + 1
        self._counts.put(record.key, count)
        self.context.forward(record.with_value(f"no risk of {record.value} {count}"))


class Recoverings(Scorings):
    def get(self) -> Recovering:
        return Recovering(self._first)


def test_a_processor_receives_a_failure_once(
    runner: Runner, start: Callable[..., Program], application: str, topics: tuple[str, str], calls: Path
) -> None:
    calls.with_name("down").touch()
    config = runner.config(application, {"processing.guarantee": "exactly_once_v2"})
    program = start(scoring(topics, calls, make=Recoverings), config)
    runner.write(topics[0], rows("a1"))
    (failed,) = run_to(program, runner, topics[1], 1)
    assert (failed.key, failed.value, failed.timestamp) == (b"a", b"no risk of a1 1", 1_000)
    calls.with_name("down").unlink()
    program.restart()
    runner.write(topics[0], rows("a2"))
    assert run_to(program, runner, topics[1], 2)[1].value == b"home of a2 0.2 3"
    assert calls.read_text().split() == [f"{topics[0]}-0-{offset}-score" for offset in range(2)]


class Ticking(Processor[str, str, str, str]):
    """Asks for the place of a time at each punctuation."""

    def __init__(self, kind: PunctuationType) -> None:
        self._kind = kind

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        context.schedule(1_000, self._kind, self._tick)

    def process(self, record: Record[str, str]) -> None:
        """Let only punctuations call."""

    def _tick(self, now: int) -> None:
        self.context.call(place, f"{now}", key="tick")

    def answered(self, record: Record[str, str], answer: str) -> None:
        self.context.forward(record.with_value(answer))


@pytest.mark.parametrize("kind", PunctuationType)
def test_a_punctuation_calls(
    runner: Runner,
    start: Callable[..., Program],
    application: str,
    topics: tuple[str, str],
    kind: PunctuationType,
) -> None:
    builder = StreamsBuilder()
    ticking = builder.stream(topics[0], TEXT).process(
        partial(Ticking, kind), named="tick", calls=Calls(), call_functions=(place,)
    )
    ticking.to(topics[1], Produced.with_(STRING, STRING))
    program = start(builder.build(), runner.config(application))
    runner.write(topics[0], rows("a1"))
    found = run_to(program, runner, topics[1], 1)[0]
    assert (found.key, found.value) == (b"tick", f"home of {found.timestamp}".encode())
    assert (found.timestamp == 1_000) == (kind is PunctuationType.STREAM_TIME)


def test_a_waiting_call_of_a_function_that_is_gone_stops_the_program(
    runner: Runner, start: Callable[..., Program], application: str, topics: tuple[str, str], calls: Path
) -> None:
    gate = calls.with_name("closed")
    gate.touch()
    program = start(scoring(topics, calls), runner.config(application, {"penstock.restart.max.attempts": 0}))
    runner.write(topics[0], rows("a1"))

    def are_called() -> bool:
        program.run_to_end()
        return bool(calls.read_text())

    wait_for(are_called)
    builder = StreamsBuilder()
    supplier = Scorings(place)
    builder.stream(topics[0], TEXT).process(supplier, named="score", calls=Calls(), call_functions=(place,)).to(
        topics[1], Produced.with_(STRING, STRING)
    )

    def start_and_run() -> None:
        program.change(builder.build())
        wait_for(program.run_to_end)  # on Spark, the task starts with the failure of the call

    with pytest.raises(StreamsError) as caught:
        start_and_run()
    told = [str(caught.value), *getattr(caught.value, "__notes__", ()), str(caught.value.__cause__)]
    assert any("A call of the function risk waits for processor score" in each for each in told)
    gate.unlink()
    program.change(scoring(topics, calls))
    (found,) = run_to(program, runner, topics[1], 1)
    assert found.value == b"home of a1 0.2 2"
