"""The history of figures: a file in `benchmarks/history` for each run that was saved.

Rates of different machines, and of the same machine under different loads, cannot be compared. So the history compares
systems within each run: the geometric mean of the ratios of their rates. Not here: the page
(`scripts/benchmark_history.py`).
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self

from benchmarks.running import ROOT
from penstock import __version__

DIRECTORY: Final = ROOT / "benchmarks" / "history"
OWN: Final = "Penstock"
"""How the names of our own systems begin."""


@dataclass(frozen=True)
class Rate:
    """The rate of one system: `row` is a query, or a text of a word count, and `unit` such as `events/s`."""

    row: str
    system: str
    value: float
    unit: str
    cpu_seconds_per_million: float | None = None


@dataclass(frozen=True)
class Run:
    """The rates of one run.

    Args:
        benchmark: the name of the program.
        version: of Penstock.
        commit: the short hash of its commit.
        date: of the run, as YYYY-MM-DD.
        machine: its cores and its processor.
        rates: of all systems.
    """

    benchmark: str
    version: str
    commit: str
    date: str
    machine: str
    rates: Sequence[Rate]

    @classmethod
    def of_now(cls, benchmark: str, rates: Iterable[Rate]) -> Self:
        """Return a run of this version on this machine."""
        today = datetime.now(UTC).date().isoformat()
        return cls(benchmark, __version__, _commit(), today, _machine(), tuple(rates))

    @property
    def file_name(self) -> str:
        """Its file in the history; a later run of the same commit replaces it."""
        return f"{self.benchmark}-{self.date}-{self.commit}.json"

    def ratios(self) -> dict[tuple[str, str], float]:
        """Return how many times as fast each of our systems is as each other one, over the rows that both have."""
        rates = {(each.row, each.system): each.value for each in self.rates}
        systems = list(dict.fromkeys(each.system for each in self.rates))
        found = {}
        for own in filter(_is_own, systems):
            for rival in systems:
                shared = [row for row, system in rates if system == own and (row, rival) in rates]
                if shared and not _is_own(rival):
                    quotients = [rates[row, own] / rates[row, rival] for row in shared]
                    found[own, rival] = statistics.geometric_mean(quotients)
        return found


def save(run: Run, directory: Path = DIRECTORY) -> Path:
    """Write a run into the history and return its file; raises ValueError if it has no rates."""
    if not run.rates:
        raise ValueError(f"The run of {run.benchmark} has no rates to save.")
    directory.mkdir(exist_ok=True)
    path = directory / run.file_name
    path.write_text(json.dumps(asdict(run), indent=1) + "\n", encoding="utf-8")
    return path


def runs(directory: Path = DIRECTORY) -> list[Run]:
    """Return all runs, the oldest first."""
    found = []
    for path in sorted(directory.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        found.append(Run(**{**content, "rates": tuple(Rate(**rate) for rate in content["rates"])}))
    return sorted(found, key=lambda run: (run.benchmark, run.date))


def _is_own(system: str) -> bool:
    return system.startswith(OWN)


def _commit() -> str:
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _machine() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    processor = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        names = [line for line in information.read_text().splitlines() if line.startswith("model name")]
        processor = names[0].partition(":")[2].strip() if names else processor
    return f"{cores} cores, {processor}"
