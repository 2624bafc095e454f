"""Measures how fast the pages of an application are drawn: its topology with many nodes, and the overview.

    python benchmarks/console.py [--nodes N] [--rounds N] [--json]

The application runs on the threads host over an embedded broker. A page is asked for over HTTP; where there is a
Chromium, it is also opened there, until its picture is drawn. Figures are the medians of the rounds, by the clock.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final
from urllib.request import urlopen

if not __package__:  # run as a script: the root of the repository is not on the path
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from penstock import KafkaStreams, Serdes, StreamsBuilder, Topology
from penstock.broker.process import BrokerProcess
from penstock.client.api import NewTopic
from penstock.client.confluent import ConfluentAdmin
from penstock.config import StreamsConfig
from tests.support.browser import CHROMIUM, Browser

_PAGES: Final = ("", "topology", "topology.svg", "tasks", "commits")
_DRAWN: Final = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


@dataclass(frozen=True)
class Measurement:
    """One row: a page, how it was asked for, and how long (ms) it took."""

    page: str
    by: str
    milliseconds: float


def many_nodes(number: int) -> Topology:
    """Return a topology of about so many nodes: branches of a filter and a map, all merged."""
    builder = StreamsBuilder()
    source = builder.stream("in")
    merged = source.filter(lambda key, value: True)
    for _ in range(number // 3):
        merged = merged.merge(source.filter(lambda key, value: True).map_values(lambda value: value))
    merged.to("out")
    return builder.build()


def measure(nodes: int, rounds: int) -> list[Measurement]:
    """Return how long each page takes."""
    with ExitStack() as opened:
        directory = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="penstock-benchmark-")))
        broker = opened.enter_context(BrokerProcess(directory / "broker"))
        admin = ConfluentAdmin(StreamsConfig({"bootstrap.servers": broker.bootstrap_servers}))
        admin.create_topics([NewTopic("in", 1), NewTopic("out", 1)])
        admin.close()
        config = {
            "application.id": "console",
            "bootstrap.servers": broker.bootstrap_servers,
            "penstock.host": "threads",
            "state.dir": str(directory / "state"),
            "default.key.serde": Serdes.string(),
            "default.value.serde": Serdes.string(),
            "penstock.ui.port": 0,
        }
        streams = opened.enter_context(KafkaStreams(many_nodes(nodes), config))
        address: str = streams._servers[0].address  # type: ignore[attr-defined]  # the port is any free one
        browser = None if CHROMIUM is None else opened.enter_context(Browser(directory / "browser"))

        def ask(page: str) -> None:
            with urlopen(f"{address}{page}", timeout=60) as answer:
                answer.read()

        found = []
        for page in _PAGES:
            found.append(Measurement(f"/{page}", "HTTP", _median(rounds, ask, page)))
            if browser is not None:
                found.append(Measurement(f"/{page}", "Chromium", _median(rounds, _opened_in(browser), address + page)))
        return found


def _opened_in(browser: Browser) -> Callable[[str], None]:
    def draw(address: str) -> None:
        browser.open(address)
        browser.call("Runtime.evaluate", expression=_DRAWN, awaitPromise=True)

    return draw


def _median(rounds: int, call: Callable[[str], None], argument: str) -> float:
    """Return how long (ms) a call takes; the first one warms up."""
    took = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        call(argument)
        took.append(1_000 * (time.perf_counter() - began))
    return statistics.median(took[1:])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description="Measures how fast the pages of an application are drawn.")
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    found = measure(asked.nodes, asked.rounds)
    if asked.json:
        print(json.dumps({"nodes": asked.nodes, "measurements": [asdict(each) for each in found]}))
        return 0
    print(f"{asked.nodes} nodes, median of {asked.rounds}\n\n| page | by | ms |\n|---|---|---|")
    for each in found:
        print(f"| `{each.page}` | {each.by} | {each.milliseconds:,.0f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
