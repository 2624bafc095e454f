"""Measures the queries of Nexmark: Penstock on Spark and on threads beside Kafka Streams in Java.

    python -m benchmarks.nexmark [--events N] [--only q0,q5] [--systems spark,threads,java] [--guarantee G] [--json]

All systems read the same topic of a real Kafka, one after the other, each in a process of its own with all cores. The
rows of each are checked with those of a straight program over all events. The last line is the geometric mean of the
ratios over the queries that both systems answered.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from benchmarks.nexmark.events import events
from benchmarks.nexmark.queries import INPUT, LEFT_OUT, OUTPUT, QUERIES, SIDE_INPUT
from benchmarks.nexmark.results import RESULTS, Events
from benchmarks.nexmark.rows import APPEND_TIME, fill, read, wrong
from benchmarks.running import EXACTLY_ONCE, ContestError, brokers, run_contestant
from benchmarks.topics import topics

SYSTEMS: Final[Mapping[str, dict[str, str]]] = {
    "spark": {"run": "nexmark", "host": "spark"},
    "threads": {"run": "nexmark", "host": "threads"},
    "java": {"run": "nexmark-java"},
}
"""The systems, with what `benchmarks.contestant` is asked."""

_MIB: Final = 1 << 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is asked for; return 0 if every system answered every query right."""
    options = _parser().parse_args(arguments)
    queries, systems = options.only.split(","), options.systems.split(",")
    unknown = [name for name in queries if name not in QUERIES] + [name for name in systems if name not in SYSTEMS]
    if unknown:
        print("\n".join(f"{name}: {LEFT_OUT.get(name, 'not known')}" for name in unknown), file=sys.stderr)
        return 2
    missing: dict[str, str] = {}
    found: list[dict[str, Any]] = []
    right = Events(events(options.events))
    with brokers(options.bootstrap, missing) as started, topics(started[0].bootstrap, INPUT, SIDE_INPUT):
        bootstrap = started[0].bootstrap
        fill(bootstrap, options.events)
        for query in queries:
            expected = RESULTS[query](right)
            for system in systems:
                print(f"{query}, {system} ...", file=sys.stderr, flush=True)
                asked = {"query": query, "events": options.events, "guarantee": options.guarantee}
                with topics(bootstrap, OUTPUT, config=APPEND_TIME):
                    try:
                        result = run_contestant({**SYSTEMS[system], **asked, "bootstrap": bootstrap})
                    except ContestError as error:
                        missing[f"{query}, {system}"] = str(error)
                        continue
                    written = read(bootstrap)
                if reason := wrong(written.rows, expected):
                    missing[f"{query}, {system}"] = reason
                found.append(_measured(query, system, result, written.last_ms))
    print(json.dumps({"measurements": found, "missing": missing}) if options.json else _as_text(found, missing))
    return 1 if missing else 0


def _measured(query: str, system: str, result: Mapping[str, Any], last_ms: int) -> dict[str, Any]:
    """Return the rates of a run, whose window ends with the last row."""
    seconds = max(last_ms / 1000 - result["opened"], 0.001)
    cpu = result["cpu_seconds"]
    return {
        "query": query,
        "system": system,
        "seconds": seconds,
        "events_per_second": result["events"] / seconds,
        "cpu_seconds_per_million": None if cpu is None else cpu * 1e6 / result["events"],
        "memory": result["memory"],
    }


def ratios(found: Sequence[Mapping[str, Any]], one: str, other: str) -> dict[str, float]:
    """Return how many times as many events a second `one` answers as `other`, by query."""
    rates = {(each["query"], each["system"]): each["events_per_second"] for each in found}
    return {
        query: rates[query, one] / rates[query, other]
        for query in QUERIES
        if (query, one) in rates and (query, other) in rates
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--events", type=int, default=1_000_000, help="(%(default)s)")
    parser.add_argument("--only", default=",".join(QUERIES), help="queries, with commas between (%(default)s)")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="(%(default)s)")
    parser.add_argument("--guarantee", default=EXACTLY_ONCE, help="(%(default)s)")
    parser.add_argument("--bootstrap", help="use this Kafka, and start no broker")
    return parser


def _as_text(found: Sequence[Mapping[str, Any]], missing: Mapping[str, str]) -> str:
    lines = [
        "| query | asks for | system | events/s | CPU s / M events | memory, MiB |",
        "|---|---|---|---:|---:|---:|",
    ]
    for each in found:
        cpu = each["cpu_seconds_per_million"]
        lines.append(
            f"| {each['query']} | {QUERIES[each['query']].asks} | {each['system']} | {each['events_per_second']:,.0f} "
            f"| {'-' if cpu is None else f'{cpu:.1f}'} | {each['memory'] / _MIB:,.0f} |"
        )
    for own in ("spark", "threads"):
        if by_query := ratios(found, own, "java"):
            worst = min(by_query, key=lambda query: by_query[query])
            mean = statistics.geometric_mean(by_query.values())
            lines.append(f"\n{own} : java = {mean:.2f} (geometric mean), worst {worst} with {by_query[worst]:.2f}")
    lines += [f"missing: {what}: {why}" for what, why in missing.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
