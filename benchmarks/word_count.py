"""Measures the word count: the task alone, Penstock on Spark, and other ways to the same result, in one run.

    python benchmarks/word_count.py [--json] [--lines N] [--only a,b,...] [--bootstrap HOST:PORT]

Prints one table of rates and their ratios, and one of the latency of epochs with little data. A rate needs a window of
ten epochs and 20 s of a warm contestant; if `--lines` are too few for one, the run says how many would do. What each
letter stands for, and the figures of one run, are in README.md. Every contestant runs in its own process; brokers,
topics and directories are made for the run and go with it.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

if not __package__:  # run as a script: the root of the repository is not on the path
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.history import Rate, Run, save
from benchmarks.measuring import LEAST_SECONDS, LEAST_STEPS
from benchmarks.program import INPUT, OUTPUT, WORDS
from benchmarks.running import EMBEDDED, EXACTLY_ONCE, Broker, ContestError, brokers, run_contestant
from benchmarks.topics import check_counts, fill, topics

CONTESTANTS: Final = {
    "a": "the task alone, one core",
    "b": "Penstock on Spark",
    "c": "PySpark transformWithState",
    "d": "Spark's native groupBy().count()",
    "e": "Kafka Streams in Java",
    "latency": "Penstock on Spark, epochs of two records",
}

SHARE_OF_LINES: Final = {"all distinct": 0.1, "c": 0.1}
"""What takes longer for each line gets fewer of them."""

LATENCY_EPOCHS: Final = 30


@dataclass
class Results:
    """What a run found; `missing` says why a contestant is not in it."""

    measurements: list[dict[str, Any]] = field(default_factory=list)
    latency: list[dict[str, Any]] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks that the arguments ask for."""
    options = _parser().parse_args(arguments)
    asked = options.only.split(",")
    unknown = [letter for letter in asked if letter not in CONTESTANTS]
    if unknown:
        print(f"--only knows {', '.join(CONTESTANTS)}; not {', '.join(unknown)}", file=sys.stderr)
        return 2
    results = Results()
    if "a" in asked:
        for text in WORDS:
            if done := _contest(results, "a", "", run="task", text=text, **_size(options, "a", text)):
                _refuse_short(results, options, "a", text, done)
    if set(asked) - {"a"}:
        with brokers(options.bootstrap, results.missing) as found:
            _contests_on_brokers(results, options, asked, found)
    print(json.dumps(_as_json(results), indent=2) if options.json else _as_text(results))
    if options.save and results.measurements:
        save(Run.of_now("word_count", _history_rates(results)))
    return 0 if not results.missing else 1


def _history_rates(results: Results) -> Iterator[Rate]:
    """Yield the rates of right counts from topic to topic."""
    for each in results.measurements:
        if each["contestant"] != "a" and not each["wrong"]:
            row = f"{each['text']}, {each['broker']}"
            yield Rate(row, each["name"], each["words_per_second"], "words/s", each["cpu_seconds_per_million_words"])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--save", action="store_true", help="write the rates into benchmarks/history")
    parser.add_argument("--lines", type=int, default=4_000_000, help="lines of text with 10,000 words (%(default)s)")
    parser.add_argument("--words-per-line", type=int, default=10, help="(%(default)s)")
    parser.add_argument("--only", default=",".join(CONTESTANTS), help="letters, with commas between (%(default)s)")
    parser.add_argument("--bootstrap", help="use this Kafka, and start no broker")
    return parser


def _share(letter: str, text: str) -> float:
    return SHARE_OF_LINES.get(text, 1.0) * SHARE_OF_LINES.get(letter, 1.0)


def _size(options: argparse.Namespace, letter: str, text: str) -> dict[str, int]:
    lines = int(options.lines * _share(letter, text))
    return {"lines": max(1, lines), "words_per_line": options.words_per_line}


def _contests_on_brokers(
    results: Results, options: argparse.Namespace, asked: Sequence[str], found: Sequence[Broker]
) -> None:
    first = found[0]
    for text in WORDS:
        for broker in found:
            letters = [letter for letter in "bcde" if letter in asked and (letter == "b" or broker is first)]
            if not letters:
                continue
            with topics(broker.bootstrap, INPUT):
                fill(broker.bootstrap, INPUT, text, **_size(options, "b", text))
                for letter in letters:
                    _topic_to_topic(results, options, letter, text, broker)
    for broker in found if "latency" in asked else ():
        for levels in (1, 2, 3):
            with topics(broker.bootstrap, INPUT, OUTPUT):
                _contest(
                    results,
                    "latency",
                    broker.name,
                    run="latency",
                    number=levels,
                    epochs=LATENCY_EPOCHS,
                    input_topic=INPUT,
                    output_topic=OUTPUT,
                    bootstrap=broker.bootstrap,
                )


def _topic_to_topic(results: Results, options: argparse.Namespace, letter: str, text: str, broker: Broker) -> None:
    run = {"b": "spark", "c": "transform", "d": "native", "e": "java"}[letter]
    size = _size(options, letter, text)
    promised = {"guarantee": EXACTLY_ONCE} if letter in "be" else {}
    if letter == "e" and broker.name == EMBEDDED:
        results.missing["e"] = "Kafka Streams is measured on a real Kafka"
        return
    with topics(broker.bootstrap, OUTPUT):
        done = _contest(
            results,
            letter,
            broker.name,
            run=run,
            bootstrap=broker.bootstrap,
            input_topic=INPUT,
            output_topic=OUTPUT,
            text=text,
            **size,
            **promised,
        )
        if done is not None:
            done["wrong"] = check_counts(broker.bootstrap, OUTPUT, text, **size)
            _refuse_short(results, options, letter, text, done)
            if done["wrong"]:
                results.missing[f"{letter}, {text}"] = done["wrong"]


def _refuse_short(results: Results, options: argparse.Namespace, letter: str, text: str, done: dict[str, Any]) -> None:
    """Take a measurement out of the results if its window is too short for a rate, and note the reason."""
    if short := too_short(done, options.lines, _share(letter, text)):
        results.missing[f"{letter}, {text}"] = short
        results.measurements.remove(done)


def too_short(measurement: Mapping[str, Any], lines: int, share: float) -> str | None:
    """Return why the window of a measurement is too short for a rate, and the `--lines` that would do; None if it is
    long enough. The contestant had that share of `lines`."""
    needed = measurement["lines_needed"]
    if needed is None:
        return None
    steps, seconds = measurement["steps"], measurement["seconds"]
    enough = math.ceil(max(needed / share, lines + 1) / 100_000) * 100_000
    return (
        f"the window has {steps} {'epoch' if steps == 1 else 'epochs'} and {seconds:.1f} s, and a rate needs "
        f"{LEAST_STEPS} epochs and {LEAST_SECONDS:.0f} s of a warm contestant: --lines {enough} would do"
    )


def _contest(results: Results, letter: str, broker: str, **asked: Any) -> dict[str, Any] | None:
    """Run one contestant in its own process; note its result, or why there is none."""
    print(f"{letter}: {CONTESTANTS[letter]}, {asked.get('text', broker)} ...", file=sys.stderr, flush=True)
    try:
        result = {**run_contestant(asked), "broker": broker}
    except ContestError as error:
        results.missing[f"{letter}, {asked.get('text', broker)}"] = str(error)
        return None
    (results.latency if letter == "latency" else results.measurements).append(result)
    return result


# ---------- what is printed


def ratios(measurements: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return how much faster Penstock on Spark is than each rival on the same broker and text, by words a second and by
    CPU time."""
    found = []
    for own in measurements:
        if own["contestant"] != "b":
            continue
        for rival in measurements:
            if rival["contestant"] in "cde" and (rival["text"], rival["broker"]) == (own["text"], own["broker"]):
                cpu_own, cpu_rival = (each["cpu_seconds_per_million_words"] for each in (own, rival))
                found.append(
                    {
                        "ratio": f"b : {rival['contestant']}",
                        "text": own["text"],
                        "broker": own["broker"],
                        "words_per_second": own["words_per_second"] / rival["words_per_second"],
                        "cpu": cpu_rival / cpu_own if cpu_own and cpu_rival else None,
                    }
                )
    return found


def _as_json(results: Results) -> dict[str, Any]:
    return {
        "measurements": results.measurements,
        "ratios": ratios(results.measurements),
        "latency": results.latency,
        "missing": results.missing,
    }


def _as_text(results: Results) -> str:
    lines = []
    if results.measurements:
        lines += [
            "| | contestant | text | broker | lines/s | words/s | CPU s / M words | remark |",
            "|---|---|---|---|---:|---:|---:|---|",
        ]
        for each in results.measurements:
            cpu = each["cpu_seconds_per_million_words"]
            lines.append(
                f"| {each['contestant']} | {each['name']} | {each['text']} | {each['broker'] or '-'} "
                f"| {each['lines_per_second']:,.0f} | {each['words_per_second']:,.0f} "
                f"| {'-' if cpu is None else f'{cpu:.2f}'} | {each['remark']} |"
            )
    found = ratios(results.measurements)
    if found:
        lines += ["", "| ratio | text | broker | by words/s | by CPU |", "|---|---|---|---:|---:|"]
        for each in found:
            cpu = "-" if each["cpu"] is None else f"{each['cpu']:.1f}"
            lines.append(
                f"| {each['ratio']} | {each['text']} | {each['broker']} | {each['words_per_second']:.1f} | {cpu} |"
            )
    if results.latency:
        lines += [
            "",
            "| levels | broker | epoch, ms: median (p90) | record to committed output, ms: median (p90) |",
            "|---:|---|---:|---:|",
        ]
        for each in results.latency:
            spread = [f"{each[key]['median']:.0f} ({each[key]['p90']:.0f})" for key in ("epoch_ms", "output_ms")]
            lines.append(f"| {each['levels']} | {each['broker']} | {spread[0]} | {spread[1]} |")
    lines += [f"missing: {what}: {why}" for what, why in results.missing.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
