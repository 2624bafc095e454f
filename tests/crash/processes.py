"""The processes of an application on Spark: how to find and kill them. Linux only: all is read from /proc.

Every process of a run carries a mark in its environment, which it inherits from the program; process groups are not
enough, because the Python daemon creates its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyspark

from tests.host.support import wait_for
from tests.support.sources import SOURCES

_MARK = "PENSTOCK_CRASH_RUN"
_ROOT = Path(__file__).parents[2]

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Most time goes to starting JVMs: they compile and grow less."""

END_SECONDS = 120.0
"""How long the remaining processes of an application may take to end."""


class Process(NamedTuple):
    """A running process."""

    pid: int
    parent: int
    command: str


class MarkedProcesses:
    """All processes that were started, by whomever, with one mark."""

    def __init__(self) -> None:
        self._mark = f"{_MARK}={uuid.uuid4().hex}"

    @property
    def environment(self) -> Mapping[str, str]:
        """What to put into the environment of the first process."""
        name, _, value = self._mark.partition("=")
        return {name: value}

    def program_environment(
        self, directory: Path, points: Sequence[str] = (), reached: Path | None = None
    ) -> dict[str, str]:
        """Return the environment of the first process, a program with a home of Spark in `directory`.

        points: where it is killed. reached: where it notes the points; None for `directory`.
        """
        return {
            **self.environment,
            "PYTHONPATH": f"{SOURCES}:{_ROOT}",
            "SPARK_HOME": str(spark_home(directory / "spark")),
            "JDK_JAVA_OPTIONS": JAVA_OPTIONS,
            "PENSTOCK_CRASH_POINTS": " ".join(points),
            "PENSTOCK_CRASH_DIRECTORY": str(reached or directory),
        }

    def running(self) -> list[Process]:
        """Return those that run now; what has ended and is not yet reaped does not count."""
        return _running(lambda directory: self._mark.encode() in (directory / "environ").read_bytes().split(b"\0"))

    def kill(self) -> None:
        """Kill all, again until none is left."""
        wait_for(self._kill_once, END_SECONDS)

    def _kill_once(self) -> bool:
        running = self.running()
        for process in running:
            kill(process.pid)
        return not running


def descendants(pid: int) -> list[Process]:
    """Return the processes that run below the process `pid`."""
    parents = {process.pid: process for process in _running(lambda directory: True)}
    below = {pid}
    while more := {process.pid for process in parents.values() if process.parent in below} - below:
        below |= more
    return [parents[found] for found in below - {pid}]


def _running(wanted: Callable[[Path], bool]) -> list[Process]:
    """Return the processes that run and whose directories below /proc are `wanted`."""
    found = []
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            try:
                if wanted(directory):
                    state = (directory / "stat").read_text().rpartition(")")[2].split()
                    command = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    if state[0] != "Z":
                        found.append(Process(int(directory.name), int(state[1]), command))
            except OSError:
                continue  # it has ended meanwhile, or is another user's
    return found


def stands_still(pid: int) -> bool:
    """Return whether a process has been stopped (SIGSTOP); raises OSError if it is gone."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def kill(pid: int) -> bool:
    """Kill a process with SIGKILL; return whether it was there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def victims(kind: str, program: int, running: Sequence[Process]) -> list[Process]:
    """Return whom to kill, in order, of the processes of one application.

    kind: 'program', 'jvm' (of the driver), 'application' (all of them), or one of which there may be several, to choose
    from: 'executor', 'daemon' and 'worker' (of tasks), 'source', 'commit' (of the sink). program: pid of the program.
    """
    if kind == "program":
        return [process for process in running if process.pid == program]
    if kind == "jvm":
        return [process for process in running if process.parent == program and "org.apache.spark" in process.command]
    if kind == "application":
        return sorted(running)
    if kind == "daemon":
        daemons = _with("daemon pyspark.worker", running)
        return [daemon for daemon in daemons if daemon.parent not in {other.pid for other in daemons}]
    if kind == "worker":
        above = {daemon.pid for daemon in victims("daemon", program, running)}
        return [process for process in running if process.parent in above]
    return _with(_COMMANDS[kind], running)


_COMMANDS = {
    "executor": "CoarseGrainedExecutorBackend",
    "source": "python_streaming_source_runner",
    "commit": "python_streaming_sink_runner",
}


def _with(command: str, running: Sequence[Process]) -> list[Process]:
    return [process for process in running if command in process.command]


def spark_home(directory: Path) -> Path:
    """Make `directory` a home of Spark and return it: a cluster on this machine makes its working directories there,
    which do not belong into the installed package."""
    for name in ("bin", "jars"):
        if not (directory / name).exists():
            directory.mkdir(exist_ok=True)
            (directory / name).symlink_to(Path(pyspark.__file__).parent / name)
    return directory


def start_program(
    program: Path, arguments: Sequence[str], environment: Mapping[str, str], log: Path
) -> subprocess.Popen[bytes]:
    """Start a Python program in a new session, which writes to the end of `log`."""
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, str(program), *arguments],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
