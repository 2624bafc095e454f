"""Groups of members over a simulated coordinator: whatever happens, no task has two owners that may commit, and when
nothing more happens, each task has one, and its standbys."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace
from random import Random

import pytest

from penstock.host.threads import member_messages as m
from penstock.host.threads import vocabulary as v
from penstock.host.threads.classic_member import ClassicMember
from penstock.host.threads.member import Timing
from penstock.host.threads.member_states import MemberState
from penstock.host.threads.subscription import Rules, Subscription, encode_subscription
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition
from penstock_broker.wire.error_codes import ErrorCode

TASKS = [TaskId(subtopology, number) for subtopology in range(2) for number in range(4)]
STATEFUL = frozenset(task for task in TASKS if task.subtopology == 1)
END = 20_000
RULES = Rules({task: (TopicPartition(f"t{task.subtopology}", task.partition),) for task in TASKS}, STATEFUL, standbys=1)
TIMING = Timing(session_ms=10_000, heartbeat_ms=1_000, probing_ms=5_000)
MOST_STEPS = 5_000


class Coordinator:
    """What a broker knows of the group. Answers go to the queue of their member."""

    def __init__(self) -> None:
        self.members: dict[str, Instance] = {}
        self.joined: dict[str, bytes] = {}
        self.subscriptions: dict[str, bytes] = {}
        self.generation = 0
        self.leader = ""
        self.phase = "EMPTY"
        self.assignments: dict[str, bytes] = {}
        self.syncing: list[str] = []
        self._names = 0

    def accepts(self, member: str, generation: int) -> bool:
        """Return whether a commit would be accepted."""
        return member in self.members and generation == self.generation and self.phase != "SYNCING"

    def take(self, instance: Instance, request: m.MemberCommand) -> None:
        match request:
            case m.Join(""):
                self._names += 1
                name = f"m{self._names}"
                self.members[name] = instance
                instance.answers.append(m.JoinAnswered(ErrorCode.member_id_required, name))
                self._prepare()
            case m.Join(name) | m.Sync(name) | m.Heartbeat(name) if name not in self.members:
                self._answer(instance, request, ErrorCode.unknown_member_id)
            case m.Join(name, generation, owned, shuts_down):
                pairs = [(task.subtopology, task.partition) for task in sorted(owned)]
                positions = [(*task, position) for task, position in sorted(instance.copies.items())]
                subscription = Subscription(
                    1, instance.process, RULES.application, generation, pairs, positions, shuts_down=shuts_down
                )
                content = encode_subscription(subscription, RULES)
                must_plan = name == self.leader and self.phase == "STABLE"
                if self.phase in ("SYNCING", "STABLE") and self.subscriptions.get(name) == content and not must_plan:
                    self._answer_join(name)  # the answer to the same join was lost
                    return
                self.joined[name] = content
                self._prepare()
                self._complete()
            case m.Sync(_, generation) | m.Heartbeat(_, generation) if generation != self.generation:
                self._answer(instance, request, ErrorCode.illegal_generation)
            case m.Sync(name, _, assignments):
                self._sync(name, assignments)
            case m.Heartbeat():
                code = ErrorCode.rebalance_in_progress if self.phase == "PREPARING" else ErrorCode.none
                self._answer(instance, request, code)
            case m.LeaveGroup(name):
                self.remove(name)
                instance.answers.append(m.LeaveAnswered())

    def remove(self, name: str) -> None:
        """Count a member out."""
        instance = self.members.pop(name, None)
        if instance is not None:
            if self.joined.pop(name, None) is not None:
                instance.answers.append(m.JoinAnswered(ErrorCode.unknown_member_id))
            if name in self.syncing:
                self.syncing.remove(name)
                instance.answers.append(m.SyncAnswered(ErrorCode.unknown_member_id))
            self._prepare()
            self._complete()

    def expire_strangers(self, instances: list[Instance]) -> None:
        """Count out the members for which nobody sends heartbeats, since the answer with their id was lost."""
        coming = {each.member_id for one in instances for each in one.answers if isinstance(each, m.JoinAnswered)}
        known = {one.member.member_id for one in instances}
        for name in [name for name in self.members if name not in coming | known]:
            self.remove(name)

    def _answer(self, instance: Instance, request: m.MemberCommand, code: ErrorCode) -> None:
        match request:
            case m.Join():
                instance.answers.append(m.JoinAnswered(code))
            case m.Sync():
                instance.answers.append(m.SyncAnswered(code))
            case _:
                instance.answers.append(m.HeartbeatAnswered(code, instance.now))

    def _prepare(self) -> None:
        if self.phase != "PREPARING":
            for name in self.syncing:
                self.members[name].answers.append(m.SyncAnswered(ErrorCode.rebalance_in_progress))
            self.phase, self.syncing = "PREPARING", []

    def _complete(self) -> None:
        if not self.members or self.joined.keys() != self.members.keys():
            return
        self.generation += 1
        self.leader = min(self.joined)
        self.phase, self.assignments = "SYNCING", {}
        self.subscriptions, self.joined = self.joined, {}
        for name in self.members:
            self._answer_join(name)

    def _answer_join(self, name: str) -> None:
        answer = m.JoinAnswered(ErrorCode.none, name, self.generation, self.leader)
        if name == self.leader:
            answer = replace(answer, members=dict(self.subscriptions), ends=dict.fromkeys(STATEFUL, END))
        self.members[name].answers.append(answer)

    def _sync(self, name: str, assignments: dict[str, bytes]) -> None:
        if self.phase == "PREPARING":
            self.members[name].answers.append(m.SyncAnswered(ErrorCode.rebalance_in_progress))
            return
        if name not in self.syncing:
            self.syncing.append(name)
        if name == self.leader:
            self.assignments, self.phase = assignments, "STABLE"
        if self.phase == "STABLE":
            for each in self.syncing:
                self.members[each].answers.append(m.SyncAnswered(ErrorCode.none, self.assignments[each]))
            self.syncing = []


class Instance:
    """A member, and the tasks that run beside it: what the member tells reaches them later."""

    def __init__(self, coordinator: Coordinator, process: str) -> None:
        self.coordinator, self.process = coordinator, process
        self.member = ClassicMember(RULES, TIMING)
        self.answers: deque[m.MemberEvent] = deque()
        self.asked: m.MemberCommand | None = None
        self.told: deque[v.Event] = deque()
        self.assignments = 0
        self.running: set[TaskId] = set()
        self.wanted: set[TaskId] = set()
        self.standbys: frozenset[TaskId] = frozenset()
        self.copies: dict[TaskId, int] = {}
        self.now = 0
        self.is_to_end = False
        self.happens(m.Begin())

    def happens(self, event: m.MemberEvent) -> None:
        for step in self.member.handle(event, self.now):
            match step:
                case v.Assigned() | v.MembershipLost() | v.ApplicationShutDown():
                    self.told.append(step)
                case v.SessionTimedOut() | v.Reconnected():
                    pass
                case m.Join() | m.Sync() | m.Heartbeat() | m.LeaveGroup():
                    self.asked = step
                    self.ask()
                case m.AskAgain():
                    self.ask()
                case _:
                    raise AssertionError(step)

    def ask(self) -> None:
        self.answers.clear()  # an answer to an earlier request is no longer of interest
        assert self.asked is not None
        self.coordinator.take(self, self.asked)

    def take(self) -> None:
        """Let the tasks hear what the member has told."""
        match self.told.popleft() if self.told else None:
            case v.Assigned(tasks, standbys):
                self.assignments += 1
                self.wanted, self.standbys = set(tasks), standbys
                self.copies |= dict.fromkeys(tasks & STATEFUL, END)
                self.running |= tasks
            case v.MembershipLost():
                self.wanted = set()
            case v.ApplicationShutDown():
                self.wanted, self.is_to_end = set(), True
            case _:
                pass

    def close_one(self) -> None:
        """Close a task that is to be given up."""
        if closing := sorted(self.running - self.wanted):
            self.running.discard(closing[0])
            self.happens(m.TasksRevoked(frozenset(closing[:1]), self.assignments))

    def copy(self, random: Random) -> None:
        """Copy a part of the state of a standby."""
        if self.standbys:
            task = random.choice(sorted(self.standbys))
            self.copies[task] = min(END, self.copies.get(task, 0) + 6_000)

    def hear(self) -> None:
        if self.answers:
            self.happens(self.answers.popleft())

    def wait(self, milliseconds: int) -> None:
        self.now += milliseconds
        self.happens(m.Tick())

    def disconnect(self) -> None:
        self.answers.clear()
        self.happens(m.Disconnected())

    @property
    def committing(self) -> set[TaskId]:
        member = self.member
        may = member.may_commit and self.coordinator.accepts(member.member_id, member.generation)
        return self.running if may else set()


def check(instances: list[Instance]) -> None:
    for task in TASKS:
        owners = [one.process for one in instances if task in one.committing]
        assert len(owners) <= 1, f"{task} has {owners}"


def go_on(random: Random, coordinator: Coordinator, instances: list[Instance]) -> None:
    """Let something happen that happens in every group."""
    one = random.choice(instances)
    match random.randrange(20):
        case 0:
            coordinator.expire_strangers(instances)
        case number if number < 4:
            one.take()
        case number if number < 6:
            one.close_one()
        case number if number < 7:
            one.copy(random)
        case number if number < 11:
            one.wait(random.choice((10, 500, 1_000)))
        case _:
            one.hear()


def disturb(random: Random, coordinator: Coordinator, instances: list[Instance]) -> None:
    """Let something happen that changes the group."""
    one = random.choice(instances)
    match random.randrange(6):
        case 0 if len(instances) < 4:
            instances.append(Instance(coordinator, f"p{random.random()}"))
        case 1:
            coordinator.remove(one.member.member_id)
        case 2 if len(instances) > 1:
            one.happens(m.LeaveRequested())
            instances.remove(one)
        case 3:
            one.disconnect()
        case 5 if one.member.state in (MemberState.JOINING, MemberState.SYNCING):
            one.answers.clear()  # lost while the connection stays open; a heartbeat does not wait for long
        case 4 if len(instances) > 1:  # it is killed, and missed when its session ends
            instances.remove(one)
            coordinator.remove(one.member.member_id)
        case _:
            pass


def is_at_rest(coordinator: Coordinator, instances: list[Instance]) -> bool:
    is_still = all(
        one.member.state is MemberState.STABLE and one.running == one.wanted and not one.told for one in instances
    )
    sizes = [len(one.running) for one in instances]
    is_spread = sum(sizes) == len(TASKS) and max(sizes) - min(sizes) <= 1
    return is_still and coordinator.phase == "STABLE" and is_spread


@pytest.mark.parametrize("seed", range(60))
def test_a_group_never_shares_a_task_and_comes_to_rest(seed: int) -> None:
    random, coordinator = Random(seed), Coordinator()
    instances = [Instance(coordinator, "p0")]
    for _ in range(20):
        disturb(random, coordinator, instances)
        for _ in range(random.randrange(80)):
            go_on(random, coordinator, instances)
            check(instances)
    for _ in range(MOST_STEPS):
        if is_at_rest(coordinator, instances):
            break
        go_on(random, coordinator, instances)
        check(instances)
    states = [(one.member.state, sorted(one.running)) for one in instances]
    assert is_at_rest(coordinator, instances), f"no rest: {states}, {coordinator.phase}"
    copies = Counter(task for one in instances for task in one.standbys)
    assert copies == Counter(STATEFUL if len(instances) > 1 else ())
    assert all(one.standbys.isdisjoint(one.running) for one in instances)


@pytest.mark.parametrize("seed", range(60))
def test_all_members_hear_that_the_application_is_shut_down(seed: int) -> None:
    random, coordinator = Random(seed), Coordinator()
    instances = [Instance(coordinator, f"p{number}") for number in range(random.randint(1, 4))]
    for _ in range(random.randrange(200)):
        go_on(random, coordinator, instances)
    random.choice(instances).happens(m.ShutDownRequested())
    for _ in range(MOST_STEPS):
        if not instances:
            break
        go_on(random, coordinator, instances)
        check(instances)
        for one in [one for one in instances if one.is_to_end and not one.running]:
            one.happens(m.LeaveRequested())
            instances.remove(one)
    assert not instances, [(one.member.state, one.is_to_end) for one in instances]
