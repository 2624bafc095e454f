"""What tests of the running threads host share: a member that is alone in its group, and a listener to wait on."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from penstock.client.api import GroupIdentity, OffsetAndMetadata
from penstock.client.confluent import ConfluentAdmin
from penstock.config import StreamsConfig
from penstock.host.api import StreamThreadExceptionResponse
from penstock.host.deployment.layout import Layout
from penstock.host.group_membership_operation import GroupMembershipOperation
from penstock.host.threads import vocabulary as v
from penstock.host.threads.membership import Post
from penstock.host.threads.queued import QueuedThread
from penstock.host.threads.subscription import Endpoint
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition


class AloneMembership:
    """Has all tasks, and commits as a tool does: for a group without members (implements Membership)."""

    def __init__(self, layout: Layout, config: StreamsConfig, post: Post) -> None:
        self._tasks = frozenset(layout.groups)
        self._group = str(config["application.id"])
        self._admin = ConfluentAdmin(config)
        self._post = post
        self._thread: QueuedThread[Mapping[TopicPartition, OffsetAndMetadata]] = QueuedThread("group", self._commit)

    def start(self) -> None:
        self._post(v.Assigned(self._tasks))

    def identity(self) -> GroupIdentity:
        return GroupIdentity(self._group, -1, "")

    def endpoints(self) -> tuple[Endpoint, ...]:
        return ()

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self._thread.put(offsets)

    def _commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        try:
            self._admin.commit_offsets(self._group, offsets)
            self._post(v.OffsetsCommitted())
        except Exception as error:
            self._post(v.Failed(error))

    def give_up(self, tasks: frozenset[TaskId], assignments: int) -> None:
        pass

    def commit_refused(self, code: int, member: GroupIdentity) -> None:
        pass

    def fenced(self) -> bool:
        return False

    def step_back(self, error: Exception) -> None:
        pass

    def shut_down(self) -> None:
        self._post(v.ApplicationShutDown(None))

    def leave(self, operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT) -> None:
        pass

    def close(self) -> None:
        self._thread.close(5.0)
        self._admin.close()


class Listening:
    """Keeps what the host tells (implements HostListener)."""

    def __init__(self, response: StreamThreadExceptionResponse = StreamThreadExceptionResponse.SHUTDOWN_CLIENT) -> None:
        self.response = response
        self.told: list[str] = []
        self.running = threading.Event()
        self.ended = threading.Event()
        self.error: BaseException | None = None

    def on_running(self) -> None:
        self.told.append("running")
        self.running.set()

    def on_rebalancing(self) -> None:
        self.told.append("rebalancing")

    def on_stopped(self) -> None:
        self.told.append("stopped")
        self.ended.set()

    def on_failure(self, error: BaseException) -> StreamThreadExceptionResponse:
        self.told.append("failure")
        return self.response

    def on_error(self, error: BaseException) -> None:
        self.told.append("error")
        self.error = error
        self.ended.set()
