"""Measures the queries of Nexmark: Penstock on Spark and on threads beside other stream processors.

    python -m benchmarks.nexmark [--events N] [--queries q0,q5] [--systems threads,java,flink] [--guarantee G] [--json]

All systems read the same topic of a real Kafka, one after the other, each in processes of its own with all cores. The
rows of each are checked with those of a straight program over all events. A system that cannot be installed, and a
query that a system does not answer, are printed with the reason. Ratios are geometric means over the queries that both
systems answered.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.environments import UnavailableError
from benchmarks.history import Rate, Run, save
from benchmarks.nexmark.events import events
from benchmarks.nexmark.queries import INPUT, LEFT_OUT, OUTPUT, QUERIES, SIDE_INPUT
from benchmarks.nexmark.results import RESULTS, Events, Rows
from benchmarks.nexmark.rows import APPEND_TIME, fill, read, wrong
from benchmarks.nexmark.systems import EXACTLY_ONCE, SYSTEMS
from benchmarks.running import ContestError, brokers, run_contestant
from benchmarks.topics import topics

_MIB: Final = 1 << 20


@dataclass
class Report:
    """What a run found.

    measurements: one for each query and system. missing: why others have none, or are wrong. left_out: the queries that
    a system does not answer, each with the reason.
    """

    measurements: list[dict[str, Any]] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is asked for; return 0 if every system answered each of its queries right."""
    options = _parser().parse_args(arguments)
    queries, systems = options.queries.split(","), options.systems.split(",")
    unknown = [name for name in queries if name not in QUERIES] + [name for name in systems if name not in SYSTEMS]
    if unknown:
        print("\n".join(f"{name}: {LEFT_OUT.get(name, 'not known')}" for name in unknown), file=sys.stderr)
        return 2
    report = Report()
    systems = [name for name in systems if _installed(name, report)]
    right = Events(events(options.events))
    with brokers(options.bootstrap, report.missing) as started, topics(started[0].bootstrap, INPUT, SIDE_INPUT):
        bootstrap = started[0].bootstrap
        fill(bootstrap, options.events)
        for query in queries:
            expected = RESULTS[query](right)
            for system in systems:
                asked = {"query": query, "events": options.events, "bootstrap": bootstrap}
                _answer(report, system, asked, options.guarantee, expected)
    print(json.dumps(vars(report)) if options.json else _as_text(report))
    if options.save and report.measurements:
        save(Run.of_now("nexmark", _history_rates(report)))
    return 1 if report.missing else 0


def _installed(name: str, report: Report) -> bool:
    """Return whether a system can run here; it is installed first, so that no run waits for it."""
    program = SYSTEMS[name].program
    try:
        if program is not None:
            program.command()
    except UnavailableError as error:
        report.missing[SYSTEMS[name].title] = str(error)
        return False
    return True


def _answer(report: Report, name: str, asked: dict[str, Any], guarantee: str, expected: Rows) -> None:
    """Add to the report how one system answers one query."""
    system, query = SYSTEMS[name], asked["query"]
    if query in system.left_out:
        report.left_out[f"{query}, {system.title}"] = system.left_out[query]
        return
    print(f"{query}, {system.title} ...", file=sys.stderr, flush=True)
    promised = system.guarantee(guarantee)
    with topics(asked["bootstrap"], OUTPUT, config=APPEND_TIME):
        try:
            result = run_contestant({**system.asked, **asked, "guarantee": promised})
        except ContestError as error:
            report.missing[f"{query}, {system.title}"] = str(error)
            return
        written = read(asked["bootstrap"])
    shape = system.shapes.get(query)
    if reason := wrong(written.rows, shape(expected) if shape else expected):
        report.missing[f"{query}, {system.title}"] = reason
    report.measurements.append(
        {"query": query, "system": name, "guarantee": promised, **_rates(result, written.last_ms)}
    )


def _rates(result: Mapping[str, Any], last_ms: int) -> dict[str, Any]:
    """Return the rates of a run, whose window ends with the last row."""
    seconds = max(last_ms / 1000 - result["opened"], 0.001)
    cpu = result["cpu_seconds"]
    return {
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


def _history_rates(report: Report) -> Iterator[Rate]:
    """Yield the rates of right answers."""
    for each in report.measurements:
        title = SYSTEMS[each["system"]].title
        if f"{each['query']}, {title}" not in report.missing:
            rate, cpu = each["events_per_second"], each["cpu_seconds_per_million"]
            yield Rate(each["query"], title, rate, "events/s", cpu)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--save", action="store_true", help="write the rates into benchmarks/history")
    parser.add_argument("--events", type=int, default=1_000_000, help="(%(default)s)")
    parser.add_argument("--queries", default=",".join(QUERIES), help="with commas between (%(default)s)")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="with commas between (%(default)s)")
    parser.add_argument("--guarantee", default=EXACTLY_ONCE, help="of the systems that offer it (%(default)s)")
    parser.add_argument("--bootstrap", help="use this Kafka, and start no broker")
    return parser


def _as_text(report: Report) -> str:
    lines = [
        "| query | asks for | system | guarantee | events/s | CPU s / M events | memory, MiB |",
        "|---|---|---|---|---:|---:|---:|",
    ]
    for each in report.measurements:
        cpu = each["cpu_seconds_per_million"]
        lines.append(
            f"| {each['query']} | {QUERIES[each['query']].asks} | {SYSTEMS[each['system']].title} "
            f"| {each['guarantee'].removesuffix('_v2').replace('_', ' ')} | {each['events_per_second']:,.0f} "
            f"| {'-' if cpu is None else f'{cpu:.1f}'} | {each['memory'] / _MIB:,.0f} |"
        )
    for own in ("spark", "threads"):
        for rival in [name for name in SYSTEMS if name not in ("spark", "threads")]:
            if by_query := ratios(report.measurements, own, rival):
                worst = min(by_query, key=lambda query: by_query[query])
                mean = statistics.geometric_mean(by_query.values())
                lines.append(
                    f"\n{SYSTEMS[own].title} : {SYSTEMS[rival].title} = {mean:.2f} "
                    f"(geometric mean of {len(by_query)}), worst {worst} with {by_query[worst]:.2f}"
                )
    lines += [f"left out: {what}: {why}" for what, why in report.left_out.items()]
    lines += [f"missing: {what}: {why}" for what, why in report.missing.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
