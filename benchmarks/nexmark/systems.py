"""The systems that answer Nexmark: what each promises, which queries it leaves out and why, and the programs of rivals.

A rival is a program in an environment of its own (`rivals/nexmark_*.py`). Not here: how a run is measured (`runs.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.environments import environment, jars
from benchmarks.nexmark.results import Rows, row_of_each_place
from benchmarks.topics import PARTITIONS
from tests.support.kafka import KAFKA_VERSION

AT_LEAST_ONCE, EXACTLY_ONCE = "at_least_once", "exactly_once_v2"

_FLINK: Final = "2.2.1"
_FLINK_CONNECTOR: Final = "org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2"
_SPARK: Final = "4.2.0"
_SPARK_CONNECTOR: Final = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{_SPARK}",
    f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{_SPARK}",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.0",
)
_QUIX: Final = "3.23.6"
_BYTEWAX: Final = "0.21.1"
HEAP: Final = "2g"
"""The heap of the JVM of each system that is not Penstock."""


@dataclass(frozen=True)
class Program:
    """The program of a rival.

    Args:
        command: installs it, and returns the command without its last argument, the JSON of a job; raises
            UnavailableError.
        processes: how many of it share the partitions; each answers those of some.
        reports: whether it prints its progress up to the last event; the committed offsets of its group show the
            progress of the others.
    """

    command: Callable[[], list[str]]
    processes: int = 1
    reports: bool = True


@dataclass(frozen=True)
class System:
    """A system.

    Args:
        title: what tables call it.
        asked: what `benchmarks.contestant` is asked.
        guarantees: the processing guarantees that it offers.
        left_out: queries that it does not answer, each with the reason.
        shapes: how its rows differ from those of the straight program, by query.
        program: of a rival.
    """

    title: str
    asked: Mapping[str, str]
    guarantees: frozenset[str] = frozenset((AT_LEAST_ONCE, EXACTLY_ONCE))
    left_out: Mapping[str, str] = field(default_factory=dict)
    shapes: Mapping[str, Callable[[Rows], Rows]] = field(default_factory=dict)
    program: Program | None = None

    def guarantee(self, wanted: str) -> str:
        """Return the guarantee that it is measured with: the wanted one if it offers it."""
        return wanted if wanted in self.guarantees else AT_LEAST_ONCE


def _module(python: Path, name: str, *arguments: object) -> list[str]:
    return [str(python), "-m", f"benchmarks.rivals.nexmark_{name}", *map(str, arguments)]


def _flink() -> list[str]:
    python = environment(f"apache-flink=={_FLINK}")
    return ["env", f"JAVA_TOOL_OPTIONS=-Xmx{HEAP}", *_module(python, "flink", *jars(_FLINK_CONNECTOR))]


def _structured_streaming() -> list[str]:
    return _module(environment(f"pyspark=={_SPARK}"), "spark", HEAP, *jars(*_SPARK_CONNECTOR))


def _quix() -> list[str]:
    return _module(environment(f"quixstreams=={_QUIX}"), "quix")


def _bytewax() -> list[str]:
    return _module(environment(f"bytewax[kafka]=={_BYTEWAX}"), "bytewax")


def _rival(name: str) -> dict[str, str]:
    return {"run": "nexmark-rival", "system": name}


_NO_RETRACTION: Final = "an aggregate over the updates of another one; streams of Spark have no retractions"
_NO_TABLES: Final = "{} has no tables, so an aggregate cannot take back the value that an update replaces"
_NO_DISTINCT: Final = "Spark has no exact distinct counts of a stream"

SYSTEMS: Final[Mapping[str, System]] = {
    "spark": System("Penstock on Spark", {"run": "nexmark", "host": "spark"}),
    "threads": System("Penstock on threads", {"run": "nexmark", "host": "threads"}),
    "java": System(f"Kafka Streams {KAFKA_VERSION}", {"run": "nexmark-java"}),
    "flink": System(
        f"Flink SQL {_FLINK}",
        _rival("flink"),
        shapes={"q19": row_of_each_place},
        program=Program(_flink),
    ),
    "structured-streaming": System(
        f"Spark Structured Streaming {_SPARK}",
        _rival("structured-streaming"),
        guarantees=frozenset((AT_LEAST_ONCE,)),
        left_out={
            "q4": _NO_RETRACTION,
            "q15": _NO_DISTINCT,
            "q16": _NO_DISTINCT,
            "q19": "Spark ranks no rows of a stream",
        },
        program=Program(_structured_streaming),
    ),
    "quix": System(f"Quix Streams {_QUIX}", _rival("quix"), program=Program(_quix, processes=2, reports=False)),
    "bytewax": System(
        f"Bytewax {_BYTEWAX}",
        _rival("bytewax"),
        guarantees=frozenset((AT_LEAST_ONCE,)),
        left_out={
            "q4": _NO_TABLES.format("Bytewax"),
            "q13": "Bytewax has no table that every worker reads whole",
            "q15": "Bytewax has no distinct counts",
            "q16": "Bytewax has no distinct counts",
        },
        program=Program(_bytewax, processes=PARTITIONS),
    ),
}
"""The systems, by the names of `--systems`."""
