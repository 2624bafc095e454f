"""Faults of requests: how often they happen, and the answers of requests that fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock_broker.answers import LaterAnswer
from penstock_broker.apis import APIS, Api
from penstock_broker.errors import ConnectionClosingError
from penstock_broker.faults import (
    Fault,
    Faults,
    api_keys,
    api_name,
    dropping,
    error_response,
    failing,
    late,
    losing_answer,
)
from penstock_broker.state import BrokerState, Request
from penstock_broker.wire.codec import Message, response_encoder
from penstock_broker.wire.error_codes import ErrorCode
from penstock_broker.wire.primitives import Sink
from tests.support.api_keys import METADATA

NESTED = {"topics": [{"name": "t", "partitions": [{"partition_index": 3, "error_code": 29}]}]}
FETCHED = {"topic": "t", "partitions": [{"partition_index": 3, "error_code": 29}]}


@pytest.mark.parametrize(
    ("key", "version", "body", "expected"),
    [
        (2, 7, {"topics": [{"name": "t", "partitions": [{"partition_index": 3}]}]}, NESTED),
        (1, 11, {"topics": [{"topic": "t", "partitions": [{"partition": 3}]}]}, {"responses": [FETCHED]}),
        (9, 7, {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [3]}]}, {"error_code": 29}),
        (10, 4, {"coordinator_keys": ["g"]}, {"coordinators": [{"key": "g", "error_code": 29}]}),
        (20, 1, {"topic_names": ["t"]}, {"responses": [{"name": "t", "error_code": 29}]}),
        (
            24,
            3,
            {"v3_and_below_topics": [{"name": "t", "partitions": [3]}]},
            {
                "results_by_topic_v3_and_below": [
                    {"name": "t", "results_by_partition": [{"partition_index": 3, "partition_error_code": 29}]}
                ]
            },
        ),
    ],
)
def test_an_error_stands_where_clients_look_for_it(key: int, version: int, body: Message, expected: Message) -> None:
    assert error_response(key, version, body, ErrorCode.topic_authorization_failed) == expected


@pytest.mark.parametrize("key", list(APIS))
def test_every_version_of_every_api_has_a_response_with_an_error(key: int) -> None:
    for version in range(APIS[key].min_version, APIS[key].max_version + 1):
        response = error_response(key, version, {}, ErrorCode.unknown_server_error)
        response_encoder(key, version)(Sink(), response)
    assert api_name(key)


class FaultyBroker:
    """A broker without sockets whose requests have faults."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self.apis: dict[int, Api] = dict(APIS)
        self.faults = Faults(self.apis)

    def ask(self, key: int, version: int, body: Message) -> Any:
        return self.apis[key].handler(self._state, Request(version, body))

    def outcome(self) -> str:
        """Return the outcome of the next Metadata."""
        try:
            answer = self.ask(METADATA, 12, {"topics": [{"name": "t"}]})
        except ConnectionClosingError:
            return "closed"
        return ErrorCode(next(iter(answer["topics"]))["error_code"]).name


@pytest.fixture
def faulty(state: BrokerState) -> FaultyBroker:
    return FaultyBroker(state)


def test_faults_happen_in_order_and_leave_the_table_as_it_was(faulty: FaultyBroker) -> None:
    faulty.faults.add(METADATA, failing(METADATA, ErrorCode.not_controller), 2)
    faulty.faults.add(METADATA, dropping, 1)
    assert [faulty.outcome() for _ in range(4)] == ["not_controller", "not_controller", "closed", "none"]
    assert faulty.apis == APIS
    faulty.faults.add(METADATA, dropping, 1)
    faulty.faults.clear()
    assert faulty.apis == APIS


@pytest.mark.parametrize(("fault", "has_effect"), [(dropping, False), (losing_answer, True)])
def test_a_connection_is_closed_before_or_after_the_effect(
    faulty: FaultyBroker, state: BrokerState, fault: Fault, has_effect: bool
) -> None:
    faulty.faults.add(METADATA, fault, 1)
    assert faulty.outcome() == "closed"
    assert [topic.name for topic in state.topics.all()] == (["t"] if has_effect else [])


class NotedAnswer(LaterAnswer):
    """Notes whether it was started or cancelled."""

    def __init__(self) -> None:
        self.done: Callable[[Message], None] | None = None
        self.is_cancelled = False

    def start(self, done: Callable[[Message], None]) -> None:
        self.done = done

    def cancel(self) -> None:
        self.is_cancelled = True


def test_an_answer_that_is_lost_waits_for_nothing(state: BrokerState) -> None:
    answer = NotedAnswer()
    with pytest.raises(ConnectionClosingError):
        losing_answer(lambda state, request: answer, state, Request(0, {}))
    assert (answer.done, answer.is_cancelled) == (None, True)


def test_a_late_answer_is_given_after_its_delay_unless_the_client_is_gone(state: BrokerState) -> None:
    def delayed(made: Message | LaterAnswer | None) -> Message | LaterAnswer | None:
        return late(2_000)(lambda state, request: made, state, Request(0, {}))

    async def exchange() -> list[Message]:
        now = [0.0]
        asyncio.get_running_loop().time = lambda: now[0]  # type: ignore[method-assign]  # the test's own clock
        given, waits = list[Message](), NotedAnswer()
        answers = [answer for made in ({"n": 1}, {"n": 2}, waits) if isinstance(answer := delayed(made), LaterAnswer)]
        for answer in answers:
            answer.start(given.append)
        answers[1].cancel()
        assert waits.done is not None
        waits.done({"n": 3})
        for now[0] in (1.9, 2.0):
            assert given == []
            for _ in range(3):
                await asyncio.sleep(0)
        return given

    assert asyncio.run(exchange()) == [{"n": 1}, {"n": 3}]
    assert delayed(None) is None


def test_a_late_answer_that_still_waits_is_cancelled_with_its_client(state: BrokerState) -> None:
    waits = NotedAnswer()
    answer = late(1)(lambda state, request: waits, state, Request(0, {}))
    assert isinstance(answer, LaterAnswer)
    answer.start(lambda response: None)
    answer.cancel()
    assert waits.is_cancelled


def test_apis_have_the_names_of_kafka() -> None:
    assert {api_keys()[name] for name in ("Produce", "TxnOffsetCommit")} == {0, 28}
    assert sorted(api_keys().values()) == sorted(APIS)
