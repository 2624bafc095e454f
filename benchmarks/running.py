"""What the benchmarks of Spark share: the brokers of a run, and a separate process for each contestant."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from penstock_broker.process import BrokerProcess
from tests.support.kafka import LONG_LIVED, KafkaUnavailableError, RealKafka

ROOT: Final = Path(__file__).resolve().parents[1]
EMBEDDED: Final = "embedded broker"
EXACTLY_ONCE: Final = "exactly_once_v2"
"""What every contestant that can promises, on every broker."""
_TIMEOUT_SECONDS: Final = 1800


class ContestError(Exception):
    """A contestant has no result; the text says why."""


@dataclass(frozen=True)
class Broker:
    """A broker of the run."""

    name: str
    bootstrap: str
    pid: int | None = None
    """The process that it runs in, with all that descend from it; None for a broker that was not started here."""


@contextmanager
def brokers(bootstrap: str | None, missing: dict[str, str]) -> Iterator[list[Broker]]:
    """Give the brokers of the run: the one at `bootstrap`, or else a real Kafka, if available (`missing` receives the
    reason otherwise), and the embedded broker."""
    with ExitStack() as running:
        if bootstrap:
            yield [Broker("Kafka", bootstrap)]
            return
        found = []
        try:
            kafka = running.enter_context(RealKafka(java_options=LONG_LIVED))
            found.append(Broker("Kafka", kafka.bootstrap_servers, kafka.pid))
        except KafkaUnavailableError as error:
            missing["a real Kafka"] = str(error)
        directory = running.enter_context(tempfile.TemporaryDirectory(prefix="penstock-benchmark-"))
        embedded = running.enter_context(BrokerProcess(Path(directory)))
        found.append(Broker(EMBEDDED, embedded.bootstrap_servers, embedded.pid))
        yield found


def run_contestant(asked: dict[str, Any]) -> dict[str, Any]:
    """Run one contestant (see contestant.py) in its own process and return its result; raises ContestError."""
    paths = [str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.contestant", json.dumps(asked)],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            check=True,
        )
    except subprocess.CalledProcessError as error:
        reason = (error.stderr.strip().splitlines() or [f"exit code {error.returncode}"])[-1]
        raise ContestError(reason[:300]) from error
    except subprocess.TimeoutExpired as error:
        raise ContestError(f"took longer than {_TIMEOUT_SECONDS} s") from error
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result
