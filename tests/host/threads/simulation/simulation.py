"""One simulation: instances of a program in one group, whose processes are killed, stopped, slowed down, closed and
started again, as their worker processes are, over a broker that refuses at times. In the end the output, the
changelogs and the stores must be those of the test driver.

A number is all that a simulation depends on: `python -m tests.host.threads.simulation NUMBER` replays one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from penstock.host.api import StreamThreadExceptionResponse
from penstock.host.threads.phases import Phase
from penstock.record import PartitionBatch, TopicPartition
from tests.host.threads.simulation.broker import Broker, Row, batch_of
from tests.host.threads.simulation.group import Group
from tests.host.threads.simulation.process import SESSION_MS, Disk, Process, Setting
from tests.host.threads.simulation.programs import (
    PROGRAMS,
    SERVICE,
    VARIANTS,
    Kind,
    Last,
    Program,
    changelog_partitions,
    expected,
    input_of,
    last_of,
    layout,
    partition_of,
    values_of,
)
from tests.host.threads.simulation.world import World

TROUBLE_MS = 30_000
REST_MS = 120_000
"""Within this time after the trouble, everything is processed."""

_LOOK_MS = 250
_MOST_PROCESSES = 4
_ANY = ("kill", "kill", "stop", "stop", "slow", "close", "join", "refuse", "disconnect", "expire")
_EXPIRED = Row(b"expired", b"expired", 10_000, ())
_STORMS = (
    ((0, 3_000, _ANY), (0, 3_000, _ANY), (0, 3_000, _ANY)),
    ((0, 1, ("slow now",)), (1, 2, ("stop soon same",))),
    ((0, 1, ("kill", "stop")), (7_000, 10_000, ("close", "join", "kill")), (10_000, 16_000, ("close", "join", "kill"))),
    (
        (12_000, 12_001, ("slow now",)),
        (12_000, 12_500, ("join",)),
        (14_000, 15_500, ("pause now other",)),
        (15_000, 16_000, ("join",)),
    ),
)
"""Strikes that come together: when (ms), and which; some of them strike the same process as the one before, some the
leader of the group, and some between two steps of a rebalance."""
_REBALANCES = (
    ((0, 1, ("kill rebalance leader", "lose rebalance leader", "stop rebalance leader")), (1, 2, ("join",))),
    ((0, 1, ("lose rebalance", "kill rebalance")), (1, 2, ("lose rebalance leader",)), (2, 3, ("join", "close"))),
    ((0, 1, ("lose now", "lose rebalance")), (500, 8_000, ("join", "kill", "close"))),
)
"""Storms of some simulations besides."""
_STEPS_OF_A_REBALANCE = 14


class FailedSimulationError(AssertionError):
    """A simulation did not end as it must; its trace tells why."""


class Simulation:
    """See the module. programs: one of them is drawn."""

    def __init__(self, seed: int, programs: Sequence[Program] = PROGRAMS) -> None:
        self.seed = seed
        self.world = world = World(seed)
        random = world.random
        self._program = random.choice(programs)
        self._variant = random.randrange(VARIANTS)
        self._exactly_once = self._program.kind is Kind.DIFFERENCES or world.chance(0.8)
        self._partitions = random.randint(1, 3)
        merges = self._program.kind is not Kind.DIFFERENCES  # a cache would change the times of what it merges
        self._cache_bytes = random.choice((0, 0, 10_000)) if merges else 0
        self._layout = layout(self._program, self._partitions, self._cache_bytes)
        group = Group(world, SESSION_MS, 4 * SESSION_MS)
        topics = {**self._layout.topic_partitions, "out": 2}
        self._broker = Broker(world, topics, group, random.choice((5_000, 60_000, 60_000)))
        replace, shut_down = StreamThreadExceptionResponse.REPLACE_THREAD, StreamThreadExceptionResponse.SHUTDOWN_CLIENT
        response = shut_down if world.chance(0.2) else replace
        standbys = int(seed % 3 == 2)
        workers = 2 + seed % 3 % 2 if seed % 4 == 0 else 1
        self._setting = Setting(
            self._layout,
            self._exactly_once,
            random.choice((0, 100, 1_000, 3_000)),
            standbys,
            seed % 5 == 4,
            response,
            workers,
        )
        self._processes: list[Process] = []
        self._names = 0
        self._struck: Process | None = None
        self._is_settling = False
        self._strikes: dict[str, Callable[[Process], None]] = {
            "kill": self._kill,
            "stop": self._stop,
            "pause": self._pause,
            "slow": self._slow,
            "close": Process.close,
            "die": self._die,
            "lose": lambda process: process.membership.lose_answers(),
        }

    def run(self) -> None:
        """Run to the end; raises FailedSimulationError with the trace if it is not the right one."""
        SERVICE.is_away = lambda: not self.world.is_calm and self.world.chance(0.3)
        try:
            self._plan()
            self.world.run()
            self._check()
        except Exception as error:
            raise FailedSimulationError(f"simulation {self.seed}: {error}\n{self.story()}") from error

    def story(self) -> str:
        """Return the settings and the trace, a line for each event."""
        guarantee = "exactly once" if self._exactly_once else "at least once"
        head = f"{self._program.name}, {self._partitions} partitions, {guarantee}, cache of {self._cache_bytes} bytes"
        lines = [f"{time:>7} {who:8} {_shown(what)}" for time, who, what in self.world.trace]
        return "\n".join([head, *lines])

    # ---------------------------------------- what happens

    def _plan(self) -> None:
        world, random = self.world, self.world.random
        for _ in range(random.choice((1, 2, 3, 3))):
            self._start(Disk(self._name()))
        records = input_of(self._program, self._variant)
        times = sorted(random.randrange(TROUBLE_MS) for _ in range(random.randint(5, 20)))
        lots = sorted(random.randrange(len(records)) for _ in times[1:])
        for time, start, stop in zip(times, [0, *lots], [*lots, len(records)], strict=True):
            world.after(time, partial(self._write, start, stop))
        storms = random.sample(_STORMS, random.choice((1, 2, 2, 3)))
        if self.seed % 10 in (2, 6, 8, 9):
            storms += random.choices(_REBALANCES, k=3)
        for storm in storms:
            began = random.randrange(TROUBLE_MS // 2)
            for least, most, kinds in storm:
                world.after(began + random.randrange(least, most), partial(self._strike, random.choice(kinds)))
        if self._setting.workers > 1:
            for _ in range(random.randint(2, 8)):
                world.after(random.randrange(TROUBLE_MS), partial(self._strike, "die"))
        world.after(TROUBLE_MS, self._calm)

    def _name(self) -> str:
        self._names += 1
        return f"p{self._names}"

    def _start(self, disk: Disk) -> None:
        process = Process(self.world, self._broker, disk, self._setting, f"{disk.process_id}/{self._name()}")
        process.on_death = partial(self._died, process)
        self._processes.append(process)

    def _died(self, process: Process) -> None:
        """Let it be started again, with its disk or without."""
        self._processes.remove(process)
        disk = Disk(self._name()) if process.loses_disk else process.disk
        self.world.after(self.world.random.choice((50, 500, 2_000, 8_000)), partial(self._start, disk))

    def _write(self, start: int, stop: int) -> None:
        for topic, row in input_of(self._program, self._variant)[start:stop]:
            self._broker.append([PartitionBatch(topic, partition_of(row, self._partitions), batch_of([(0, row)]))])

    def _strike(self, kind: str) -> None:
        """Let some trouble come: at once, or behind some more steps of a process."""
        world, random = self.world, self.world.random
        process = random.choice(self._processes) if self._processes else None
        what, *how = kind.split()
        if "same" in how and self._struck in self._processes:
            process = self._struck
        if "other" in how and process is self._struck:
            process = self._processes[-1] if self._processes else None
        if "leader" in how:
            leader = self._broker.group.leader
            process = next((one for one in self._processes if one.membership.member.member_id == leader), process)
        self._struck = process
        world.note("strike", f"{kind} {process.name if process else ''}")
        if what == "refuse":
            self._broker.refuses_until = world.now + random.choice((50, 500, 3_000))
        elif what == "expire":
            self._expire()
        elif what == "join" and len(self._processes) < _MOST_PROCESSES:
            self._start(Disk(self._name()))
        elif process is not None:
            strike = partial(self._strikes.get(what, _disconnect), process)
            if "rebalance" in how:
                process.membership.strike_in(random.randrange(_STEPS_OF_A_REBALANCE), strike)
            elif "now" in how or world.chance(0.1):
                strike()
            else:
                process.strike_in(random.randrange(3 if "soon" in how else 9), world.chance(0.8), strike)

    def _expire(self) -> None:
        """Let records come and be deleted before anybody has read them: the positions before them are out of range.
        Where a source topic is a changelog, all of its records are needed."""
        if self._program.optimization != "none":
            return
        for topic in self._program.sources:
            for partition in (TopicPartition(topic, n) for n in range(self._partitions)):
                committed, end = self._broker.committed.get(partition), self._broker.logs[partition].end
                if committed is not None and committed.offset == end > 0:
                    self._broker.append([PartitionBatch(*partition, batch_of([(0, _EXPIRED)]))])
                    self._broker.delete_records({partition: end + 1})

    def _kill(self, process: Process) -> None:
        process.loses_disk = self.world.chance(0.6)
        process.kill()

    def _stop(self, process: Process) -> None:
        """Let a process stand still for longer than its session; at least once, not so long: what it then writes as one
        that was counted out is in no transaction, and may be older than what others have written."""
        if not self._exactly_once:
            self._pause(process)
            return
        process.stop(self.world.random.randrange(SESSION_MS, 3 * SESSION_MS))
        if self.world.chance(0.3):
            process.loses_disk = True
            process.strike_in(self.world.random.randrange(8), False, process.kill)  # a while after it goes on

    def _pause(self, process: Process) -> None:
        """Let a process stand still for a part of its session; at least once, not again, for that could end it."""
        if self._exactly_once:
            process.stop(self.world.random.randrange(100, SESSION_MS - 1_000))
        elif not process.stopped_until:
            process.stop(self.world.random.randrange(100, SESSION_MS // 3))

    def _die(self, process: Process) -> None:
        """Let one of the worker processes die, whatever it is about, or one after the other that runs a certain
        task."""
        if self.world.chance(0.2):
            self.world.random.choice(process.workers).die()
        else:
            process.deaths.let_die(self.world.random.choice((1, 1, 2, 3, 5)))

    def _slow(self, process: Process) -> None:
        process.slow_until = self.world.now + self.world.random.randrange(2_000, 10_000)

    def _calm(self) -> None:
        """Let the trouble be over, and wait until everything is processed."""
        world = self.world
        world.note("strike", "calm")
        world.is_calm = True
        for process in self._processes:
            process.spare()
            process.slow_until = 0
        self._rest()

    def _rest(self) -> None:
        if self._is_done():
            if self._is_settling:
                self.world.end()
            else:
                self._is_settling = True
                self.world.after(self._program.settles_ms, self._rest)
            return
        if self.world.now > TROUBLE_MS + REST_MS:
            owned = {process.name: [str(task) for task in process.owns()] for process in self._processes}
            raise AssertionError(f"It does not come to rest: {owned}")
        self.world.after(_LOOK_MS, self._rest)

    def _is_done(self) -> bool:
        owned = sorted(task for process in self._processes for task in process.owns())
        is_idle = all(one.is_member() and one.instance.phase is Phase.RUNNING for one in self._processes)
        is_owned = is_idle and owned == sorted(self._layout.groups)
        return is_owned and self._broker.is_read(self._layout.readers) and not self._waits()

    def _waits(self) -> bool:
        """Return whether records wait in the store of the program."""
        if not self._program.waits_in:
            return False
        bases = [process.disk.bases[task] for process in self._processes for task in process.owns()]
        return any(base.view(self._program.waits_in).approximate_num_entries() for base in bases)

    # ---------------------------------------- what comes out

    def _check(self) -> None:
        wanted, kind = expected(self._program, self._variant), self._program.kind
        output = [row for n in range(2) for row in self._broker.records(TopicPartition("out", n))]
        last = last_of(output)
        is_each = kind is Kind.RECORDS or (kind is Kind.COUNTS and not self._cache_bytes)
        if is_each:
            found = Counter((row.key, row.value) for row in output)
            missing, more = wanted.output - found, found - wanted.output
            assert not missing or (kind is Kind.COUNTS and not self._exactly_once), f"the output misses {missing}"
            assert not more or not self._exactly_once, f"the output has too much: {more}"
        if self._program.keeps_order and self._exactly_once and is_each:
            assert values_of(output) == wanted.values, f"the output has another order: {values_of(output)}"
        compare = self._same if self._exactly_once or kind is not Kind.COUNTS else self._no_less
        if kind is not Kind.RECORDS:
            compare("output", last, wanted.last)
        for topic, partitions in changelog_partitions(self._layout).items():
            rows = [row for partition in partitions for row in self._broker.records(partition)]
            compare(topic, last_of(rows), wanted.changelogs[topic])
        if self._exactly_once:
            self._check_stores()

    def _check_stores(self) -> None:
        wanted = expected(self._program, self._variant).stores
        found: dict[str, dict[bytes, bytes]] = {name: {} for name in wanted}
        for process in self._processes:
            for task in process.owns():
                for store in self._layout.changelogs(task):
                    found[store].update(process.disk.bases[task].view(store).range(None, None, False))
        assert found == wanted, f"the stores have {found}, and not {wanted}"

    @staticmethod
    def _same(what: str, found: Last, wanted: Last) -> None:
        assert found == wanted, f"{what} ends with {found}, and not {wanted}"

    @staticmethod
    def _no_less(what: str, found: Last, wanted: Last) -> None:
        counted = {key: -1 if key not in found else _number(found[key][0]) for key in wanted}
        less = {key: count for key, count in counted.items() if count < _number(wanted[key][0])}
        assert not less, f"{what} ends with {less}, and not {wanted}"


def _disconnect(process: Process) -> None:
    process.membership.disconnect()


def _number(value: bytes | None) -> int:
    return int.from_bytes((value or b"")[-8:], signed=True)


def _shown(what: object) -> str:
    """Return an event or an action in one line."""
    text = f"{what!r}" if not isinstance(what, str) else what
    return text if len(text) < 400 else f"{text[:400]} ..."
