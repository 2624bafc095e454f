"""Commands of the parent process: one JSON object a line, each with an answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock_broker.apis import APIS, Api
from penstock_broker.commands import Commands
from penstock_broker.errors import ConnectionClosingError
from penstock_broker.faults import Faults
from penstock_broker.state import BrokerState, Request
from tests.support.api_keys import METADATA

FAULT = {"api": "Metadata", "times": 1}


class Broker:
    """A broker that takes commands."""

    def __init__(self, state: BrokerState) -> None:
        self.state = state
        self.apis: dict[int, Api] = dict(APIS)
        self.commands = Commands(state.topics, Faults(self.apis))

    def send(self, action: str, **command: object) -> dict[str, str]:
        answer: dict[str, str] = json.loads(
            self.commands.receive(json.dumps({"do": action} | command).encode() + b"\n")
        )
        return answer

    def ask(self) -> Any:
        """Return the answer to Metadata without topics."""
        return self.apis[METADATA].handler(self.state, Request(12, {"topics": []}))


@pytest.fixture
def broker(state: BrokerState) -> Broker:
    return Broker(state)


def test_commands_arrive_in_pieces_and_are_answered_in_order(broker: Broker) -> None:
    wanted = [{"do": "create_topic", "name": name, "partitions": 2, "configs": {}} for name in ("a", "b", "a")]
    stream = b"".join(json.dumps(command).encode() + b"\n" for command in wanted)
    answers = [broker.commands.receive(stream[at : at + 7]) for at in range(0, len(stream), 7)]
    first, second, third = b"".join(answers).splitlines()
    assert first == second == b"{}"
    assert "already exists" in json.loads(third)["error"]
    assert [len(broker.state.topics.by_name(name).partitions) for name in "ab"] == [2, 2]


def test_a_line_may_hold_several_commands_worth_of_bytes(broker: Broker) -> None:
    line = json.dumps({"do": "clear_faults"}).encode() + b"\n"
    assert broker.commands.receive(line * 3 + line[:-1]) == b"{}\n" * 3
    assert broker.commands.receive(b"\n") == b"{}\n"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "not a command"),
        (b"no json", "not a command"),
        (b"[]", "not a command"),
        (b"{}", "not a command: KeyError('do')"),
        (b'{"do": "create_topic", "name": "t"}', "not a command: KeyError('partitions')"),
        (b'{"do": "drop_connection", "api": "Metadata"}', "not a command: TypeError"),
        (b'{"do": "drop_connection", "api": "Metadata", "times": 1, "more": 1}', "not a command: TypeError"),
    ],
)
def test_a_line_that_is_no_command_is_answered_with_the_reason(broker: Broker, line: bytes, reason: str) -> None:
    assert reason in json.loads(broker.commands.receive(line + b"\n"))["error"]
    assert broker.ask()["brokers"]


@pytest.mark.parametrize(
    ("action", "changes", "reason"),
    [
        ("fail", {"api": "Meta"}, "there is no API 'Meta'; there are AddOffsetsToTxn, "),
        ("fail", {"error": "NO_SUCH"}, "'NO_SUCH' is not an error of Kafka's protocol"),
        ("delay", {"delay_ms": -1}, "an answer cannot be held back for -1 ms; at least 0"),
        ("lose_answer", {"times": 0}, "a fault cannot happen 0 times; at least 1"),
        ("explode", {}, "there is no command 'explode'"),
    ],
)
def test_a_fault_that_cannot_be_is_refused_and_has_no_effect(
    broker: Broker, action: str, changes: dict[str, object], reason: str
) -> None:
    assert broker.send(action, **(FAULT | changes))["error"].startswith(reason)
    assert broker.apis == APIS


def test_faults_begin_and_end_by_command(broker: Broker) -> None:
    assert broker.send("fail", error="not_controller", **FAULT) == {}
    assert broker.send("drop_connection", **(FAULT | {"times": 9})) == {}
    assert "brokers" not in broker.ask()
    with pytest.raises(ConnectionClosingError):
        broker.ask()
    assert broker.send("clear_faults") == {}
    assert broker.ask()["brokers"]
