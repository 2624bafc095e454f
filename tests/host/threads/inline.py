"""Runs the core of the threads host without threads and without brokers: what it asks for is done immediately, in one
order, over topics in memory. So a test sees each result, and can end an instance anywhere and start another."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Protocol, cast

from penstock.client.api import Admin, OffsetAndMetadata
from penstock.config import StreamsConfig
from penstock.host.api import StreamThreadExceptionResponse
from penstock.host.deployment.layout import layout_of
from penstock.host.threads import vocabulary as v
from penstock.host.threads.changelog_reader import ChangelogReader
from penstock.host.threads.instance import Instance
from penstock.host.threads.phases import Phase
from penstock.host.threads.processing import TaskRunner
from penstock.host.threads.restoring import StateOpener
from penstock.host.threads.settings import Settings
from penstock.host.threads.task_manager import BufferLimits
from penstock.plan.subtopology import TaskId
from penstock.plan.topology import Topology, built_topology
from penstock.record import PartitionBatch, TopicPartition
from penstock.state.api import Base, StateStore
from penstock.state.memory import MemoryBase
from penstock_broker.common.clock import Clock
from tests.host.threads.memory_broker import MemoryBroker

MOST_ROUNDS = 100_000

RECORD_NANOSECONDS = 1_000


def unmeasured(event: v.Event) -> v.Event:
    """Return `event` with times that depend on its records alone. Which task is next depends on them, and the time that
    a run really took depends on the load of the machine."""
    match event:
        case v.Ran(records=records):
            return replace(event, nanoseconds=records * RECORD_NANOSECONDS, punctuation_nanoseconds=0)
        case v.CommitPrepared():
            return replace(event, nanoseconds=0)
        case _:
            return event


class Processing(Protocol):
    """Where the tasks of an instance run, and their bases are."""

    def do(self, action: v.TaskAction) -> v.Event: ...
    def open_base(self, task: TaskId) -> Base: ...


class InlineInstance:
    """One instance of an application."""

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        broker: MemoryBroker,
        clock: Clock,
        *,
        commit_interval_ms: int = 0,
        records_at_once: int = 1,
        bases: dict[TaskId, Base] | None = None,
        response: StreamThreadExceptionResponse = StreamThreadExceptionResponse.SHUTDOWN_CLIENT,
        until: Mapping[TopicPartition, int] | None = None,
        exactly_once: bool = False,
        processing: Processing | None = None,
        tasks: Collection[TaskId] | None = None,
    ) -> None:
        """Have all tasks, or `tasks`. commit_interval_ms: 0 commits after each run. records_at_once: that arrive of a
        partition. bases: the disk; a new one if not given. response: what the handler of uncaught exceptions answers.
        processing: where tasks run; None for here."""
        self.broker = broker
        self._clock = clock
        self._records_at_once = records_at_once
        self._bases = {} if bases is None else bases
        self._response = response
        built = built_topology(topology, config.required("application.id"))
        config = config.overridden(built.config_overrides)
        self.layout = layout_of(built, config, broker.topics())
        for topic, partitions in self.layout.topic_partitions.items():
            broker.create_topic(topic, partitions)
        limits = BufferLimits(config["penstock.batch.max.bytes"], config["penstock.batch.max.bytes"])
        settings = Settings(commit_interval_ms, limits, exactly_once)
        self.instance = Instance(self.layout, settings, clock.milliseconds(), until)
        self.runner = TaskRunner(self.layout, _Topics(broker))
        self._processing = processing
        open_base = self._open_base if processing is None else processing.open_base
        reader = ChangelogReader(cast(Admin, broker), broker)
        self._opener = StateOpener(self.layout, cast(Admin, broker), reader, open_base, clock)
        self._events: deque[v.Event] = deque([v.Assigned(frozenset(self.layout.groups if tasks is None else tasks))])
        self._following: dict[TopicPartition, int] = {}
        self._written: dict[TopicPartition, int] = {}
        self._exactly_once = exactly_once
        self._transaction: list[PartitionBatch] = []
        self.asked: list[BaseException] = []
        self.shut_downs = 0
        self.group_hears = True
        self.refusals: list[v.TransactionLost] = []
        self.told: list[type[Any]] = []
        self.given_up: list[TaskId] = []
        self.holds_restores = False
        self.held_restores: list[TaskId] = []
        self.standbys: list[TaskId] = []
        self.stepped_back: list[Exception] = []
        self.ended_hung = 0
        self.looked_for_hung = 0
        self.purged: dict[TopicPartition, int] = {}
        self.error: BaseException | None = None

    def run(self) -> None:
        """Do all that can be done at this time of the clock; raises the error with which the instance has ended."""
        for _ in range(MOST_ROUNDS):
            if not self._events:
                self._poll()
            if not self._events:
                return
            self._handle(self._events.popleft())
            if self.error is not None:
                raise self.error
        raise AssertionError(f"{MOST_ROUNDS} events, and no end: {self.instance.phase}")

    def tell(self, event: v.Event) -> None:
        """Let something happen; `run` then does what follows."""
        self._events.append(event)

    def close(self) -> None:
        """Commit and close."""
        self.tell(v.CloseRequested())
        self.run()
        assert self.instance.phase is Phase.ENDED

    def stores(self) -> dict[str, StateStore]:
        """Return the stores of all tasks by name; of several tasks with a store of one name, one."""
        tasks = [*self.layout.groups, *([v.GLOBAL_TASK] if self.layout.topology.global_topology is not None else [])]
        return {name: store for task in tasks for name, store in self.runner.stores(task).items()}

    def _open_base(self, task: TaskId) -> Base:
        return self._bases.setdefault(task, KeptBase())

    def _poll(self) -> None:
        """Let the next records arrive, or time pass."""
        ends = {partition: self.broker.end(partition) for partition in self._following}
        behind = [partition for partition in sorted(ends) if self._following[partition] < ends[partition]]
        now = self._clock.milliseconds()
        due = self.instance.next_due_ms()
        if behind:
            self._events.append(v.EndsKnown(ends))
            for partition in behind:
                start = self._following[partition]
                stop = min(start + self._records_at_once, ends[partition])
                self._following[partition] = stop
                self._events.append(v.Arrived(partition, self.broker.read(partition, start, stop)))
        elif due is not None and due <= now:
            self._events.append(v.TimePassed())

    def _handle(self, event: v.Event) -> None:
        for action in self.instance.handle(event, self._clock.milliseconds()):
            self._do(action)

    def _do(self, action: v.Action) -> None:
        match action:
            case v.Start() | v.RunTask() | v.Prepare() | v.Apply() | v.Close():
                self._events.append(unmeasured((self._processing or self.runner).do(action)))
            case v.Restore(task) if self.holds_restores:
                self.held_restores.append(task)
            case v.CancelRestore(task):
                self.held_restores.remove(task)
                self._events.append(v.Closed(task))
            case v.Restore(task):
                try:
                    self._events.append(v.Restored(task, self._opener.open(task)))
                except Exception as error:
                    self._events.append(v.Failed(error, task))
            case v.ResetPosition(partition):
                self._events.append(v.PositionReset(partition, self._opener.reset(partition)))
            case v.FindUnread(ends):
                self._events.append(self._opener.find_unread(ends))
            case v.Follow(positions):
                self._following.update(positions)
            case v.Unfollow(partitions):
                for partition in partitions:
                    self._following.pop(partition, None)
            case v.Send(output) if self._exactly_once:
                self._transaction.extend(output)
            case v.Abort():
                self._transaction.clear()
                self._written.clear()
            case v.CommitTransaction(offsets):
                self._commit(offsets)
            case v.Send(output):
                self._written.update(self.broker.append(output))
            case v.Flush():
                written, self._written = self._written, {}
                self._events.append(v.Written(written))
            case v.CommitOffsets(offsets):
                self.broker.committed.update(offsets)
                self._events.append(v.OffsetsCommitted())
            case v.ShutDownApplication():
                self.shut_downs += 1
                if self.group_hears:
                    self._events.append(v.ApplicationShutDown(None))
            case v.Ask(error):
                self.asked.append(error)
                self._events.append(v.Decided(self._response))
            case v.End(error):
                self.error = error
            case v.TellRunning() | v.TellRebalancing():
                self.told.append(type(action))
            case v.GiveUp(tasks):
                self.given_up.extend(tasks)
            case v.StandBy(task):
                self.standbys.append(task)
            case v.StandDown(task):
                if task in self.standbys:
                    self.standbys.remove(task)
            case v.StepBack(error):
                self.stepped_back.append(error)
            case v.EndHung():
                self.ended_hung += 1
            case v.LookForHung():
                self.looked_for_hung += 1
            case v.Purge(positions):
                self.purged.update(positions)
            case v.PauseReading() | v.ResumeReading() | v.Leave() | v.TellRetry():
                pass

    def _commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit the transaction, unless it is to be refused."""
        sent, self._transaction = self._transaction, []
        if self.refusals:
            self._events.append(self.refusals.pop())
            return
        ends = self.broker.append(sent)
        self.broker.committed.update(offsets)
        self._events.append(v.TransactionCommitted(ends))


class _Topics(Mapping[str, int]):
    """The topics of the broker, also those that are made later."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    def __getitem__(self, topic: str) -> int:
        return self._broker.topics()[topic]

    def __iter__(self) -> Any:
        return iter(self._broker.topics())

    def __len__(self) -> int:
        return len(self._broker.topics())


class KeptBase(MemoryBase):
    """A base in memory that outlives its instance, as one on disk does."""

    def close(self) -> None:
        """Keep what is there."""
