"""What all clients over confluent-kafka share: how they are made, bounded retries, and errors that a person can read.

Rules: every wait has a bound; what librdkafka reports in the background (a broker that is down, a refused login) is
kept and told with the call that failed; values of settings are never told, for they may be secrets.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException

from penstock.errors import (
    BrokerNotFoundError,
    ConfigError,
    KafkaError,
    OffsetOutOfRangeError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)

T = TypeVar("T")
C = TypeVar("C")

_log = logging.getLogger("penstock.client.librdkafka")
_log.addHandler(logging.NullHandler())  # librdkafka's lines are for who sets up logging; what matters is in the errors

RETRY_SECONDS = 0.05
"""Pause between two attempts at the same call."""

_UNREACHABLE = frozenset(
    (Code._TIMED_OUT, Code._TRANSPORT, Code._ALL_BROKERS_DOWN, Code._RESOLVE, Code._AUTHENTICATION, Code._SSL)
)
UNKNOWN_TOPIC = frozenset((Code.UNKNOWN_TOPIC_OR_PART, Code._UNKNOWN_TOPIC, Code._UNKNOWN_PARTITION, Code._NOENT))
"""Codes that say that a topic or a partition is not there."""


class Connection:
    """What all clients share: how they are made, and how librdkafka's errors become Penstock's."""

    def __init__(self, settings: Mapping[str, Any], timeout_ms: int) -> None:
        """Take what `client_settings` gave and the bound (ms) of one call."""
        self.settings = {**settings, "error_cb": self._noticed, "logger": _log}
        self.servers = str(settings["bootstrap.servers"])
        self.timeout_ms = timeout_ms
        self.noticed: Code | None = None
        """What librdkafka last reported in the background."""
        self.serve: Callable[[float], object] = nothing_to_serve
        """Takes reports that are waiting, for up to so many seconds; set by clients that do not do so by themselves."""

    @property
    def timeout(self) -> float:
        """The bound of one call in seconds, as confluent-kafka wants it."""
        return self.timeout_ms / 1000

    def _noticed(self, error: Code) -> None:
        self.noticed = error
        _log.debug("%s", error.str())

    def _background(self) -> str | None:
        return None if self.noticed is None else str(self.noticed.str())

    def make(self, client: Callable[[dict[str, Any]], C]) -> C:
        """Make a client from the settings; raises ConfigError naming the key that librdkafka refuses."""
        try:
            return client(self.settings)
        except KafkaException as error:
            reason = error.args[0].str().rstrip(".")
            key = next((key for key in sorted(self.settings, key=len, reverse=True) if key in reason), None)
            if error.args[0].code() != Code._INVALID_ARG or key is None:
                raise KafkaError(f"Cannot make a client for bootstrap.servers={self.servers}: {reason}.") from error
            # The reason may repeat a value, and the value may be a secret: it is not told, nor chained.
            problem = "does not know it" if "No such" in reason else "refuses its value"
            raise ConfigError(
                f"Invalid configuration {key}: the Kafka client, librdkafka, {problem}; "
                "its CONFIGURATION.md lists keys and values."
            ) from None

    def fail(self, error: Code, doing: str) -> NoReturn:
        """Raise the StreamsError for what librdkafka reported while `doing` something."""
        code, reason = error.code(), error.str().rstrip(".")
        if code in _UNREACHABLE:
            self.serve(0)
            raise BrokerNotFoundError(
                f"No broker of bootstrap.servers={self.servers} answered within {self.timeout_ms} ms ({doing}): "
                f"{self._background() or reason}. Check the address and that the broker runs; "
                "`penstock broker` starts one on this machine."
            )
        if code in UNKNOWN_TOPIC:
            raise UnknownTopicOrPartitionError(
                f"Cannot go on ({doing}) at bootstrap.servers={self.servers}: {reason}. "
                "`penstock topics list` shows the topics, `penstock topics create` makes one."
            )
        if code == Code.TOPIC_ALREADY_EXISTS:
            raise TopicExistsError(f"Cannot go on ({doing}) at bootstrap.servers={self.servers}: {reason}.")
        if code in (Code._AUTO_OFFSET_RESET, Code.OFFSET_OUT_OF_RANGE):
            raise OffsetOutOfRangeError(
                f"Cannot go on ({doing}): {reason}. The records have been deleted by retention, or the topic was made "
                "anew; start from a new checkpoint, or with another application.id."
            )
        raise KafkaError(f"Cannot go on ({doing}) at bootstrap.servers={self.servers}: {reason}.")

    def call(self, doing: str, action: Callable[[], T]) -> T:
        """Return what `action` returns; it is tried again within the bound while the error is a passing one."""
        deadline = time.monotonic() + self.timeout
        while True:
            try:
                return action()
            except KafkaException as error:
                code: Code = error.args[0]
                if not passing(code) or time.monotonic() >= deadline:
                    self.fail(code, doing)
                time.sleep(RETRY_SECONDS)
            except TimeoutError as error:
                raise BrokerNotFoundError(
                    f"bootstrap.servers={self.servers} did not answer within {self.timeout_ms} ms ({doing}): "
                    f"{self._background() or 'no reason is known'}."
                ) from error


def nothing_to_serve(seconds: float) -> None:
    """A consumer serves its reports while it is polled."""


def passing(code: Code) -> bool:
    """Tell whether the same call may succeed a moment later."""
    return bool(code.retriable()) or code.code() in (
        Code.LEADER_NOT_AVAILABLE,
        Code.NOT_LEADER_FOR_PARTITION,
        Code.FENCED_LEADER_EPOCH,
        Code.UNKNOWN_LEADER_EPOCH,  # the broker has yet to hear of the leader that this client knows
        Code.COORDINATOR_NOT_AVAILABLE,
        Code.COORDINATOR_LOAD_IN_PROGRESS,
        Code.NOT_COORDINATOR,
        Code.UNSTABLE_OFFSET_COMMIT,
        Code.CONCURRENT_TRANSACTIONS,
    )
