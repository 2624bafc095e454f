"""Writes the reference of docs/metrics.md: every metric of Penstock itself, from the code.

python scripts/metrics.py           write the reference
python scripts/metrics.py --check   fail if it is not what would be written
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Final

from penstock.application.prometheus import prometheus_name
from penstock.metrics.host_metrics import DESCRIPTIONS, ROCKSDB_PROPERTIES, STORE_OPERATIONS

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "metrics.md"
HEADING: Final = "## Reference\n"

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
        case "stream-state-updater-metrics":
            return "threads"
        case "stream-thread-metrics" if name.endswith("-ratio") or name.startswith(("process-records", "thread-start")):
            return "threads"
        case "stream-task-metrics" if name.startswith(("restore", "update")):
            return "threads; tasks with changelogs"
        case "stream-state-metrics" if name in ROCKSDB_PROPERTIES:
            return "RocksDB"
        case "stream-state-metrics" if name.rpartition("-")[0].removesuffix("-latency") in STORE_OPERATIONS:
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


def page() -> str:
    """Return the page with the reference as the code has it."""
    written, heading, rest = PAGE.read_text(encoding="utf-8").partition(HEADING)
    introduction = rest.partition("### ")[0].rstrip()
    return f"{written}{heading}{introduction}\n\n" + "\n".join(reference()).rstrip() + "\n"


if __name__ == "__main__":
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != page():
        sys.exit("docs/metrics.md is not up to date: run python scripts/metrics.py")
