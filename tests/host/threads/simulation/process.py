"""A process of a simulation: one instance, with the queues that stand for its threads. The core, the tasks, the
restores, the output and the member of the group are those of the host; what is between them and the broker is
simulated."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar, cast

from penstock.client.api import Admin, Consumer, GroupIdentity, OffsetAndMetadata
from penstock.client.confluent.refusals import fail_on_refused
from penstock.client.sockets.offsets import MEMBER_FENCED
from penstock.errors import KafkaError, OffsetOutOfRangeError, TaskMigratedError
from penstock.host.api import StreamThreadExceptionResponse
from penstock.host.calls.runner import CallRunner
from penstock.host.commits.purging import RecordPurge
from penstock.host.deployment.layout import Layout
from penstock.host.group_membership_operation import GroupMembershipOperation
from penstock.host.threads import member_messages as m
from penstock.host.threads import vocabulary as v
from penstock.host.threads.assignor import VERSION
from penstock.host.threads.changelog_reader import ChangelogReader, RestoreStoppedError
from penstock.host.threads.classic_member import ClassicMember
from penstock.host.threads.instance import Instance
from penstock.host.threads.instance_calls import InstanceCalls
from penstock.host.threads.member import Timing
from penstock.host.threads.output import AtLeastOnceOutput, ExactlyOnceOutput, Output
from penstock.host.threads.phases import Phase
from penstock.host.threads.processing import TaskRunner
from penstock.host.threads.restoring import StateOpener
from penstock.host.threads.settings import Settings
from penstock.host.threads.standbys import Standbys, StatePositions
from penstock.host.threads.subscription import Endpoint, Rules, Subscription, encode_subscription
from penstock.host.threads.task_manager import BufferLimits, WorkerOf
from penstock.host.threads.time_rounds import aligned_partitions
from penstock.host.threads.workers.worker_process import WorkerDiedError
from penstock.host.threads.workers.worker_processes import WorkerProcesses
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition
from penstock.state.api import Base
from penstock.state.memory import MemoryBase
from penstock_broker.wire.error_codes import ErrorCode
from tests.host.threads.simulation.broker import Broker
from tests.host.threads.simulation.calls import SimulatedCallRunner
from tests.host.threads.simulation.clients import (
    LOT,
    Requests,
    SimulatedAdmin,
    SimulatedBatchProducer,
    SimulatedConsumer,
    SimulatedFetcher,
    SimulatedTransactionalProducer,
)
from tests.host.threads.simulation.group import Reply
from tests.host.threads.simulation.workers import Deaths, SimulatedWorker, starter
from tests.host.threads.simulation.world import Killed, World

R = TypeVar("R")
T = TypeVar("T")

SESSION_MS, HEARTBEAT_MS = 6_000, 1_000
_COMMIT = (Phase.PREPARING, Phase.WRITING, Phase.COMMITTING, Phase.APPLYING)
_ANSWER_MS = 5_000
_PATIENCE_MS = 600_000
"""Until a member gives up what waits for others; longer than a simulation."""
_COMMIT_MS = 30_000
_PURGE_MS = 3_000
_STANDBY_MS = 300
_SMALL_LAG, _LARGE_LAG, _PROBING_MS = 5, 10_000, 4_000


class KeptBase(MemoryBase):
    """A base as a disk keeps it. One may have it open."""

    def __init__(self) -> None:
        super().__init__()
        self.is_open = False

    def close(self) -> None:
        self.is_open = False


@dataclass
class Disk:
    """The state directory of a process, which outlives it."""

    process_id: str
    bases: dict[TaskId, KeptBase] = field(default_factory=dict)

    def open(self, task: TaskId) -> Base:
        base = self.bases.setdefault(task, KeptBase())
        assert not base.is_open, f"{task} is open twice"
        base.is_open = True
        return base


@dataclass(frozen=True)
class Setting:
    """How the instances of a simulation run."""

    layout: Layout
    exactly_once: bool
    commit_interval_ms: int
    standbys: int
    is_static: bool
    """Whether the members are static ones, named after the disk of their process."""
    response: StreamThreadExceptionResponse
    workers: int = 1
    """Worker processes of each process; with 1, a thread runs its tasks."""


class Process:
    """One life of a process, from its start until it ends, or is killed."""

    def __init__(self, world: World, broker: Broker, disk: Disk, setting: Setting, name: str) -> None:
        self.world, self.broker, self.disk, self.name = world, broker, disk, name
        self.is_alive = True
        self.is_closing = False
        self.stopped_until = 0
        self._strike: tuple[int, bool, Callable[[], None]] | None = None
        self.loses_disk = False
        self.on_death: Callable[[], None] = lambda: None
        self.slow_until = 0
        """Until when the polling thread gets little time."""
        self._layout = layout = setting.layout
        self._setting = setting
        requests = Requests(world, broker, self)
        self.consumer = SimulatedConsumer(world, broker)
        self._admin = SimulatedAdmin(requests)
        limits = BufferLimits(20, 1 << 20)
        settings = Settings(setting.commit_interval_ms, limits, setting.exactly_once)
        self.deaths = Deaths(world)
        self.workers: list[SimulatedWorker] = []
        self._calls = InstanceCalls(layout, cast(CallRunner, SimulatedCallRunner(world, broker, layout, self)))
        self._tasks, worker_of = self._processing()
        self.instance = Instance(layout, settings, world.now, worker_of=worker_of)
        fetcher = SimulatedFetcher(requests)
        admin = cast(Admin, self._admin)
        is_closing = lambda: self.is_closing  # noqa: E731  # read when it is called
        make_consumer = cast(Callable[[], Consumer], partial(SimulatedConsumer, world, broker))
        self._standbys = Standbys(layout, admin, make_consumer, disk.open)
        self._is_advancing = False
        self.state = StatePositions(layout, self._standbys, lambda: admin, disk.bases.__contains__)
        reader = ChangelogReader(admin, fetcher, is_stopped=is_closing)
        self._opener = StateOpener(layout, admin, reader, disk.open, self, self._standbys)
        self._purge = RecordPurge(_PURGE_MS, self.milliseconds)
        instance = disk.process_id if setting.is_static else ""
        self.membership = SimulatedMembership(self, layout, setting.standbys, instance)
        self._requests = requests
        self._output: Output | None = None
        shared = [group for group in layout.groups.values() if len(group) > 1]
        self._awaitable = frozenset(partition for group in shared for partition in group)
        self._awaitable |= aligned_partitions(layout)
        self._ends: Mapping[TopicPartition, int] = {}
        self._events: deque[v.Event] = deque()
        self._is_polling = True
        self._restores: _Lane[v.RestoreAction] = _Lane(self, self._restore)
        self.error: BaseException | None = None
        self.later(0, self._start)

    # ---------------------------------------- time (implements Clock)

    def milliseconds(self) -> int:
        return self.world.now

    def nanoseconds(self) -> int:
        return self.world.now * 1_000_000

    def later(self, milliseconds: int, call: Callable[[], object]) -> None:
        """Let one of the threads make a call then; if the process is stopped, when it goes on."""
        self.world.after(milliseconds, partial(self._call, call))

    def _call(self, call: Callable[[], object]) -> None:
        if not self.is_alive:
            return
        if self.world.now < self.stopped_until:  # then threads go on in any order
            jitter = self._turn_ms() if call == self._turn else self.world.random.randrange(10)
            self.later(self.stopped_until - self.world.now + jitter, call)
            return
        call()

    def wait(self, milliseconds: int) -> None:
        """Let a thread wait; raises Killed if the process dies meanwhile."""
        self.world.wait(milliseconds)
        while self.is_alive and self.world.now < self.stopped_until:
            self.world.wait(self.stopped_until - self.world.now)
        if not self.is_alive:
            raise Killed

    def kill(self) -> None:
        """Let the process end in this moment."""
        if self.is_alive:
            self.world.note(self.name, "is dead")
            self.is_alive = False
            for base in self.disk.bases.values():
                base.is_open = False
            self.on_death()

    def stop(self, milliseconds: int) -> None:
        """Let the process stand still."""
        self.stopped_until = self.world.now + milliseconds
        if self.slow_until > self.world.now:
            self.slow_until += milliseconds

    def strike_in(self, steps: int, in_commit: bool, strike: Callable[[], None]) -> None:
        """Strike the process behind some more of its steps: what the core asks for, and requests of clients; perhaps
        only those of commits count."""
        self._strike = steps, in_commit, strike

    def spare(self) -> None:
        """Forget the strike that is to come."""
        self._strike = None
        self.deaths.spare()
        self.membership.spare()

    def step(self) -> None:
        """Let the process be struck here, if it is to be; raises Killed if that kills it."""
        if self._strike is None:
            return
        left, in_commit, strike = self._strike
        if in_commit and self.instance.phase not in _COMMIT:
            return
        if left:
            self._strike = left - 1, in_commit, strike
            return
        self._strike = None
        strike()
        if not self.is_alive:
            raise Killed
        if self.world.now < self.stopped_until:
            self.wait(self.stopped_until - self.world.now)

    # ---------------------------------------- the polling thread

    def post(self, event: v.Event) -> None:
        """Give an event to the core, after the calls have followed it."""
        self._calls.follow(event)
        self._events.append(event)
        self.wake()

    def wake(self) -> None:
        """Let the polling thread look around."""
        if not self._is_polling:
            self._is_polling = True
            self._turn_later()

    def readable(self, partition: TopicPartition) -> None:
        """Take that a partition has changed."""
        if self.is_alive and partition in self.consumer.positions:
            self.wake()

    def owns(self) -> list[TaskId]:
        """Return the tasks that run."""
        followed = self.consumer.positions.keys()
        return [task for task, partitions in self._layout.groups.items() if followed >= set(partitions)]

    def is_member(self) -> bool:
        """Return whether the process goes on, as a member of the group."""
        member, group = self.membership.member, self.broker.group
        is_current = group.commits(member.member_id, member.generation) == ErrorCode.none
        return is_current and self.world.now >= max(self.stopped_until, self.slow_until)

    def _start(self) -> None:
        membership = self.membership
        try:
            if self._setting.exactly_once:
                producer = SimulatedTransactionalProducer(self._requests, f"app-{self.disk.process_id}-1")
                self._output = ExactlyOnceOutput(producer, membership, lambda _: fail_on_refused)
            else:
                make_producer = partial(SimulatedBatchProducer, self._requests)
                self._output = AtLeastOnceOutput(make_producer, lambda _: fail_on_refused)
        except KafkaError:
            self.later(1_000, self._start)
            return
        self.broker.listeners.append(self.readable)
        membership.start()
        self._is_polling = False

    def _turn_later(self) -> None:
        self.later(self._turn_ms(), self._turn)

    def _turn_ms(self) -> int:
        """Return how long the polling thread takes until its next turn."""
        is_slow = self.world.now < self.slow_until
        return self.world.random.randrange(200, 2_000) if is_slow else self.world.random.randrange(3)

    def _turn(self) -> None:
        """Give the core what has happened, or what has arrived."""
        if not self._events:
            self._poll()
        if self._events:
            self._handle(self._events.popleft())
            self._turn_later()
            return
        self._is_polling = False
        due = self.instance.next_due_ms()
        if due is not None:
            self.later(max(1, due - self.world.now), self._tick)

    def _tick(self) -> None:
        if not self._is_polling and not self._events:
            due = self.instance.next_due_ms()
            if due is not None and due <= self.world.now:
                self.post(v.TimePassed())

    def _poll(self) -> None:
        try:
            arrived = self.consumer.poll(0, LOT)
        except OffsetOutOfRangeError as error:
            self._events.append(v.Failed(error) if error.partition is None else v.OutOfRange(error.partition, error))
            return
        except KafkaError as error:
            self._events.append(v.Failed(error))
            return
        ends = self.consumer.known_ends(self._awaitable)
        if ends != self._ends:
            self._ends = ends
            self._events.append(v.EndsKnown(ends))
        self._events.extend(v.Arrived(partition, batch) for partition, batch in arrived)
        if reached := self.consumer.reached_ends():
            self._events.append(v.EndsReached(reached))

    def _handle(self, event: v.Event) -> None:
        self.world.note(self.name, event)
        for action in self.instance.handle(event, self.world.now):
            self.step()
            self.world.note(self.name, action)
            self._do(action)

    def _do(self, action: v.Action) -> None:
        match action:
            case v.Close(task):
                self._calls.closed(task)
                self._tasks(action)
            case v.Start() | v.RunTask() | v.Prepare() | v.Apply():
                self._tasks(action)
            case v.Restore() | v.Purge() | v.StandBy() | v.StandDown() | v.ResetPosition() | v.FindUnread():
                self._restores.put(action)
            case v.CancelRestore(task):
                self._opener.cancel(task)
            case v.Send() | v.Flush() | v.CommitTransaction() | v.Abort():
                assert self._output is not None
                answer = self._output.do(action)
                if answer is not None:
                    self.post(answer)
            case v.CommitOffsets(offsets):
                self.membership.commit(offsets)
            case v.Follow(positions):
                self.consumer.incremental_assign(positions)
            case v.Unfollow(partitions):
                self.consumer.incremental_unassign(partitions)
            case v.PauseReading(partitions):
                self.consumer.paused |= partitions
            case v.ResumeReading(partitions):
                self.consumer.paused -= partitions
            case v.Ask(AssertionError() as error):
                raise error
            case v.Ask(error):
                is_replaced = isinstance(error, WorkerDiedError) and error.is_first
                replace = StreamThreadExceptionResponse.REPLACE_THREAD
                self.post(v.Decided(replace if is_replaced else self._setting.response))
            case v.GiveUp(tasks, assignments):
                for task in tasks:
                    self._calls.closed(task)
                self.membership.give_up(tasks, assignments)
            case v.StepBack(error):
                self.membership.step_back(error)
            case v.ShutDownApplication():
                self.membership.shut_down()
            case v.Leave(operation):
                self.membership.leave(operation)
            case v.End(error):
                self.error = error
                if self._output is not None:
                    self._output.close()
                self.later(1_000, self.kill)  # the member has left by then
            case v.TellRunning() | v.TellRebalancing() | v.TellRetry() | v.LookForHung() | v.EndHung():
                pass

    # ---------------------------------------- the other threads

    def _processing(self) -> tuple[Callable[[v.TaskAction], None], WorkerOf]:
        """Return what runs tasks, in worker processes or in a thread, and in which of them each task is."""
        layout, number = self._layout, self._setting.workers
        runner = TaskRunner(layout, layout.topic_partitions)
        if number == 1:
            lane: _Lane[v.TaskAction] = _Lane(self, lambda action: self._answered(runner.do(action)))
            return lane.put, lambda _: 0
        start = starter(self.world, self.name, layout, self.disk.open, self.later, self.deaths, self.workers)
        processes = WorkerProcesses(
            layout, start, number, runner, self._answered, make_thread=lambda _, do: _Lane(self, do)
        )
        return processes.do, processes.worker_of

    def _answered(self, event: v.Event) -> None:
        self._calls.answered(event)
        if isinstance(event, v.Closed) and event.stamp is not None:
            self.state.take(event.task, event.stamp)
        self.post(event)

    def _restore(self, action: v.RestoreAction) -> None:
        match action:
            case v.Purge(positions):
                self._opener.purge(self._purge, positions)
            case v.Restore(task):
                self._calls.await_written(task)
                self.post(self._opened(task))
            case v.ResetPosition(partition):
                self.post(self._reset(partition))
            case v.FindUnread(ends):
                self.post(self._opener.find_unread(ends))
            case v.StandBy(task):
                self._standbys.add(task)
                self._advance_later()
            case v.StandDown(task):
                self._standbys.remove(task)

    def _advance_later(self) -> None:
        if not self._is_advancing:
            self._is_advancing = True
            self.later(_STANDBY_MS, self._advance)

    def _advance(self) -> None:
        """Let the restore thread apply what has arrived for standbys, unless it is at a restore."""
        self._is_advancing = False
        if self._restores.is_busy or self._restores.do(self._standbys.advance) is not None:
            self._advance_later()

    def _reset(self, partition: TopicPartition) -> v.Event:
        try:
            return v.PositionReset(partition, self._opener.reset(partition))
        except Exception as error:
            return v.Failed(error)

    def _opened(self, task: TaskId) -> v.Event:
        try:
            return v.Restored(task, self._opener.open(task))
        except RestoreStoppedError:
            return v.Closed(task)
        except Exception as error:
            return v.Failed(error, task)

    def close(self) -> None:
        """Let the instance end as its user wants it."""
        self.is_closing = True
        self.post(v.CloseRequested())

    @property
    def has_ended(self) -> bool:
        return self.instance.phase is Phase.ENDED or not self.is_alive


class _Lane(deque[T]):
    """A thread that does one thing after the other."""

    def __init__(self, process: Process, do: Callable[[T], None]) -> None:
        super().__init__()
        self._process, self._do, self.is_busy = process, do, False

    def close(self, seconds: float) -> bool:
        raise AssertionError("Nothing is closed in a simulation.")

    def put(self, item: T) -> None:
        self.append(item)
        if not self.is_busy:
            self.is_busy = True
            self._later()

    def _later(self) -> None:
        self._process.later(self._process.world.random.randrange(3), self._next)

    def do(self, call: Callable[[], R]) -> R:
        """Do something else; what is put meanwhile waits."""
        self.is_busy = True
        result = call()
        self._go_on()
        return result

    def _next(self) -> None:
        self._do(self.popleft())
        self._go_on()

    def _go_on(self) -> None:
        if self:
            self._later()
        else:
            self.is_busy = False


class SimulatedMembership:
    """The threads of the group: sends what the member asks for (implements Membership, as `group` does)."""

    def __init__(self, process: Process, layout: Layout, standbys: int, instance: str) -> None:
        self._process = process
        self._instance = instance
        self._layout = layout
        self._world = process.world
        lag = _SMALL_LAG if standbys else _LARGE_LAG  # a small one makes warm-ups
        self._rules = Rules(layout.groups, layout.stateful, standbys, lag)
        self.member = ClassicMember(self._rules, Timing(SESSION_MS, HEARTBEAT_MS, probing_ms=_PROBING_MS), instance)
        self._request = 0
        self._asked: tuple[Callable[[Reply], None], int] | None = None
        self._rebalance_strike: tuple[int, Callable[[], None]] | None = None
        self._deaf_until = 0
        self._lost_is_told = False
        self._due: int | None = None
        self._inbox: _Lane[m.MemberEvent] = _Lane(process, self._happen)

    def start(self) -> None:
        self._happen(m.Begin())

    def identity(self) -> GroupIdentity | None:
        member = self.member
        if not member.may_commit:
            return None
        return GroupIdentity("app", member.generation, member.member_id, self._instance or None)

    def endpoints(self) -> Sequence[Endpoint]:
        return ()

    def give_up(self, tasks: frozenset[TaskId], assignments: int) -> None:
        self._inbox.put(m.TasksRevoked(tasks, assignments))

    def commit_refused(self, code: int, member: GroupIdentity) -> None:
        self._inbox.put(m.CommitRefused(code, member.member_id, member.generation))

    def fenced(self) -> bool:
        self._inbox.put(m.ProducerFenced())
        return self.member.has_twin

    def step_back(self, error: Exception) -> None:
        self._inbox.put(m.Stalled(error))

    def shut_down(self) -> None:
        self._inbox.put(m.ShutDownRequested())

    def leave(self, operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT) -> None:
        self._inbox.put(m.LeaveRequested(operation))

    def close(self) -> None:
        pass

    def disconnect(self) -> None:
        """Lose the connection."""
        self._request += 1
        self._inbox.put(m.Disconnected())

    def lose_answers(self) -> None:
        """Let nothing arrive for some time, though the connection stays open and requests arrive."""
        self._deaf_until = self._world.now + self._world.random.choice((10, 1_000, SESSION_MS, 2 * SESSION_MS))

    def strike_in(self, steps: int, strike: Callable[[], None]) -> None:
        """Strike the process behind some more steps of rebalances: what it sends for them, and what it hears."""
        self._rebalance_strike = steps, strike

    def spare(self) -> None:
        """Forget the strike that is to come, and hear again."""
        self._rebalance_strike, self._deaf_until = None, 0

    def _step(self) -> None:
        """Let the process be struck here, if it is to be; raises Killed if that kills it."""
        if self._rebalance_strike is None:
            return
        left, strike = self._rebalance_strike
        self._rebalance_strike = (left - 1, strike) if left else None
        if not left:
            strike()
        if not self._process.is_alive:
            raise Killed

    def _happen(self, event: m.MemberEvent) -> None:
        if isinstance(event, m.JoinAnswered | m.SyncAnswered):
            self._step()
        for step in self.member.handle(event, self._world.now):
            self._do(step)
        due = self.member.due_ms()
        if due is not None and due != self._due:
            self._due = due
            self._process.later(max(1, due - self._world.now), partial(self._tick, due))

    def _tick(self, due: int) -> None:
        if self._due == due:
            self._due = None
            self._happen(m.Tick())

    def _do(self, step: m.MemberCommand) -> None:
        group = self._process.broker.group
        match step:
            case v.Assigned() | v.MembershipLost() | v.MembershipRefused():
                self._lost_is_told = not isinstance(step, v.Assigned)
                self._process.post(step)
            case v.ApplicationShutDown() | v.SessionTimedOut() | v.Reconnected():
                self._process.post(step)
            case m.Refused(code):
                self._lost_is_told = True
                error = KafkaError(f"The group refuses this member: {ErrorCode(code).name}.")
                self._process.post(v.MembershipRefused(error))
            case m.Join(member_id, generation, owned, shuts_down):
                tasks = [(task.subtopology, task.partition) for task in sorted(owned)]
                process_id = self._process.disk.process_id
                positions = [(*task, position) for task, position in sorted(self._process.state.positions().items())]
                application = self._rules.application
                subscription = Subscription(
                    VERSION,
                    process_id,
                    application,
                    generation,
                    tasks,
                    positions,
                    self._instance,
                    shuts_down=shuts_down,
                )
                content = encode_subscription(subscription, self._rules)
                self._step()
                self._send(lambda reply: group.join(member_id, content, reply, self._instance), _PATIENCE_MS)
                self._step()
            case m.Sync(member_id, generation, assignments):
                self._step()
                self._send(lambda reply: group.sync(member_id, generation, assignments, reply), _PATIENCE_MS)
                self._step()
            case m.Heartbeat(member_id, generation):
                sent = self._world.now
                self._send(lambda reply: group.heartbeat(member_id, generation, sent, reply))
            case m.LeaveGroup(member_id):
                self._send(lambda reply: group.leave(member_id, reply))
            case m.FindAgain():
                self._request += 1
            case m.AskAgain() if self._asked is not None:
                self._send(*self._asked)

    def _expected(self) -> Callable[[m.MemberEvent], None]:
        """Return what takes the answer to the next request."""
        number = self._request + 1

        def take(event: m.MemberEvent) -> None:
            if self._request == number:
                self._request += 1
                if isinstance(event, m.JoinAnswered) and event.leader == event.member_id:
                    event = replace(event, ends=self._ends())
                self._happen(event)

        def reply(event: m.MemberEvent) -> None:
            if self._world.now < self._deaf_until:
                return
            if self._world.chance(0.02) and not self._world.is_calm:
                event = m.Disconnected()  # the answer is lost with its connection
            self._process.later(self._world.random.randrange(1, 5), lambda: take(event))

        return reply

    def _send(self, request: Callable[[Reply], None], patience_ms: int = _ANSWER_MS) -> None:
        self._asked, reply = (request, patience_ms), self._expected()
        self._request += 1
        number, world = self._request, self._world

        def give_up() -> None:
            if self._request == number:
                self._request += 1
                self._happen(m.Disconnected())

        if world.now < self._process.broker.refuses_until:
            self._process.later(5, give_up)
            return
        world.after(world.random.randrange(1, 5), lambda: request(reply))
        self._process.later(patience_ms, give_up)

    def _ends(self) -> dict[TaskId, int]:
        logs, layout = self._process.broker.logs, self._layout
        return {
            task: sum(logs[partition].end for partition in layout.followed_changelogs(task).values())
            for task in layout.stateful
        }

    # ---------------------------------------- commits

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self._commit(offsets, self._world.now + _COMMIT_MS, self.member.losses)

    def _commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline: int, losses: int) -> None:
        member = self.member
        if member.losses != losses:
            return
        if not member.may_commit:
            if not self._lost_is_told:
                self._lost_is_told = True
                self._process.post(v.MembershipLost(TaskMigratedError("The instance is no member.")))
            return
        generation, member_id = member.generation, member.member_id
        random, broker = self._world.random, self._process.broker

        def ask() -> None:
            refuses = self._world.now < broker.refuses_until
            code = ErrorCode.not_coordinator if refuses else broker.commit(member_id, generation, offsets)
            if self._world.chance(0.02):
                code = ErrorCode.coordinator_not_available  # the answer is lost
            self._process.later(random.randrange(1, 5), lambda: answered(code))

        def answered(code: int) -> None:
            if member.losses != losses:
                return
            if code == ErrorCode.none:
                self._process.post(v.OffsetsCommitted())
                return
            is_late = self._world.now >= deadline
            if code in MEMBER_FENCED:
                refused = m.CommitRefused(code, member_id, generation)
                self._happen(m.Stalled(KafkaError("The offsets are refused.")) if is_late else refused)
            elif is_late:
                self._process.post(v.Failed(KafkaError("The offsets could not be committed.")))
                return
            self._process.later(20, lambda: self._commit(offsets, deadline, losses))

        self._world.after(random.randrange(1, 5), ask)
