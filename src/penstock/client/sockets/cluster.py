"""Connections to the brokers of a cluster.

Requests go to any broker, one by id, the leader of a partition, or a coordinator.

Rule: a call is retried while its error is retriable, within the timeout of the client.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

from penstock.client.failures import Right
from penstock.client.settings import ADMIN, client_settings
from penstock.client.sockets.connection import Api, BrokerConnection, ConnectionSettings
from penstock.config import StreamsConfig
from penstock.errors import BrokerNotFoundError, ConfigError, RetriableError
from penstock.record import TopicPartition
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode

T = TypeVar("T")

GROUP, TRANSACTION = 0, 1
"""Types of coordinators."""

METADATA: Final = Api("Metadata", 3, 4, 12)
FIND_COORDINATOR: Final = Api("FindCoordinator", 10, 1, 6)

_FIRST_OF_SEVERAL: Final = 4
"""The first version of FindCoordinator with several keys."""

_DEFAULT_PORT: Final = 9092
_RETRY_SECONDS: Final = 0.05


class BrokerNode(NamedTuple):
    """A broker of a cluster."""

    id: int
    host: str
    port: int


class Cluster:
    """Sends requests to the brokers of a cluster; a context manager that closes its connections.

    Args:
        config: the configuration of the application.
        timeout_ms: the timeout (ms) of one call; its last attempt may exceed it.
        role: CONSUMER, PRODUCER or ADMIN; selects the configuration keys.

    Raises:
        ConfigError: a configuration key has no counterpart in Penstock's own connections, or an invalid value.
    """

    def __init__(self, config: StreamsConfig, timeout_ms: int = 10_000, role: str = ADMIN) -> None:
        settings = client_settings(config, role)
        self._settings = ConnectionSettings(settings, timeout_ms)
        self._bootstrap = parsed_servers(str(settings["bootstrap.servers"]))
        self._connections: dict[tuple[str, int], BrokerConnection] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; idempotent."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def connect(self, node: BrokerNode, doing: str) -> BrokerConnection:
        """Return a new connection, to be closed by the caller. Raises the errors of BrokerConnection."""
        return BrokerConnection(node.host, node.port, self._settings, doing)

    def repeat(self, attempt: Callable[[], T]) -> T:
        """Return the result of `attempt`, retrying RetriableError within the timeout."""
        deadline = time.monotonic() + self._settings.timeout_ms / 1000
        while True:
            try:
                return attempt()
            except RetriableError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_RETRY_SECONDS)

    def check(self, part: Message, doing: str, *needs: Right) -> None:
        """Raise the error of a response or a part of it, if any.

        Args:
            part: a message with `error_code` and perhaps `error_message`.
            doing: the purpose of the request.
            needs: the permissions for the request.
        """
        code: int = part["error_code"]
        if code == ErrorCode.none:
            return
        try:
            known = ErrorCode(code)
            name, is_passing = known.name.upper(), known.retriable
        except ValueError:
            name, is_passing = f"error {code}", False
        text = str(part.get("error_message") or "").rstrip(".")
        reason = f"{text} ({name})" if text else name
        raise self._settings.failures.answer(code, reason, doing, *needs, is_passing=is_passing)

    def ask_any(self, api: Api, body: Message, doing: str) -> Message:
        """Return the response of the first broker that answers.

        Connected brokers are tried before those of bootstrap.servers. Raises the errors of BrokerConnection.
        """
        known = [address for address, connection in self._connections.items() if not connection.is_closed]
        failure: BrokerNotFoundError | None = None
        for host, port in dict.fromkeys((*known, *self._bootstrap)):
            try:
                return self._ask(host, port, api, body, doing)
            except BrokerNotFoundError as error:
                failure = failure or error
        raise failure or ConfigError("Invalid configuration bootstrap.servers: it names no broker.")

    def ask(self, node: BrokerNode, api: Api, body: Message, doing: str) -> Message:
        """Return the response of one broker. Raises the errors of BrokerConnection."""
        return self._ask(node.host, node.port, api, body, doing)

    def nodes(self, doing: str) -> dict[int, BrokerNode]:
        """Return the brokers by id."""
        return _nodes(self.ask_any(METADATA, {"topics": []}, doing))

    def partitions(self, doing: str, topic: str | None = None) -> dict[TopicPartition, Message]:
        """Return the partitions of a topic, or of all topics, as in the Metadata response.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist.
        """
        wanted = None if topic is None else [{"name": topic}]
        body = {"topics": wanted, "allow_auto_topic_creation": False}
        result: dict[TopicPartition, Message] = {}
        for found in self.ask_any(METADATA, body, doing)["topics"]:
            name = found["name"]
            self.check(found, doing, Right("DESCRIBE", "topic", name))
            for partition in found["partitions"]:
                result[TopicPartition(name, partition["partition_index"])] = partition
        return result

    def leader(self, partition: TopicPartition, doing: str) -> BrokerNode:
        """Return the leader of a partition.

        Raises:
            UnknownTopicOrPartitionError: the partition does not exist.
            RetriableError: the partition has no leader at present.
        """
        found = self.partitions(doing, partition.topic).get(partition)
        if found is None:
            self.check({"error_code": ErrorCode.unknown_topic_or_partition}, doing)
        else:
            self.check(found, doing)
        nodes = self.nodes(doing)
        leader: int = -1 if found is None else found["leader_id"]
        if leader not in nodes:
            self.check({"error_code": ErrorCode.leader_not_available}, doing)
        return nodes[leader]

    def coordinator(self, kind: int, key: str, doing: str, *needs: Right) -> BrokerNode:
        """Return the coordinator of a group or a transactional id.

        Args:
            kind: GROUP or TRANSACTION.
            key: the id of the group, or the transactional id.
            doing: the purpose of the request.
            needs: the permissions for the request.

        Raises:
            RetriableError: there is no coordinator at present.
        """
        body = {"key": key, "key_type": kind, "coordinator_keys": [key]}
        answer = self.ask_any(FIND_COORDINATOR, body, doing)
        [found] = answer.get("coordinators", [answer])
        self.check(found, doing, *needs)
        return BrokerNode(found["node_id"], found["host"], found["port"])

    def _ask(self, host: str, port: int, api: Api, body: Message, doing: str) -> Message:
        connection = self._connections.get((host, port))
        if connection is None or connection.is_closed:
            connection = self._connections[host, port] = BrokerConnection(host, port, self._settings, doing)
        return connection.call(api, body, doing)


def parsed_servers(servers: str) -> list[tuple[str, int]]:
    """Return the hosts and ports in `bootstrap.servers`.

    Args:
        servers: such as `one:9092,two:9092`; a host may be an IPv6 address in brackets.

    Raises:
        ConfigError: a port is not a number.
    """
    result = []
    for server in filter(None, (part.strip() for part in servers.split(","))):
        address = server.rpartition("://")[2]
        host, colon, port = address.rpartition(":")
        if not colon or address.endswith("]"):
            host, port = address, str(_DEFAULT_PORT)
        if not port.isdecimal():
            raise ConfigError(f"Invalid configuration bootstrap.servers: expected HOST:PORT, got {server!r}.")
        result.append((host.strip("[]"), int(port)))
    return result


def _nodes(answer: dict[str, Any]) -> dict[int, BrokerNode]:
    return {one["node_id"]: BrokerNode(one["node_id"], one["host"], one["port"]) for one in answer["brokers"]}
