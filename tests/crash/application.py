"""Leads an application through a life: starts it, kills what the life says, and starts it again, until it is at the end
of its input.

Kills at crash points are ordered in the environment; others are done here, as soon as the moment is seen in the files
of the checkpoint. The broker is killed here too, while the process that came to the crash point stands still. Every
wait has a bound, and so has the number of starts. What must hold afterwards is in the test.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from penstock.config import StreamsConfig
from penstock.host.crashpoints import TOPOLOGY_POINTS
from tests.crash import program
from tests.crash.kills import BROKER, LAYOUTS, SEEN, VICTIMS_AT_POINTS, Kill, Life
from tests.crash.processes import END_SECONDS, MarkedProcesses, kill, stands_still, start_program, victims
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord, OutputRecord, lines, wait_for
from tests.support.sources import SOURCES

OUTPUT_PARTITIONS = 3
STANDSTILL_SECONDS = 400.0
"""How long an application may run without starting, committing an epoch or ending."""

_FIRST_KILL = 3
_EPOCH_BYTES = 4096
_LINE_WORDS = 12
_WORDS = 400
_LOOK_SECONDS, _IDLE_SECONDS = 0.005, 0.05
"""How often to look while a moment to kill at is awaited, and otherwise."""
_MODULE = """
VERSION = {version}

def split(line):
    assert VERSION == {version}
    return [word for word in line.split() if VERSION]
"""
_ROOT = Path(__file__).parents[2]


class Application:
    """An application and its topics; a context manager that leaves no process behind.

    starts: how often it was started. history: what happened to it, with the seconds since the first start.
    """

    def __init__(
        self,
        life: Life,
        runner: SparkRunner,
        restart_broker: Callable[[], None],
        name: str,
        directory: Path,
        seed: int,
    ) -> None:
        """Write the input; nothing is started yet.

        Args:
            life: what happens to it.
            runner: of its broker.
            restart_broker: kills the broker and starts it again on its data.
            name: application.id, and what its topics begin with.
            directory: for its state and its log.
            seed: draws input and victims.
        """
        layout = LAYOUTS[life.layout]
        self.life = life
        self._seed = seed
        self.starts = 0
        self.history: list[str] = []
        self.input = _input(layout.tasks, life.epochs, seed)
        self._layout = layout
        self._runner, self._restart_broker = runner, restart_broker
        self._random = random.Random(f"{seed} {life}")
        self._source, self._target = f"{name}-in", f"{name}-out"
        self._directory = directory
        self._log = directory / "application.log"
        self._struck = directory / "struck"
        self._struck.mkdir(parents=True)
        self._noted: set[str] = set()
        self._begun = 0.0
        self._processes = MarkedProcesses()
        self._config = {
            "application.id": name,
            "bootstrap.servers": runner.bootstrap_servers,
            "state.dir": str(directory / "state"),
            "penstock.spark.master": layout.master,
            "penstock.spark.partitions": layout.cores,
            "penstock.batch.max.bytes": _EPOCH_BYTES,
            "penstock.poll.ms": 20,
        }
        self._checkpoint = directory / "state" / name / "checkpoint"
        self._at_points: list[str] = []
        self._at_broker: list[str] = []
        self._from_outside: list[Kill] = []
        for epoch, each in enumerate(life.kills, _FIRST_KILL):
            if each.moment in SEEN:
                self._from_outside.append(each)
            else:
                when = "" if each.moment in TOPOLOGY_POINTS else f"@{epoch}"
                self._at_points.append(f"{each.moment}{when}{VICTIMS_AT_POINTS[each.victim]}")
                if each.victim == BROKER:
                    self._at_broker.append(self._at_points[-1])
        runner.create_topics({self._source: layout.tasks, self._target: OUTPUT_PARTITIONS})
        runner.write(self._source, self.input)

    def __enter__(self) -> Application:
        return self

    def __exit__(self, *_: object) -> None:
        self._processes.kill()

    # ---------------------------------------- the life

    def live(self) -> None:
        """Run to the end of the input through all kills; raises AssertionError if it does not come there."""
        outside = list(self._from_outside)
        while (code := self._run(outside)) != 0:
            assert self.starts < self.life.most_starts(), self._story(f"it ended with {code} once too often")
        assert not outside, self._story(f"at the end before it could be killed: {', '.join(map(str, outside))}")
        missed = [order for order in self._at_points if not (self._struck / order).exists()]
        assert not missed, self._story(f"nobody came to {missed}")
        assert not self._at_broker, self._story(f"the broker was not killed at {self._at_broker}")
        wait_for(lambda: not self._processes.running(), END_SECONDS)

    def _run(self, outside: list[Kill]) -> int:
        """Start the program and wait for its end; do and remove the kills of `outside` that come in time. Return the
        exit code."""
        self.starts += 1
        self._note(f"start {self.starts} after epoch {self._last_epoch('manifest')}")
        running = self._start()
        target = self._next_epoch(outside)
        seen, since = -1, time.monotonic()
        while (code := running.poll()) is None:
            if outside and self._last_epoch(outside[0].moment) >= target and self._kill(outside[0], running.pid):
                self._note(str(outside.pop(0)))
                target = self._next_epoch(outside)
            self._kill_broker()
            if seen < (last := self._last_epoch("manifest")):
                seen, since = last, time.monotonic()
            assert time.monotonic() - since < STANDSTILL_SECONDS, self._story(f"it stands still after epoch {seen}")
            time.sleep(_LOOK_SECONDS if outside else _IDLE_SECONDS)
        self._note(f"ended with {code} after epoch {self._last_epoch('manifest')}")
        return code

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {
            **self._processes.program_environment(self._directory, self._at_points, self._struck),
            "PYTHONPATH": f"{SOURCES}:{self._directory}",
        }
        version = self.starts if self.life.changes else 0
        if version:
            (self._directory / f"{program.MODULE}.py").write_text(_MODULE.format(version=version))
        topics = {"source": self._source, "target": self._target}
        arguments = json.dumps({**self._config, **topics, "version": version})
        return start_program(Path(program.__file__), [arguments], environment, self._log)

    def _next_epoch(self, outside: list[Kill]) -> int:
        return self._last_epoch(outside[0].moment) + 1 if outside else 0

    def _last_epoch(self, moment: str) -> int:
        """Return the last epoch that is planned, in a manifest or committed to Spark; -1 if none is. The source process
        learns of Spark's commit, and deletes the offsets of older epochs."""
        seen = {"planned": ("offsets", max), "manifest": ("manifests", max), "committed": ("offsets", min)}
        directory, chosen = seen[moment]
        names = [path.name.partition(".")[0] for path in (self._checkpoint / directory).glob("*")]
        return chosen((int(name) for name in names if name.isdigit()), default=-1)

    def _kill(self, order: Kill, program_pid: int) -> bool:
        """Kill the victim, chosen by seed where there are several; return whether there was one."""
        found = victims(order.victim, program_pid, self._processes.running())
        if order.victim != "application":
            found = self._random.sample(found, min(len(found), 1))
        return sum(kill(process.pid) for process in found) > 0

    def _kill_broker(self) -> None:
        """Restart the broker if a process stands still at a crash point for that, and let that process continue."""
        for order in tuple(self._at_broker):
            if (pid := self._stopped_at(order)) is not None:
                self._at_broker.remove(order)
                self._restart_broker()
                with suppress(ProcessLookupError):  # Spark has given it up meanwhile
                    os.kill(pid, signal.SIGCONT)

    def _stopped_at(self, order: str) -> int | None:
        """Return the pid of the process that stands still where it was ordered to; None if none does yet."""
        try:
            pid = int((self._struck / order).read_text().rpartition(" ")[2] or 0)
            return pid if pid and stands_still(pid) else None
        except OSError:
            return None

    def _note(self, what: str) -> None:
        now = time.time()
        self._begun = self._begun or now
        struck = [(path.stat().st_mtime, path.name) for path in self._struck.iterdir() if path.name not in self._noted]
        for moment, name in sorted(struck):
            self._noted.add(name)
            self.history.append(f"{moment - self._begun:.1f} {name}")
        self.history.append(f"{now - self._begun:.1f} {what}")

    def _story(self, what: str) -> str:
        """Return what went wrong, with what is needed to find out why."""
        self._note(what)
        history = "\n".join(self.history)
        log = self._log.read_text(errors="replace")[-6000:]
        return (
            f"PENSTOCK_CRASH_SEED={self._seed}: {self.life}: {what}; start {self.starts} of at most "
            f"{self.life.most_starts()}\n{history}\n{log}"
        )

    # ---------------------------------------- what it left

    def is_exactly_once(self) -> bool:
        """Return whether each start reported exactly once."""
        said = [line for line in self._log.read_text(errors="replace").splitlines() if "; checkpoint " in line]
        return bool(said) and all(": exactly_once_v2; " in line for line in said)

    def output(self) -> list[OutputRecord]:
        """Return the committed records of the output topic, partition by partition."""
        return self._runner.read(self._target)

    def state(self) -> dict[str, tuple[int, int]]:
        """Return (count, timestamp in ms) by word, from the segments that the last manifest names."""
        content = self._runner.store(StreamsConfig(self._config), program.STORE)
        return {
            key.decode(): (int.from_bytes(value[8:], "big"), int.from_bytes(value[:8], "big"))
            for key, value in content.items()
        }


def count(records: list[InputRecord]) -> Mapping[str, int]:
    """Return how often each word is in `records`."""
    return Counter(word for record in records if record.value for word in record.value.decode().split())


def _input(partitions: int, epochs: int, seed: int) -> list[InputRecord]:
    """Return lines of words for so many epochs; some words are in most lines, many are rare."""
    chosen = random.Random(seed)
    texts: list[str] = []
    size = 0
    while size < epochs * _EPOCH_BYTES:
        words = (f"w{min(int(chosen.paretovariate(0.4)), _WORDS)}" for _ in range(_LINE_WORDS))
        texts.append(" ".join(words))
        size += len(texts[-1])
    return lines(texts, partitions)
