"""Functions on columns that are called for several waiting records, on threads: methods, failures, restarts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import CallContext, Calls, KStream, Retry, model, vectorized
from penstock.errors import StreamsError
from tests.host.calling_service import asking, calling, rows, values
from tests.host.support import Program, Runner, wait_for

pytestmark = [pytest.mark.one_broker, pytest.mark.parametrize("runner", ["threads"], indirect=True)]

BATCHES = Calls(capacity=2, batch_size=4, batch_wait=20)


@vectorized
async def charged(texts: list[str]) -> list[str]:
    return [f"{text} charged" for text in texts]


@vectorized
async def are_good(keys: list[str], texts: list[str]) -> list[bool]:
    return [text != "b1" for text in texts]


@vectorized
async def parts(texts: list[str]) -> list[list[str]]:
    return [[*text] for text in texts]


@vectorized
async def pair(keys: list[str], texts: list[str]) -> list[tuple[str, str]]:
    return [(f"{key}2", text) for key, text in zip(keys, texts, strict=True)]


@vectorized
async def pairs(keys: list[str], texts: list[str]) -> list[list[tuple[str, str]]]:
    return [[(letter, text) for letter in text] for text in texts]


@vectorized
async def second(keys: list[str], texts: list[str]) -> list[str]:
    return [text[1] for text in texts]


@vectorized
async def seen(keys: list[str], texts: list[str]) -> None:
    assert len(keys) == len(texts)


@model(batch_size=2)
def loaded() -> Callable[[list[str]], list[str]]:
    return lambda texts: [text.upper() for text in texts]


METHODS: dict[str, tuple[Callable[[KStream], KStream], list[tuple[str, str]]]] = {
    "map": (lambda s: s.map(pair, calls=BATCHES, named="call"), [("a2", "a1"), ("b2", "b1")]),
    "flat_map": (
        lambda s: s.flat_map(pairs, calls=BATCHES, named="call"),
        [("1", "a1"), ("1", "b1"), ("a", "a1"), ("b", "b1")],
    ),
    "map_values": (
        lambda s: s.map_values(charged, calls=BATCHES, named="call"),
        [("a", "a1 charged"), ("b", "b1 charged")],
    ),
    "flat_map_values": (
        lambda s: s.flat_map_values(parts, calls=BATCHES, named="call"),
        [("a", "1"), ("a", "a"), ("b", "1"), ("b", "b")],
    ),
    "filter": (lambda s: s.filter(are_good, calls=BATCHES, named="call"), [("a", "a1")]),
    "filter_not": (lambda s: s.filter_not(are_good, calls=BATCHES, named="call"), [("b", "b1")]),
    "peek": (lambda s: s.peek(seen, calls=BATCHES, named="call"), [("a", "a1"), ("b", "b1")]),
    "select_key": (lambda s: s.select_key(second, calls=BATCHES, named="call"), [("1", "a1"), ("1", "b1")]),
    "model": (lambda s: s.map_values(loaded, calls=Calls(threads=1), named="call"), [("a", "A1"), ("b", "B1")]),
}


@pytest.mark.partitions(1, 1)
@pytest.mark.parametrize("method", METHODS)
def test_each_method_makes_calls_in_batches(
    runner: Runner, application: str, topics: tuple[str, str], method: str
) -> None:
    operator, expected = METHODS[method]
    runner.write(topics[0], rows("a1", "b1"))
    runner.run(calling(*topics, operator), runner.config(application))
    found = [((each.key or b"").decode(), (each.value or b"").decode()) for each in runner.read(topics[1])]
    assert sorted(found) == expected


def noting(path: Path) -> Any:
    """Return a function on columns that appends the idempotency keys of each batch to a file, as one line."""

    @vectorized
    def noted(texts: list[str], *, calls: list[CallContext]) -> list[str]:
        with path.open("a") as file:
            file.write(" ".join(call.idempotency_key for call in calls) + "\n")
        return texts

    return noted


@pytest.mark.partitions(2, 1)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_restarted_program_calls_for_no_answered_record_again(
    runner: Runner,
    start: Callable[..., Program],
    application: str,
    topics: tuple[str, str],
    tmp_path: Path,
    workers: int,
) -> None:
    path = tmp_path / "calls"
    topology = asking(*topics, noting(path), Calls(threads=1, batch_size=8))
    config = runner.config(application, {"num.stream.threads": workers, "processing.guarantee": "exactly_once_v2"})
    program = start(topology, config)
    for turn in range(2):
        for partition in range(2):
            runner.write(topics[0], rows(*(f"{key}{turn}" for key in "abcdefgh"), partition=partition))
        wait_for(lambda count=16 * (turn + 1): len(runner.read(topics[1])) == count)
        program.restart()
    assert Counter(values(runner, topics[1])) == {f"{key}{turn}": 2 for key in "abcdefgh" for turn in range(2)}
    called = path.read_text().split()
    assert len(called) == len(set(called)) == 32
    assert len(path.read_text().splitlines()) < 32


@pytest.mark.partitions(1, 1)
def test_a_failed_record_of_a_batch_fails_alone(
    runner: Runner, application: str, topics: tuple[str, str], unique_name: Callable[[str], str]
) -> None:
    letters = unique_name("dead-letters")
    runner.create_topics({letters: 1})

    @vectorized
    async def call(texts: list[str]) -> list[str | Exception]:
        return [ValueError("declined") if text == "b1" else text for text in texts]

    runner.write(topics[0], rows("a1", "b1", "c1"))
    calls = Calls(then=letters, retry=Retry(attempts=2), batch_size=4)
    runner.run(asking(*topics, call, calls), runner.config(application))
    assert sorted(values(runner, topics[1])) == ["a1", "c1"]
    assert values(runner, letters) == ["b1"]


@pytest.mark.partitions(1, 1)
def test_a_wrong_number_of_answers_names_the_operator(
    runner: Runner, application: str, topics: tuple[str, str]
) -> None:
    @vectorized
    async def call(texts: list[str]) -> list[str]:
        return [*texts, "more"]

    runner.write(topics[0], rows("a1", "b1"))
    with pytest.raises(StreamsError, match=r"The calls of ask have no answers: .* returned a column of length"):
        runner.run(asking(*topics, call, BATCHES), runner.config(application))
