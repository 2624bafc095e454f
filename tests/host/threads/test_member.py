"""The table of states of a member of a group: a test a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from penstock.host.group_membership_operation import GroupMembershipOperation
from penstock.host.threads import member_messages as m
from penstock.host.threads import vocabulary as v
from penstock.host.threads.classic_member import ClassicMember
from penstock.host.threads.member import Timing
from penstock.host.threads.member_states import MemberState
from penstock.host.threads.subscription import Rules, Subscription, encode_subscription, lead
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition
from penstock_broker.wire.error_codes import ErrorCode

TASKS = [TaskId(0, number) for number in range(4)]
RULES = Rules({task: (TopicPartition("orders", task.partition),) for task in TASKS})
TIMING = Timing(session_ms=10_000, heartbeat_ms=1_000, retry_ms=100, refused_ms=1_000)
NONE = ErrorCode.none


def subscribed(owned: Sequence[TaskId] = (), instance: str = "", rules: Rules = RULES) -> bytes:
    pairs = [(task.subtopology, task.partition) for task in owned]
    return encode_subscription(Subscription(1, "p", rules.application, 1, pairs, instance=instance), rules)


class Game:
    """A member, and the coordinator that answers it."""

    def __init__(self, instance: str = "", rules: Rules = RULES) -> None:
        self.member = ClassicMember(rules, TIMING, instance)
        self.now = 0
        self.steps: list[m.MemberCommand] = []
        self.assignments = 0

    def __call__(self, event: m.MemberEvent, after_ms: int = 0) -> list[m.MemberCommand]:
        self.now += after_ms
        self.steps = self.member.handle(event, self.now)
        self.assignments += sum(isinstance(step, v.Assigned) for step in self.steps)
        return self.steps

    def given_up(self, tasks: frozenset[TaskId]) -> list[m.MemberCommand]:
        """Close tasks behind all assignments."""
        return self(m.TasksRevoked(tasks, self.assignments))

    @property
    def state(self) -> MemberState:
        return self.member.state

    def joined(self, generation: int = 1, leader: str = "other") -> list[m.MemberCommand]:
        return self(m.JoinAnswered(NONE, "me", generation, leader, {}))

    def synced(self, *others: Sequence[TaskId], mine: Sequence[TaskId] = ()) -> list[m.MemberCommand]:
        """Give what the leader of a group plans where this member has `mine`, and each other one what stands there."""
        members = {"me": subscribed(mine)} | {f"other{n}": subscribed(owned) for n, owned in enumerate(others)}
        return self(m.SyncAnswered(NONE, lead(members, RULES)["me"]))


@pytest.fixture
def game() -> Game:
    return Game()


@pytest.fixture
def stable() -> Game:
    """A member that is alone in its group, and has all tasks."""
    game = Game()
    game(m.Begin())
    game.joined()
    game.synced()
    return game


def test_unjoined_joins_at_the_beginning(game: Game) -> None:
    assert game(m.Begin()) == [m.Join("", -1, frozenset())]
    assert game.state is MemberState.JOINING
    assert not game.member.may_commit


def test_joining_takes_its_id_and_joins_in_the_same_breath(game: Game) -> None:
    game(m.Begin())
    assert game(m.JoinAnswered(ErrorCode.member_id_required, "me")) == [m.Join("me", -1, frozenset())]
    assert game.state is MemberState.JOINING


def test_joining_syncs(game: Game) -> None:
    game(m.Begin())
    assert game.joined(7) == [m.Sync("me", 7, {})]
    assert game.state is MemberState.SYNCING


def test_joining_as_the_leader_gives_all_their_assignments(game: Game) -> None:
    game(m.Begin())
    members = {"me": subscribed(), "other": subscribed()}
    [sync] = game(m.JoinAnswered(NONE, "me", 1, "me", members))
    assert isinstance(sync, m.Sync)
    assert sync.assignments == lead(members, RULES)


def test_joining_as_the_leader_of_others_fails(game: Game) -> None:
    game(m.Begin())
    left, failed = game(m.JoinAnswered(NONE, "me", 1, "me", {"me": subscribed(), "other": b"\x00\x00"}))
    assert left == m.LeaveGroup("me")  # the others go on
    assert isinstance(failed, v.MembershipRefused)
    assert game.state is MemberState.FENCED


def test_syncing_takes_its_tasks(game: Game) -> None:
    game(m.Begin())
    game.joined()
    assert game.synced() == [v.Assigned(frozenset(TASKS))]
    assert game.state is MemberState.STABLE
    assert game.member.may_commit


def test_syncing_fails_where_the_members_plan_otherwise(game: Game) -> None:
    game(m.Begin())
    game.joined()
    left, failed = game(m.SyncAnswered(NONE, b"\x00\x00"))
    assert left == m.LeaveGroup("me")
    assert isinstance(failed, v.MembershipRefused)
    assert game.state is MemberState.FENCED


@pytest.mark.parametrize("state", [MemberState.JOINING, MemberState.SYNCING])
def test_a_rebalance_in_the_meantime_means_another_join(stable: Game, state: MemberState) -> None:
    rejoin(stable)
    answer: m.MemberEvent = m.JoinAnswered(ErrorCode.rebalance_in_progress)
    if state is MemberState.SYNCING:
        stable.joined(2)
        answer = m.SyncAnswered(ErrorCode.rebalance_in_progress)
    [join] = stable(answer)
    assert isinstance(join, m.Join)
    assert join.owned == frozenset(TASKS)


def rejoin(stable: Game) -> list[m.MemberCommand]:
    stable(m.Tick(), 1_000)
    return stable(m.HeartbeatAnswered(ErrorCode.rebalance_in_progress, stable.now))


def test_stable_sends_heartbeats(stable: Game) -> None:
    assert stable.member.due_ms() == 1_000
    assert stable(m.Tick(), 999) == []
    assert stable(m.Tick(), 1) == [m.Heartbeat("me", 1)]
    assert stable(m.Tick(), 5_000) == []  # one at a time
    assert stable(m.HeartbeatAnswered(NONE, 1_000)) == []
    assert stable(m.Tick()) == [m.Heartbeat("me", 1)]


def test_stable_joins_where_others_do_with_what_it_has_and_commits_on(stable: Game) -> None:
    assert rejoin(stable) == [m.Join("me", 1, frozenset(TASKS))]
    assert stable.member.may_commit


def test_a_task_of_another_is_given_up_before_the_member_joins_again(stable: Game) -> None:
    rejoin(stable)
    stable.joined(2)
    [assigned] = stable.synced((), mine=TASKS)
    assert isinstance(assigned, v.Assigned)
    lost = frozenset(TASKS) - assigned.tasks
    assert len(lost) == 2
    first, second = sorted(lost)
    assert stable.given_up(frozenset([first])) == []
    assert stable.given_up(frozenset([second])) == [m.Join("me", 2, assigned.tasks)]


def test_a_task_that_was_closed_before_the_assignment_came_needs_another_join_too(stable: Game) -> None:
    rejoin(stable)
    stable.joined(2)
    assert stable.given_up(frozenset(TASKS)) == []
    [assigned, join] = stable.synced((), mine=TASKS)
    assert isinstance(assigned, v.Assigned)
    assert join == m.Join("me", 2, assigned.tasks)


def test_a_task_that_is_closed_while_it_is_assigned_again_stays_with_the_member(stable: Game) -> None:
    rejoin(stable)
    stable.joined(2)
    [assigned] = stable.synced((), mine=TASKS)
    assert isinstance(assigned, v.Assigned)
    lost = frozenset(TASKS) - assigned.tasks
    rejoin(stable)  # the other member has left before it got them
    stable.joined(3)
    assert stable.synced(mine=TASKS) == [v.Assigned(frozenset(TASKS))]
    assert stable(m.TasksRevoked(lost, stable.assignments - 1)) == []
    assert rejoin(stable) == [m.Join("me", 3, frozenset(TASKS))]
    stable.joined(4)
    stable.synced((), mine=TASKS)
    assert stable.given_up(lost) == [m.Join("me", 4, assigned.tasks)]


def test_a_join_for_others_waits_for_the_answer_to_a_heartbeat(stable: Game) -> None:
    rejoin(stable)
    stable.joined(2)
    [assigned] = stable.synced((), mine=TASKS)
    assert isinstance(assigned, v.Assigned)
    assert stable(m.Tick(), 1_000) == [m.Heartbeat("me", 2)]
    assert stable.given_up(frozenset(TASKS) - assigned.tasks) == []
    assert stable(m.HeartbeatAnswered(NONE, stable.now)) == [m.Join("me", 2, assigned.tasks)]


LOST: dict[str, m.MemberEvent] = {
    "a heartbeat of nobody": m.HeartbeatAnswered(ErrorCode.unknown_member_id),
    "a heartbeat of an old generation": m.HeartbeatAnswered(ErrorCode.illegal_generation),
    "a commit of nobody": m.CommitRefused(ErrorCode.unknown_member_id, "me", 1),
    "a commit of an old generation": m.CommitRefused(ErrorCode.illegal_generation, "me", 1),
}


@pytest.mark.parametrize("case", LOST)
def test_stable_loses_its_tasks_where_the_group_goes_on_without_it(stable: Game, case: str) -> None:
    [lost] = stable(LOST[case])
    assert isinstance(lost, v.MembershipLost)
    assert stable.state is MemberState.FENCED
    assert not stable.member.may_commit
    assert stable.member.due_ms() is None  # it waits for its tasks to be closed


@pytest.mark.parametrize("code", [ErrorCode.unknown_member_id, ErrorCode.illegal_generation])
def test_joining_and_syncing_lose_the_tasks_likewise(stable: Game, code: ErrorCode) -> None:
    rejoin(stable)
    [lost] = stable(m.JoinAnswered(code))
    assert isinstance(lost, v.MembershipLost)


def test_fenced_joins_as_another_member_when_its_tasks_are_closed(stable: Game) -> None:
    stable(m.HeartbeatAnswered(ErrorCode.unknown_member_id))
    assert stable.given_up(frozenset(TASKS[:3])) == []
    assert stable.given_up(frozenset(TASKS[3:])) == [m.Join("", -1, frozenset())]


def test_of_an_old_generation_the_same_member_joins(stable: Game) -> None:
    stable(m.HeartbeatAnswered(ErrorCode.illegal_generation))
    assert stable.given_up(frozenset(TASKS)) == [m.Join("me", -1, frozenset())]


def test_a_member_without_tasks_has_none_to_lose(game: Game) -> None:
    game(m.Begin())
    game.joined()
    game.synced(TASKS)
    assert game(m.HeartbeatAnswered(ErrorCode.unknown_member_id)) == [m.Join("", -1, frozenset())]


@pytest.fixture
def cut_off(stable: Game) -> Game:
    """A member whose session has ended without an answer of the coordinator, which it asks again."""
    stable(m.Tick(), 1_000)
    assert stable(m.Disconnected()) == []
    assert stable(m.Tick(), 100) == [m.Heartbeat("me", 1)]
    stable(m.Disconnected())
    assert stable(m.Tick(), 10_000) == [v.SessionTimedOut(), m.Heartbeat("me", 1)]
    return stable


def test_a_session_that_ends_without_an_answer_lets_the_tasks_stand_still_until_there_is_one(cut_off: Game) -> None:
    assert cut_off.member.may_commit
    assert cut_off.member.due_ms() is None
    assert cut_off(m.HeartbeatAnswered(NONE, cut_off.now)) == [v.Reconnected()]
    assert cut_off(m.Tick(), 1_000) == [m.Heartbeat("me", 1)]


def test_the_tasks_of_a_member_that_was_cut_off_are_lost_if_the_coordinator_says_so(cut_off: Game) -> None:
    [lost] = cut_off(m.HeartbeatAnswered(ErrorCode.unknown_member_id))
    assert isinstance(lost, v.MembershipLost)


def test_a_member_that_was_cut_off_joins_with_its_tasks_if_others_do(cut_off: Game) -> None:
    rejoining = cut_off(m.HeartbeatAnswered(ErrorCode.rebalance_in_progress, cut_off.now))
    assert rejoining == [v.Reconnected(), m.Join("me", 1, frozenset(TASKS))]


def test_the_session_is_counted_from_the_sending_of_a_heartbeat(stable: Game) -> None:
    stable(m.Tick(), 1_000)
    stable(m.HeartbeatAnswered(NONE, 1_000), 5_000)
    stable(m.Tick())
    assert stable.member.due_ms() == 11_000


def asks_again(game: Game) -> bool:
    """Wait until the member asks again; return whether that is several times in a session."""
    due = game.member.due_ms()
    assert due is not None
    waits_ms = due - game.now
    return game(m.Tick(), waits_ms) == [m.AskAgain()] and 2 * waits_ms < TIMING.session_ms


def test_while_others_are_waited_for_no_session_ends_and_the_coordinator_is_asked_again(stable: Game) -> None:
    rejoin(stable)
    assert all(asks_again(stable) for _ in range(20))
    assert stable.joined(2) == [m.Sync("me", 2, {})]
    assert all(asks_again(stable) for _ in range(20))
    assert stable.synced(mine=TASKS) == [v.Assigned(frozenset(TASKS))]


def refused(code: int, generation: int = 1, member_id: str = "me") -> m.CommitRefused:
    return m.CommitRefused(code, member_id, generation)


def test_commits_of_an_old_generation_let_tasks_stand_still_until_the_lost_answer_of_the_join_is_there(
    stable: Game,
) -> None:
    rejoin(stable)
    assert [stable(refused(ErrorCode.illegal_generation)) for _ in range(3)] == [[], [v.SessionTimedOut()], []]
    assert stable.member.may_commit
    assert stable(m.Tick(), TIMING.retry_ms) == [m.AskAgain()]
    assert stable.joined(2) == [v.Reconnected(), m.Sync("me", 2, {})]


@pytest.mark.parametrize("state", [MemberState.JOINING, MemberState.SYNCING])
def test_a_member_that_waits_for_others_is_lost_where_its_commit_is_that_of_nobody(
    stable: Game, state: MemberState
) -> None:
    rejoin(stable)
    if state is MemberState.SYNCING:
        stable.joined(2)
    [lost] = stable(refused(ErrorCode.unknown_member_id, stable.member.generation))
    assert isinstance(lost, v.MembershipLost)
    assert stable.given_up(frozenset(TASKS)) == [m.Join("", -1, frozenset())]


def test_a_refused_commit_of_before_is_no_news(stable: Game) -> None:
    rejoin(stable)
    stable.joined(2)
    assert stable(refused(ErrorCode.illegal_generation, generation=1)) == []
    stable.synced(mine=TASKS)
    assert stable(refused(ErrorCode.unknown_member_id, generation=2, member_id="before")) == []
    assert stable.state is MemberState.STABLE


def test_another_member_of_the_same_process_id_is_known(stable: Game) -> None:
    assert not stable.member.has_twin
    rejoin(stable)
    stable.joined(2)
    stable.synced((), mine=TASKS)
    assert stable.member.has_twin
    rejoin(stable)
    stable.joined(3)
    stable.synced(mine=TASKS)
    assert not stable.member.has_twin


def test_a_join_without_an_answer_is_repeated_with_the_same_tasks(stable: Game) -> None:
    rejoin(stable)
    stable(m.Disconnected())
    assert stable.state is MemberState.UNJOINED
    assert stable.member.may_commit
    assert stable.member.due_ms() == stable.now + 100
    assert stable(m.Tick(), 100) == [m.Join("me", 1, frozenset(TASKS))]


def test_another_coordinator_is_looked_for(stable: Game) -> None:
    stable(m.Tick(), 1_000)
    assert stable(m.HeartbeatAnswered(ErrorCode.not_coordinator, 1_000)) == [m.FindAgain()]
    assert stable(m.Tick(), 100) == [m.Heartbeat("me", 1)]
    rejoin(stable)
    assert stable(m.JoinAnswered(ErrorCode.coordinator_load_in_progress)) == [m.FindAgain()]
    assert stable.state is MemberState.UNJOINED


@pytest.mark.parametrize("code", [ErrorCode.inconsistent_group_protocol, ErrorCode.group_authorization_failed, 999])
def test_a_refusal_that_does_not_pass_is_told_and_tried_again_later(game: Game, code: int) -> None:
    game(m.Begin())
    assert game(m.JoinAnswered(code)) == [m.Refused(code)]
    assert game.state is MemberState.FENCED
    assert game.member.due_ms() == 1_000
    assert game(m.Tick(), 1_000) == [m.Join("", -1, frozenset())]


def test_a_member_that_is_refused_joins_again_when_its_tasks_are_closed(stable: Game) -> None:
    assert stable(m.HeartbeatAnswered(ErrorCode.group_authorization_failed)) == [
        m.Refused(ErrorCode.group_authorization_failed)
    ]
    assert not stable.member.may_commit
    assert stable(m.Tick(), 1_000) == []
    assert stable.given_up(frozenset(TASKS)) == [m.Join("me", -1, frozenset())]


def test_a_coordinator_that_cannot_be_asked_is_told(game: Game) -> None:
    game(m.Begin())
    error = RuntimeError("no login")
    assert game(m.Unusable(error)) == [v.MembershipRefused(error)]
    assert game.state is MemberState.FENCED


def test_a_member_that_does_not_get_on_leaves_and_joins_as_another_when_its_tasks_are_closed(stable: Game) -> None:
    error = RuntimeError("stalled")
    assert stable(m.Stalled(error)) == [m.LeaveGroup("me"), v.MembershipLost(error)]
    assert stable(m.Stalled(error)) == []
    assert not stable.member.may_commit
    assert stable.member.due_ms() is None
    assert stable(m.LeaveAnswered()) == []
    assert stable.given_up(frozenset(TASKS)) == [m.Join("", -1, frozenset())]


def test_a_static_member_does_not_leave() -> None:
    game = Game("one-1")
    game(m.Begin())
    game.joined()
    members = {"me": subscribed(instance="one-1")}
    game(m.SyncAnswered(NONE, lead(members, RULES)["me"]))
    error = RuntimeError("stalled")
    assert game(m.Stalled(error)) == [v.MembershipLost(error)]
    assert game(m.LeaveRequested()) == []
    assert game.member.has_left


@pytest.mark.parametrize("instance", ["", "one-1"])
def test_leaving_follows_the_options_of_the_close(instance: str) -> None:
    left = {}
    for operation in GroupMembershipOperation:
        game = Game(instance)
        game(m.Begin())
        game.joined()
        left[operation] = game(m.LeaveRequested(operation)), game.member.remains
    leaves, remains = ([m.LeaveGroup("me")], False), ([], True)
    assert left == {
        GroupMembershipOperation.DEFAULT: remains if instance else leaves,
        GroupMembershipOperation.LEAVE_GROUP: leaves,
        GroupMembershipOperation.REMAIN_IN_GROUP: remains,
    }


def test_a_static_member_goes_on_with_the_plan_of_its_life_before_and_gives_up_what_that_had_to() -> None:
    """The group plans nothing anew for it: what the other one waits for would belong to nobody."""
    members = {"before": subscribed(TASKS, "one-1"), "other": subscribed((), "two-1")}
    game = Game("one-1")
    game(m.Begin())
    game.joined(2)
    [assigned, join] = game(m.SyncAnswered(NONE, lead(members, RULES)["before"]))
    assert isinstance(assigned, v.Assigned)
    assert len(assigned.tasks) == 2
    assert join == m.Join("me", 2, assigned.tasks)


def test_a_static_member_joins_again_where_the_plan_is_for_the_tasks_of_its_life_before() -> None:
    game = Game("one-1", Rules({task: group for task, group in RULES.groups.items() if task != TASKS[0]}))
    game(m.Begin())
    game.joined(2)
    before = lead({"before": subscribed(TASKS, "one-1")}, RULES)["before"]
    assert game(m.SyncAnswered(NONE, before)) == [m.Join("me", 2, frozenset())]
    game.joined(3)
    failed = game(m.SyncAnswered(NONE, before))[-1]
    assert isinstance(failed, v.MembershipRefused)


def test_the_leader_joins_again_after_a_time_where_tasks_wait_for_warm_ups() -> None:
    rules = replace(RULES, stateful=frozenset(TASKS), acceptable_lag=0)
    game = Game(rules=rules)
    game(m.Begin())
    members = {"me": subscribed(TASKS, rules=rules), "other": subscribed(rules=rules)}
    [sync] = game(m.JoinAnswered(NONE, "me", 1, "me", members, dict.fromkeys(TASKS, 1)))
    assert isinstance(sync, m.Sync)
    assert game(m.SyncAnswered(NONE, sync.assignments["me"])) == [v.Assigned(frozenset(TASKS))]
    for _ in range(599):
        game(m.Tick(), 1_000)
        assert game(m.HeartbeatAnswered(NONE, game.now)) == []
    game(m.Tick(), 1_000)
    assert game(m.HeartbeatAnswered(NONE, game.now)) == [m.Join("me", 1, frozenset(TASKS))]


def test_leaving_says_so_and_ends(stable: Game) -> None:
    assert stable(m.LeaveRequested()) == [m.LeaveGroup("me")]
    assert stable.state is MemberState.LEAVING
    assert not stable.member.may_commit
    assert stable(m.LeaveRequested()) == []
    stable(m.LeaveAnswered())
    assert stable.member.has_left
    assert not stable.member.remains


@pytest.mark.parametrize("answer", [m.Disconnected(), m.Unusable(RuntimeError())])
def test_leaving_ends_without_an_answer_too(stable: Game, answer: m.MemberEvent) -> None:
    stable(m.LeaveRequested())
    assert stable(answer) == []
    assert stable.member.has_left
    assert stable.member.remains


def test_a_member_that_nobody_knows_has_left(game: Game) -> None:
    game(m.Begin())
    assert game(m.LeaveRequested()) == []
    assert game.member.has_left


LATE: list[m.MemberEvent] = [
    m.JoinAnswered(NONE, "me", 9, "me"),
    m.SyncAnswered(NONE),
    m.HeartbeatAnswered(NONE, 9),
    m.CommitRefused(ErrorCode.unknown_member_id, "me", 1),
]


@pytest.mark.parametrize("answer", LATE)
def test_answers_that_come_after_the_member_is_lost_change_nothing(stable: Game, answer: m.MemberEvent) -> None:
    stable(m.HeartbeatAnswered(ErrorCode.unknown_member_id))
    assert stable(answer) == []
    assert stable.state is MemberState.FENCED


def flagged(rules: Rules = RULES) -> bytes:
    return encode_subscription(Subscription(1, "p", rules.application, 1, [], shuts_down=True), rules)


def test_stable_joins_with_the_wish_to_shut_down_until_all_members_know_it(stable: Game) -> None:
    held = frozenset(TASKS)
    assert stable(m.ShutDownRequested()) == [m.Join("me", 1, held, shuts_down=True)]
    stable.joined(2)
    assert stable(m.SyncAnswered(NONE, lead({"me": flagged(), "other": subscribed()}, RULES)["me"])) == []
    assert stable.member.may_commit
    stable(m.Tick(), 1_000)
    assert stable(m.HeartbeatAnswered(NONE, stable.now)) == [m.Join("me", 2, held, shuts_down=True)]
    stable.joined(3)
    known = lead({"me": flagged(), "other": flagged()}, RULES)["me"]
    assert stable(m.SyncAnswered(NONE, known)) == [v.ApplicationShutDown(None)]


def test_a_wish_to_shut_down_waits_for_a_heartbeat_or_a_join_that_is_on_its_way(stable: Game, game: Game) -> None:
    stable(m.Tick(), 1_000)
    assert stable(m.ShutDownRequested()) == []
    assert stable(m.HeartbeatAnswered(NONE, stable.now)) == [m.Join("me", 1, frozenset(TASKS), shuts_down=True)]
    game(m.Begin())
    assert game(m.ShutDownRequested()) == []
    game.joined()
    assigned, join = game.synced()
    assert isinstance(assigned, v.Assigned)
    assert join == m.Join("me", 1, frozenset(TASKS), shuts_down=True)


def test_syncing_hears_that_the_application_is_shut_down_and_may_commit(stable: Game) -> None:
    stable(m.Tick(), 1_000)
    stable(m.HeartbeatAnswered(ErrorCode.rebalance_in_progress, stable.now))
    stable.joined(2)
    [told] = stable(m.SyncAnswered(NONE, lead({"me": subscribed(TASKS), "other": flagged()}, RULES)["me"]))
    assert isinstance(told, v.ApplicationShutDown)
    assert "Another instance has shut down the application (SHUTDOWN_APPLICATION): member other." in str(told.error)
    assert stable.member.may_commit
    # Whoever has not heard of it does so in the next generation.
    stable(m.Tick(), 1_000)
    stable(m.HeartbeatAnswered(ErrorCode.rebalance_in_progress, stable.now))
    assert stable.steps == [m.Join("me", 2, frozenset(TASKS), shuts_down=True)]
    assert stable(m.LeaveRequested()) == [m.LeaveGroup("me")]


def test_a_static_member_leaves_where_the_application_is_shut_down() -> None:
    game = Game("one")
    game(m.Begin())
    game.joined()
    content = lead({"me": subscribed(instance="one"), "other": flagged()}, RULES)["me"]
    [told] = game(m.SyncAnswered(NONE, content))
    assert isinstance(told, v.ApplicationShutDown)
    assert game(m.LeaveRequested()) == [m.LeaveGroup("me")]  # else its next life would be told to end
