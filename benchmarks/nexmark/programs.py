"""The processes of a program that answers a query: started, watched, and ended with their standard input."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.environments import UnavailableError
from benchmarks.running import ROOT

_END_SECONDS: Final = 30


class Programs:
    """Processes at work, each with the file that has its output."""

    def __init__(self, processes: Sequence[subprocess.Popen[bytes]], logs: Sequence[Path]) -> None:
        self._processes = processes
        self._logs = logs

    @property
    def pids(self) -> list[int]:
        """The processes, without those that descend from them."""
        return [process.pid for process in self._processes]

    def at_work(self, progress: Callable[[], int]) -> int:
        """Return the progress; raises UnavailableError if a process has ended."""
        for process, log in zip(self._processes, self._logs, strict=True):
            if process.poll() is not None:
                raise UnavailableError(f"it has ended with exit code {process.returncode}: {self._reason(log)}")
        return progress()

    def reported(self) -> int:
        """Return how many events the processes have reported as answered."""
        return sum(max(map(_done_of, log.read_text(errors="replace").splitlines()), default=0) for log in self._logs)

    @staticmethod
    def _reason(log: Path) -> str:
        lines = log.read_text(errors="replace").splitlines()
        told = [line.strip() for line in lines if "Caused by:" in line or "Error" in line or "Exception" in line]
        return (told or lines or ["without output"])[-1][:300]


@contextmanager
def programs(commands: Sequence[Sequence[str]], directory: Path) -> Iterator[Programs]:
    """Run commands until the end of the block; their output is in `directory`."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    logs = [directory / f"output-{number}" for number in range(len(commands))]
    processes = []
    try:
        for command, log in zip(commands, logs, strict=True):
            with log.open("wb") as out:
                processes.append(
                    subprocess.Popen(
                        command, stdin=subprocess.PIPE, stdout=out, stderr=out, env=environment, cwd=directory
                    )
                )
        yield Programs(processes, logs)
    finally:
        for process in processes:
            if process.stdin is not None:
                process.stdin.close()  # which ends the program
        for process in processes:
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _done_of(line: str) -> int:
    return int(json.loads(line)["done"]) if line.startswith('{"event": "progress"') else 0
