"""Commands of the parent process: topics and faults for its tests.

Contains the protocol on the broker's standard input, which only the parent process has: one JSON object per line,
answered by one line on standard output. Not here: the effects of faults (faults.py).
"""

from __future__ import annotations

import json
from typing import Any

from penstock_broker.errors import ApiError, BrokerError
from penstock_broker.faults import Faults, api_keys, dropping, failing, killing, late, losing_answer
from penstock_broker.topics import TopicRegistry
from penstock_broker.wire.error_codes import ErrorCode


class Commands:
    """Executes commands.

    Args:
        topics: the topics of the broker.
        faults: its faults.
    """

    def __init__(self, topics: TopicRegistry, faults: Faults) -> None:
        self._topics = topics
        self._faults = faults
        self._received = b""

    def receive(self, data: bytes) -> bytes:
        """Execute the complete commands and return their answers.

        Args:
            data: the next bytes of the command stream.
        """
        *lines, self._received = (self._received + data).split(b"\n")
        return b"".join(self._answer(line) for line in lines)

    def _answer(self, line: bytes) -> bytes:
        try:
            self._execute(json.loads(line))
            answer: dict[str, str] = {}
        except (BrokerError, ApiError) as error:
            answer = {"error": str(error)}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            answer = {"error": f"not a command: {error!r}"}
        return json.dumps(answer).encode() + b"\n"

    def _execute(self, command: dict[str, Any]) -> None:
        match command.pop("do"):
            case "create_topic":
                self._topics.create(command["name"], command["partitions"], command["configs"])
            case "clear_faults":
                self._faults.clear()
            case action:
                self._add_fault(action, **command)

    def _add_fault(self, action: str, api: str, times: int, error: str = "", delay_ms: int = 0) -> None:
        key = api_keys().get(api)
        if key is None:
            raise BrokerError(f"there is no API {api!r}; there are {', '.join(sorted(api_keys()))}")
        if times < 1:
            raise BrokerError(f"a fault cannot happen {times} times; at least 1")
        if delay_ms < 0:
            raise BrokerError(f"an answer cannot be held back for {delay_ms} ms; at least 0")
        match action:
            case "fail":
                fault = failing(key, _error_code(error))
            case "delay":
                fault = late(delay_ms)
            case "drop_connection":
                fault = dropping
            case "lose_answer":
                fault = losing_answer
            case "kill_before_answer":
                fault = killing
            case _:
                raise BrokerError(f"there is no command {action!r}")
        self._faults.add(key, fault, times)


def _error_code(name: str) -> ErrorCode:
    try:
        return ErrorCode[name.lower()]
    except KeyError:
        raise BrokerError(f"{name!r} is not an error of Kafka's protocol, such as NOT_LEADER_OR_FOLLOWER") from None
