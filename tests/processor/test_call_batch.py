"""A call takes one record or several, and each has an outcome of its own."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from penstock import Calls, Serdes, vectorized
from penstock.dsl.call_batches import on_waiting_columns
from penstock.dsl.call_nodes import calling
from penstock.errors import StreamsError
from penstock.processor.call_batch import Attempted, CallOutcome, MadeCall, RecordCall
from penstock.processor.call_function import call_function
from penstock.processor.calls import CallContext
from penstock.processor.column_functions import ColumnAction, ColumnFunction
from penstock.processor.columns import ColumnError
from penstock.processor.waiting_records import WaitingRecord

STRING, LONG = Serdes.string(), Serdes.long()


def waiting(key: str, value: bytes, offset: int = 0) -> WaitingRecord:
    return WaitingRecord(key.encode(), value, 5, (), "in", 2, offset, call_id=f"in-2-{offset}-call")


def made(function: Any, *values: int | bytes, make: type[ColumnFunction] = ColumnFunction, **options: Any) -> MadeCall:
    """Return the call of a function on columns, in its first attempt, for records with the keys k0, k1, ... ."""
    columns = on_waiting_columns(function, STRING, LONG, make)
    spec = calling(Calls(threads=1), "call", columns, (STRING, LONG), **options).spec
    records = [
        waiting(f"k{place}", value.to_bytes(8, "big") if isinstance(value, int) else value, place)
        for place, value in enumerate(values)
    ]
    caller = call_function(spec, "app-call-answers", "app", STRING, LONG)
    return caller.made([Attempted(record, 1) for record in records], "connected")


def outcomes(call: MadeCall) -> list[Any]:
    """Return the results of a call, errors as their texts."""
    found = call.outcomes(call())
    return [each.result if each.error is None else f"{type(each.error).__name__}: {each.error}" for each in found]


def test_a_call_for_one_record_has_its_result() -> None:
    call = RecordCall(lambda: 5)
    assert call.outcomes(call()) == [CallOutcome(5)]


def test_a_function_on_columns_gets_values_the_client_and_the_calls() -> None:
    seen: list[Any] = []

    @vectorized
    def asked(values: list[int], *, client: str, calls: list[CallContext]) -> list[int]:
        seen.append((values, client, [(call.key, call.offset, call.attempt, call.idempotency_key) for call in calls]))
        return [value + 1 for value in values]

    assert outcomes(made(asked, 1, 2, with_key=False)) == [2, 3]
    assert seen == [([1, 2], "connected", [("k0", 0, 1, "in-2-0-call"), ("k1", 1, 1, "in-2-1-call")])]


def test_a_function_on_columns_gets_keys_and_arrays() -> None:
    @vectorized
    def asked(keys: list[str], values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        assert keys == ["k0", "k1"]
        return values * 2

    assert outcomes(made(asked, 1, 2)) == [2, 4]


def test_a_coroutine_function_is_not_awaited_here() -> None:
    @vectorized
    async def asked(values: list[int]) -> list[int]:
        return values

    columns = on_waiting_columns(asked, STRING, LONG, ColumnFunction)
    spec = calling(Calls(), "call", columns, (STRING, LONG), with_key=False).spec
    call = call_function(spec, "app-call-answers", "app", STRING, LONG).made(
        [Attempted(waiting("k", bytes(8)), 1)], None
    )
    assert call.outcomes(asyncio.run(call())) == [CallOutcome(0)]


def test_an_error_among_the_answers_fails_its_record() -> None:
    @vectorized
    def asked(values: list[int]) -> list[int | Exception]:
        return [value if value % 2 else ValueError(f"no {value}") for value in values]

    assert outcomes(made(asked, 1, 2, 3, with_key=False)) == [1, "ValueError: no 2", 3]


def test_a_record_that_cannot_be_read_fails_alone() -> None:
    @vectorized
    def asked(values: list[int]) -> list[int]:
        return values

    first, unreadable, last = outcomes(made(asked, 1, b"short", 3, with_key=False))
    assert (first, last) == (1, 3)
    assert "Store 'call-calls' has a waiting record whose value LongSerde cannot read" in unreadable


def test_no_call_is_made_without_a_readable_record() -> None:
    @vectorized
    def asked(values: list[int]) -> list[int]:
        raise AssertionError

    with pytest.raises(StreamsError, match="LongSerde cannot read"):
        made(asked, b"short", with_key=False)


@pytest.mark.parametrize("returned", [[1], [1, 2, 3], 5, None, {1: 2}])
def test_answers_are_a_column_with_one_for_each_record(returned: Any) -> None:
    @vectorized
    def asked(values: list[int]) -> Any:
        return returned

    call = made(asked, 1, 2, with_key=False)
    with pytest.raises(ColumnError, match=r"The calls of call have no answers: .*asked returned"):
        call.outcomes(call())


def test_a_coroutine_that_nothing_awaits_is_no_column() -> None:
    async def later() -> None: ...

    @vectorized
    def asked(values: list[int]) -> Any:
        return later()

    call = made(asked, 1, with_key=False)
    with pytest.raises(ColumnError, match="asked returned <coroutine object"):
        call.outcomes(call())


@pytest.mark.parametrize(
    ("returned", "expected"), [(None, [None, None]), ([None, OSError("down")], [None, "OSError: down"])]
)
def test_an_action_returns_nothing_or_errors(returned: Any, expected: list[Any]) -> None:
    @vectorized
    def act(keys: list[str], values: list[int]) -> Any:
        return returned

    assert outcomes(made(act, 1, 2, make=ColumnAction)) == expected
