"""The pages in a browser, of an application over a host that does what the test tells it: by keyboard, without
JavaScript, in dark colours, on a phone, and with names that are hostile."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock import Processor, Record, Stores, Topology
from penstock.errors import StreamsError
from penstock.host.api import CommitFigures
from penstock.tools.ui.server import UiServer
from tests.support.browser import WITH_CHROMIUM, Browser
from tests.tools.ui.conftest import Shown
from tests.tools.ui.test_pages import PATHS
from tests.tools.ui.test_size import chains

pytestmark = [WITH_CHROMIUM, pytest.mark.slow]

HOSTILE = "<img src=x onerror=document.hacked=1>"
LIVE = "document.getElementById('live').textContent.includes('follow the application')"


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    with Browser(tmp_path / "browser") as browser:
        yield browser


@pytest.fixture
def serve(show: Callable[..., Shown], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Shown, str]]:
    """A function that runs a topology and serves its pages; returns their address too."""
    monkeypatch.setattr("penstock.tools.ui.routes.EVENTS_MS", 10)
    monkeypatch.setattr("penstock.tools.ui.observer.INTERVAL_MS", 10)

    def run(topology: Topology | None = None) -> tuple[Shown, str]:
        shown = show(topology, **{"penstock.ui.port": 0})
        (server,) = shown.streams._servers
        assert isinstance(server, UiServer)
        return shown, server.address

    return run


def colour(browser: Browser, selector: str, of: str) -> tuple[int, ...]:
    """Return red, green and blue of an element."""
    text = browser.evaluate(f"getComputedStyle(document.querySelector('{selector}')).{of}")
    return tuple(map(int, re.findall(r"\d+", text)[:3]))


def test_figures_change_while_a_page_is_open(browser: Browser, serve: Callable[..., tuple[Shown, str]]) -> None:
    shown, address = serve()
    shown.host.figures = {"records_in": 10, "records_out": 4}
    shown.host.tasks().positions = {"0_0": (10, 50)}
    browser.open(address)
    for records, committed in ((10, 10), (1_000, 30), (5_000, 50)):
        shown.host.figures = {"records_in": records, "records_out": 4}
        shown.host.tasks().positions = {"0_0": (committed, 50)}
        browser.wait_for(f"document.getElementById('figures').textContent.includes('{records:,} since the start')")
        browser.wait_for(f"document.getElementById('figures').textContent.includes('Lag{50 - committed}')")
    shown.host.told().on_rebalancing()
    browser.wait_for("document.getElementById('state').textContent.startsWith('REBALANCING since')")
    shown.host.fails(StreamsError(HOSTILE))
    browser.wait_for("document.getElementById('state').textContent.startsWith('ERROR since')")
    assert HOSTILE in browser.text("#state")
    assert not browser.evaluate("document.hacked")
    assert browser.problems == []


def test_all_can_be_reached_and_followed_by_keyboard(browser: Browser, serve: Callable[..., tuple[Shown, str]]) -> None:
    _, address = serve()
    browser.open(address)
    browser.wait_for(LIVE)
    browser.press("Tab")
    assert browser.evaluate("document.activeElement.className") == "skip"
    browser.press("Enter", "\r")
    browser.wait_for("document.activeElement.id === 'content'")
    browser.open(address)
    browser.tab_to("nav a[href='/topology']")
    browser.follow()
    assert browser.text("h1") == "Topology"
    browser.tab_to("figure svg a[href*='node=KSTREAM-AGGREGATE']")
    outline = browser.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"
    browser.follow()
    assert "counts (timestamped key value)" in browser.text("#node")
    browser.tab_to("#node a[href^='/state']")
    browser.follow()
    assert browser.text("#form h2") == "Entries of counts"


def test_without_javascript_a_page_shows_what_was_true_when_it_was_loaded(
    browser: Browser, serve: Callable[..., tuple[Shown, str]]
) -> None:
    shown, address = serve()
    shown.host.figures = {"records_in": 10}
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    for path in PATHS:
        browser.go(f"{address.rstrip('/')}{path}")
        html = browser.html()
        assert "These figures are from when the page was loaded." in html
        assert 'aria-current="page"' in html
        assert "RUNNING" in html or path not in ("/", "/state")


def test_pages_follow_the_colours_of_the_system(browser: Browser, serve: Callable[..., tuple[Shown, str]]) -> None:
    _, address = serve()
    found = {}
    for scheme in ("light", "dark"):
        media = {"name": "prefers-color-scheme", "value": scheme}
        browser.call("Emulation.setEmulatedMedia", features=[media])
        browser.open(f"{address}topology")
        node = "figure .penstock-source"
        places = (("body", "backgroundColor"), ("body", "color"), (node, "fill"), ("figure .penstock-label", "fill"))
        found[scheme] = [sum(colour(browser, *place)) for place in places]
        back = browser.evaluate("getComputedStyle(document.querySelector('figure')).backgroundColor")
        assert back == "rgba(0, 0, 0, 0)", "the picture is on the background of the page"
    light, dark = found["light"], found["dark"]
    assert light[0] == 3 * 255
    assert light[2] > 600 > 150 > light[1]
    assert dark[0] < 100 < 600 < dark[1]
    assert dark[2] < 250 < 600 < dark[3]


def test_pages_fit_the_width_of_a_phone(browser: Browser, serve: Callable[..., tuple[Shown, str]]) -> None:
    shown, address = serve()
    commits = [CommitFigures(number, 1_000 * number, 10, {"process": 30.0}) for number in range(60)]
    shown.host.figures = {"records_in": 10**12, "recent_commits": commits}
    shown.host.told().on_failure(ValueError("x" * 1_000))
    browser.call("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True)
    for path in PATHS:
        browser.open(f"{address.rstrip('/')}{path}")
        assert browser.evaluate("document.documentElement.scrollWidth") <= 390, path


class Forwarding(Processor):
    def process(self, record: Record) -> None:
        self.context.forward(record)


def test_names_that_are_hostile_are_text(browser: Browser, serve: Callable[..., tuple[Shown, str]]) -> None:
    topology = Topology()
    topology.add_source(f"from {HOSTILE}", re.compile(re.escape(HOSTILE)))
    topology.add_processor(f"via {HOSTILE}", Forwarding, f"from {HOSTILE}")
    store = Stores.key_value_store_builder(Stores.in_memory_key_value_store(f"store {HOSTILE}"), None, None)
    topology.add_state_store(store.with_logging_disabled(), f"via {HOSTILE}")  # no topic may have the name
    topology.add_sink(f"to {HOSTILE}", "out", f"via {HOSTILE}")
    _, address = serve(topology)
    browser.open(f"{address}topology")
    browser.wait_for(LIVE)
    for name in ("from", "via", "to", "store"):
        assert f"{name} {HOSTILE}" in browser.text("figure svg"), name
    browser.click("#nodes-0 tbody tr:nth-child(2) a")
    assert browser.text("#node h2") == f"Node via {HOSTILE}"
    browser.click("#node a[href^='/state']")
    assert browser.text("#form h2") == f"Entries of store {HOSTILE}"
    assert f"store {HOSTILE}" in browser.text("#stores")
    for path in PATHS:
        browser.open(f"{address.rstrip('/')}{path}")
        assert browser.evaluate("document.querySelectorAll('main img').length") == 0
        assert not browser.evaluate("document.hacked")
    assert browser.problems == []


def test_a_browser_draws_a_topology_of_a_thousand_nodes(
    browser: Browser, serve: Callable[..., tuple[Shown, str]]
) -> None:
    _, address = serve(chains(50))
    browser.open(f"{address}topology")
    browser.wait_for(LIVE)
    assert browser.evaluate("document.querySelectorAll('figure svg [href*=node]').length") == 1_000
    assert browser.evaluate("document.querySelectorAll('#nodes-0 tbody tr').length") == 1_000
    browser.click("#measures [href*='folded']")
    assert browser.evaluate("document.querySelectorAll('figure svg [href*=node]').length") == 0
    assert browser.problems == []


def test_the_overview_is_in_one_screen(browser: Browser, serve: Callable[..., tuple[Shown, str]]) -> None:
    _, address = serve()
    browser.call("Emulation.setDeviceMetricsOverride", width=1_280, height=800, deviceScaleFactor=1, mobile=False)
    browser.open(address)
    browser.wait_for("document.querySelector('.u-wrap') !== null")  # the curves are drawn
    assert browser.evaluate("document.documentElement.scrollHeight") <= 800
