"""A browser walks through the pages of an application that runs, on each host."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock import KafkaStreams, Materialized, StreamsBuilder, Topology
from penstock.config import StreamsConfig
from penstock.host.api import State, StreamThreadExceptionResponse
from tests.host.support import WITH_A_SESSION, InputRecord, Runner, lines
from tests.host.test_topologies import TEXT, TEXT_OUT
from tests.support.browser import WITH_CHROMIUM, Browser
from tests.support.waiting import WAIT_SECONDS
from tests.tools.ui.test_server import address_in

pytestmark = [WITH_CHROMIUM, WITH_A_SESSION, pytest.mark.one_broker, pytest.mark.slow]

HOSTILE = "<img src=x onerror=document.hacked=1>\x1b[31m\x00\u202e"
LONG = 999_000  # the most that a producer sends by default is 1 MB with its frame
LONGEST_TOPIC = 249
"""Characters of a topic's name, of which Kafka allows letters, digits, dots, dashes and underscores."""


def walked(source: str, target: str, names: str, poison: Path) -> Topology:
    """Return a word count that fails once where there is a file `poison`, and a table."""

    def checked(line: str) -> str:
        if poison.exists():
            poison.unlink()
            raise ValueError(HOSTILE)
        return line

    builder = StreamsBuilder()
    words = builder.stream(source, consumed=TEXT).map_values(checked).flat_map_values(lambda line: line.split(" "))
    counts = words.group_by(lambda _, word: word).count(materialized=Materialized.as_("counts"))
    counts.to_stream().map_values(str).to(target, produced=TEXT_OUT)
    builder.table(names, consumed=TEXT, materialized=Materialized.as_("names"))
    return builder.build()


def figure(name: str, condition: str = "text") -> str:
    """Return a script that says whether a figure of the overview meets a condition of its `text`, or gives that."""
    find = f"[...document.querySelectorAll('#figures div')].find((each) => each.firstChild.textContent === '{name}')"
    return f"(() => {{ const text = {find}.lastChild.textContent; return {condition}; }})()"


class Restart:
    """A listener that holds an application in the state REBALANCING until its page was seen."""

    def __init__(self) -> None:
        self.was_seen = threading.Event()
        self.was_seen.set()

    def __call__(self, new: State, old: State) -> None:
        if new is State.REBALANCING:
            self.was_seen.wait(WAIT_SECONDS)


def submit(browser: Browser, **fields: str) -> None:
    """Fill in the form of the page on control, and send it as a click does."""
    browser.evaluate(f"document.querySelector('[value={fields['action']}]').checked = true")
    browser.evaluate(f"document.querySelector('[name=token]').value = '{fields['token']}'")
    browser.evaluate("document.querySelector('[name=confirmed]').checked = true")
    browser.evaluate("document.querySelector('form').noValidate = true")  # the server refuses what the browser would
    browser.click("form button")


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    with Browser(tmp_path / "browser") as browser:
        yield browser


def test_a_browser_sees_and_steers_an_application(
    browser: Browser,
    runner: Runner,
    application: str,
    topics: tuple[str, str],
    unique_name: Callable[[str], str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (source, target), poison = topics, tmp_path / "poison"
    names = f"{unique_name('names')}.constructor-__proto__".ljust(LONGEST_TOPIC, "_")
    runner.create_topics({names: 1})
    values = {
        "commit.interval.ms": 10,
        "default.key.serde": TEXT.key_serde,
        "default.value.serde": TEXT.value_serde,
        "penstock.restart.backoff.ms": 10,
        "penstock.ui.port": 0,
        "penstock.ui.control": True,
    }
    monkeypatch.setattr("penstock.tools.ui.routes.EVENTS_MS", 50)
    monkeypatch.setattr("penstock.tools.ui.observer.INTERVAL_MS", 50)
    config: StreamsConfig = runner.config(application, values)
    streams = KafkaStreams(walked(source, target, names, poison), config, **runner.options())
    streams.set_uncaught_exception_handler(lambda error: StreamThreadExceptionResponse.REPLACE_THREAD)
    restart = Restart()
    streams.set_state_listener(restart)
    with streams:
        told = capsys.readouterr().err
        address, token = address_in(told), told.partition("the token for control is ")[2].split()[0]

        # the rate changes
        browser.open(address)
        browser.wait_for("document.getElementById('live').textContent.includes('follow the application')")
        browser.wait_for("document.getElementById('state').textContent.includes('RUNNING')")
        runner.write(names, [InputRecord(HOSTILE.encode(), b"v" * LONG, 1_000)])
        runner.write(names, [InputRecord(b"k" * LONG, HOSTILE.encode(), 1_000)])
        runner.write(source, lines([f"a {HOSTILE.replace(' ', '_')} a"]))
        browser.wait_for(figure("Records in", "text.includes('3 since the start') && !text.startsWith('0/s')"))
        browser.wait_for("document.getElementById('state').textContent.includes('no record waits')")
        before = browser.evaluate(figure("Records in", "text.split('/s')[0]"))
        runner.write(source, lines(["b"] * 500))
        more = f"text.includes('503 since the start') && parseFloat(text.replace(',', '')) > {before.replace(',', '')}"
        browser.wait_for(figure("Records in", more))

        # refused without the token, paused with it: the lag grows, and is gone after a resume
        browser.open(f"{address}control")
        for wrong in ("wrong", ""):
            submit(browser, action="pause", token=wrong)
            assert "The token is wrong" in browser.text("#outcome")
            assert not streams.is_paused()
        refused = len(browser.problems)
        submit(browser, action="pause", token=token)
        browser.wait_for("document.getElementById('state').textContent.includes('PAUSED')")
        assert streams.is_paused()
        browser.open(address)
        runner.write(source, lines(["a", "a", "a"]))
        browser.wait_for(figure("Lag", "text.startsWith('3')"))
        runner.write(source, lines(["a", "a"]))
        browser.wait_for(figure("Lag", "text.startsWith('5')"))
        browser.open(f"{address}control")
        submit(browser, action="resume", token=token)
        assert not streams.is_paused()
        browser.open(address)
        browser.wait_for(figure("Lag", "text.startsWith('0')"))

        # a node, by the table and by the picture, in which sub-topologies can be folded
        browser.open(f"{address}topology")
        browser.click("#nodes-0 tbody a")
        assert "StringSerde" in browser.text("#node")
        browser.click("#measures [href*='measure=lag']")
        browser.click("figure svg [href*='folded=0']")
        assert "nodes" in browser.text("figure svg")
        browser.click("figure svg [href*='node=KSTREAM-AGGREGATE']")
        assert "counts (timestamped key value)" in browser.text("#node")

        # a key, and names that are hostile or long
        browser.open(f"{address}state?store=counts")
        browser.evaluate("document.querySelector('[name=key]').value = 'a'")
        browser.click("form button")
        assert browser.evaluate("[...document.querySelectorAll('#entries tbody code')].map((e) => e.textContent)") == [
            "a",
            "7",
        ]
        for store in ("counts", "names"):
            browser.open(f"{address}state?store={store}")
            assert HOSTILE.split(" ")[0] in browser.text("#entries")
        assert browser.text("#entries").count(f"({LONG:,} characters)") == 2

        # the longest name of a topic, also on the width of a phone
        browser.call("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True)
        for page in ("tasks", "topology", "state?store=names"):
            browser.open(f"{address}{page}")
            assert browser.evaluate("document.documentElement.scrollWidth") <= 390, page
            assert names in browser.text("main") or page != "tasks"
        browser.call("Emulation.clearDeviceMetricsOverride")

        # what a commit took
        browser.open(f"{address}commits")
        browser.wait_for("document.querySelectorAll('rect.phase-process').length > 0")

        # a restart
        browser.open(address)
        browser.wait_for("document.getElementById('live').textContent.includes('follow the application')")
        ran = browser.text("#state p")
        restart.was_seen.clear()
        poison.touch()
        runner.write(source, lines(["b"]))
        browser.wait_for("document.getElementById('state').textContent.includes('REBALANCING since')")
        restart.was_seen.set()
        browser.wait_for("document.getElementById('state').textContent.includes('RUNNING since')")
        assert browser.text("#state p").split(".")[:2] != ran.split(".")[:2]
        browser.wait_for(figure("Errors", "text.startsWith('1')"))
        browser.wait_for(figure("Lag", "text.startsWith('0')"))
        browser.open(f"{address}errors")
        assert "<img src=x onerror" in browser.text("#errors")
        assert not browser.evaluate("document.hacked")
        assert browser.evaluate("document.querySelectorAll('#errors img, #entries img').length") == 0

        assert all("403" in problem for problem in browser.problems[:refused])
        assert browser.problems[refused:] == []
        browser.open(f"{address}control")
        submit(browser, action="stop", token=token)
        assert streams.await_termination(120_000)
        browser.wait_for("document.getElementById('live').textContent.includes('does not answer')")
