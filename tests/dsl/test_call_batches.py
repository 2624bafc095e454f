"""Functions on columns with calls: which fit, how many records they take, and the serde of one answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from penstock import Calls, Consumed, Serdes, StreamsBuilder, model, vectorized
from penstock.dsl.call_batches import batch_size_of, on_waiting_columns, record_function
from penstock.processor.calls import CallSpec
from penstock.processor.column_functions import ColumnFunction

STRING = Serdes.string()
TEXT = Consumed.with_(STRING, STRING)


@dataclass
class Judged:
    mood: str


@vectorized
async def judged(texts: list[str]) -> list[Judged | Exception]:
    return [Judged(text) for text in texts]


@vectorized
def on_thread(keys: list[str], texts: list[str]) -> list[float]:
    return [0.0 for _ in texts]


@vectorized
async def of_arrays(texts: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return texts


@vectorized
async def with_call(texts: list[str], *, call: object) -> list[str]:
    return texts


@vectorized
async def with_calls(texts: list[str], *, client: object, calls: object) -> list[str]:
    return texts


@vectorized
async def named_call(texts: list[str], call: list[str]) -> list[str]:
    return texts


async def unmarked(texts: pa.StringArray) -> pa.StringArray:
    return texts


async def single(text: str) -> str:
    return text


async def of_telephone(number: str, calls: str) -> str:
    return number


@model(batch_size=16)
def loaded() -> Callable[[list[str]], list[float]]:
    return lambda texts: [0.0 for _ in texts]


@model()
def remote() -> Callable[[list[str]], Awaitable[list[float | Exception]]]:
    async def score(texts: list[str]) -> list[float | Exception]:
        return [float(len(text)) for text in texts]

    return score


def spec_of(function: Any, calls: Calls) -> CallSpec:
    """Return the calls of a `map_values` with a function."""
    builder = StreamsBuilder()
    builder.stream("in", TEXT).map_values(function, "call", calls=calls)
    (subtopology,) = builder.build().build("app").subtopologies
    (spec,) = subtopology.answers_topics.values()
    return spec


@pytest.mark.parametrize(
    ("function", "calls", "size", "wait_ms"),
    [
        (judged, Calls(), 64, 0),
        (judged, Calls(batch_size=5, batch_wait=20), 5, 20),
        (on_thread, Calls(threads=2, batch_size=1), 1, 0),
        (loaded, Calls(threads=1), 16, 0),
        (remote, Calls(batch_wait=7), 64, 7),
        (single, Calls(), 1, 0),
    ],
)
def test_the_rules_have_the_size_and_the_wait(function: Any, calls: Calls, size: int, wait_ms: int) -> None:
    rules = spec_of(function, calls).rules
    assert (rules.batch_size, rules.batch_wait_ms) == (size, wait_ms)


def test_an_operator_knows_the_columns_of_its_function() -> None:
    assert spec_of(single, Calls()).columns is None
    spec = spec_of(on_thread, Calls(threads=1))
    assert spec.columns is not None
    assert (spec.function, spec.columns.function, spec.with_key) == (spec.columns.function, on_thread, True)
    assert spec_of(with_calls, Calls(open=nullcontext)).takes == {"client", "calls"}
    assert spec_of(of_telephone, Calls()).takes == frozenset()
    assert spec_of(named_call, Calls()).with_key


@pytest.mark.parametrize(
    ("calls", "function", "message"),
    [
        (Calls(), with_call, r"with_call\(texts.* gets no single call: write `\*, calls`, for a list with the CallCon"),
        (Calls(threads=1, batch_size=5), loaded, "loaded is a model with a batch_size of 16: write Calls without batc"),
        (Calls(), unmarked, "unmarked takes whole columns: mark it with @vectorized"),
        (Calls(batch_size=5), single, "single takes one record, but Calls has a batch_size or a batch_wait: mark"),
        (Calls(batch_wait=5), single, "single takes one record"),
        (Calls(), on_thread, "on_thread is no coroutine function"),
        (Calls(threads=1), judged, "judged is a coroutine function, which needs no threads"),
        (Calls(), loaded, "is no coroutine function"),
        (Calls(threads=1), remote, "is a coroutine function, which needs no threads"),
        (Calls(batch_size=5), 5, r"Expected a function mapper\(value\) or mapper\(key, value\), got 5"),
    ],
)
def test_functions_that_do_not_fit_are_refused(calls: Calls, function: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        StreamsBuilder().stream("in", TEXT).map_values(function, calls=calls)


@pytest.mark.parametrize("method", ["map", "flat_map"])
def test_map_and_flat_map_take_columns_of_keys_and_values_with_calls_alone(method: str) -> None:
    operator = getattr(StreamsBuilder().stream("in", TEXT), method)
    with pytest.raises(TypeError, match=r"The mapper cannot be called as mapper\(key, value\): judged\(texts"):
        operator(judged, calls=Calls())
    with pytest.raises(TypeError, match="on_thread takes whole columns, but this operator calls it for each record"):
        operator(on_thread)


@vectorized
async def by_length(keys: list[str], texts: list[str]) -> list[tuple[int, Judged] | Exception]:
    return [(len(text), Judged(text)) for text in texts]


@vectorized
async def by_letter(keys: list[str], texts: list[str]) -> list[list[tuple[str, Judged]]]:
    return [[(letter, Judged(text)) for letter in text] for text in texts]


@pytest.mark.parametrize(("method", "function", "key"), [("map", by_length, None), ("flat_map", by_letter, "k")])
def test_the_annotation_of_pairs_selects_the_serdes_of_the_stream(method: str, function: Any, key: str | None) -> None:
    stream = getattr(StreamsBuilder().stream("in", TEXT), method)(function, calls=Calls())
    assert (stream.key_serde is None) is (key is None)
    assert stream.value_serde.deserialize("t", stream.value_serde.serialize("t", Judged("happy"))) == Judged("happy")


def test_a_coroutine_function_on_columns_needs_calls() -> None:
    with pytest.raises(TypeError, match=r"judged is a coroutine function, .* given calls=Calls\(\)"):
        StreamsBuilder().stream("in", TEXT).map_values(judged)


def test_the_annotation_of_one_answer_selects_the_serdes() -> None:
    answers = spec_of(judged, Calls()).answer_serde
    assert answers.deserialize("t", answers.serialize("t", Judged("happy"))) == Judged("happy")
    columns = on_waiting_columns(remote, STRING, STRING, ColumnFunction)
    assert record_function(columns).__annotations__ == {"return": float}
    columns = on_waiting_columns(of_arrays, STRING, STRING, ColumnFunction)
    assert record_function(columns).__annotations__ == {"return": float}
    assert record_function(single) is single


def test_other_functions_are_not_changed() -> None:
    assert on_waiting_columns(single, STRING, STRING, ColumnFunction) is single
    assert on_waiting_columns(unmarked, STRING, STRING, ColumnFunction) is unmarked
    assert batch_size_of(single, None) == 1
