"""The functions that Calls takes, and the node of an operator with calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from penstock import Backoff, Calls, Consumed, Park, Retry, Serdes, StreamsBuilder
from penstock.dsl.call_nodes import call_takes_key, calling, checked_call, failure_of, rules_of
from penstock.plan.explicit_names import generated_names
from penstock.processor.calls import CallFailure, CallOrder, CallRules, Reconcile
from penstock.serdes.answers import NoAnswerSerde, PlainAnswerSerde

STRING, LONG = Serdes.string(), Serdes.long()
TEXT = Consumed.with_(STRING, STRING)


async def service(value: str) -> int:
    return len(value)


async def given(key: str, value: str, *, client: object, call: object) -> int:
    return len(value)


async def by_position(order: str, client: object) -> int:
    return len(order)


async def typing_error(value: str, *, clinet: object) -> int:
    return len(value)


async def other_keyword(value: str, *, limit: int) -> int:
    return limit


async def with_client(value: str, *, client: object) -> int:
    return len(value)


async def client_if_any(client: str, *, call: object = None) -> int:
    return len(client)


async def generated(value: str) -> AsyncIterator[str]:
    yield value


def items(value: str) -> Iterator[str]:
    yield value


class Client:
    async def __call__(self, value: str) -> str:
        return value


def test_calls_are_the_rules_of_an_operator() -> None:
    backoff = Backoff(5)
    calls = Calls(
        capacity=3,
        timeout=timedelta(seconds=2),
        retry=Retry(attempts=4, backoff=backoff, on=OSError),
        rate=2.5,
        order="partition",
        threads=2,
        max_records=7,
        max_bytes=8,
    )
    assert rules_of(calls, service) == CallRules(
        capacity=3,
        timeout_ms=2_000,
        attempts=4,
        backoff=backoff,
        retry_on=(OSError,),
        rate=2.5,
        order=CallOrder.PARTITION,
        threads=2,
        max_records=7,
        max_bytes=8,
    )
    assert [failure_of(Calls(**each)) for each in ({}, {"on_failure": "skip"}, {"then": "letters"})] == [  # type: ignore[arg-type]  # a dict has one type of values
        CallFailure.RAISE,
        CallFailure.SKIP,
        CallFailure.BURY,
    ]


def test_a_coroutine_function_needs_calls() -> None:
    with pytest.raises(TypeError, match=r"service is a coroutine function, .*if it is given calls=Calls\(\)"):
        StreamsBuilder().stream("in").map_values(service)


@pytest.mark.parametrize(
    ("calls", "function", "message"),
    [
        (Calls(), str.upper, r"upper is no coroutine function: write `async def`, or .* Calls\(threads=8\)"),
        (Calls(threads=2), service, "service is a coroutine function, which needs no threads"),
        (Calls(), generated, "generated is a generator function; a function with Calls returns a list"),
        (Calls(threads=2), items, "items is a generator function"),
        (5, service, r"Expected Calls as calls of service, got 5: write Calls\(capacity=100\)"),
        (Calls(open=nullcontext), by_position, r"by_position\(order.* takes client by position, .* write `\*, client`"),
        (Calls(), by_position, r"takes client by position"),
        (
            Calls(),
            typing_error,
            r"typing_error\(value.* takes clinet by keyword, which no call gives: .* mean client\?",
        ),
        (Calls(), other_keyword, r"other_keyword\(.* takes limit by keyword, .* functools.partial.$"),
        (Calls(), lambda value: service(value), "no coroutine function: .* In place of a lambda .* give that function"),
        (Calls(), with_client, r"with_client\(value.* takes a client, but Calls has no open: write Calls\(open="),
        (Calls(), 5, r"Expected a function mapper\(value\) or mapper\(key, value\), got 5"),
    ],
)
def test_functions_that_do_not_fit_are_refused(calls: Any, function: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        StreamsBuilder().stream("in").map_values(function, calls=calls)


async def known(value: str, *, call: object) -> int:
    return len(value)


async def known_by_key(key: str, value: str, *, client: object) -> int:
    return len(value)


@pytest.mark.parametrize(
    ("reconcile", "message"),
    [
        (5, r"Expected a function reconcile\(value\), got 5"),
        (known_by_key, r"reconcile cannot be called as reconcile\(value\): known_by_key"),
        (str.upper, "The reconcile str.upper is no coroutine function"),
        (with_client, "with_client.* takes a client, but Calls has no open"),
    ],
)
def test_a_function_that_asks_for_answers_fits_the_called_one(reconcile: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        StreamsBuilder().stream("in").map_values(service, calls=Calls(reconcile=reconcile))


def test_the_node_has_the_function_that_asks_for_answers() -> None:
    of_value = calling(Calls(reconcile=known), "call", service, (None, None), with_key=False).spec.reconcile
    assert of_value == Reconcile(known, frozenset({"call"}))
    of_both = calling(Calls(reconcile=known_by_key, open=nullcontext), "call", given, (None, None)).spec.reconcile
    assert of_both == Reconcile(known_by_key, frozenset({"client"}))
    assert calling(Calls(), "call", given, (None, None)).spec.reconcile is None


def test_a_short_timeout_is_written_with_its_unit() -> None:
    for given, milliseconds in ((timedelta(milliseconds=5), 5), (100, 100)):
        assert rules_of(Calls(timeout=given), print).timeout_ms == milliseconds


def test_a_keyword_of_the_user_has_a_default_or_is_bound() -> None:
    bound = partial(other_keyword, limit=5)
    assert not call_takes_key(Calls(), bound, "mapper")


def test_an_operator_either_calls_or_parks() -> None:
    park = Park(backoff=Backoff(1), attempts=2)
    mapped: Any = StreamsBuilder().stream("in").map_values
    with pytest.raises(TypeError, match="call has both calls and on_error"):
        mapped(service, "call", calls=Calls(), on_error=park)


def test_parameters_of_a_call_do_not_count() -> None:
    with_client = Calls(open=nullcontext)
    assert call_takes_key(with_client, given, "mapper")
    assert not call_takes_key(Calls(), service, "mapper")
    assert not call_takes_key(Calls(), Client(), "mapper")
    assert checked_call(with_client, given, "predicate(key, value)") is given
    assert not call_takes_key(Calls(), client_if_any, "mapper")
    with pytest.raises(TypeError, match=r"cannot be called as predicate\(key, value\)"):
        checked_call(Calls(), service, "predicate(key, value)")


def test_the_node_has_the_store_and_the_calls() -> None:
    made = calling(Calls(then="letters"), "call", given, (STRING, LONG))
    assert (made.store.name, made.store.logging, made.store.caching) == ("call-calls", True, False)
    assert (made.store.key_serde.inner, made.store.value_serde.inner) == (STRING, LONG)  # type: ignore[union-attr]  # serdes of waiting records
    assert made.dead_letters == "letters"
    spec = made.spec
    assert (spec.node, spec.store, spec.function, spec.with_key) == ("call", "call-calls", given, True)
    assert (spec.takes, spec.on_failure) == ({"client", "call"}, CallFailure.BURY)
    assert (spec.key_serde, spec.value_serde) == (STRING, LONG)


def test_options_of_the_store_and_the_results_are_taken() -> None:
    calls = Calls().with_store_name("waiting").with_key_serde(LONG).with_value_serde(STRING).with_answer_serde(STRING)
    made = calling(calls, "call", service, (None, None), NoAnswerSerde(), with_key=False)
    assert (made.store.name, made.spec.key_serde, made.spec.value_serde) == ("waiting", LONG, STRING)
    assert (made.spec.answer_serde, made.spec.with_key, made.spec.takes) == (STRING, False, frozenset())
    without = calling(Calls(), "call", service, (None, None), NoAnswerSerde())
    assert isinstance(without.spec.answer_serde, NoAnswerSerde)
    annotated = calling(Calls(), "call", service, (None, None)).spec.answer_serde
    assert not isinstance(annotated, PlainAnswerSerde)


def test_a_serde_that_does_not_fit_the_stream_is_refused() -> None:
    stream = StreamsBuilder().stream("in", TEXT)
    with pytest.raises(TypeError, match="the keys are of type str, but LongSerde writes int"):
        stream.map_values(service, calls=Calls(key_serde=LONG))


def test_generated_names_of_stores_and_topics_are_listed() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", TEXT)
    stream.map_values(service, calls=Calls())
    stream.map_values(service, calls=Calls(store_name="waiting"))
    stream.map_values(service, "call", calls=Calls())
    name = "KSTREAM-MAPVALUES-000000000"
    assert generated_names(builder._graph.plan()) == (
        f"Following changelog topic(s) has not been named: {name}1-calls-changelog\n"
        f"Following state store(s) has not been named: {name}1-calls\n"
        f"Following answers topic(s) has not been named: {name}1-answers, {name}2-answers\n"
    )
