"""The programs that `threads.py` compares, each as a process of its own that ends with its standard input.

A rival in Python has an environment of its own (`environments.py`). One that cannot be installed, or cannot do what a
row asks, is reported with the reason.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.environments import UnavailableError, environment

ROOT: Final = Path(__file__).resolve().parents[1]
KEYS, WORDS, MAP = "keys", "words", "map"
AT_LEAST_ONCE, EXACTLY_ONCE = "at_least_once", "exactly_once_v2"
PARTITIONS: Final = 2

AS_INSTALLED: Final = """
import sys

class Absent:
    def find_spec(self, name, *_):
        if name in ("hypothesis", "pandas"):
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Absent())
"""
"""Without what dependencies of Penstock import where the tools of its developers are installed."""

_CONTROL: Final = " \x1b[?25h"
"""What is no text at the end of a program: spaces, and the code that shows the cursor."""
_RIVALS: Final = Path(__file__).with_name("rivals")
_END_SECONDS: Final = 30


@dataclass(frozen=True)
class Job:
    """What a contestant does.

    program: KEYS counts the keys of records, WORDS the words of lines, and MAP calls a function that takes its time for
    each record; each update goes to `sink`. commit_ms: the commit interval. cache_bytes: of the record cache, for
    contestants that have one. threads: which process records, each on a core of its own.
    """

    program: str
    bootstrap: str
    source: str
    sink: str
    application: str
    directory: str
    guarantee: str = AT_LEAST_ONCE
    commit_ms: int = 1_000
    cache_bytes: int = 0
    standbys: int = 0
    threads: int = 1


@dataclass(frozen=True)
class Contestant:
    """A program that runs jobs.

    command: returns what runs a job; raises UnavailableError. holds_back: whether a record cache holds back updates, so
    that the output does not show all words that were counted. remark: for the table. has_threads: whether one
    application can use more than one core.
    """

    name: str
    command: Callable[[Job], Sequence[str]]
    holds_back: bool = False
    guarantees: frozenset[str] = frozenset((AT_LEAST_ONCE,))
    remark: str = ""
    has_threads: bool = False


class Running:
    """A contestant at work."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        """Take its process and the file that has what it prints."""
        self._process = process
        self._log = log

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def log(self) -> str:
        """Return what it has printed."""
        return self._log.read_text(errors="replace")

    def check(self) -> None:
        """Raise UnavailableError if it has ended."""
        if self._process.poll() is not None:
            lines = [line for line in self.log().splitlines() if line.strip(_CONTROL)]
            last = lines[-1].strip(_CONTROL) if lines else f"exit code {self._process.returncode}"
            raise UnavailableError(f"it has ended: {last[:200]}")

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the lines of JSON that it has printed about events of this name."""
        lines = [json.loads(line) for line in self.log().splitlines() if line.startswith('{"event"')]
        return [line for line in lines if line["event"] == name]

    def ask_to_end(self) -> None:
        """Let it end as planned."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def end(self) -> None:
        """End it as planned, or kill it if that takes too long."""
        self.ask_to_end()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def running(contestant: Contestant, job: Job) -> Iterator[Running]:
    """Run a job until the end of the block."""
    if job.guarantee not in contestant.guarantees:
        raise UnavailableError(f"it does not do {job.guarantee}")
    if job.threads > 1 and not contestant.has_threads:
        raise UnavailableError("one process uses one core")
    command = contestant.command(job)
    paths = [str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    own = {"PYTHONPATH": os.pathsep.join(paths)} if command[0] == sys.executable else {}
    with tempfile.TemporaryDirectory(prefix="penstock-benchmark-") as directory:
        log = Path(directory) / "log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=out, stderr=out, env={**os.environ, **own}, cwd=directory
            )
        one = Running(process, log)
        try:
            yield one
        finally:
            one.end()


# ---------------------------------------- the contestants


def _penstock(job: Job) -> Sequence[str]:
    return [
        sys.executable,
        "-c",
        f"{AS_INSTALLED}from benchmarks.on_threads import main; main()",
        json.dumps(asdict(job)),
    ]


def _java(job: Job) -> Sequence[str]:
    from benchmarks.rivals.java import compile_java  # noqa: PLC0415 - needs pytest, which a user may not have
    from tests.support.kafka import KafkaUnavailableError, kafka_class_path  # noqa: PLC0415 - as above

    try:
        class_path = f"{compile_java(_RIVALS / 'WordCountBenchmark.java')}{os.pathsep}{kafka_class_path()}"
    except (KafkaUnavailableError, subprocess.SubprocessError) as error:
        raise UnavailableError(str(error)) from error
    arguments = [job.application, job.bootstrap, job.source, job.sink, job.directory, job.guarantee, str(job.threads)]
    settings = [f"commit.interval.ms={job.commit_ms}", f"statestore.cache.max.bytes={job.cache_bytes}"]
    command = ["java", "-Xmx1g", "-cp", class_path, "WordCountBenchmark", *arguments]
    return [*command, job.program, *settings]


def _in_environment(script: str, *requirements: str) -> Callable[[Job], Sequence[str]]:
    def command(job: Job) -> Sequence[str]:
        return [str(environment(*requirements)), str(_RIVALS / script), json.dumps(asdict(job))]

    return command


PENSTOCK: Final = "Penstock"
CONTESTANTS: Final = (
    Contestant(PENSTOCK, _penstock, True, frozenset((AT_LEAST_ONCE, EXACTLY_ONCE)), "LMDB, changelog", True),
    Contestant(
        "Kafka Streams in Java", _java, True, frozenset((AT_LEAST_ONCE, EXACTLY_ONCE)), "RocksDB, changelog", True
    ),
    Contestant(
        "Quix Streams",
        _in_environment("quix_program.py", "quixstreams==3.23.6"),
        guarantees=frozenset((AT_LEAST_ONCE, EXACTLY_ONCE)),
        remark="RocksDB, changelog",
    ),
    Contestant(
        "Bytewax",
        _in_environment("bytewax_program.py", "bytewax[kafka]==0.21.1"),
        remark="state in memory, no recovery",
    ),
    Contestant(
        "Faust",
        _in_environment("faust_program.py", "faust-streaming==0.11.3", "aiokafka==0.12.0"),
        remark="tables in memory, changelog",
    ),
)


def wait_for(condition: Callable[[], bool], one: Running, seconds: float, what: str) -> None:
    """Wait until `condition` holds; raises UnavailableError if it does not within `seconds`, or `one` ends."""
    deadline = time.monotonic() + seconds
    while not condition():
        one.check()
        if time.monotonic() > deadline:
            raise UnavailableError(f"{what} took longer than {seconds:.0f} s")
        time.sleep(0.05)
