"""The group membership of an instance: sends requests to a broker, and commits offsets.

Two threads: one for the membership, which owns the member (`member`) and its connection, and one for commits, with its
own connection. While a join waits for other members, brokers answer nothing else on its connection, but commits
continue.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from penstock.client.api import GroupIdentity, OffsetAndMetadata
from penstock.client.failures import Right
from penstock.client.settings import CONSUMER
from penstock.client.sockets.cluster import GROUP, BrokerNode, Cluster
from penstock.client.sockets.offsets import MEMBER_FENCED, OFFSET_COMMIT, offset_topics
from penstock.config import StreamsConfig
from penstock.errors import KafkaError, RetriableError, StreamsError, TaskMigratedError, UnsupportedVersionError
from penstock.host.crashpoints import crash_point
from penstock.host.deployment.layout import Layout
from penstock.host.group_membership_operation import GroupMembershipOperation
from penstock.host.threads import member_messages as m
from penstock.host.threads import vocabulary as v
from penstock.host.threads.classic_group import ClassicProtocol
from penstock.host.threads.coordinator_connection import TIMEOUT_MS, CoordinatorConnection
from penstock.host.threads.group_protocol import GroupProtocol, Request, now_ms
from penstock.host.threads.keys import uses_streams_protocol
from penstock.host.threads.member_file import MemberFile
from penstock.host.threads.membership import ChangelogPositions, Post
from penstock.host.threads.streams_group import StreamsProtocol
from penstock.host.threads.subscription import Endpoint
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode

_log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 0.02
_LEAST_COMMIT_SECONDS: Final = 30.0
_CLOSE_SECONDS: Final = 10.0
_MOST_WAIT: Final = 0.5
"""The longest wait of the thread in seconds, even if nothing happens."""


class _Commit(NamedTuple):
    """Offsets to commit. losses: the loss count of the member at that time (`AbstractMember.losses`)."""

    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    losses: int


class GroupMembership:
    """The membership of one instance (see `membership.Membership`).

    Args:
        layout: the tasks of the application.
        config: its configuration.
        post: receives events.
        process: the id of this process, None for a new one.
        state: known positions of the state of tasks, or None.
        workers: the number of tasks that this process can run at the same time.
        member_file: the member of an earlier instance of this process, None if unknown.

    Raises:
        ConfigError: a configuration key has an invalid value.
    """

    def __init__(
        self,
        layout: Layout,
        config: StreamsConfig,
        post: Post,
        process: str | None = None,
        state: ChangelogPositions | None = None,
        workers: int = 1,
        member_file: MemberFile | None = None,
    ) -> None:
        self._group = str(config["application.id"])
        self._member_file = member_file
        self._post = post
        process = process or uuid.uuid4().hex
        self._protocol: GroupProtocol = (
            StreamsProtocol(layout, config, process, state)
            if uses_streams_protocol(config)
            else ClassicProtocol(layout, config, process, state, workers)
        )
        self._member = self._protocol.member
        self._lock = threading.Lock()
        self._lost_is_told = False
        self._is_leaving = False
        self._inbox: queue.SimpleQueue[m.MemberEvent] = queue.SimpleQueue()
        self._coordinator = CoordinatorConnection(config, self._group)
        self._asked: Request | None = None
        self._thread = threading.Thread(target=self._run, name="penstock-group", daemon=True)
        self._commit_seconds = max(_LEAST_COMMIT_SECONDS, config["task.timeout.ms"] / 1000)
        self._commits: queue.SimpleQueue[_Commit | None] = queue.SimpleQueue()
        self._commit_cluster = Cluster(config, TIMEOUT_MS, CONSUMER)
        self._commit_node: BrokerNode | None = None
        self._commit_thread = threading.Thread(target=self._run_commits, name="penstock-commits", daemon=True)
        self._closed = threading.Event()

    def start(self) -> None:
        """Join the group; the answer is an event."""
        self._thread.start()
        self._commit_thread.start()

    def identity(self) -> GroupIdentity | None:
        """Return the identity for commits, None while not a group member; from any thread."""
        with self._lock:
            if not self._member.may_commit:
                return None
            instance = self._protocol.instance or None
            return GroupIdentity(self._group, self._member.generation, self._member.member_id, instance)

    def endpoints(self) -> Sequence[Endpoint]:
        """Return the endpoints for queries of all members' state; from any thread."""
        with self._lock:
            return self._member.endpoints

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit `offsets` as the member; the answer is `OffsetsCommitted`, `MembershipLost` or `Failed`."""
        with self._lock:
            losses = self._member.losses
        self._commits.put(_Commit(offsets, losses))

    def commit_refused(self, code: int, member: GroupIdentity) -> None:
        """Note that the group refuses offsets committed by a transaction as `member`; from any thread."""
        self._happen(m.CommitRefused(code, member.member_id, member.generation))

    def fenced(self) -> bool:
        """Note that another producer has fenced the producer of this instance; from any thread. Return whether another
        member of the group is known to have the same process id."""
        self._happen(m.ProducerFenced())
        with self._lock:
            return self._member.has_twin

    def give_up(self, tasks: frozenset[TaskId], assignments: int) -> None:
        """Report to the group that these tasks are closed here. assignments: the number that the core had received by
        then."""
        self._happen(m.TasksRevoked(tasks, assignments))

    def step_back(self, error: Exception) -> None:
        """Leave the tasks to others, because the instance makes no progress; `MembershipLost` follows."""
        self._happen(m.Stalled(error))

    def shut_down(self) -> None:
        """Inform all members of the end of the application. `ApplicationShutDown` follows when they learn of it."""
        self._happen(m.ShutDownRequested())

    def leave(self, operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT) -> None:
        """End the membership; `operation` says whether the group learns of it at once."""
        self._is_leaving = True
        self._happen(m.LeaveRequested(operation))

    def close(self) -> None:
        """Release connections and threads, after a requested leave; safe to call again."""
        if self._closed.is_set():
            return
        deadline = time.monotonic() + _CLOSE_SECONDS
        if self._thread.is_alive() and self._is_leaving:
            self._thread.join(max(0.0, deadline - time.monotonic()))
        self._closed.set()
        self._commits.put(None)
        self._coordinator.wake()
        for thread in (self._thread, self._commit_thread):
            if thread.is_alive():
                thread.join(max(0.0, deadline - time.monotonic()))
        self._coordinator.close()
        self._commit_cluster.close()

    # ---------------------------------------- membership thread

    def _happen(self, event: m.MemberEvent) -> None:
        self._inbox.put(event)
        self._coordinator.wake()

    def _run(self) -> None:
        self._remove_former()
        event: m.MemberEvent = m.Begin()
        while not self._closed.is_set():
            try:
                self._take(event)
                if self._member.has_left:
                    break
                event = self._next()
            except Exception as error:  # the core must not wait for a dead thread
                self._coordinator.disconnect()
                event = m.Unusable(error)
        self._coordinator.disconnect()

    def _remove_former(self) -> None:
        """Make the member of an earlier, killed instance of this process leave. If that fails, its session expires
        later."""
        former = "" if self._member_file is None else self._member_file.read()
        request = self._protocol.removal(former) if former else None
        if request is not None:
            self._request(request)
            self._coordinator.receive()

    def _take(self, event: m.MemberEvent) -> None:
        with self._lock:
            commands = self._member.handle(event, now_ms())
            for command in commands:
                self._tell(command)
        if self._member_file is not None:
            is_gone = self._member.has_left and not self._member.remains
            self._member_file.keep("" if is_gone else self._member.member_id)
        for command in commands:
            if isinstance(command, m.FindAgain):
                self._coordinator.disconnect()
            if isinstance(command, m.AskAgain) and self._asked is not None:
                self._coordinator.disconnect()
                self._request(self._asked)
            if (request := self._protocol.request(command)) is not None:
                self._asked = request
                is_plan = isinstance(command, m.Sync) and bool(command.assignments)
                if is_plan:
                    crash_point("group.planned", 0)
                self._request(request)
                if is_plan:
                    crash_point("group.told", 0)

    def _next(self) -> m.MemberEvent:
        """Wait for the next event."""
        try:
            return self._inbox.get_nowait()
        except queue.Empty:
            pass
        due = self._member.due_ms()
        return self._coordinator.wait(_MOST_WAIT if due is None else min(_MOST_WAIT, (due - now_ms()) / 1000))

    def _tell(self, command: m.MemberCommand) -> None:
        """Post a command to the core, if it concerns the core."""
        match command:
            case v.Assigned() | v.MembershipLost() | v.MembershipRefused():
                self._lost_is_told = not isinstance(command, v.Assigned)
                self._post(command)
            case v.ApplicationShutDown() | v.SessionTimedOut() | v.Reconnected():
                self._post(command)
            case m.Refused(code, message):
                self._lost_is_told = True
                self._post(v.MembershipRefused(self._error(code, message)))
            case _:
                pass

    def _request(self, request: Request) -> None:
        try:
            self._coordinator.send(request)
        except RetriableError:
            self._inbox.put(m.Disconnected())
        except UnsupportedVersionError as error:
            self._inbox.put(m.Unusable(self._protocol.refusal(ErrorCode.unsupported_version, "") or error))
        except StreamsError as error:
            self._inbox.put(m.Unusable(error))

    def _error(self, code: int, message: str = "") -> StreamsError:
        """Return the error for a refusal by the coordinator. message: from the coordinator."""
        special = self._protocol.refusal(code, message)
        if special is not None:
            return special
        try:
            self._coordinator.check(code, message)
        except StreamsError as error:
            return error
        return KafkaError(f"The group {self._group!r} refuses this member.")

    # ---------------------------------------- commit thread

    def _run_commits(self) -> None:
        while (commit := self._commits.get()) is not None:
            try:
                answer = self._commit(commit)
            except Exception as error:
                answer = v.Failed(error)
            with self._lock:  # answers to a membership that was lost since are dropped
                if answer is not None and self._member.losses == commit.losses:
                    self._post(answer)

    def _commit(self, commit: _Commit) -> v.Event | None:
        """Commit and return the answer, None if the member reports the outcome. Retry while the coordinator is busy or
        the generation changes. After a lasting refusal, the instance steps back."""
        deadline = time.monotonic() + self._commit_seconds
        doing = f"committing offsets of the group {self._group!r}"
        while not self._closed.is_set():
            with self._lock:
                if self._member.losses != commit.losses:  # it may be a new member, which must not commit this
                    return None
                if not self._member.may_commit:
                    return self._lost()
                member_id, generation = self._member.member_id, self._member.generation
            body = {
                "group_id": self._group,
                "member_id": member_id,
                "group_instance_id": self._protocol.instance or None,
                "generation_id_or_member_epoch": generation,
                "topics": offset_topics(commit.offsets),
            }
            code = self._ask_to_commit(body, doing, deadline)
            if code == ErrorCode.none:
                return v.OffsetsCommitted()
            is_late = time.monotonic() >= deadline
            if code in MEMBER_FENCED:
                refused = m.CommitRefused(code, member_id, generation)
                with self._lock:
                    if self._member.losses == commit.losses:
                        self._happen(m.Stalled(self._error(code)) if is_late else refused)
            elif is_late:
                self._commit_cluster.check({"error_code": code}, doing)
            self._closed.wait(_RETRY_SECONDS)
        return None

    def _ask_to_commit(self, body: Message, doing: str, deadline: float) -> int:
        """Return the error code of the commit; raises the error of a permanent failure."""
        rights = Right("READ", "group", self._group), Right("READ", "topic", "")
        try:
            if self._commit_node is None:
                self._commit_node = self._commit_cluster.coordinator(GROUP, self._group, doing, rights[0])
            answer = self._commit_cluster.ask(self._commit_node, OFFSET_COMMIT, body, doing)
        except RetriableError:
            self._commit_node = None
            if time.monotonic() >= deadline:
                raise
            return int(ErrorCode.coordinator_not_available)
        codes = {one["error_code"]: topic["name"] for topic in answer["topics"] for one in topic["partitions"]}
        for code, topic in codes.items():
            if code == ErrorCode.not_coordinator:
                self._commit_node = None
            if code in _REPEATED or code in MEMBER_FENCED:
                return int(code)
            self._commit_cluster.check({"error_code": code}, doing, rights[0], Right("READ", "topic", topic))
        return int(ErrorCode.none)

    def _lost(self) -> v.Event | None:
        """Return the loss of the membership, None if the core knows of it."""
        if self._lost_is_told:
            return None
        self._lost_is_told = True
        return v.MembershipLost(
            TaskMigratedError("This instance is no member of its group any more, and may not commit.")
        )


_REPEATED: Final = (
    ErrorCode.rebalance_in_progress,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
    ErrorCode.request_timed_out,
)
