"""What the hosts with a task for each sub-topology share: the topics that a case needs, and the shape in which its
results are compared with those of the test driver, which runs all sub-topologies as one task."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from penstock.plan.subtopology import BuiltTopology
from tests.oracle.interpreter import case_runner

Case = case_runner.Case

TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_TASK: Final = re.compile(r"\b\d+_0\b")


def broker_topics(case: Case, built: BuiltTopology) -> list[str]:
    """Return the topics of the broker, sorted."""
    inputs = {step["in"] for step in case.get("steps", []) if "in" in step}
    names = written_topics(case, built) | read_topics(built) | inputs
    return sorted(name for name in names if TOPIC_NAME.fullmatch(name))


def read_topics(built: BuiltTopology) -> set[str]:
    read = {topic for part in built.subtopologies for topic in part.source_topics}
    if built.global_topology is not None:
        read |= set(built.global_topology.source_topics)
    return read - {*built.repartition_topics}


def written_topics(case: Case, built: BuiltTopology) -> set[str]:
    written = {row[0] for rows in case.get("expected", {}).get("steps", []) for row in rows}
    sinks = {topic for part in built.subtopologies for topic in part.sink_topics}
    dead_letters = case["config"].get("errors.dead.letter.queue.topic.name")
    return (written | sinks | ({dead_letters} if dead_letters else set())) - {*built.repartition_topics}


def by_topic(case: Case, rows: list[list[Any]]) -> list[list[Any]]:
    """Return the rows of an epoch in order of their topics; those that several tasks may have written, in any order."""
    sinks = [entry for entry in case["topology"] if entry["op"] in ("to", "add_sink")]
    partitions = (entry.get("repartitioned", {}).get("partitions", 1) for entry in case["topology"])
    if any("topic_extractor" in sink for sink in sinks) or max(partitions, default=1) > 1:
        return sorted(rows, key=repr)
    several = {row[0] for row in rows if sum(sink.get("topic") == row[0] for sink in sinks) != 1}
    return sorted(rows, key=lambda row: (row[0], repr(row) if row[0] in several else ""))


def without_numbers(error: Mapping[str, Any]) -> dict[str, Any]:
    """Return an error without the numbers of tasks, and as a task of a broker tells it: the test driver runs all
    sub-topologies as one, and calls it by its own name."""
    message = error.get("message", "").replace("topology-test-driver ", "stream-thread [main] task [0_0] ")
    found = {**error, "message": _TASK.sub("0_0", message)}
    return {**found, "cause": without_numbers(error["cause"])} if "cause" in error else found
