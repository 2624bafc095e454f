"""The serdes of the results of calls, by the annotations of functions."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import pytest

from penstock.errors import SerializationError
from penstock.serdes.answers import (
    NoAnswerSerde,
    PlainAnswerSerde,
    answer_serde_of,
    argument_serde_of,
    items_answer_serde_of,
    no_answer_serde_of,
    pair_answer_serde_of,
    pairs_answer_serde_of,
)


@dataclass(frozen=True)
class Scored:
    score: float
    tags: tuple[str, ...]


async def scored(value: str) -> Scored: ...  # type: ignore[empty-body]  # only its annotation is used


async def maybe(value: str) -> Scored | None: ...


async def pair(value: str) -> tuple[str, Scored]: ...  # type: ignore[empty-body]  # as above


async def several(value: str) -> Iterable[Scored]: ...  # type: ignore[empty-body]  # as above


async def a_set(value: str) -> frozenset[int]: ...  # type: ignore[empty-body]  # as above


async def nothing(value: str) -> None: ...


async def anything(value: str) -> Any: ...


async def a_dict(value: str) -> dict: ...  # type: ignore[empty-body, type-arg]  # without the types of its parts


async def a_list(value: str) -> list: ...  # type: ignore[empty-body, type-arg]  # as above


async def some(value: str) -> Iterable: ...  # type: ignore[empty-body, type-arg]  # as above


async def pairs(value: str) -> Iterator[tuple[str, Scored]]: ...  # type: ignore[empty-body]  # as above


async def unreadable(value: str) -> complex: ...  # type: ignore[empty-body]  # as above


async def without(value):  # type: ignore[no-untyped-def]  # without an annotation on purpose
    ...


class Level(IntEnum):
    HIGH = 1


SCORED = Scored(0.5, ("a", "b"))


@pytest.mark.parametrize(
    ("function", "result"),
    [
        (scored, SCORED),
        (maybe, SCORED),
        (pair, ("key", SCORED)),
        (several, [SCORED, SCORED]),
        (a_set, frozenset([1, 2])),
        (anything, {"a": [1, 2.5, None, b"x", True]}),
        (without, "text"),
        (nothing, 5),
    ],
)
def test_a_result_survives_the_round_trip(function: Any, result: Any) -> None:
    serde = pickle.loads(pickle.dumps(answer_serde_of(function)))
    found = serde.deserialize("answers", serde.serialize("answers", result))
    assert found == result
    assert type(found) is type(result)


@pytest.mark.parametrize(
    "result", [(1, 2), SCORED, {1: (2,)}, {1}, complex(1, 2), [float("nan"), (1,)], Level.HIGH, [Level.HIGH]]
)
@pytest.mark.parametrize("function", [without, anything, unreadable, a_dict, a_list])
def test_other_results_are_refused_without_an_annotation(function: Any, result: Any) -> None:
    with pytest.raises(SerializationError):
        answer_serde_of(function).serialize("answers", result)


PAIRS = [("a", 1), ("b", [2])]


@pytest.mark.parametrize(
    ("serde_of", "function", "result", "expected"),
    [
        (answer_serde_of, several, (each for each in [SCORED]), [SCORED]),
        (answer_serde_of, several, (SCORED,), [SCORED]),
        (answer_serde_of, some, iter(["a"]), ["a"]),
        (items_answer_serde_of, without, ("a", "b"), ["a", "b"]),
        (items_answer_serde_of, several, iter([SCORED]), [SCORED]),
        (pair_answer_serde_of, without, ("a", [1]), ("a", [1])),
        (pair_answer_serde_of, anything, ["a", 1], ("a", 1)),
        (pair_answer_serde_of, pair, ("a", SCORED), ("a", SCORED)),
        (pairs_answer_serde_of, without, PAIRS, PAIRS),
        (pairs_answer_serde_of, some, iter(PAIRS), PAIRS),
        (pairs_answer_serde_of, a_list, tuple(PAIRS), PAIRS),
        (pairs_answer_serde_of, pairs, iter([("a", SCORED)]), [("a", SCORED)]),
        (no_answer_serde_of, without, object(), None),
    ],
)
def test_an_operator_reads_the_shape_that_it_uses(serde_of: Any, function: Any, result: Any, expected: Any) -> None:
    serde = pickle.loads(pickle.dumps(serde_of(function)))
    assert serde.deserialize("answers", serde.serialize("answers", result)) == expected


@pytest.mark.parametrize(
    ("serde_of", "function", "result", "message"),
    [
        (answer_serde_of, several, "text", "It is a text"),
        (items_answer_serde_of, without, "text", "It is a text"),
        (items_answer_serde_of, without, [(1, 2)], "It would be read back as"),
        (pair_answer_serde_of, without, ("a", 1, 2), "Expected a pair"),
        (pair_answer_serde_of, without, "ab", "Expected a pair"),
        (pair_answer_serde_of, without, ("a", (1,)), "It would be read back as"),
        (pairs_answer_serde_of, without, ["ab"], "Expected a pair"),
    ],
)
def test_other_shapes_are_refused(serde_of: Any, function: Any, result: Any, message: str) -> None:
    with pytest.raises(SerializationError, match=message):
        serde_of(function).serialize("answers", result)


def test_a_result_of_another_type_is_refused() -> None:
    with pytest.raises(SerializationError):
        answer_serde_of(scored).serialize("answers", {"score": "high"})


def test_not_a_number_is_a_plain_value() -> None:
    serde = PlainAnswerSerde()
    assert repr(serde.deserialize("answers", serde.serialize("answers", [float("nan")]))) == "[nan]"


def test_results_of_actions_are_not_kept() -> None:
    serde = NoAnswerSerde()
    serde.deserialize("answers", serde.serialize("answers", object()))
    assert serde.serialize("answers", object()) == b""


def of_scored(value: Scored) -> None: ...


def of_anything(value, other: int = 0) -> None: ...  # type: ignore[no-untyped-def]  # a parameter without annotation


class Taking:
    def of_method(self, value: Scored) -> None: ...


@pytest.mark.parametrize(
    ("function", "argument", "expected"),
    [
        (of_scored, Scored(1.5, ("a",)), Scored(1.5, ("a",))),
        (Taking().of_method, Scored(1.5, ()), Scored(1.5, ())),
        (of_anything, {"x": [1, None]}, {"x": [1, None]}),
        (print, "text", "text"),
    ],
)
def test_an_argument_survives_the_round_trip(function: Any, argument: Any, expected: Any) -> None:
    serde = argument_serde_of(function)
    assert serde.deserialize("t", serde.serialize("t", argument)) == expected
