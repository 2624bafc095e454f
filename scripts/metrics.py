"""Writes the reference of docs/metrics.md: every metric of Penstock itself, from the code, and those of Kafka Streams
that a host does not have, with the reason (kafka_api/metrics.toml).

python scripts/metrics.py           write the reference
python scripts/metrics.py --check   fail if it is not what would be written
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Final

from penstock.application.prometheus import prometheus_name
from penstock.metrics.host_metrics import DESCRIPTIONS, NUM_KEYS, PARKED_RECORDS, STORE_OPERATIONS
from penstock.metrics.rocksdb_names import ROCKSDB_PROPERTIES

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "metrics.md"
HEADING: Final = "## Reference\n"
KAFKA: Final = tomllib.loads((ROOT / "scripts" / "kafka_api" / "metrics.toml").read_text(encoding="utf-8"))
KAFKA_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    group: tuple(text.split()) for group, text in KAFKA["names"].items()
}
"""The metrics of Kafka Streams by group."""
SPARK: Final = "Spark"

TAGS: Final = {
    "stream-metrics": "`client-id`",
    "stream-thread-metrics": "`client-id`, `thread-id`",
    "stream-state-updater-metrics": "`client-id`, `thread-id`",
    "stream-task-metrics": "`client-id`, `thread-id`, `task-id`",
    "stream-processor-node-metrics": "`client-id`, `thread-id`, `task-id`, `processor-node-id`",
    "stream-state-metrics": "`client-id`, `thread-id`, `task-id`, `<scope>-state-id`",
    "stream-record-cache-metrics": "`client-id`, `thread-id`, `task-id`, `record-cache-id` (a store)",
    "stream-topic-metrics": "`client-id`, `topic`",
    "consumer-fetch-manager-metrics": "`client-id`, and `topic` and `partition` of `records-lag`",
    "consumer-metrics": "`client-id`",
    "producer-metrics": "`client-id`",
}
"""The tags of each group, in the order of the page."""


def when(group: str, name: str) -> str:
    """Return under which condition a metric exists; nothing if it always does."""
    match group:
        case "stream-processor-node-metrics" if name.startswith("record-e2e-latency"):
            return "sinks"
        case "stream-processor-node-metrics" if name.startswith("dropped"):
            return "nodes and stores that drop"
        case "stream-processor-node-metrics" if name.startswith("suppression"):
            return "DEBUG; `suppress`"
        case "stream-processor-node-metrics" if name == PARKED_RECORDS:
            return "`on_error=Park(...)`"
        case "stream-processor-node-metrics" if name.startswith("call"):
            return "`calls=Calls(...)`, without `task-id`"
        case "stream-state-updater-metrics":
            return "threads"
        case "stream-thread-metrics" if name == "punctuate-ratio":
            return "threads"
        case "stream-task-metrics" if name.startswith(("restore", "update")):
            return "threads; tasks with changelogs"
        case "stream-state-metrics" if name == NUM_KEYS:
            return "stores in memory"
        case "stream-state-metrics" if name in ROCKSDB_PROPERTIES:
            return "RocksDB"
        case "stream-state-metrics" if name.rpartition("-")[0].removesuffix("-latency") in STORE_OPERATIONS:
            return "DEBUG"
        case "stream-state-metrics" if "iterator" in name:
            return "DEBUG"
        case "stream-state-metrics" if name.startswith("suppression"):
            return "DEBUG; `suppress`"
        case "stream-state-metrics":
            return "DEBUG; RocksDB"
        case "stream-processor-node-metrics" | "stream-record-cache-metrics":
            return "DEBUG"
        case "consumer-metrics" | "producer-metrics" | "consumer-fetch-manager-metrics" if name != "records-lag":
            return "statistics"
        case _:
            return ""


def reference() -> Iterator[str]:
    """Yield the lines of the reference."""
    order = list(TAGS)
    names = sorted(DESCRIPTIONS, key=lambda each: order.index(each[0]))
    for group, of_group in groupby(names, key=lambda each: each[0]):
        yield f"### {group}"
        yield ""
        yield f"Tags: {TAGS[group]}. In Prometheus: `{prometheus_name(group, '')}…`"
        yield ""
        yield "| metric | if | meaning |"
        yield "|---|---|---|"
        for _, name in of_group:
            yield f"| `{name}` | {when(group, name)} | {DESCRIPTIONS[group, name]} |"
        yield ""


def left_out() -> list[tuple[str, str, str, str]]:
    """Return group, name, host (both of them if it is empty) and reason of each metric of Kafka Streams that is
    missing; raises ValueError for one that the code has, and for one that is neither there nor left out."""
    found = [
        (each["group"], name, each.get("host", ""), each["why"])
        for each in KAFKA["left-out"]
        for name in each["names"].split()
    ]
    missing = {(group, name) for group, name, host, _ in found if not host}
    only_threads = {(group, name) for group, name, host, _ in found if host == SPARK}
    kafka = {(group, name) for group, names in KAFKA_NAMES.items() for name in names}
    told = {each for each in kafka & DESCRIPTIONS.keys() if when(*each).startswith("threads")}
    if wrong := sorted((kafka - DESCRIPTIONS.keys() ^ missing) | (told ^ only_threads)):
        raise ValueError(f"kafka_api/metrics.toml and the code differ about {wrong}.")
    return found


def missing_metrics() -> Iterator[str]:
    """Yield the lines of the table of metrics that are missing."""
    yield "## Metrics of Kafka Streams that are missing"
    yield ""
    yield "All others of Kafka Streams 4.4 are in the reference. What was never recorded is not there yet, on any host."
    yield ""
    yield "| metrics | group | missing on | reason |"
    yield "|---|---|---|---|"
    for (group, host, why), rows in groupby(left_out(), key=lambda each: (each[0], each[2], each[3])):
        names = ", ".join(f"`{name}`" for _, name, _, _ in rows)
        yield f"| {names} | `{group}` | {host or f'threads, {SPARK}'} | {why} |"
    yield ""


def page() -> str:
    """Return the page with the reference as the code has it."""
    written, heading, rest = PAGE.read_text(encoding="utf-8").partition(HEADING)
    introduction = rest.partition("### ")[0].rstrip()
    return f"{written}{heading}{introduction}\n\n" + "\n".join([*reference(), *missing_metrics()]).rstrip() + "\n"


if __name__ == "__main__":
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != page():
        sys.exit("docs/metrics.md is not up to date: run python scripts/metrics.py")
