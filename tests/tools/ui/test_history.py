"""What was seen over time: as JSON, as curves without JavaScript, and in a browser."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.config import StreamsConfig
from penstock.errors import BrokerNotFoundError
from penstock.host.api import WatchedStatistics
from penstock.metrics.host_metrics import NOT_MEASURED, HostMeasurements, Measured, Operation, output_age
from penstock.metrics.measurements import Measurement
from penstock.tools.ui.history import FIGURES, RANGES, History, HistoryRange, Point
from penstock.tools.ui.server import UiServer
from tests.support.browser import WITH_CHROMIUM, Browser
from tests.tools.ui.conftest import Shown
from tests.tools.ui.test_pages import page


def point(time_ms: int, lag: int | None = None) -> Point:
    return Point(time_ms, None, None, lag, None, None, None)


def test_points_are_kept_every_few_seconds_and_every_minute(shown: Shown) -> None:
    for second in range(0, 130, 2):
        shown.host.figures = {"records_in": 100 * second, "records_out": 50 * second}
        shown.host.tasks().positions = {"0_0": (0, 1_000 + second)}
        shown.after(2_000)
    hour = shown.json("/api/v1/history")
    assert (hour["range"], hour["interval_ms"], hour["kept_ms"]) == ("hour", 4_000, 3_600_000)
    assert hour["times_ms"] == list(range(1_002_000, 1_132_000, 4_000))
    assert hour["lag"][:3] == [1_000, 1_004, 1_008]
    assert (hour["records_in_per_second"][-1], hour["records_out_per_second"][-1]) == (100, 50)
    assert hour["output_age_p99_ms"] == [None] * len(hour["times_ms"])
    assert shown.json("/api/v1/history?range=day")["times_ms"] == [1_002_000, 1_062_000, 1_122_000]


def test_a_reader_asks_for_what_is_new(shown: Shown) -> None:
    for _ in range(3):
        shown.after(4_000)
    later = shown.json("/api/v1/history?after=1004000")
    assert later["times_ms"] == [1_008_000, 1_012_000]
    assert {len(later[figure]) for figure in FIGURES} == {2}
    assert shown.json("/api/v1/history?after=1012000")["times_ms"] == []


def test_a_point_has_the_largest_lag_since_the_one_before() -> None:
    history = History({"hour": HistoryRange(4_000, 8_000)})
    for elapsed_ms, lag in enumerate([5, None, 80, None, 7]):
        history.take(1_000 * elapsed_ms, lag, lambda at=elapsed_ms: point(at))  # type: ignore[misc]  # a bound default
    assert [each.lag for each in history.points("hour")] == [5, 80]
    history.take(8_000, None, lambda: point(8))
    assert [each.lag for each in history.points("hour")] == [80, None]


def test_the_memory_is_fixed_and_nothing_is_measured_that_is_not_kept() -> None:
    history, measured = History(RANGES), []

    def measure() -> Point:
        measured.append(1)
        return point(1_000 * len(measured))

    for elapsed_ms in range(0, 2 * 86_400_000, 2_000):
        history.take(elapsed_ms, 1, measure)
    assert {name: len(history.points(name)) for name in RANGES} == {"hour": 900, "day": 1_440}
    assert len(measured) == 2 * 86_400_000 / 4_000


def test_a_clock_that_is_set_back_keeps_the_times_in_order() -> None:
    history = History({"hour": HistoryRange(1_000, 60_000)})
    for elapsed_ms, time_ms in enumerate([10, 20, 30, 25, 35]):
        history.take(1_000 * elapsed_ms, None, lambda time=time_ms: point(time))  # type: ignore[misc]  # a bound default
    assert [each.time_ms for each in history.points("hour")] == [10, 20, 25, 35]
    assert [each.time_ms for each in history.points("hour", 25)] == [35]
    assert [each.time_ms for each in history.points("hour", 40)] == [10, 20, 25, 35]


@pytest.mark.parametrize(("query", "problem"), [("range=<b>", "expected one of hour, day"), ("after=x", "for after")])
def test_a_wrong_range_or_time_is_refused(shown: Shown, query: str, problem: str) -> None:
    assert problem in shown.json(f"/api/v1/history?{query}", 400)["error"]


def test_metrics_that_take_long_are_made_less_often(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def measured() -> Measured:
        calls.append(shown.clock.milliseconds())
        shown.clock.advance(400)
        return NOT_MEASURED

    monkeypatch.setattr(shown.host, "measured", measured)
    for _ in range(20):
        shown.after(4_000)
    assert len(shown.json("/api/v1/history")["times_ms"]) == 20
    assert len(calls) == 2
    assert calls[1] - calls[0] >= 40_000


def test_what_a_watcher_cannot_see_is_not_known(shown: Shown) -> None:
    shown.host.figures = {
        "watched": WatchedStatistics(unseen="Output is known to the instances alone."),
        "records_in": 5,
    }
    shown.after(4_000)
    shown.after(4_000)
    history = shown.json("/api/v1/history")
    assert history["records_in_per_second"] == [1.25, 0.625]
    assert history["records_out_per_second"] == [None, None]


def test_curves_need_no_javascript(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "nothing was seen yet" in page(shown, "/").text
    measured = HostMeasurements(2, 30_000)
    measured.take(Operation.reported(output_age(40), "0_0"), Measurement(1, 0.0, 0.0, 0.0), 0)
    measured.committed(0, 0)
    monkeypatch.setattr(shown.host, "measured", lambda: measured.at(0))
    for lag in (100, 400, None, 200, 200):
        tasks = shown.host.tasks()
        tasks.positions = {"0_0": (0, lag or 0)}
        tasks.problem = BrokerNotFoundError("No broker answers.") if lag is None else None
        shown.host.figures = {"records_in": 8_000, "records_out": 0}
        shown.after(4_000)
    found = page(shown, "/")
    labels = [each["aria-label"] or "" for each in found.with_tag("svg")]
    assert labels[0] == "Records a second: in 400/s, at most 2,000/s; out 0/s, at most 0/s"
    assert labels[1] == "Lag: records that wait 200, at most 400"
    assert re.fullmatch(r"Age of output at its commit: p50 \d+ ms, at most \d+ ms; p95 .*; p99 .*", labels[2])
    assert "from 1970-01-01 00:16:44.000 to 1970-01-01 00:17:00.000" in found.text
    paths = [each["d"] or "" for each in found.with_tag("path")]
    assert paths[2] == "M0 90.0h0L150 0.0M450 60.0h0L600 60.0"  # with a gap where the lag was not known
    links = [each for each in found.with_tag("a") if "range=" in str(each["href"])]
    assert [each.get("aria-current") for each in links] == ["true", None]
    assert "/api/v1/history?range=day" in shown.client.get("/?range=day").text
    assert "/api/v1/history?range=hour" in shown.client.get("/?range=<b>").text


def test_a_curve_of_a_whole_hour_is_short(shown: Shown) -> None:
    for second in range(0, 3_600, 4):
        shown.host.tasks().positions = {"0_0": (0, 7_777 if second == 1_332 else second % 100)}
        shown.after(4_000)
    paths = [each["d"] or "" for each in page(shown, "/").with_tag("path")]
    assert len(shown.json("/api/v1/history")["times_ms"]) == 900
    assert len(paths[2]) < 2_000
    assert " 0.0L" in paths[2]  # the one high lag is there


@pytest.mark.slow
@WITH_CHROMIUM
def test_a_browser_draws_the_curves_and_follows_them(
    show: Callable[..., Shown],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.tools.ui.routes.EVENTS_MS", 20)
    monkeypatch.setattr("penstock.tools.ui.observer.INTERVAL_MS", 20)
    monkeypatch.setattr(
        "penstock.tools.ui.history.RANGES", {"hour": HistoryRange(50, 60_000), "day": HistoryRange(50, 60_000)}
    )
    shown = show()
    config = StreamsConfig({**shown.config.given(), "penstock.ui.port": 0}, environment={})
    server = UiServer(shown.streams, config)
    try:
        with Browser(tmp_path / "browser") as browser:
            browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
            browser.open(server.address)
            browser.wait_for("document.querySelectorAll('#history .uplot canvas').length === 3")
            shown.host.tasks().positions = {"0_0": (0, 4_321)}
            browser.wait_for("document.querySelectorAll('#history .legend')[1].textContent.includes('4,321')")
            browser.wait_for("document.querySelectorAll('#history .plot')[1].ariaLabel.includes('wait 4,321')")
            browser.wait_for(f"({DRAWN})(document.querySelectorAll('#history canvas')[1])")
            assert browser.evaluate("document.querySelectorAll('#history .uplot').length") == 3
            browser.call("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True)
            browser.wait_for("document.querySelector('#history .uplot').offsetWidth < 390")
            assert browser.evaluate("document.documentElement.scrollWidth") <= 390
            browser.click("#history [href='/?range=day']")
            browser.wait_for("document.querySelectorAll('#history .uplot canvas').length === 3")
            assert browser.problems == []  # a policy that refuses a style or a script is one
    finally:
        server.close(60_000)


DRAWN = """(canvas) => {
    const colour = getComputedStyle(document.documentElement).getPropertyValue("--curve-0").slice(1);
    const [red, green, blue] = [0, 2, 4].map((at) => parseInt(colour.slice(at, at + 2), 16));
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    for (let at = 0; at < data.length; at += 4) {
        if (data[at] === red && data[at + 1] === green && data[at + 2] === blue && data[at + 3] === 255) return true;
    }
    return false;
}"""
"""Says whether a canvas has the colour of the first curve somewhere."""
