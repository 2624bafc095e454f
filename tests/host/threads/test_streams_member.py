"""The table of states of a member of the protocol of Kafka Streams: a test a line."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from penstock.errors import MissingSourceTopicError, StreamsError, TaskMigratedError, TopologyError
from penstock.host.group_membership_operation import GroupMembershipOperation
from penstock.host.threads import member_messages as m
from penstock.host.threads import streams_member as s
from penstock.host.threads import vocabulary as v
from penstock.host.threads.member import Timing
from penstock.host.threads.member_messages import StreamsTasks
from penstock.host.threads.member_states import MemberState
from penstock.host.threads.streams_member import StreamsMember
from penstock.host.threads.subscription import Endpoint
from penstock.plan.subtopology import TaskId
from penstock_broker.wire.error_codes import ErrorCode

TASKS = frozenset(TaskId(0, number) for number in range(4))
FIRST, LAST = TaskId(0, 0), TaskId(0, 3)
ALL = StreamsTasks(TASKS)
LOST = frozenset({LAST})
KEPT = TASKS - LOST
HEARTBEAT_MS = 1_000
MAX_POLL_INTERVAL_MS = 300_000
TIMING = Timing(session_ms=10_000, heartbeat_ms=5_000, retry_ms=100, refused_ms=1_000)
JOIN = m.JoinStreamsGroup("me")
DESCRIBE = m.DescribeStreamsMember("me")
LEAVE = m.LeaveGroup("me")
RELEASE = m.ReleaseInstance("me")


def owns(epoch: int, active: Collection[TaskId], standby: Collection[TaskId] = ()) -> m.MemberCommand:
    return m.StreamsHeartbeat("me", epoch, StreamsTasks(frozenset(active), frozenset(standby)))


class Game:
    """A member, and the coordinator that answers it."""

    def __init__(self, instance: str = "") -> None:
        self.member = StreamsMember("me", TIMING, MAX_POLL_INTERVAL_MS, instance)
        self.now = 0
        self.assignments = 0

    def __call__(self, event: m.MemberEvent, after_ms: int = 0) -> list[m.MemberCommand]:
        self.now += after_ms
        steps = self.member.handle(event, self.now)
        self.assignments += sum(isinstance(step, v.Assigned) for step in steps)
        return steps

    def given_up(self, tasks: frozenset[TaskId], after_ms: int = 0) -> list[m.MemberCommand]:
        """Close tasks behind all assignments."""
        return self(m.TasksRevoked(tasks, self.assignments), after_ms)

    @property
    def state(self) -> MemberState:
        return self.member.state

    def answer(
        self, epoch: int = 1, tasks: StreamsTasks | None = None, code: int = ErrorCode.none, **statuses: str
    ) -> list[m.MemberCommand]:
        found = {getattr(s, name): text for name, text in statuses.items()}
        return self(m.StreamsHeartbeatAnswered(code, self.now, epoch, HEARTBEAT_MS, tasks, found))

    def heartbeat(self) -> list[m.MemberCommand]:
        return self(m.Tick(), HEARTBEAT_MS)


@pytest.fixture
def game() -> Game:
    return Game()


@pytest.fixture
def stable() -> Game:
    """A member that has all tasks, and has acknowledged them."""
    game = Game()
    game(m.Begin())
    game.answer(tasks=ALL)
    game.answer()
    return game


@pytest.fixture
def static() -> Game:
    """A static member that has all tasks, and has acknowledged them."""
    game = Game("one-1")
    game(m.Begin())
    game.answer(tasks=ALL)
    game.answer()
    return game


def test_unjoined_joins_at_the_beginning(game: Game) -> None:
    assert game(m.Begin()) == [JOIN]
    assert game.state is MemberState.JOINING
    assert not game.member.may_commit


def test_joining_takes_its_tasks_and_acknowledges_them(game: Game) -> None:
    game(m.Begin())
    assert game.answer(3, ALL) == [v.Assigned(TASKS), owns(3, TASKS)]
    assert game.state is MemberState.STABLE
    assert game.member.may_commit
    assert game.answer(3) == []


def test_stable_pushes_the_topology_that_the_coordinator_asks_for(stable: Game) -> None:
    stable.heartbeat()
    asked = m.StreamsHeartbeatAnswered(ErrorCode.none, stable.now, 1, HEARTBEAT_MS, wants_topology=True)
    assert stable(asked) == [m.PushTopology("me")]
    assert stable(m.Tick(), HEARTBEAT_MS) == []  # one request at a time
    assert stable(m.TopologyPushed(ErrorCode.none)) == []
    assert stable(m.Tick()) == [owns(1, TASKS)]


@pytest.mark.parametrize(
    ("code", "name"), [(ErrorCode.group_authorization_failed, "GROUP_AUTHORIZATION_FAILED"), (999, "error 999")]
)
def test_stable_goes_on_without_a_description_that_was_not_stored(
    stable: Game, caplog: pytest.LogCaptureFixture, code: int, name: str
) -> None:
    stable.heartbeat()
    stable(m.StreamsHeartbeatAnswered(ErrorCode.none, stable.now, 1, HEARTBEAT_MS, wants_topology=True))
    assert stable(m.TopologyPushed(code, "why.")) == []
    assert f"did not store the description of the topology: why ({name})" in caplog.text
    assert stable.state is MemberState.STABLE


def test_an_epoch_that_is_refused_during_a_push_is_asked_for_after_it(stable: Game) -> None:
    refused = m.CommitRefused(ErrorCode.stale_member_epoch, "me", 1)
    stable.heartbeat()
    stable(m.StreamsHeartbeatAnswered(ErrorCode.none, stable.now, 1, HEARTBEAT_MS, wants_topology=True))
    assert stable(refused) == []
    assert stable(m.TopologyPushed(ErrorCode.none)) == [owns(1, TASKS)]
    assert stable(refused) == [v.SessionTimedOut()]
    assert stable.answer(2) == [v.Reconnected()]
    assert stable.state is MemberState.STABLE


def test_an_epoch_that_is_refused_during_a_description_is_asked_for_after_it(stable: Game) -> None:
    stable(m.ProducerFenced())
    stable.heartbeat()
    assert stable.answer() == [DESCRIBE]
    assert stable(m.CommitRefused(ErrorCode.stale_member_epoch, "me", 1)) == []
    assert stable(m.StreamsMemberDescribed(ErrorCode.none, StreamsTasks())) == [owns(1, TASKS)]
    assert stable.answer(2) == []


def test_an_epoch_is_asked_for_once(stable: Game) -> None:
    stable.heartbeat()
    assert stable(m.CommitRefused(ErrorCode.stale_member_epoch, "me", 1)) == []  # the heartbeat returns it
    asked = m.StreamsHeartbeatAnswered(ErrorCode.none, stable.now, 1, HEARTBEAT_MS, wants_topology=True)
    assert stable(asked) == [m.PushTopology("me")]
    assert stable(m.TopologyPushed(ErrorCode.none)) == []


def test_stable_is_fenced_when_its_push_is_of_no_member(stable: Game) -> None:
    stable.heartbeat()
    stable(m.StreamsHeartbeatAnswered(ErrorCode.none, stable.now, 1, HEARTBEAT_MS, wants_topology=True))
    [lost] = stable(m.TopologyPushed(ErrorCode.unknown_member_id))
    assert isinstance(lost, v.MembershipLost)
    assert stable.state is MemberState.FENCED


def test_joining_tells_of_no_tasks_only_when_the_group_is_ready(game: Game) -> None:
    game(m.Begin())
    assert game.answer(1, StreamsTasks(), ASSIGNMENT_DELAYED="wait") == [owns(1, ())]
    assert game.answer(1, MISSING_INTERNAL_TOPICS="x") == []
    game.heartbeat()
    assert game.answer(2) == [v.Assigned(frozenset())]
    game.heartbeat()
    assert game.answer(2) == []


def test_joining_tries_again_when_the_coordinator_cannot_be_reached(game: Game) -> None:
    game(m.Begin())
    assert game(m.Disconnected()) == []
    assert game.state is MemberState.UNJOINED
    assert game(m.Tick(), 99) == []
    assert game(m.Tick(), 1) == [JOIN]


@pytest.mark.parametrize("code", [ErrorCode.not_coordinator, ErrorCode.coordinator_load_in_progress])
def test_joining_looks_for_the_coordinator_again(game: Game, code: int) -> None:
    game(m.Begin())
    assert game.answer(code=code) == [m.FindAgain()]
    assert game(m.Tick(), 100) == [JOIN]


def test_stable_sends_heartbeats_as_often_as_the_coordinator_says(stable: Game) -> None:
    assert stable(m.Tick(), HEARTBEAT_MS - 1) == []
    assert stable(m.Tick(), 1) == [owns(1, TASKS)]
    assert stable(m.Tick(), 5 * HEARTBEAT_MS) == []  # one at a time


def test_stable_commits_in_the_newest_epoch(stable: Game) -> None:
    stable.heartbeat()
    assert stable.answer(7) == []
    assert stable.member.generation == 7


def test_stable_gives_tasks_up_before_it_acknowledges(stable: Game) -> None:
    stable.heartbeat()
    assert stable.answer(1, StreamsTasks(KEPT)) == [v.Assigned(KEPT)]
    assert stable.heartbeat() == [owns(1, TASKS)]  # the task is still open here
    assert stable.answer(1) == []
    assert stable.given_up(LOST) == [owns(1, KEPT)]
    assert stable.answer(2) == []


def test_stable_acknowledges_behind_a_heartbeat_that_is_out(stable: Game) -> None:
    stable.heartbeat()
    stable.answer(1, StreamsTasks(KEPT))
    stable.heartbeat()
    assert stable.given_up(LOST) == []
    assert stable.answer(1) == [owns(1, KEPT)]


def test_stable_takes_standbys_and_warm_ups(stable: Game) -> None:
    stable.heartbeat()
    tasks = StreamsTasks(TASKS, frozenset({TaskId(1, 0)}), frozenset({TaskId(1, 1)}))
    assert stable.answer(2, tasks) == [
        v.Assigned(TASKS, frozenset({TaskId(1, 0), TaskId(1, 1)})),
        m.StreamsHeartbeat("me", 2, tasks),
    ]


def test_stable_knows_where_state_is(stable: Game) -> None:
    there = (Endpoint("p:1", TASKS, frozenset()),)
    stable(m.StreamsHeartbeatAnswered(ErrorCode.none, 0, 1, HEARTBEAT_MS, endpoints=there))
    assert stable.member.endpoints == there
    stable.heartbeat()
    stable.answer()
    assert stable.member.endpoints == there


def test_stable_asks_for_its_assignment_after_an_answer_was_lost(stable: Game) -> None:
    stable.heartbeat()
    assert stable(m.Disconnected()) == []
    assert stable(m.Tick(), 100) == [owns(1, TASKS)]
    assert stable.answer(2) == [DESCRIBE]
    assert stable(m.StreamsMemberDescribed(ErrorCode.none, StreamsTasks(KEPT))) == [v.Assigned(KEPT)]
    assert stable.given_up(LOST) == [owns(2, KEPT)]


def test_stable_does_not_ask_where_the_next_answer_has_the_assignment(stable: Game) -> None:
    stable.heartbeat()
    stable(m.Disconnected())
    stable(m.Tick(), 100)
    assert stable.answer(2, StreamsTasks(KEPT)) == [v.Assigned(KEPT)]


def test_stable_asks_again_where_that_answer_is_lost_too(stable: Game) -> None:
    stable.heartbeat()
    stable(m.Disconnected())
    stable(m.Tick(), 100)
    stable.answer()
    stable(m.Disconnected())
    assert stable(m.Tick(), 100) == [owns(1, TASKS)]
    assert stable.answer() == [DESCRIBE]
    assert stable(m.StreamsMemberDescribed(ErrorCode.none, ALL)) == [owns(1, TASKS)]
    assert stable.answer() == []


OUT = [ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id, ErrorCode.group_id_not_found]


@pytest.mark.parametrize("code", OUT)
def test_stable_that_is_counted_out_joins_again_when_its_tasks_are_closed(stable: Game, code: int) -> None:
    stable.heartbeat()
    [lost] = stable.answer(code=code)
    assert isinstance(lost, v.MembershipLost)
    assert isinstance(lost.error, TaskMigratedError)
    assert stable.state is MemberState.FENCED
    assert not stable.member.may_commit
    assert stable.given_up(LOST, 60_000) == []
    assert stable.given_up(KEPT) == [JOIN]
    assert stable.answer(9, StreamsTasks(LOST)) == [v.Assigned(LOST), owns(9, LOST)]


def test_stable_that_may_not_commit_is_counted_out(stable: Game) -> None:
    [lost] = stable(m.CommitRefused(ErrorCode.unknown_member_id, "me", 1))
    assert isinstance(lost, v.MembershipLost)
    assert stable.given_up(TASKS) == [JOIN]


@pytest.mark.parametrize("code", [ErrorCode.illegal_generation, ErrorCode.stale_member_epoch])
def test_an_epoch_that_is_refused_is_asked_for(stable: Game, code: ErrorCode) -> None:
    refused = m.CommitRefused(code, "me", 1)
    assert [stable(refused) for _ in range(3)] == [[owns(1, TASKS)], [v.SessionTimedOut()], []]
    assert stable.answer(2) == [v.Reconnected()]
    assert stable(refused) == []  # it was made before the new epoch was known
    assert stable.state is MemberState.STABLE


def test_an_epoch_that_is_refused_again_though_it_is_confirmed_counts_the_member_out(stable: Game) -> None:
    refused = m.CommitRefused(ErrorCode.illegal_generation, "me", 1)
    stable(refused)
    stable.answer(1)
    [lost] = stable(refused)
    assert isinstance(lost, v.MembershipLost)
    assert stable.given_up(TASKS) == [JOIN]


def test_a_member_whose_producer_was_fenced_looks_for_another_one_of_its_process_id(stable: Game) -> None:
    assert stable(m.ProducerFenced()) == []
    stable.heartbeat()
    assert stable.answer() == [DESCRIBE]
    assert stable(m.StreamsMemberDescribed(ErrorCode.none, StreamsTasks(), has_twin=True)) == []
    assert stable.member.has_twin
    stable.heartbeat()
    assert stable.answer() == []  # once is enough, and its tasks are still those that a heartbeat has told
    assert stable.given_up(frozenset()) == []


def test_stable_stands_still_when_it_hears_nothing(stable: Game) -> None:
    stable.heartbeat()
    assert stable(m.Tick(), 9_000) == [v.SessionTimedOut()]
    stable(m.Disconnected())
    stable(m.Tick(), 100)
    assert stable.answer() == [v.Reconnected(), DESCRIBE]


def test_stable_that_stalls_leaves_and_joins_again(stable: Game) -> None:
    error = RuntimeError("stalled")
    assert stable(m.Stalled(error)) == [m.LeaveGroup("me"), v.MembershipLost(error)]
    assert stable.given_up(TASKS) == [JOIN]


REFUSED = [
    ErrorCode.invalid_request,
    ErrorCode.streams_invalid_topology,
    ErrorCode.unsupported_version,
    ErrorCode.unknown_server_error,
]


@pytest.mark.parametrize("code", [*REFUSED, ErrorCode.group_id_not_found])
def test_joining_that_is_refused_says_so_and_tries_again_later(game: Game, code: int) -> None:
    game(m.Begin())
    assert game(m.StreamsHeartbeatAnswered(code, message="why")) == [m.Refused(code, "why")]
    assert game.state is MemberState.FENCED
    assert game(m.Tick(), 1_000) == [JOIN]


def test_a_status_ends_what_cannot_go_on(stable: Game) -> None:
    stable.heartbeat()
    [failed] = stable.answer(INCORRECTLY_PARTITIONED_TOPICS="Topic x has 2 partitions.")
    assert isinstance(failed, v.MembershipRefused)
    assert isinstance(failed.error, TopologyError)
    assert "Topic x has 2 partitions." in str(failed.error)


def test_a_status_says_that_the_application_was_shut_down(stable: Game) -> None:
    stable.heartbeat()
    [told] = stable.answer(SHUTDOWN_APPLICATION="by other")
    assert isinstance(told, v.ApplicationShutDown)
    assert isinstance(told.error, StreamsError)
    assert "by other" in str(told.error)
    assert stable.member.may_commit
    stable.heartbeat()
    assert stable.answer(SHUTDOWN_APPLICATION="by other") == []


def test_a_heartbeat_shuts_down_the_application(stable: Game) -> None:
    [heartbeat] = stable(m.ShutDownRequested())
    assert isinstance(heartbeat, m.StreamsHeartbeat)
    assert heartbeat.shuts_down
    assert stable.answer(SHUTDOWN_APPLICATION="by me") == [v.ApplicationShutDown(None)]


def test_a_wish_to_shut_down_waits_for_the_heartbeat_that_is_on_its_way(stable: Game) -> None:
    stable.heartbeat()
    assert stable(m.ShutDownRequested()) == []
    [heartbeat] = stable.answer()
    assert isinstance(heartbeat, m.StreamsHeartbeat)
    assert heartbeat.shuts_down


def test_source_topics_may_be_missing_for_a_time(stable: Game) -> None:
    stable.heartbeat()
    assert stable.answer(2, StreamsTasks(), MISSING_SOURCE_TOPICS="no in") == [v.Assigned(frozenset())]
    stable.given_up(TASKS)
    stable.answer(2)  # the topic is there again
    stable.heartbeat()
    assert stable.answer(2, MISSING_SOURCE_TOPICS="no in") == []
    stable(m.Tick(), MAX_POLL_INTERVAL_MS)
    [failed] = stable.answer(2, MISSING_SOURCE_TOPICS="no in.")
    assert isinstance(failed, v.MembershipRefused)
    assert isinstance(failed.error, MissingSourceTopicError)


def test_leaving_says_so_to_the_coordinator(stable: Game) -> None:
    assert stable(m.LeaveRequested()) == [m.LeaveGroup("me")]
    assert not stable.member.has_left
    stable(m.LeaveAnswered())
    assert stable.member.has_left
    assert stable(m.Tick(), 60_000) == []


# ---------------------------------------- static members


def test_a_static_member_joins_at_once_at_the_beginning() -> None:
    assert Game("one-1")(m.Begin()) == [JOIN]


@pytest.mark.parametrize("code", [*OUT, ErrorCode.stale_member_epoch])
def test_a_static_member_that_is_counted_out_releases_its_instance_id_before_it_joins(static: Game, code: int) -> None:
    static.heartbeat()
    [lost] = static.answer(code=code)
    assert isinstance(lost, v.MembershipLost)
    assert static.given_up(TASKS) == [RELEASE]
    assert static.state is MemberState.JOINING
    assert static(m.Tick(), 60_000) == []
    assert static(m.LeaveAnswered()) == [JOIN]
    assert static.answer(5, ALL) == [v.Assigned(TASKS), owns(5, TASKS)]


def test_a_static_member_whose_join_may_be_lost_releases_its_instance_id() -> None:
    game = Game("one-1")
    game(m.Begin())
    game(m.Disconnected())
    assert game(m.Tick(), 100) == [RELEASE]
    game(m.Disconnected())
    assert game(m.Tick(), 100) == [RELEASE]
    assert game(m.LeaveAnswered()) == [JOIN]


def test_a_static_member_that_stalls_joins_again_when_its_tasks_are_closed(static: Game) -> None:
    error = RuntimeError("stalled")
    assert static(m.Stalled(error)) == [v.MembershipLost(error)]
    assert static.given_up(TASKS) == [RELEASE]


@pytest.mark.parametrize("code", [ErrorCode.unreleased_instance_id, ErrorCode.fenced_instance_id])
def test_a_static_member_does_not_release_the_instance_id_of_another_one(code: int) -> None:
    game = Game("one-1")
    game(m.Begin())
    assert game(m.StreamsHeartbeatAnswered(code, message="why")) == [m.Refused(code, "why")]
    assert game.state is MemberState.FENCED
    assert game(m.Tick(), 1_000) == [JOIN]
    game(m.StreamsHeartbeatAnswered(code, message="why"))
    assert game(m.LeaveRequested()) == []
    assert game.member.has_left


def test_stable_whose_instance_id_has_another_owner_is_refused(static: Game) -> None:
    static.heartbeat()
    assert static.answer(code=ErrorCode.fenced_instance_id) == [m.Refused(ErrorCode.fenced_instance_id)]
    assert static.state is MemberState.FENCED
    assert not static.member.may_commit


def test_a_commit_of_an_instance_id_with_another_owner_is_refused(static: Game) -> None:
    refused = m.CommitRefused(ErrorCode.fenced_instance_id, "me", 1)
    assert static(refused) == [m.Refused(ErrorCode.fenced_instance_id)]


@pytest.mark.parametrize(
    ("operation", "farewell"),
    [
        (GroupMembershipOperation.DEFAULT, RELEASE),
        (GroupMembershipOperation.LEAVE_GROUP, LEAVE),
        (GroupMembershipOperation.REMAIN_IN_GROUP, RELEASE),
    ],
)
def test_a_static_member_leaves_for_good_only_when_the_options_say_so(
    static: Game, operation: GroupMembershipOperation, farewell: m.MemberCommand
) -> None:
    assert static(m.LeaveRequested(operation)) == [farewell]
    assert not static.member.has_left
    static(m.LeaveAnswered())
    assert static.member.has_left
    assert not static.member.remains


def test_a_static_member_whose_release_has_no_answer_remains(static: Game) -> None:
    static(m.LeaveRequested())
    static(m.Disconnected())
    assert static.member.has_left
    assert static.member.remains


def test_a_dynamic_member_may_remain_in_the_group(stable: Game) -> None:
    assert stable(m.LeaveRequested(GroupMembershipOperation.REMAIN_IN_GROUP)) == []
    assert stable.member.has_left
    assert stable.member.remains


def test_a_static_member_leaves_for_good_with_the_application(static: Game) -> None:
    static(m.ShutDownRequested())
    static.answer(SHUTDOWN_APPLICATION="by me")
    assert static(m.LeaveRequested()) == [LEAVE]
