"""The protocol between a member and its group coordinator. `classic_group` and `streams_group` implement it, `group`
uses it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from penstock.client.settings import CONSUMER, client_settings
from penstock.client.sockets.connection import Api
from penstock.config import StreamsConfig
from penstock.errors import KafkaError, StreamsError
from penstock.host.threads import member_messages as m
from penstock.host.threads.member import AbstractMember
from penstock.host.threads.settings import MAX_POLL_INTERVAL_MS
from penstock_broker.wire.codec import Message

_TAG: Final = "client.tag."
_SESSION_MS: Final = 10_000
_THREAD: Final = 1
"""Kafka Streams appends the thread number to group.instance.id; here, one member represents the instance."""


class Request(NamedTuple):
    """A request to the coordinator. take: converts the answer to an event. waits_ms: the longest time (ms) the
    coordinator may wait before it answers. since: the first version of the API of fields that older brokers refuse."""

    api: Api
    body: Message
    take: Callable[[Message], m.MemberEvent]
    waits_ms: int = 0
    since: Mapping[str, int] = MappingProxyType({})

    def fields(self, version: int) -> Message:
        """Return the fields of the body that a broker with this version of the API takes."""
        return {name: value for name, value in self.body.items() if self.since.get(name, 0) <= version}


class GroupProtocol(Protocol):
    """One member, and its requests. Called by one thread at a time."""

    @property
    def member(self) -> AbstractMember:
        """The member, which decides on the requests."""
        ...

    @property
    def instance(self) -> str:
        """The name of a static member, empty for a dynamic member."""
        ...

    def request(self, command: m.MemberCommand) -> Request | None:
        """Return the request for `command`, None if it sends nothing."""
        ...

    def removal(self, former: str) -> Request | None:
        """Return the request that ends the membership of a killed instance of this process, None if not needed.
        former: the id of its member."""
        ...

    def refusal(self, code: int, message: str) -> StreamsError | None:
        """Return the error for a refusal specific to this protocol, else None. message: from the coordinator."""
        ...


def max_poll_interval_ms(config: StreamsConfig) -> int:
    """Return the longest time (ms) without progress before other members get an instance's tasks."""
    return int(client_settings(config, CONSUMER).get("max.poll.interval.ms", MAX_POLL_INTERVAL_MS))


def session_timeout_ms(config: StreamsConfig) -> int:
    """Return the time (ms) without heartbeats after which the coordinator removes a member of the classic protocol."""
    return int(client_settings(config, CONSUMER).get("session.timeout.ms", _SESSION_MS))


def instance_id(config: StreamsConfig) -> str:
    """Return the name of a static member (group.instance.id), empty for a dynamic member."""
    given = str(client_settings(config, CONSUMER).get("group.instance.id") or "")
    return f"{given}-{_THREAD}" if given else ""


def fenced_instance(group: str, instance: str) -> StreamsError:
    """Return the error of a static member whose place another process has."""
    return KafkaError(
        f"Another process is the member {instance!r} of the group {group!r}: it was started later with the same "
        "group.instance.id. Give each instance its own."
    )


def client_tags(config: StreamsConfig) -> dict[str, str]:
    """Return the values of `client.tag.`, by key."""
    tags = config.client_config().items()
    return {key.removeprefix(_TAG): str(value) for key, value in tags if key.startswith(_TAG)}


def now_ms() -> int:
    """Return the current time (ms) of the clock used by members."""
    return time.monotonic_ns() // 1_000_000
