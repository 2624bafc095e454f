"""Leads an application through chaos: writes input, does deeds to it, starts it again when it has ended, and lets it
come to the end of its input. Every wait has a bound. What must hold afterwards is in the test.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.config import StreamsConfig
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.plan.partitioning import partition_for
from penstock.record import TopicPartition
from tests.chaos import deeds, program, records
from tests.chaos.rescaling import SavepointCommands
from tests.chaos.run import Broker
from tests.crash.processes import END_SECONDS, MarkedProcesses, Process, kill, spark_home, start_program, victims
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord, wait_for
from tests.support.client_quotas import limited
from tests.support.loop_disk import LoopDisk
from tests.support.lossy_proxy import COMMITS, LossyProxy
from tests.support.sources import SOURCES

STANDSTILL_SECONDS = 900.0
"""How long the application may go on without committing an epoch, or ending: three times as long as a start and the
rest of the input took with thirty processes on two cores."""

_MOST_ENDINGS = 6
_BROKER_AWAY_SECONDS = 2.0
_TRANSACTION_SECONDS = 10
_STOPPED_SECONDS = 15.0
"""How long an application stands still: longer than any time-out of its transactions."""
_FULL_SECONDS = 10.0
_DEAF_SECONDS = 10.0
"""How long it gets no answer about its transactions: as long as one may last."""
_VICTIM_SECONDS = 30.0
_PARTITIONS, _MOST_PARTITIONS = 2, 4
_LETTERS_OF_NEXT = {2: 3, 3: 2}
_COPARTITIONED = (("clicks", "views", "accounts"), ("orders",), ("users",))
_ROOT = Path(__file__).parents[2]


class Chaos:
    """An application, its topics and what happens to it; a context manager that leaves no process behind.

    history: what happened, with the seconds since the begin; it is printed as it comes. deeds: how many of each kind.
    rows: all input so far. partitions: of each topic of the input; they grow. calls: the file of the calls.
    """

    def __init__(
        self,
        seed: int,
        broker: Broker,
        runner: SparkRunner,
        name: str,
        directory: Path,
        master: str,
        disk: LoopDisk | None,
    ) -> None:
        """Make the topics and write the first input; nothing is started yet.

        Args:
            seed: draws input and victims.
            broker: what the application reads from and writes to.
            runner: writes and reads topics of that broker.
            name: application.id, and what its topics begin with.
            directory: for state, savepoints and logs.
            master: of Spark.
            disk: where state and savepoints are kept; None for a part of `directory`.
        """
        self.name, self.rows, self.history = name, records.first_round(seed), list[str]()
        self.deeds = Counter[str]()
        self.partitions = dict.fromkeys(program.INPUTS, _PARTITIONS)
        self._seed, self._broker, self._runner = seed, broker, runner
        self._draw, self._proxy = random.Random(seed), LossyProxy(broker.bootstrap_servers)
        self._orders, self._log = directory / "orders", directory / "application.log"
        self._orders.mkdir(parents=True)
        self._disk, kept = disk, directory if disk is None else disk.path
        self._clock = directory / "clock"
        self.calls = directory / "calls"
        self._spark_home = spark_home(directory / "spark")
        self._values: dict[str, Any] = {
            "application.id": name,
            "bootstrap.servers": self._proxy.bootstrap_servers,
            "state.dir": str(kept / "state"),
            "penstock.checkpoint.dir": str(kept / "checkpoint"),
            "producer.transaction.timeout.ms": 1000 * _TRANSACTION_SECONDS,
            "penstock.spark.master": master,
            "penstock.spark.partitions": 2,
            "penstock.poll.ms": 50,
            **program.KEEP_ANSWERS,
        }
        self._topology = {"prefix": name, "version": 1, "letters": _PARTITIONS}
        self._rounds, self._begun = 0, time.monotonic()
        self._commands = SavepointCommands(kept / "savepoints")
        self._processes = MarkedProcesses()
        self._running: subprocess.Popen[bytes] | None = None
        topics = [f"{name}-{topic}" for topic in (*program.INPUTS, *program.OUTPUTS)]
        runner.create_topics(dict.fromkeys(topics, _PARTITIONS))
        self._write(self.rows)

    def __enter__(self) -> Chaos:
        return self

    def __exit__(self, *_: object) -> None:
        self._processes.kill()
        self._proxy.__exit__()

    @property
    def config(self) -> StreamsConfig:
        """Of the application as it is now."""
        return StreamsConfig(self._values)

    @property
    def _checkpoint(self) -> Checkpoint:
        return Checkpoint(self.config.checkpoint_directory())

    # ---------------------------------------- the schedule

    def live(self, schedule: Any, is_over: Callable[[int], bool]) -> None:
        """Do the deeds of `schedule`, an epoch or more apart, until `is_over(number of deeds)`; then come to the end of
        the input. Raises AssertionError if the application does not come there."""
        for done, deed in enumerate(schedule):
            if is_over(done):
                break
            self._next_round()
            self._wait_for_epoch()
            self._note(deed)
            self.deeds[deed] += 1
            self._do(deed)
        self._next_round()
        self._come_to_end()
        self._wait_running(lambda: not self.state(program.PARKED_STORE))  # the end of the input does not wait for them
        self._come_to_end()

    def _do(self, deed: str) -> None:
        match deed:
            case deeds.BROKER:
                self._broker.kill()
                time.sleep(_BROKER_AWAY_SECONDS)  # the deed itself: how long the broker is away
                self._broker.resume()
            case deeds.PAUSE:
                self._pause()
            case deeds.CHANGE:
                self._close()
                self._topology["version"] = 3 - self._topology["version"]
            case deeds.CLOSE:
                self._close()
            case deeds.RESCALE:
                self._come_to_end()
                self._rescale()
            case deeds.STOP:
                self._signal(self._processes.running(), signal.SIGSTOP)
                self._next_round()
                time.sleep(_STOPPED_SECONDS)  # the deed itself
                self._signal(self._processes.running(), signal.SIGCONT)
            case deeds.TAKEOVER:
                self._take_over()
            case deeds.CLOCK:
                self._clock.write_text(str(deeds.TEN_YEARS_SECONDS))
                self._next_round()
                self._wait_for_epoch()
                self._clock.write_text("0")
                self._wait_for_tick(since_ms=time.time_ns() // 1_000_000)
            case deeds.POWER:
                self._lose_power()
            case deeds.FULL_DISK:
                self._fill_disk()
            case deeds.QUOTA:
                self._slow_down()
            case deeds.FLIPPED_BIT:
                self._flip_bit()
            case deeds.LOST_ANSWERS:
                self._proxy.lose_answers(COMMITS)
                self._next_round()
                time.sleep(_DEAF_SECONDS)  # the deed itself
                self._proxy.pass_all()
            case _:
                self._kill(deed)

    def _pause(self) -> None:
        """Pause it, write, and resume it."""
        (self._orders / "paused").unlink(missing_ok=True)
        (self._orders / "pause").touch()
        try:
            wait_for((self._orders / "paused").exists, _VICTIM_SECONDS)
        except TimeoutError:
            self._note("nobody was there to be paused")
        self._next_round()
        (self._orders / "pause").unlink()

    def _take_over(self) -> None:
        """Let the program stand still while another goes on from its checkpoint, then let it go on: it has to end by
        itself, and the other one to live."""
        older, frozen = self._running, self._processes.running()
        assert older is not None
        self._signal(frozen, signal.SIGSTOP)
        (Path(self.config.checkpoint_directory()) / "lock").unlink(missing_ok=True)  # locks are of one machine
        machines = Path(self._values["state.dir"]).parent
        self._values["state.dir"] = str(machines / f"state-{self.deeds[deeds.TAKEOVER]}")
        self._running = None
        self._next_round()
        self._wait_for_epoch()
        newer = self._running
        self._signal(frozen, signal.SIGCONT)
        self._note("the older program goes on")
        self._patiently(lambda: older.poll() is not None)
        gone = {process.pid for process in frozen}
        wait_for(lambda: gone.isdisjoint(process.pid for process in self._processes.running()), END_SECONDS)
        self._next_round()
        self._wait_for_epoch()
        assert self._running is newer, self._story("the older program ended the newer one")

    def _lose_power(self) -> None:
        """End all processes as a loss of power does, with what their disk has at that moment."""
        assert self._disk is not None
        frozen = self._processes.running()
        self._signal(frozen, signal.SIGSTOP)
        self._disk.lose_power(self._processes.kill)

    def _fill_disk(self) -> None:
        """Leave no room on the disk for a while."""
        assert self._disk is not None
        self._disk.fill()
        self._next_round()
        time.sleep(_FULL_SECONDS)  # the deed itself
        self._disk.empty()

    def _slow_down(self) -> None:
        """Let producers write little until there is an epoch."""
        producer = f"{self.name}-producer"
        with limited(self._broker.bootstrap_servers, producer, "producer_byte_rate", deeds.BYTES_A_SECOND):
            for _ in range(deeds.SLOW_ROUNDS):
                self._next_round()
            self._wait_for_epoch()

    def _flip_bit(self) -> None:
        """Damage a record until the program ends because of it."""
        before = self._log.stat().st_size
        self._proxy.damage(records.a_click(self._seed, self._rounds + 1))
        self._next_round()
        self._wait_running(
            lambda: records.names_damage(self._log.read_bytes()[before:].decode(errors="replace"), self.name)
        )
        self._proxy.pass_all()

    @staticmethod
    def _signal(processes: Sequence[Process], number: signal.Signals) -> None:
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)

    def _kill(self, victim: str) -> None:
        """Kill a victim, once there is one: a program that has just been started has no workers yet."""
        running = self._running
        assert running is not None

        def struck() -> bool:
            found = victims(victim, running.pid, self._processes.running())
            chosen = found if victim == "application" else self._draw.sample(found, min(len(found), 1))
            return sum(kill(process.pid) for process in chosen) > 0

        try:
            wait_for(struck, _VICTIM_SECONDS)
        except TimeoutError:
            self._note(f"no {victim} came")

    def _rescale(self) -> None:
        """Go on from a savepoint with another number of tasks by letter, and more partitions of some topics."""
        savepoint = self._commands.take(self._topology, self._values)
        self._topology["letters"] = _LETTERS_OF_NEXT[self._topology["letters"]]
        grown = self._draw.choice(_COPARTITIONED)
        count = self.partitions[grown[0]] + 1
        if count <= _MOST_PARTITIONS:
            for topic in grown:
                self._runner.add_partitions(f"{self.name}-{topic}", count)
                self.partitions[topic] = count
        self._values["penstock.checkpoint.dir"] = f"{savepoint}-restored"
        self._commands.restore(savepoint, self._topology, self._values)
        self._note(f"restored with {self._topology['letters']} tasks by letter, partitions {self.partitions}")

    # ---------------------------------------- input

    def _next_round(self) -> None:
        self._rounds += 1
        rows = records.round_of(self._seed, self._rounds)
        self._write(rows)
        self.rows += rows

    def _write(self, rows: list[records.Row]) -> None:
        for topic in {topic for topic, _ in rows}:
            written = [record for other, record in rows if other == topic]
            self._runner.write(f"{self.name}-{topic}", [self._placed(record, topic) for record in written])

    def _placed(self, record: InputRecord, topic: str) -> InputRecord:
        assert record.key is not None
        return record._replace(partition=partition_for(record.key, self.partitions[topic]))

    # ---------------------------------------- the program

    def _start(self, to_end: bool = False) -> None:
        (self._orders / "stop").unlink(missing_ok=True)
        values = {**self._values, **self._topology, "to_end": to_end}
        arguments = json.dumps({**values, "orders": str(self._orders)})
        environment = {
            **self._processes.environment,
            "PYTHONPATH": f"{SOURCES}:{_ROOT}:{Path(__file__).parent / 'clock'}",
            "PENSTOCK_CHAOS_CLOCK": str(self._clock),
            program.CALLS_FILE: str(self.calls),
            program.FAILURES: "1",
            "SPARK_HOME": str(self._spark_home),
        }
        self._note(f"start of version {self._topology['version']} after epoch {self._checkpoint.last_epoch()}")
        self._running = start_program(Path(program.__file__), [arguments], environment, self._log)

    def _wait_for_epoch(self) -> None:
        """Wait until an epoch more is committed."""
        before = self._checkpoint.last_epoch()
        self._wait_running(lambda: self._checkpoint.last_epoch() > before)

    def _wait_for_tick(self, since_ms: int) -> None:
        """Wait until the program makes a punctuation by the real time again, after `since_ms`."""
        topic = f"{self.name}-{program.TICKS}"
        read = {TopicPartition(topic, number): 0 for number in range(_PARTITIONS)}

        def ticked() -> bool:
            found = []
            for partition, end in self._runner.admin.end_offsets(list(read), read_committed=True).items():
                found += [int(record.value or b"") for record in self._runner.fetch(partition, read[partition], end)]
                read[partition] = end
            return any(since_ms <= tick < since_ms + 1000 * deeds.TEN_YEARS_SECONDS // 2 for tick in found)

        self._wait_running(ticked)

    def _wait_running(self, condition: Callable[[], bool]) -> None:
        """Wait for `condition`, with a program that is started again whenever it has ended."""
        starts = 0

        def met() -> bool:
            nonlocal starts
            if self._running is None or self._running.poll() is not None:
                if self._running is not None and self._running.returncode > 0:
                    self._note(self._last_error())
                starts += 1
                assert starts <= _MOST_ENDINGS, self._story("it ends again and again")
                self._start()
            return condition()

        self._patiently(met)

    def _come_to_end(self) -> None:
        """Let it end by itself, with nothing unread."""
        self._close()
        for _ in range(_MOST_ENDINGS):
            self._start(to_end=True)
            if self._wait_for_end() == 0:
                wait_for(lambda: not self._processes.running(), END_SECONDS)
                return
        raise AssertionError(self._story("it does not come to the end of its input"))

    def _close(self) -> None:
        (self._orders / "stop").touch()
        if self._running is not None:
            self._wait_for_end()

    def _wait_for_end(self) -> int:
        running = self._running
        assert running is not None
        self._patiently(lambda: running.poll() is not None)
        self._running = None
        self._note(f"ended with {running.returncode} after epoch {self._checkpoint.last_epoch()}")
        return running.returncode

    def _patiently(self, condition: Callable[[], bool]) -> None:
        try:
            wait_for(condition, STANDSTILL_SECONDS)
        except TimeoutError:
            raise AssertionError(self._story("it stands still")) from None

    def _last_error(self) -> str:
        """Return the last line of the log that tells of an error."""
        lines = self._log.read_text(errors="replace").splitlines()
        return next((line for line in reversed(lines) if "Error" in line or " ends: " in line), "no error told")

    def _note(self, what: str) -> None:
        self.history.append(f"{time.monotonic() - self._begun:.1f} {what}")
        print(self.history[-1], flush=True)

    def _story(self, what: str) -> str:
        """Return what went wrong, with what is needed to find out why."""
        self._note(what)
        log = self._log.read_text(errors="replace")[-6000:] if self._log.exists() else ""
        return "\n".join([f"SEED={self._seed}: {what}", *self.history, log])

    # ---------------------------------------- what it left

    def is_exactly_once(self) -> bool:
        """Return whether it said at each start that it writes exactly once."""
        said = [line for line in self._log.read_text(errors="replace").splitlines() if "; checkpoint " in line]
        return bool(said) and all(": exactly_once_v2; " in line for line in said)

    def state(self, store: str) -> Mapping[bytes, bytes]:
        """Return the content of a store over all tasks, from the segments that the last manifest names; raises
        AssertionError where two tasks have a key."""
        by_task = self._runner.store_by_task(self.config, store)
        found = {key: value for content in by_task.values() for key, value in content.items()}
        assert len(found) == sum(map(len, by_task.values())), f"two tasks have a key of store {store}"
        return found
