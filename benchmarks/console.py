"""Measures how fast the pages of an application are drawn, and what an open page costs the application.

    python benchmarks/console.py [--nodes N] [--rounds N] [--seconds N] [--host threads|spark] [--json]

The application runs over an embedded broker. A page is asked for over HTTP; where there is a Chromium, it is also
opened there, until its picture is drawn. Figures are the medians of the rounds, by the clock.

What an open page costs is the time of the CPU of the process that runs the application, on Spark the driver, while
another process follows the page, less that while nobody does: the most of the time of an epoch that the page can take.
Meanwhile the application processes a few records a second, so that its figures change.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

if not __package__:  # run as a script: the root of the repository is not on the path
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from penstock import KafkaStreams, Serdes, StreamsBuilder, Topology
from penstock.client.api import NewTopic
from penstock.client.confluent import ConfluentAdmin
from penstock.config import StreamsConfig
from penstock_broker.process import BrokerProcess
from tests.support.browser import CHROMIUM, Browser

_PAGES: Final = ("", "topology", "topology.svg", "tasks", "commits")
_FOLLOWED: Final = ("/", "/topology", "/topology?measure=records", "/tasks", "/commits")
_MERGED: Final = 20
_WARM_UP_SECONDS: Final = 6.0
_WRITER: Final = """
import sys, time
from penstock.client.confluent import ConfluentProducer
from penstock.config import StreamsConfig
producer = ConfluentProducer(StreamsConfig({"bootstrap.servers": sys.argv[1]}))
print("writes", flush=True)
while True:
    producer.send("in", b"key", b"value")
    time.sleep(0.2)
"""
_FOLLOWER: Final = """
import sys
from urllib.request import urlopen
with urlopen(sys.argv[1]) as events:
    print("follows", flush=True)
    while events.read(65_536):
        pass
"""
_DRAWN: Final = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


@dataclass(frozen=True)
class Measurement:
    """One row: a page, how it was asked for, and how long (ms) it took."""

    page: str
    by: str
    milliseconds: float


@dataclass(frozen=True)
class Cost:
    """One row: who looks at the application, and the time of the CPU (%, of one core) of its process meanwhile."""

    looking: str
    percent: float


def many_nodes(number: int) -> Topology:
    """Return a topology of about so many nodes: groups of branches of a filter and a map, each of which is merged."""
    builder = StreamsBuilder()
    source = builder.stream("in")
    for _ in range(number // (3 * _MERGED)):
        merged = source.filter(lambda key, value: True)
        for _ in range(_MERGED):
            merged = merged.merge(source.filter(lambda key, value: True).map_values(lambda value: value))
        merged.to("out")
    return builder.build()


@contextmanager
def running(nodes: int, host: str, directory: Path, **settings: Any) -> Iterator[tuple[KafkaStreams, str]]:
    """Run an application with so many nodes over a broker of its own; yields it with the address of the broker."""
    with BrokerProcess(directory / "broker") as broker:
        admin = ConfluentAdmin(StreamsConfig({"bootstrap.servers": broker.bootstrap_servers}))
        admin.create_topics([NewTopic("in", 1), NewTopic("out", 1)])
        admin.close()
        config = {
            "application.id": "console",
            "bootstrap.servers": broker.bootstrap_servers,
            "penstock.host": host,
            "state.dir": str(directory / "state"),
            "default.key.serde": Serdes.string(),
            "default.value.serde": Serdes.string(),
            **settings,
        }
        with KafkaStreams(many_nodes(nodes), config) as streams:
            yield streams, broker.bootstrap_servers


def address_of(streams: KafkaStreams) -> str:
    """Return where an application shows itself."""
    address: str = streams._servers[0].address  # type: ignore[attr-defined]  # the port is any free one
    return address


def measure(nodes: int, rounds: int, host: str) -> list[Measurement]:
    """Return how long each page takes."""
    with ExitStack() as opened:
        directory = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="penstock-benchmark-")))
        streams, _ = opened.enter_context(running(nodes, host, directory, **{"penstock.ui.port": 0}))
        address = address_of(streams)
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


def costs(nodes: int, seconds: float, host: str) -> list[Cost]:
    """Return what the application takes without pages, with pages that nobody has open, and with each page open."""
    found = []
    for shown in (False, True):
        with ExitStack() as opened:
            directory = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="penstock-benchmark-")))
            settings = {"penstock.ui.port": 0} if shown else {}
            streams, servers = opened.enter_context(running(nodes, host, directory, **settings))
            opened.enter_context(_process(_WRITER, servers))
            found.append(Cost("nobody" if shown else "nobody, without penstock.ui.port", _taken(seconds)))
            for page in _FOLLOWED if shown else ():
                with _process(_FOLLOWER, f"{address_of(streams)}events{page.rstrip('/')}"):
                    found.append(Cost(f"a reader of {page}", _taken(seconds)))
    return found


@contextmanager
def _process(program: str, argument: str) -> Iterator[None]:
    """Run a Python program beside the application, which prints a line when it has begun."""
    process = subprocess.Popen([sys.executable, "-c", program, argument], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline(), "the program ended"
        yield
    finally:
        process.kill()
        process.communicate()


def _taken(seconds: float) -> float:
    """Return the share (%) of the time of one core that this process takes, after a while in which it warms up."""
    time.sleep(_WARM_UP_SECONDS)
    began, spent = time.perf_counter(), time.process_time()
    time.sleep(seconds)
    return 100 * (time.process_time() - spent) / (time.perf_counter() - began)


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
    parser = argparse.ArgumentParser(description="Measures the pages of an application.")
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=60, help="for each row of what an open page costs")
    parser.add_argument("--host", choices=["threads", "spark"], default="threads")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    found = measure(asked.nodes, asked.rounds, asked.host)
    taken = costs(asked.nodes, asked.seconds, asked.host)
    if asked.json:
        rows = {"measurements": [asdict(each) for each in found], "costs": [asdict(each) for each in taken]}
        print(json.dumps({"nodes": asked.nodes, "host": asked.host, **rows}))
        return 0
    print(f"{asked.nodes} nodes on {asked.host}, median of {asked.rounds}\n\n| page | by | ms |\n|---|---|---|")
    for each in found:
        print(f"| `{each.page}` | {each.by} | {each.milliseconds:,.0f} |")
    print("\n| who looks | CPU of the application, % of a core | for the page |\n|---|---|---|")
    nobody = taken[1].percent
    for cost in taken:
        page = f"{cost.percent - nobody:.2f}" if cost in taken[2:] else ""
        print(f"| {cost.looking} | {cost.percent:.2f} | {page} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
