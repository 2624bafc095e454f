"""The classic group protocol: the JoinGroup, SyncGroup, Heartbeat and LeaveGroup requests of a member."""

from __future__ import annotations

import logging
from typing import Final

from penstock.client.settings import CONSUMER, client_settings
from penstock.client.sockets.connection import Api
from penstock.config import StreamsConfig
from penstock.errors import ConfigError, KafkaError, StreamsError
from penstock.host.deployment.layout import Layout
from penstock.host.threads import member_messages as m
from penstock.host.threads.assignor import VERSION
from penstock.host.threads.classic_member import ClassicMember
from penstock.host.threads.group_protocol import (
    Request,
    client_tags,
    fenced_instance,
    instance_id,
    max_poll_interval_ms,
    now_ms,
    session_timeout_ms,
)
from penstock.host.threads.member import Timing
from penstock.host.threads.membership import ChangelogPositions
from penstock.host.threads.subscription import Rules, Subscription, encode_subscription
from penstock.plan.subtopology import TaskId
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode

_log = logging.getLogger(__name__)

# The oldest versions are the first with static members (Kafka 2.3).
JOIN_GROUP: Final = Api("JoinGroup", 11, 5, 9)
SYNC_GROUP: Final = Api("SyncGroup", 14, 3, 5)
HEARTBEAT: Final = Api("Heartbeat", 12, 3, 4)
LEAVE_GROUP: Final = Api("LeaveGroup", 13, 3, 5)

ASSIGNOR: Final = "penstock"
"""The protocol name that members agree on. A group with other protocols refuses it, and vice versa."""

_PROTOCOL_TYPE: Final = "consumer"
_HEARTBEAT_MS = 500  # a member learns of a rebalance from its next heartbeat


class ClassicProtocol:
    """A member of the classic protocol (see `group_protocol.GroupProtocol`).

    Args:
        layout: the tasks of the application.
        config: its configuration.
        process: the id of this process.
        state: known positions of the state of tasks, or None.
        workers: the number of tasks that this process can run at the same time.

    Raises:
        ConfigError: the heartbeat interval is not shorter than the session timeout.
    """

    def __init__(
        self, layout: Layout, config: StreamsConfig, process: str, state: ChangelogPositions | None, workers: int
    ) -> None:
        settings = client_settings(config, CONSUMER)
        self._group = str(config["application.id"])
        self._rules = Rules(
            layout.groups,
            layout.stateful,
            config["num.standby.replicas"],
            config["acceptable.recovery.lag"],
            config["max.warmup.replicas"],
            tuple(filter(None, (tag.strip() for tag in config["rack.aware.assignment.tags"].split(",")))),
            layout.store_kinds,
        )
        self._tags = client_tags(config)
        self._server = config["application.server"] or ""
        self._state = state
        self._process = process
        self._workers = workers
        self._session_ms = session_timeout_ms(config)
        self._rebalance_ms = max_poll_interval_ms(config)
        heartbeat_ms = int(settings.get("heartbeat.interval.ms", min(_HEARTBEAT_MS, self._session_ms // 3)))
        if heartbeat_ms >= self._session_ms:
            raise ConfigError(
                f"Invalid configuration heartbeat.interval.ms={heartbeat_ms}: expected less than session.timeout.ms="
                f"{self._session_ms}, or the group would remove this member between two heartbeats. A third of it is "
                "usual."
            )
        self.instance = instance_id(config)
        timing = Timing(self._session_ms, heartbeat_ms, probing_ms=config["probing.rebalance.interval.ms"])
        self.member = ClassicMember(self._rules, timing, self.instance)

    def request(self, command: m.MemberCommand) -> Request | None:
        """Return the request for `command`, None if it sends nothing."""
        match command:
            case m.Join(member_id, generation, owned, shuts_down):
                body = self._join_body(member_id, generation, owned, shuts_down)
                return Request(JOIN_GROUP, body, self._joined, self._rebalance_ms)
            case m.Sync(member_id, generation, assignments):
                each = [{"member_id": one, "assignment": content} for one, content in assignments.items()]
                body = {
                    **self._identity(member_id, generation),
                    "protocol_type": _PROTOCOL_TYPE,
                    "protocol_name": ASSIGNOR,
                    "assignments": each,
                }
                return Request(SYNC_GROUP, body, _synced, self._rebalance_ms)
            case m.Heartbeat(member_id, generation):
                sent_ms = now_ms()
                body = self._identity(member_id, generation)
                return Request(HEARTBEAT, body, lambda answer: m.HeartbeatAnswered(answer["error_code"], sent_ms))
            case m.LeaveGroup(member_id):
                body = {
                    "group_id": self._group,
                    "member_id": member_id,
                    "members": [{"member_id": member_id, "reason": "the instance is closed"}],
                }
                return Request(LEAVE_GROUP, body, lambda _: m.LeaveAnswered())
            case _:
                return None

    def _identity(self, member_id: str, generation: int) -> Message:
        return {
            "group_id": self._group,
            "member_id": member_id,
            "group_instance_id": self.instance or None,
            "generation_id": generation,
        }

    def _join_body(self, member_id: str, generation: int, owned: frozenset[TaskId], shuts_down: bool) -> Message:
        tasks = [(task.subtopology, task.partition) for task in sorted(owned)]
        positions = {} if self._state is None else self._state.positions()
        subscription = Subscription(
            VERSION,
            self._process,
            self._rules.application,
            generation,
            tasks,
            [(*task, position) for task, position in sorted(positions.items())],
            self.instance,
            self._tags,
            self._server,
            shuts_down=shuts_down,
            workers=self._workers,
        )
        return {
            "group_id": self._group,
            "session_timeout": self._session_ms,
            "rebalance_timeout": self._rebalance_ms,
            "member_id": member_id,
            "group_instance_id": self.instance or None,
            "protocol_type": _PROTOCOL_TYPE,
            "protocols": [{"name": ASSIGNOR, "metadata": encode_subscription(subscription, self._rules)}],
        }

    def _joined(self, answer: Message) -> m.JoinAnswered:
        # A static leader that has restarted leads no rebalance.
        leader = "" if answer.get("skip_assignment") else answer["leader"]
        members = {one["member_id"]: one["metadata"] for one in answer["members"]}
        ends = None
        if leader and leader == answer["member_id"] and self._rules.stateful and self._state is not None:
            try:
                ends = self._state.ends()
            except KafkaError as error:
                _log.warning("The assignment goes by what members have of the state of tasks, not by ends: %s", error)
        return m.JoinAnswered(answer["error_code"], answer["member_id"], answer["generation_id"], leader, members, ends)

    def removal(self, former: str) -> Request | None:
        """Return the request that removes the member `former`; None for static members, whose place a join takes."""
        return None if self.instance else self.request(m.LeaveGroup(former))

    def refusal(self, code: int, message: str) -> StreamsError | None:
        """Return the error for a refusal specific to this protocol, else None."""
        if code == ErrorCode.inconsistent_group_protocol:
            return KafkaError(
                f"The group {self._group!r} has members of another program, such as Kafka Streams in Java, or with "
                "group.protocol=streams. Stop them; a member that did not leave is in the group until its "
                "session.timeout.ms has passed."
            )
        if code == ErrorCode.fenced_instance_id:
            return fenced_instance(self._group, self.instance)
        return None


def _synced(answer: Message) -> m.SyncAnswered:
    return m.SyncAnswered(answer["error_code"], answer["assignment"])
