"""The pages for browsers, as they are without JavaScript."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from typing import cast

import pytest

from penstock import StreamsBuilder
from penstock.config.definition import ConfigKey, text
from penstock.config.keys import KEYS
from penstock.errors import StreamsError
from penstock.host.api import CommitFigures, GroupStatistics, MemberStatistics, Staleness, State, WatchedStatistics
from penstock.metrics.host_metrics import NOT_MEASURED, HostMeasurements, Operation
from penstock.metrics.measurements import Measurement
from penstock.record import FailedRecord
from penstock.task.taps import TappedRecord
from penstock.tools.ui.formatting import duration
from penstock.tools.ui.markup import Markup, element
from penstock.tools.ui.topologies import Topologies
from tests.tools.ui.conftest import Shown

HOSTILE = "<script>alert('1')</script>\"\x00\x1b[31m"
VOID = ("input", "img", "link", "meta")


class Read(HTMLParser):
    """Reads a page as browsers do: its elements, and its text. Fails for elements that are not closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, text: str) -> None:
        self.text = f"{self.text} {text}".replace("  ", " ")

    def with_tag(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for each, attributes in self.elements if each == tag]


def page(shown: Shown, path: str) -> Read:
    answer = shown.client.get(path)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    return Read(answer.text)


PATHS = ["/", "/topology", "/tasks", "/commits", "/state", "/waiting", "/errors", "/changes"]


@pytest.mark.parametrize("path", PATHS)
def test_a_page_loads_nothing_from_elsewhere_and_has_no_script_of_its_own(shown: Shown, path: str) -> None:
    found = page(shown, path)
    addresses = [each[key] for _, each in found.elements for key in ("href", "src") if key in each]
    assert all(str(address).startswith(("/", "#")) and not str(address).startswith("//") for address in addresses)
    assert any(str(each["src"]).startswith("/static/ui.js?") for each in found.with_tag("script"))
    assert all(each.keys() == {"src", "defer"} for each in found.with_tag("script"))
    assert not found.with_tag("style")
    assert not [name for _, each in found.elements for name in each if name == "style" or name.startswith("on")]
    for address in {str(address).partition("#")[0] for address in addresses} - {""}:
        assert shown.client.get(address).status_code == 200, address


@pytest.mark.parametrize("path", PATHS)
def test_a_page_can_be_read_and_walked_without_a_mouse(shown: Shown, path: str) -> None:
    found = page(shown, path)
    assert found.with_tag("html")[0]["lang"] == "en"
    assert found.with_tag("a")[0]["href"] == "#content"
    assert found.with_tag("main")[0]["id"] == "content"
    assert [each["href"] for each in found.with_tag("a") if each.get("aria-current") == "page"] == [path]
    assert all(each["tabindex"] == "0" for each in found.with_tag("div") if each.get("class") == "wide")
    assert all(each["alt"] for each in found.with_tag("img"))


def test_a_first_look_says_whether_it_runs_and_keeps_up(shown: Shown) -> None:
    tasks, running = shown.host.tasks(), "RUNNING since 1970-01-01 00:16:40.000."
    assert f"{running} Its lag is unknown." in page(shown, "/").text
    tasks.positions, tasks.committed = {"0_0": (0, 3_000)}, Staleness(7, 999_000, 500)
    for _ in range(2):
        shown.after(1_000)
        assert f"{running} 3,000 records to process. " in page(shown, "/").text
    shown.after(59_000)
    since = "and has not kept up since 1970-01-01 00:16:41.000."
    assert f"{running} It is 3,000 records behind, {since} It does not catch up." in page(shown, "/").text
    tasks.positions = {"0_0": (1_000, 3_000)}
    shown.after(60_000)
    found = page(shown, "/").text
    assert f"{running} It is 2,000 records behind, {since} It catches up in about 4 min 0 s." in found
    assert "500 ms ago" in found
    tasks.positions = {"0_0": (2_999, 3_000)}
    shown.after(1_000)
    assert f"{running} It is 1 record behind, {since} " in page(shown, "/").text
    shown.host.figures = {"processed": {"0_0": 240_000}}
    tasks.positions = {"0_0": (1_000, 3_000)}
    shown.after(1_000)
    assert f"{running} It keeps up: 2,000 records to process, which takes about " in page(shown, "/").text
    tasks.positions = {"0_0": (3_000, 3_000)}
    shown.after(1_000)
    assert f"{running} It keeps up: no record waits." in page(shown, "/").text
    shown.streams.pause()
    assert "PAUSED since 1970-01-01 00:18:44.000. " in page(shown, "/").text
    shown.clock.advance(1_000)
    shown.host.told().on_rebalancing()
    assert "REBALANCING since 1970-01-01 00:18:45.000. " in page(shown, "/").text
    shown.host.fails(ValueError("no such word"))
    assert re.search("ERROR since 1970-01-01 00:18:45.000. +no such word", page(shown, "/").text)


@pytest.mark.parametrize(
    ("seen", "members", "text"),
    [
        (State.RUNNING, ["a"], "Its group has 1 member. It keeps up: no record waits."),
        (State.NOT_RUNNING, [], "No process runs it: its group has no members."),
        (None, ["a"], "Whether another process runs it cannot be seen: the brokers do not answer."),
        (State.RUNNING, None, "Another process runs it: its last commit is recent. It keeps up: no record waits."),
        (None, None, "Whether another process runs it cannot be seen: its last commit is more than a minute old."),
    ],
)
def test_a_first_look_says_who_runs_what_is_watched(
    shown: Shown, seen: State | None, members: list[str] | None, text: str
) -> None:
    watched = WatchedStatistics(state=seen)
    if members is not None:
        group = GroupStatistics("consumer", "Stable", [MemberStatistics(each, "app", "h") for each in members])
        watched = replace(watched, unseen="Output is not seen.", group=group)
    shown.host.figures = {"watched": watched}
    shown.after(10)
    assert f"WATCHED {text}" in page(shown, "/").text
    assert ("keeps up" in page(shown, "/").text) == (seen is State.RUNNING)


def test_a_node_is_shown_with_what_was_measured(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = HostMeasurements(2, 30_000)
    for task in ("1_0", "1_1"):
        sink = (task, "processor-node-id", "KSTREAM-SINK-0000000008")
        measured.take(Operation("process", *sink), Measurement(3_000, 6.0, 1.0, 4.0), 1_000)
        measured.take(Operation("record-e2e-latency", *sink), Measurement(3, 6.0, 1.0, 4_000.0), 1_000)
    monkeypatch.setattr(shown.host, "measured", lambda: measured.at(1_000))
    found = page(shown, "/topology").text
    assert re.search(r"KSTREAM-SOURCE-0000000000 conftest\.py:\d+ source lines KSTREAM-FLATMAPVALUES", found)
    assert " sink counts-out - 6,000 200 - 4.0 s " in found


def test_a_node_shows_its_serdes_its_stores_and_what_was_measured(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = HostMeasurements(2, 30_000)
    node = "KSTREAM-AGGREGATE-0000000003"
    measured.take(Operation("process", "1_0", "processor-node-id", node), Measurement(3_000, 6.0, 1.0, 4.0), 1_000)
    monkeypatch.setattr(shown.host, "measured", lambda: measured.at(1_000))
    assert f"/topology?node={node}" in {each["href"] for each in page(shown, "/topology").with_tag("a")}
    found = page(shown, f"/topology?node={node}")
    assert re.search(r"Node KSTREAM-AGGREGATE-0000000003 .* Kind processor Line \S+conftest\.py:\d+ ", found.text)
    assert "Store counts (timestamped key value)" in found.text
    assert "process-total 3,000" in found.text
    assert "/state?store=counts" in {each["href"] for each in found.with_tag("a")}
    source = page(shown, "/topology?node=KSTREAM-SOURCE-0000000000").text
    assert "Serde of keys StringSerde (default.key.serde)" in source
    assert "This topology has no node <b>." in page(shown, "/topology?node=<b>").text


def test_the_page_of_a_node_shows_the_records_of_an_open_tap(shown: Shown) -> None:
    node = "KSTREAM-FLATMAPVALUES-0000000001"
    hostile = TappedRecord("<b>key</b>", "x" * 1_000_000, 1_000, (), "0_1", "lines", 1, 7, 2_000)
    shown.host.taps[node] = [hostile._replace(value="first"), hostile._replace(topic=None, value="punctuated"), hostile]
    assert "Tap" not in page(shown, f"/topology?node={node}").text
    tap = shown.streams.tap(node, n=2)
    text = page(shown, f"/topology?node={node}").text
    assert "lines-1 at 7" in text
    assert "'<b>key</b>'" in text
    assert "'punctuated'" in text
    assert "'first'" not in text
    assert len(text) < 10_000
    (topology,) = shown.json("/api/v1/topology")["topologies"]
    tapped = {each["name"]: each["tapped"] for part in topology["subtopologies"] for each in part["nodes"]}
    assert [each["task"] for each in tapped.pop(node)] == ["0_1", "0_1"]
    assert set(tapped.values()) == {None}
    tap.close()
    assert shown.host.calls[-1] == f"untap {node}"
    assert "Tap" not in page(shown, f"/topology?node={node}").text


def test_sub_topologies_show_their_share_of_the_time_and_the_bytes_of_their_state(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = HostMeasurements(2, 30_000)
    for task, nanoseconds in (("0_0", 1e6), ("1_0", 2e6), ("1_1", 1e6)):
        measured.take(Operation("process", task), Measurement(10, nanoseconds, 1.0, 1.0), 1_000)
    for task in ("1_0", "1_1"):
        measured.take(Operation("state-size", task), Measurement(1, 1_536.0, 1_536.0, 1_536.0), 1_000)
    monkeypatch.setattr(shown.host, "measured", lambda: measured.at(1_000))
    (topology,) = shown.json("/api/v1/topology")["topologies"]
    found = [(part["share_of_time"], part["state_bytes"]) for part in topology["subtopologies"]]
    assert found == [(0.25, None), (0.75, 3_072)]
    text = page(shown, "/topology").text
    assert "Sub-topology 0 25 % of the time of all tasks, 0.3 records/s" in text
    assert "Sub-topology 1 75 % of the time of all tasks, 0.7 records/s, 3 KiB of state" in text
    assert fills(shown, "time") == {"Sub-topology: 0: 25 %": "0.10", "Sub-topology: 1: 75 %": "0.30"}
    assert fills(shown, "state") == {"Sub-topology: 1: 3 KiB": "0.30"}
    rates = {"Sub-topology: 0: 0.3/s": "0.15", "Sub-topology: 1: 0.7/s": "0.30"}
    assert fills(shown, "records") == rates


def fills(shown: Shown, measure: str) -> dict[str, str]:
    """Return how strong each node of the picture is coloured, by the figure that it shows."""
    picture = shown.client.get(f"/topology.svg?measure={measure}").text
    return {
        text: opacity
        for opacity, text in re.findall(r'fill-opacity="([\d.]+)"[^>]*/><text [^>]*>([^<]*)</text>', picture)
    }


def test_the_picture_is_coloured_by_what_was_measured(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = HostMeasurements(2, 30_000)
    for node, age in (("KSTREAM-SINK-0000000008", 1_000.0), ("counts-repartition-sink", 4_000.0)):
        sink = ("1_0", "processor-node-id", node)
        measured.take(Operation("record-e2e-latency", *sink), Measurement(3, 6.0, 1.0, age), 1_000)
    monkeypatch.setattr(shown.host, "measured", lambda: measured.at(1_000))
    assert fills(shown, "age") == {"1.0 s": "0.15", "4.0 s": "0.60"}
    assert fills(shown, "records") == {}
    assert fills(shown, "lag") == {}
    shown.host.tasks().positions = {"0_0": (10, 50), "0_1": (10, 12)}
    shown.after(10)
    assert fills(shown, "lag") == {"42": "0.60", "Sub-topology: 0: 42": "0.30"}
    assert " source lines KSTREAM-FLATMAPVALUES-0000000001 42 " in page(shown, "/topology").text


def test_each_commit_is_a_bar_of_its_phases(shown: Shown) -> None:
    assert "Nothing was committed since the start." in page(shown, "/commits").text
    first = CommitFigures(7, 1_000, 1_200, {"process": 30.0, "transaction": 10.0})
    second = CommitFigures(8, 2_000, 2_400, {"process": 60.0, "transaction": 20.0})
    shown.host.figures = {"recent_commits": [first, second]}
    shown.after(1_000)
    (topology,) = shown.json("/api/v1/commits")["topologies"]
    assert topology["commits"][1] == {
        "number": 8,
        "committed_at_ms": 2_000,
        "records": 2_400,
        "phases_ms": {"process": 60.0, "transaction": 20.0},
    }
    found = page(shown, "/commits")
    heights = [(each["class"], float(str(each["height"]))) for each in found.with_tag("rect")]
    assert heights == [
        ("phase-process", 60),
        ("phase-transaction", 20),
        ("phase-process", 120),
        ("phase-transaction", 40),
    ]
    assert "Commit 8, 2,400 records: process 60 ms, transaction 20 ms" in found.text
    assert "the highest bar is 80 ms" in found.text
    assert " 8 1970-01-01 00:00:02.000 2,400 80 ms 60 ms 20 ms " in found.text


def test_records_that_nodes_dropped_are_errors(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = HostMeasurements(2, 30_000)
    for task, records in (("0_0", 3), ("0_1", 1)):
        dropped = Operation("dropped-records", task, "processor-node-id", "KSTREAM-SOURCE-0000000000")
        measured.take(dropped, Measurement(records, 1.0, 1.0, 1.0), 1_000)
    shown.host.figures = {"dropped": {"0_0": 3, "0_1": 1}}
    monkeypatch.setattr(shown.host, "measured", lambda: measured.at(1_000))
    shown.after(10)
    assert fills(shown, "errors") == {"4": "0.60", "Sub-topology: 0: 4": "0.30"}
    assert "Sub-topology 0 4 errors" in page(shown, "/topology").text


def test_a_picture_has_colours_of_its_own_and_dark_ones_on_a_page(shown: Shown) -> None:
    shown.host.tasks().positions = {"0_0": (10, 50)}
    shown.after(10)
    style = shown.client.get("/static/ui.css").text
    dark = style.partition("(prefers-color-scheme: dark)")[2].partition("* {")[0]
    drawn = "".join(shown.client.get(f"/topology.svg?measure={measure}").text for measure in ("", "lag"))
    assert set(re.findall('class="([^"]*)"', drawn)) == set(re.findall(r"[.](penstock-\w+) ", dark))
    shapes = re.findall(r"<(?:rect|path|text) [^>]*>", drawn)
    assert all("fill=" in shape for shape in shapes if "penstock-label" not in shape)  # which is black


def test_a_measure_is_chosen_by_a_link(shown: Shown) -> None:
    chosen = {f"/topology?measure={each}" for each in ("records", "time", "lag", "state", "errors", "age")}
    assert {each["href"] for each in page(shown, "/topology").with_tag("a")} >= chosen
    shown.host.tasks().positions = {"0_0": (10, 50)}
    shown.after(10)
    found = page(shown, "/topology?measure=lag")
    assert "Sub-topology: 0: 40" in found.text
    assert "The lag is that of the partitions that a source or a sub-topology reads." in found.text
    assert "Sub-topology: 0: 40" not in page(shown, "/topology?measure=<b>").text
    refusal = shown.json("/topology.svg?measure=<b>", 400)["error"]
    assert refusal == "Invalid value '<b>' for measure: expected one of records, time, lag, state, errors, age."


def test_a_click_in_the_picture_shows_a_node_or_folds_a_sub_topology(shown: Shown) -> None:
    def picture(path: str) -> tuple[set[str], str]:
        drawn = shown.client.get(path).text.partition("<figure")[2].partition("</svg>")[0]
        return set(re.findall(r'<a href="([^"]*)"', drawn)), drawn

    links, drawn = picture("/topology?measure=lag")
    assert "/topology?measure=lag&amp;node=KSTREAM-SOURCE-0000000000" in links
    assert {"/topology?measure=lag&amp;folded=0#measures", "/topology?measure=lag&amp;folded=1#measures"} <= links
    assert "counts-out" in drawn
    links, drawn = picture("/topology?folded=1")
    assert {"/topology?folded=0%2C1#measures", "/topology#measures"} <= links
    assert "KSTREAM-AGGREGATE" not in drawn
    assert "4 nodes" in drawn
    assert ">counts<" not in drawn  # the store is folded with its nodes
    assert "counts-out" in drawn  # a topic is not
    assert "4 nodes" in shown.client.get("/topology.svg?folded=1").text
    assert picture("/topology?folded=<b>,7")[1].count("<rect") == picture("/topology")[1].count("<rect")


def test_any_number_of_pages_measures_once_a_look(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(shown.host, "measured", lambda: calls.append(1) or NOT_MEASURED)
    for _ in range(2):
        shown.after(1_000)
        for path in PATHS * 3:
            page(shown, path)
    assert len(calls) == 2


def test_names_and_errors_of_users_are_text(show: Callable[..., Shown], monkeypatch: pytest.MonkeyPatch) -> None:
    any_text = replace(KEYS["application.id"], parse=text)  # pages do not depend on what an id may be
    monkeypatch.setitem(cast("dict[str, ConfigKey]", KEYS), "application.id", any_text)
    builder = StreamsBuilder()
    builder.stream(re.compile(re.escape(HOSTILE))).to("out")
    shown = show(builder.build(), **{"application.id": "a<b>"})
    shown.host.fails(ValueError(HOSTILE))
    for path in PATHS:
        answer = shown.client.get(path).text
        assert "<script>" not in answer
        assert "a&lt;b&gt;" in answer
        assert not re.search("[\x00\x1b]", answer)
    assert "<script>alert('1')</script>\"" in page(shown, "/").text
    assert "ValueError: <script>alert('1')</script>\"" in page(shown, "/errors").text
    assert "handler answered SHUTDOWN_CLIENT." in page(shown, "/errors").text
    failed = StreamsError("Exception caught in process.")
    failed.failed_record = FailedRecord("map", "lines", 1, 17, HOSTILE, HOSTILE)
    shown.host.told().on_failure(failed)
    assert "Input record lines-1 at 17 Key <script>alert('1')</script>\"" in page(shown, "/errors").text


def test_text_is_escaped_and_markup_is_not() -> None:
    made = element("p", "<b>", Markup("<i></i>"), class_='"x"', hidden=True, title=None, open=False)
    assert made == '<p class="&quot;x&quot;" hidden>&lt;b&gt;<i></i></p>'


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0 ms"), (999.4, "999 ms"), (1_500, "1.5 s"), (61_000, "1 min 1 s"), (90_061_000, "1 d 1 h")],
)
def test_times_are_short(milliseconds: float, text: str) -> None:
    assert duration(milliseconds) == text


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("curves.js", "text/javascript"),
        ("ui.css", "text/css"),
        ("ui.js", "text/javascript"),
        ("ui.svg", "image/svg+xml"),
        ("uplot-1.6.32.min.css", "text/css"),
        ("uplot-1.6.32.min.js", "text/javascript"),
    ],
)
def test_what_pages_need_is_served(shown: Shown, name: str, kind: str) -> None:
    answer = shown.client.get(f"/static/{name}")
    assert answer.headers["content-type"].startswith(kind)
    assert answer.text
    assert answer.headers["cache-control"] == "max-age=86400"  # a page has it when its application ends, too
    assert answer.headers["content-security-policy"].startswith("default-src 'self';")


def test_the_page_on_errors_counts_what_a_handler_let_pass(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Records that a handler let pass since the start: 0." in page(shown, "/errors").text
    passed = {"topology": "", "name": "KSTREAM-FLATMAPVALUES-0000000001", "reason": "processing", "records": 2}
    late = {"topology": "", "name": "KSTREAM-AGGREGATE-0000000003", "reason": "late", "records": 7}
    monkeypatch.setattr(Topologies, "dropped", lambda self: [passed, late])
    assert shown.json("/api/v1/errors")["passed"] == [passed]
    text = page(shown, "/errors").text
    assert "Records that a handler let pass since the start: 2." in text
    assert "KSTREAM-FLATMAPVALUES-0000000001 2 the node failed, and the processing exception handler continued" in text
    assert "KSTREAM-AGGREGATE" not in text
