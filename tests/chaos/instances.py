"""Leads a group of instances of the threads host through chaos: writes input, does deeds to the instances and their
broker, and lets them come to the end of their input. Every wait has a bound. What must hold afterwards is in the test.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from penstock.errors import RetriableError, StreamsError
from penstock.host.threads.recovering import recover_from_state
from penstock.plan.partitioning import partition_for
from penstock.record import TopicPartition
from tests.chaos import deeds, program, records
from tests.chaos.run import Broker
from tests.host.spark.support import SparkRunner
from tests.support.client_quotas import limited
from tests.support.lossy_proxy import LossyProxy
from tests.support.waiting import until

INSTANCES, PARTITIONS = 3, 3
STANDSTILL_SECONDS = 300.0
"""How long the group may commit nothing, or an instance may take to end."""

_SESSION_MS = 6_000
_STOPPED_SECONDS = 15.0
"""How long an instance stands still: longer than its session, and than any of its transactions."""
_TRANSACTION_MS = 10_000
_BROKER_AWAY_SECONDS = 2.0
_DEAF_SECONDS = 10.0
"""How long an instance hears nothing of its group: longer than its session."""
_LEADER_POINTS = ("group.planned", "group.told")
_CLOCK_SECONDS = 3.0
_ROOT = Path(__file__).parents[2]


class Instance:
    """One instance: its directory, its way to the brokers, and its process while it runs.

    crashes: a directory with a file for each crash point at which it is not to die.
    """

    def __init__(self, number: int, directory: Path, crashes: Path, bootstrap_servers: str) -> None:
        self.number, self.directory = number, directory / f"instance-{number}"
        self.proxy = LossyProxy(bootstrap_servers)
        self.orders, self.clock = self.directory / "orders", self.directory / "clock"
        clock = Path(__file__).parent / "clock"
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(clock), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "PENSTOCK_CHAOS_CLOCK": str(self.clock),
            program.CALLS_FILE: str(directory / "calls"),
            program.FAILURES: "1",
            "PENSTOCK_CRASH_POINTS": " ".join(_LEADER_POINTS),
            "PENSTOCK_CRASH_DIRECTORY": str(crashes),
        }
        self.log = directory / f"instance-{number}.log"
        self.orders.mkdir(parents=True)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def state(self) -> Path:
        return self.directory / "state"

    def start(self, config: dict[str, object]) -> None:
        """Start it; what it was told before does not count."""
        for order in self.orders.iterdir():
            order.unlink()
        own = {"bootstrap.servers": self.proxy.bootstrap_servers, "state.dir": str(self.state)}
        arguments = json.dumps({**config, **own, "orders": str(self.orders)})
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.instance_program", arguments],
                cwd=_ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def has_ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def print_stacks(self) -> None:
        """Have it print the stacks of its threads to its log."""
        before = self.log.stat().st_size
        self.signal(signal.SIGUSR1)
        until(lambda: self.has_ended() or b"instance_program.py" in self.log.read_bytes()[before:], 10.0)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def signal(self, number: signal.Signals) -> None:
        if not self.has_ended():
            assert self.process is not None
            os.kill(self.process.pid, number)


class GroupChaos:
    """A group of instances, its topics and what happens to it; a context manager that leaves no process behind.

    history: what happened, with the seconds since the begin; it is printed as it comes. deeds: how many of each kind.
    rows: all input so far. calls: the file of the calls.
    """

    def __init__(self, seed: int, broker: Broker, runner: SparkRunner, name: str, directory: Path) -> None:
        """Make the topics, write the first input, and start the instances.

        Args:
            seed: draws input and victims.
            broker: what the group reads from and writes to.
            runner: writes and reads topics of that broker.
            name: application.id, and what its topics begin with.
            directory: for state and logs.
        """
        self.name, self.rows, self.history = name, records.first_round(seed), list[str]()
        self.deeds = Counter[str]()
        self._seed, self._broker, self._runner = seed, broker, runner
        self._draw, self.calls = random.Random(seed), directory / "calls"
        self._rounds, self._begun = 0, time.monotonic()
        self._config: dict[str, object] = {
            "application.id": name,
            "processing.guarantee": "exactly_once_v2",
            "num.standby.replicas": seed % 2,
            "session.timeout.ms": _SESSION_MS,
            "heartbeat.interval.ms": 500,
            "producer.transaction.timeout.ms": _TRANSACTION_MS,
            "windowstore.changelog.additional.retention.ms": 2**62,  # the records are some years old
            "prefix": name,
            "letters": PARTITIONS,
            **program.KEEP_ANSWERS,
        }
        runner.create_topics({f"{name}-{topic}": PARTITIONS for topic in (*program.INPUTS, *program.OUTPUTS)})
        self._write(self.rows)
        self._crashes = directory / "crashes"
        self._crashes.mkdir()
        for point in _LEADER_POINTS:
            (self._crashes / point).touch()
        self.instances = [
            Instance(number, directory, self._crashes, broker.bootstrap_servers) for number in range(INSTANCES)
        ]
        for instance in self.instances:
            instance.start(self._config)

    def __enter__(self) -> GroupChaos:
        return self

    def __exit__(self, *_: object) -> None:
        for instance in self.instances:
            instance.signal(signal.SIGCONT)
            instance.kill()
            instance.proxy.__exit__()

    # ---------------------------------------- the schedule

    def live(self, schedule: Iterator[str], is_over: Callable[[int], bool]) -> None:
        """Do the deeds of `schedule`, each behind a commit or more, until `is_over(number of deeds)`."""
        for done, deed in enumerate(schedule):
            if is_over(done):
                break
            before = self._written_before()
            self._next_round()
            self._wait(lambda before=before: self._written() > before)  # type: ignore[misc]  # the default binds the loop's value
            victim = self._draw.choice(self.instances)
            self._note(deed if deed in deeds.OF_ALL else f"{deed} {victim.number}")
            self.deeds[deed] += 1
            self._do(deed, victim)
        self._next_round()

    def _do(self, deed: str, victim: Instance) -> None:
        match deed:
            case deeds.BROKER:
                self._broker.kill()
                time.sleep(_BROKER_AWAY_SECONDS)  # the deed itself: how long the broker is away
                self._broker.resume()
                return
            case deeds.QUOTA:
                self._slow_down()
                return
            case deeds.FLIPPED_BIT:
                self._flip_bit()
                return
            case deeds.CLOCK:
                victim.clock.write_text(str(deeds.TEN_YEARS_SECONDS))
                self._next_round()
                time.sleep(_CLOCK_SECONDS)  # the deed itself
                victim.clock.write_text("0")
                return
            case deeds.STOP:
                victim.signal(signal.SIGSTOP)
                self._next_round()
                time.sleep(_STOPPED_SECONDS)  # the deed itself
                victim.signal(signal.SIGCONT)
                return
            case deeds.CHANGELOG:
                self._lose_changelog(victim)
                return
            case deeds.LOST_ANSWERS:
                victim.proxy.lose_answers()
                self._next_round()
                time.sleep(_DEAF_SECONDS)  # the deed itself
                victim.proxy.pass_all()
                return
            case deeds.LEADER:
                self._kill_leader(victim)
                return
            case deeds.CLOSE:
                self._close(victim)
            case _:
                victim.kill()
        if deed == deeds.LOST_DIRECTORY:
            shutil.rmtree(victim.state, ignore_errors=True)
        victim.start(self._config)

    def _lose_changelog(self, victim: Instance) -> None:
        self._restored()  # what a lost directory had is in the changelog alone until then
        self.close()
        waiting = [program.PARKED_STORE, *(f"{operator}-calls" for operator in program.CALLING)]
        stores = [program.LETTERS_STORE, program.ORDERS_STORE, "minutes-store", *waiting]
        changelog = f"{self.name}-{self._draw.choice(stores)}-changelog"
        self._runner.admin.delete_topics([changelog])
        victim.start(self._config)
        assert until(victim.has_ended, STANDSTILL_SECONDS), self._story(f"{changelog} is not missed")
        error = victim.log.read_text(errors="replace").rpartition("MissingInternalTopicError")[2]
        assert changelog in error, self._story(f"{changelog} is not named")
        topology = program.topology(self.name, 1, PARTITIONS)
        settings = {name: value for name, value in self._config.items() if name not in ("prefix", "letters")}
        for instance in self.instances:
            with suppress(StreamsError):  # others had its tasks last; if nobody has the state, no instance starts
                own = {"bootstrap.servers": self._broker.bootstrap_servers, "state.dir": str(instance.state)}
                recover_from_state(topology, {**settings, **own})
        for instance in self.instances:
            instance.start(self._config)

    def _restored(self) -> None:
        """Wait until all records of one more round are processed and committed: each task has some."""
        self._next_round()
        admin = self._runner.admin

        def is_at_the_end() -> bool:
            made = [topic for topic in admin.topics() if topic.startswith(self.name) and topic.endswith("-repartition")]
            places = [*self.inputs(), *(TopicPartition(topic, n) for topic in made for n in range(PARTITIONS))]
            ends = admin.end_offsets(places, read_committed=True)
            committed = admin.committed_offsets(self.name, places, stable=False)
            return all(end == 0 or (tp in committed and committed[tp].offset >= end) for tp, end in ends.items())

        self._wait(is_at_the_end)

    def _kill_leader(self, other: Instance) -> None:
        """Kill the instance that leads the rebalance which the start of another one brings."""
        order = self._crashes / self._draw.choice(_LEADER_POINTS)
        order.unlink()
        other.kill()
        other.start(self._config)
        assert until(order.exists, STANDSTILL_SECONDS), self._story(f"nobody comes to {order.name}")
        self._next_round()
        assert until(lambda: any(one.has_ended() for one in self.instances), STANDSTILL_SECONDS)
        for one in self.instances:
            if one.has_ended():
                self._note(f"leader {one.number} is dead at {order.name}")
                one.start(self._config)

    def _slow_down(self) -> None:
        """Let producers write little until there is a commit."""
        before, producer = self._written_before(), f"{self.name}-producer"
        with limited(self._broker.bootstrap_servers, producer, "producer_byte_rate", deeds.BYTES_A_SECOND):
            for _ in range(deeds.SLOW_ROUNDS):
                self._next_round()
            self._wait(lambda: self._written() > before)

    def _flip_bit(self) -> None:
        """Damage a record for each instance that fetches it: one after the other ends, as its tasks go to the next."""
        damaged = records.a_click(self._seed, self._rounds + 1)
        sizes = {instance.number: instance.log.stat().st_size for instance in self.instances}
        for instance in self.instances:
            instance.proxy.damage(damaged)
        self._next_round()
        assert until(lambda: all(one.has_ended() for one in self.instances), STANDSTILL_SECONDS), self._story(
            f"instances go on after a damaged record {damaged!r}"
        )
        for instance in self.instances:
            told = instance.log.read_bytes()[sizes[instance.number] :].decode(errors="replace")
            assert records.names_damage(told, self.name), self._story(f"instance {instance.number} names no damage")
            instance.proxy.pass_all()
            instance.start(self._config)

    def stores(self) -> list[tuple[str, str, object, int]]:
        """Return store, key, value and timestamp of each entry of the stores, in order, from the instances that have
        them; they show them one after the other, and a task may move in between."""
        for instance in self.instances:
            (instance.orders / "show").touch()
        self._wait(lambda: all((instance.orders / "stores").exists() for instance in self.instances))
        shown = [json.loads((instance.orders / "stores").read_text()) for instance in self.instances]
        for instance in self.instances:
            (instance.orders / "show").unlink()
            (instance.orders / "stores").unlink()
        return sorted((store, key, value, timestamp) for each in shown for store, key, value, timestamp in each)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait for `condition`, which has no bound but this one; no instance may end meanwhile."""
        self._wait(condition)

    def close(self) -> None:
        """Let all instances end."""
        for instance in self.instances:
            self._close(instance)

    # ---------------------------------------- input and output

    def inputs(self) -> list[TopicPartition]:
        """Return the partitions of the input."""
        return [TopicPartition(f"{self.name}-{topic}", n) for topic in program.INPUTS for n in range(PARTITIONS)]

    def _next_round(self) -> None:
        self._rounds += 1
        rows = records.round_of(self._seed, self._rounds)
        self._write(rows)
        self.rows += rows

    def _write(self, rows: list[records.Row]) -> None:
        for topic in {topic for topic, _ in rows}:
            written = [record for other, record in rows if other == topic]
            placed = [each._replace(partition=partition_for(each.key or b"", PARTITIONS)) for each in written]
            self._runner.write(f"{self.name}-{topic}", placed)

    def _written(self) -> int:
        """Return how much is committed of the output that each round has some of."""
        places = [TopicPartition(f"{self.name}-minutes", n) for n in range(PARTITIONS)]
        return sum(self._runner.admin.end_offsets(places, read_committed=True).values())

    def _written_before(self) -> int:
        """Return `_written` once the brokers answer."""
        found = list[int]()

        def answered() -> bool:
            found.append(self._written())
            return True

        self._wait(answered)
        return found[-1]

    # ---------------------------------------- waiting

    def _close(self, instance: Instance) -> None:
        (instance.orders / "stop").touch()
        assert until(instance.has_ended, STANDSTILL_SECONDS), self._story(f"instance {instance.number} does not end")
        assert instance.process is not None
        assert instance.process.returncode == 0, self._story(f"instance {instance.number} has not ended properly")

    def _wait(self, condition: Callable[[], bool]) -> None:
        def met() -> bool:
            ended = [instance.number for instance in self.instances if instance.has_ended()]
            assert not ended, self._story(f"instances {ended} have ended by themselves")
            try:
                return condition()
            except RetriableError:  # a broker that was killed is not back yet
                return False

        assert until(met, STANDSTILL_SECONDS), self._story("it stands still")

    def _note(self, what: str) -> None:
        self.history.append(f"{time.monotonic() - self._begun:.1f} {what}")
        print(self.history[-1], flush=True)

    def _story(self, what: str) -> str:
        """Return what went wrong, with what is needed to find out why."""
        self._note(what)
        for instance in self.instances:
            instance.print_stacks()
        logs = [f"instance {each.number}:\n{each.log.read_text(errors='replace')[-6000:]}" for each in self.instances]
        return "\n".join([f"SEED={self._seed}: {what}", *self.history, *logs])
