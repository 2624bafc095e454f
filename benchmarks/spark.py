"""Measures Penstock on Spark, topic to topic: families of operators, many distinct keys, idle tasks; on each broker.

    python benchmarks/spark.py [--records N] [--only NAME,...] [--keys N] [--bootstrap HOST:PORT] [--json]

Names are those of FAMILIES, `keys` (a count over 10,000 keys and over as many as records, with the memory of a worker),
`changelogs` (the same with `penstock.changelog.topics`) and `idle` (an epoch in which one task of 128 has a record).
The word count beside its rivals, and the latency of epochs with little data, are in word_count.py. What was found is
in README.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

if not __package__:  # run as a script: the root of the repository is not on the path
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.families import KEYS
from benchmarks.running import EXACTLY_ONCE, Broker, ContestError, brokers, run_contestant

FAMILIES: Final = {
    "stateless chain": 400_000,
    "count": None,
    "windowed count": 100_000,
    "stream-table join": 100_000,
    "stream-stream join": None,
    "foreign-key join": 100_000,
}
"""The families that are measured, and the records a second that are aimed at."""

IDLE_EPOCHS: Final = 20
OTHERS: Final = ("keys", "changelogs", "idle")
"""What is measured besides families."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments ask for."""
    options = _parser().parse_args(arguments)
    asked = options.only.split(",")
    unknown = [name for name in asked if name not in (*FAMILIES, *OTHERS)]
    if unknown:
        print(f"--only knows {', '.join((*FAMILIES, *OTHERS))}; not {', '.join(unknown)}", file=sys.stderr)
        return 2
    results: list[dict[str, Any]] = []
    missing: dict[str, str] = {}
    with brokers(options.bootstrap, missing) as found:
        for broker in found:
            for contest in _contests(options, asked, broker):
                print(f"{broker.name}: {contest['name']} ...", file=sys.stderr, flush=True)
                name = contest.pop("name")
                try:
                    results.append({"name": name, "broker": broker.name, **run_contestant(contest)})
                except ContestError as error:
                    missing[f"{name}, {broker.name}"] = str(error)
    print(json.dumps({"results": results, "missing": missing}, indent=2) if options.json else _table(results, missing))
    return 0 if not missing else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--records", type=int, default=1_000_000, help="records of a family (%(default)s)")
    parser.add_argument("--keys", type=int, default=2_000_000, help="distinct keys of `keys` (%(default)s)")
    parser.add_argument("--only", default=",".join((*FAMILIES, *OTHERS)), help="names, with commas between")
    parser.add_argument("--bootstrap", help="use this Kafka, and start no broker")
    return parser


def _contests(options: argparse.Namespace, asked: Sequence[str], broker: Broker) -> list[dict[str, Any]]:
    """Return what is to be run on a broker: the name in the table, and the arguments of a contestant."""
    common = {"bootstrap": broker.bootstrap, "guarantee": EXACTLY_ONCE}
    contests: list[dict[str, Any]] = [
        {"name": name, "run": "family", "family": name, "records": options.records, "distinct_keys": KEYS, **common}
        for name in FAMILIES
        if name in asked
    ]
    for name, suffix in (("keys", ""), ("changelogs", ", changelog topics")):
        if name in asked:
            contests += [
                {"name": f"count, {keys:,} keys{suffix}", "run": "family", "family": "count", "distinct_keys": keys}
                | {"records": options.keys, "changelog_topics": name == "changelogs", **common}
                for keys in (KEYS, options.keys)
            ]
    if "idle" in asked:
        contests.append({"name": "idle", "run": "idle", "bootstrap": broker.bootstrap, "epochs": IDLE_EPOCHS})
    return contests


def _table(results: Sequence[dict[str, Any]], missing: dict[str, str]) -> str:
    lines = [
        "| family | broker | records/s | aim | CPU us / record | epochs | largest worker, MB |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for each in results:
        if "records_per_second" in each:
            aim = FAMILIES.get(each["name"])
            cpu = "-" if each["cpu_seconds"] is None else f"{each['cpu_seconds'] * 1e6 / each['records']:.1f}"
            worker = f"{each['worker_bytes'] / 1e6:,.0f}"
            lines.append(
                f"| {each['name']} | {each['broker']} | {each['records_per_second']:,.0f} "
                f"| {'-' if aim is None else f'{aim:,}'} | {cpu} | {each['epochs']} | {worker} |"
            )
    lines += [
        f"\nan epoch in which 1 of {each['tasks']} tasks has a record, {each['broker']}: "
        f"{each['median']:.0f} ms (p90 {each['p90']:.0f})"
        for each in results
        if "tasks" in each
    ]
    lines += [f"missing: {what}: {why}" for what, why in missing.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
