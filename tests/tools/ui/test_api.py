"""The JSON, the health and the metrics of an application."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient

import penstock
from penstock import StreamsBuilder
from penstock.errors import BrokerNotFoundError, StreamsError
from penstock.host.api import Staleness, State, StoreSize, WatchedStatistics
from penstock.metrics.drop_reasons import Dropped, DropReason
from penstock.metrics.host_metrics import HostMeasurements, Operation, dropped_for, output_age
from penstock.metrics.measurements import Measurement, buckets_of
from penstock.record import FailedRecord, TopicPartition
from penstock.tools.ui.answers import Answers
from penstock.tools.ui.observer import Observer
from tests.support.waiting import until
from tests.tools.ui.conftest import Shown
from tests.tools.ui.test_pages import page

ROOT = Path(__file__).parents[3]
HOSTILE = "<script>alert('1')</script>"


def test_the_overview_says_whether_it_runs_and_keeps_up(shown: Shown) -> None:
    dropped = {"0_0": 2, "0_1": 1}
    shown.host.figures = {"records_in": 100, "records_out": 40, "processed": {"0_0": 50, "0_1": 50}, "dropped": dropped}
    shown.host.tasks().positions = {"0_0": (10, 50), "0_1": (10, 10)}
    shown.after(1_000)
    shown.host.figures |= {"records_in": 300, "records_out": 60, "processed": {"0_0": 250, "0_1": 250}}
    shown.host.tasks().positions["0_0"] = (30, 50)
    shown.host.tasks().committed = Staleness(7, 999_000, 500)
    shown.after(1_000)
    shown.clock.advance(250)
    assert shown.json("/api/v1/overview") == {
        "application_id": "app",
        "version": penstock.__version__,
        "host": "threads",
        "state": "RUNNING",
        "state_since_ms": 1_000_000,
        "paused": False,
        "paused_since_ms": None,
        "watched": False,
        "unseen": None,
        "members": None,
        "error": None,
        "errors": 0,
        "uptime_ms": 2_250,
        "seen_at_ms": 1_002_000,
        "records_in": 300,
        "records_out": 60,
        "records_in_per_second": 150.0,
        "records_out_per_second": 30.0,
        "records_processed_per_second": 250.0,
        "records_dropped": 3,
        "dropped": [],
        "lag": 20,
        "lag_per_second": -20.0,
        "behind_ms": 80,
        "behind_since_ms": None,
        "catch_up_ms": 1_000,
        "output_age_ms": None,
        "stream_time": None,
        "topologies": [
            {
                "name": "",
                "state": "RUNNING",
                "lag": 20,
                "commit": {"number": 7, "made_at_ms": 999_000, "age_ms": 750},
                "problem": None,
            }
        ],
    }


def since(shown: Shown, end: int, processed: int, after: int = 2_000) -> int | None:
    """Return since when it is said not to keep up, after a look at `end` records that wait and those processed."""
    shown.host.tasks().problem = None
    shown.host.tasks().positions["0_0"] = (0, end)
    shown.host.figures = {"processed": {"0_0": processed}}
    shown.after(after)
    return cast("int | None", shown.json("/api/v1/overview")["behind_since_ms"])


def test_an_application_says_since_when_it_does_not_keep_up(shown: Shown) -> None:
    assert since(shown, 0, 0) is None
    began = shown.clock.milliseconds() + 2_000
    assert [since(shown, 1_000, second) for second in range(0, 60, 2)] == [None] * 30
    assert [since(shown, 1_000, second) for second in range(60, 120, 2)] == [began] * 30
    assert since(shown, 60, 10_000) is None
    assert since(shown, 1_000_000, 10_000) is None
    assert since(shown, 1_000_000, 10_000, 60_000) == began + 122_000


@pytest.mark.parametrize("waiting", [1, 10_000])
def test_records_that_reach_an_idle_application_are_no_alarm(shown: Shown, waiting: int) -> None:
    for _ in range(40):
        assert since(shown, 0, 0) is None
    for _ in range(5):  # an epoch of Spark takes longer than two looks are apart
        assert since(shown, waiting, 0) is None
    assert since(shown, waiting, waiting // 100) is None
    assert since(shown, 0, waiting) is None
    assert since(shown, waiting, waiting, 58_000) is None


def test_an_unknown_lag_does_not_change_since_when_it_is_behind(shown: Shown) -> None:
    assert since(shown, 1_000, 0) is None
    assert since(shown, 1_000, 0, 60_000) == 1_002_000
    shown.host.tasks().problem = BrokerNotFoundError("No broker answers at b:1.")
    shown.after(2_000)
    assert shown.json("/api/v1/overview")["behind_since_ms"] == 1_002_000
    assert since(shown, 1_000, 0) == 1_002_000


def test_ages_stream_times_and_dropped_records_come_from_what_was_measured(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = HostMeasurements(2, 30_000)
    for task, time in (("0_0", 5_000.0), ("0_1", 8_000.0)):
        measured.take(Operation("stream-time", task), Measurement(1, time, time, time), 0)
    for age, records in ((10, 60), (1_000, 39), (30_000, 1)):
        for bucket, number in Counter(buckets_of(np.full(records, age)).tolist()).items():
            written = Measurement(number, 0.0, 0.0, 0.0)
            measured.take(Operation.reported(output_age(bucket), "0_0"), written, 0)
    measured.committed(0, 0)
    for task, node, reason, records in (
        ("0_0", "KSTREAM-SOURCE-0000000000", DropReason.DESERIALIZATION, 3),
        ("0_1", "KSTREAM-SOURCE-0000000000", DropReason.DESERIALIZATION, 4),
        ("0_1", "KSTREAM-SOURCE-0000000000", DropReason.INVALID_TIMESTAMP, 1),
        ("1_0", "a/b", DropReason.LATE, 2),
    ):
        dropped = Operation.reported(dropped_for(Dropped(node, reason)), task)
        measured.take(dropped, Measurement(records, float(records), 1.0, 1.0), 0)
    monkeypatch.setattr(shown.host, "measured", lambda: measured.at(0))
    shown.host.tasks().positions = {"0_0": (1, 1), "0_1": (1, 1)}
    shown.after(10)
    overview = shown.json("/api/v1/overview")
    ages = overview["output_age_ms"]
    assert (ages["p50"], ages["p95"], ages["p99"]) == pytest.approx((10, 1_000, 1_000), rel=0.2)
    assert overview["stream_time"] == {"min_at_ms": 5_000, "max_at_ms": 8_000, "skew_ms": 3_000}
    assert [tuple(each.values()) for each in overview["dropped"]] == [
        ("", "KSTREAM-SOURCE-0000000000", "deserialization", 7),
        ("", "KSTREAM-SOURCE-0000000000", "invalid-timestamp", 1),
        ("", "a/b", "late", 2),
    ]
    assert "a/b 2 too late: its window is closed" in page(shown, "/").text
    assert [task["stream_time_at_ms"] for task in shown.json("/api/v1/tasks")["tasks"]] == [5_000, 8_000]
    shown.host.tasks().positions = {"0_1": (1, 1)}
    shown.after(10)
    assert shown.json("/api/v1/overview")["stream_time"]["min_at_ms"] == 8_000


def test_the_rates_are_those_of_the_last_minute(shown: Shown) -> None:
    for second in range(0, 200, 2):
        shown.host.figures = {"records_in": 1_000 * second if second < 100 else 100_000}
        shown.after(2_000)
    assert shown.json("/api/v1/overview")["records_in_per_second"] == 0


def test_an_error_and_a_pause_are_shown(shown: Shown) -> None:
    shown.streams.pause()
    assert shown.json("/api/v1/overview")["paused"]
    shown.host.fails(ValueError("no such word"))
    overview = shown.json("/api/v1/overview")
    assert (overview["state"], overview["error"]) == ("ERROR", "no such word")


def test_each_state_is_shown_with_its_beginning(shown: Shown) -> None:
    def since() -> tuple[str, int, int | None]:
        overview = shown.json("/api/v1/overview")
        return overview["state"], overview["state_since_ms"], overview["paused_since_ms"]

    told = shown.host.told()
    shown.clock.advance(1_000)
    told.on_running()
    assert since() == ("RUNNING", 1_000_000, None)
    told.on_rebalancing()
    assert since() == ("REBALANCING", 1_001_000, None)
    shown.clock.advance(1_000)
    told.on_running()
    shown.streams.pause()
    shown.clock.advance(1_000)
    shown.streams.pause()
    assert since() == ("RUNNING", 1_002_000, 1_002_000)
    shown.streams.resume()
    assert since() == ("RUNNING", 1_002_000, None)
    shown.host.fails(ValueError())
    shown.clock.advance(1_000)
    assert since() == ("ERROR", 1_003_000, None)


def test_errors_are_shown_with_what_was_answered(shown: Shown) -> None:
    def fails(text: str) -> None:
        raise ValueError(text)

    assert shown.json("/api/v1/errors") == {"count": 0, "errors": [], "passed": []}
    for number in range(60):
        with pytest.raises(ValueError, match="no such word") as caught:
            fails(f"no such word {number}")
        shown.host.told().on_failure(caught.value)
    answer = shown.json("/api/v1/errors")
    assert (answer["count"], len(answer["errors"])) == (60, 50)
    newest = answer["errors"][0]
    assert (newest["error"], newest["response"]) == ("ValueError: no such word 59", "SHUTDOWN_CLIENT")
    assert "raise ValueError(text)" in newest["traceback"]
    assert newest["record"] is None
    assert answer["errors"][-1]["error"] == "ValueError: no such word 10"
    failed = StreamsError("Exception caught in process.")
    failed.failed_record = FailedRecord("map", "lines", 1, 17, "'k'", "'v'")
    shown.host.told().on_failure(failed)
    record = {"node": "map", "topic": "lines", "partition": 1, "offset": 17, "key": "'k'", "value": "'v'"}
    assert shown.json("/api/v1/errors")["errors"][0]["record"] == record
    assert shown.json("/api/v1/overview")["errors"] == 61


def test_tasks_are_shown_with_positions_ends_and_lags(shown: Shown) -> None:
    shown.host.figures = {"processed": {"0_1": 9}, "dropped": {"0_1": 2}, "standbys": {"1_0": 4}, "restoring": {}}
    shown.host.figures |= {"workers": {"0_1": "process 1 (pid 7)"}, "awaited": {"0_1": (TopicPartition("b", 0),)}}
    shown.host.tasks().positions = {"0_1": (10, 50)}
    shown.after(10)
    partition = {"topic": "lines", "partition": 1, "committed_offset": 10, "end_offset": 50, "lag": 40}
    waits = {"worker": "process 1 (pid 7)", "waits_for": [{"topic": "b", "partition": 0}]}
    of_task = {**waits, "stream_time_at_ms": None, "lag": 40}
    assert shown.json("/api/v1/tasks") == {
        "seen_at_ms": 1_000_010,
        "tasks": [{"topology": "", "task": "0_1", "processed": 9, "dropped": 2, **of_task, "partitions": [partition]}],
        "groups": [],
        "standby_tasks": [{"topology": "", "task": "1_0"}],
        "restoring_tasks": [],
        "problems": [],
    }


def test_the_topology_is_shown_as_data_and_as_pictures(shown: Shown) -> None:
    (topology,) = shown.json("/api/v1/topology")["topologies"]
    assert topology == shown.json("/topology.json")["topologies"][0]
    assert [part["id"] for part in topology["subtopologies"]] == [0, 1]
    nodes = {node["kind"]: node for node in topology["subtopologies"][1]["nodes"]}
    assert nodes["sink"]["topic"] == "counts-out"
    assert nodes["source"]["successors"] == ["KSTREAM-AGGREGATE-0000000003"]
    picture = shown.client.get("/topology.svg")
    assert picture.headers["content-type"] == "image/svg+xml"
    assert picture.text == shown.streams.describe().to_svg()
    flowchart = shown.client.get("/topology.mmd")
    assert flowchart.headers["content-type"] == "text/plain; charset=utf-8"
    assert flowchart.text == shown.streams.describe().to_mermaid()
    assert shown.json("/topology.svg?topology=other", 404)["error"] == (
        "This application has no topology 'other'; it has: ''."
    )


def test_names_of_users_are_text_in_pictures(show: Callable[..., Shown]) -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile(HOSTILE)).to("out")
    shown = show(builder.build())
    assert "<script" not in shown.client.get("/topology.svg").text
    (topology,) = shown.json("/topology.json")["topologies"]
    assert topology["subtopologies"][0]["nodes"][0]["topic_pattern"] == HOSTILE


def test_stores_are_shown_with_their_kinds_sizes_and_users(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    store = {"topology": "", "store": "counts", "kind": "timestamped_key_value"}
    users = {"processors": ["KSTREAM-AGGREGATE-0000000003"]}
    unknown = dict.fromkeys(("entries", "bytes", "segments", "segment_bytes"))
    assert shown.json("/api/v1/stores")["stores"] == [{**store, **unknown, **users}]
    measured = HostMeasurements(2, 30_000)
    for task in ("0_0", "1_0", "1_1"):
        measured.take(Operation("state-size", task), Measurement(1, 4_096.0, 4_096.0, 4_096.0), 0)
    monkeypatch.setattr(shown.host, "measured", lambda: measured.at(0))
    shown.host.tasks().sizes = {"counts": StoreSize(7, 3, 500)}
    shown.after(10)
    sizes = {"entries": 7, "bytes": 8_192, "segments": 3, "segment_bytes": 500}
    assert shown.json("/api/v1/stores")["stores"] == [{**store, **sizes, **users}]
    shown.host.tasks().problem = StreamsError("Nothing is committed yet.")
    shown.after(10)
    assert shown.json("/api/v1/stores")["stores"] == [{**store, **unknown, "bytes": 8_192, **users}]


def test_sizes_of_stores_are_read_once_a_look_and_only_for_who_asks(shown: Shown) -> None:
    shown.after(2_000)
    for path in ("/api/v1/overview", "/topology?node=KSTREAM-AGGREGATE-0000000003", "/tasks"):
        assert shown.client.get(path).status_code == 200
    assert shown.host.tasks().sized == 0
    for _ in range(3):
        shown.json("/api/v1/stores")
    assert shown.host.tasks().sized == 1
    shown.after(2_000)
    shown.json("/api/v1/stores")
    assert shown.host.tasks().sized == 2


def test_prometheus_reads_the_metrics(shown: Shown) -> None:
    answer = shown.client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert "kafka_streams_stream_metrics_client_state{" in answer.text


def test_looks_that_fail_for_the_same_reason_are_one_line_of_the_log(
    shown: Shown, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks: list[str] = []

    def fail(observer: Observer) -> None:
        looks.append("look")
        raise TypeError("no figures")

    monkeypatch.setattr(Observer, "look", fail)
    monkeypatch.setattr("penstock.tools.ui.observer.INTERVAL_MS", 1)
    shown.observer.start("observer")
    assert until(lambda: len(looks) > 3)
    shown.observer.close()
    assert caplog.messages == ["Could not read the figures of the application for its pages: no figures"]


# ---------------------------------------- health


def test_it_is_live_until_it_ends_with_an_error(shown: Shown) -> None:
    assert shown.json("/health/live") == {"state": "RUNNING", "reasons": []}
    shown.host.fails(ValueError())
    assert shown.json("/health/live", 503) == {"state": "ERROR", "reasons": ["The state is ERROR."]}


@pytest.mark.parametrize(
    ("seen", "live", "ready", "reason"),
    [
        (State.RUNNING, 200, 200, None),
        (State.REBALANCING, 200, 503, "The state is REBALANCING."),
        (State.NOT_RUNNING, 503, 503, "This process only watches the application, and no process runs it."),
        (None, 503, 503, "This process only watches the application, and cannot see whether another one runs it."),
    ],
)
def test_one_that_is_watched_is_live_while_it_is_seen_to_run(
    shown: Shown, seen: State | None, live: int, ready: int, reason: str | None
) -> None:
    shown.host.figures = {"watched": WatchedStatistics(state=seen)}
    shown.after(10)
    state = None if seen is None else seen.value
    assert shown.json("/health/live", live)["state"] == shown.json("/health/ready", ready)["state"] == state
    assert shown.json("/health/ready", ready)["reasons"][:1] == ([] if reason is None else [reason])
    overview = shown.json("/api/v1/overview")
    assert (overview["state"], overview["state_since_ms"], overview["topologies"][0]["state"]) == (state, None, state)
    shown.clock.advance(60_000)
    assert shown.json("/health/live", 503)["state"] is None


def test_it_is_ready_while_it_runs(shown: Shown) -> None:
    assert shown.json("/health/ready") == {"state": "RUNNING", "lag": None, "reasons": []}
    shown.host.told().on_rebalancing()
    assert shown.json("/health/ready", 503)["reasons"] == ["The state is REBALANCING."]


def test_it_is_ready_while_it_keeps_up(shown: Shown) -> None:
    assert shown.json("/health/ready?max_lag=0", 503)["reasons"] == ["The lag is not known yet."]
    shown.host.tasks().positions = {"0_0": (10, 50)}
    shown.after(10)
    assert shown.json("/health/ready?max_lag=40") == {"state": "RUNNING", "lag": 40, "reasons": []}
    assert shown.json("/health/ready?max_lag=39", 503)["reasons"] == ["The lag is 40, more than 39."]
    shown.host.tasks().problem = BrokerNotFoundError("No broker answers at b:1.")
    shown.after(10)
    assert shown.json("/health/ready") == {"state": "RUNNING", "lag": None, "reasons": []}
    assert shown.json("/health/ready?max_lag=99", 503)["reasons"] == ["The lag is not known: No broker answers at b:1."]


def test_what_was_seen_long_ago_does_not_make_it_ready(shown: Shown) -> None:
    shown.host.tasks().positions = {"0_0": (10, 10)}
    shown.after(10)
    assert shown.json("/health/ready?max_lag=0")
    shown.clock.advance(60_000)
    (reason,) = shown.json("/health/ready?max_lag=0", 503)["reasons"]
    assert reason.startswith("The lag is not known: the last look was 60000 ms ago")


def test_an_old_commit_matters_while_records_wait(shown: Shown) -> None:
    tasks = shown.host.tasks()
    tasks.positions, tasks.committed = {"0_0": (10, 10)}, Staleness(3, 0, 5_000)
    shown.after(10)
    assert shown.json("/health/ready?max_commit_age=4000")
    tasks.positions = {"0_0": (10, 11)}
    shown.after(10)
    assert shown.json("/health/ready?max_commit_age=5000")
    assert shown.json("/health/ready?max_commit_age=4000", 503)["reasons"] == [
        "The last commit is 5000 ms old, more than 4000 ms."
    ]
    tasks.committed = Staleness(0, 0, None)
    shown.after(5_000)
    assert shown.json("/health/ready?max_commit_age=4000", 503)["reasons"] == [
        "The last commit is 5020 ms old, more than 4000 ms."
    ]


def test_the_age_of_a_commit_that_cannot_be_seen_is_no_age(shown: Shown) -> None:
    shown.host.figures = {"watched": WatchedStatistics(state=State.RUNNING, unseen="Commits are not seen.")}
    shown.host.tasks().positions = {"0_0": (10, 10)}
    shown.after(3_600_000)
    assert shown.json("/health/ready?max_commit_age=60000")
    shown.host.tasks().positions = {"0_0": (10, 11)}
    shown.after(10)
    assert shown.json("/health/ready?max_commit_age=60000", 503)["reasons"] == [
        "The age of the last commit cannot be seen from outside."
    ]
    assert shown.json("/health/ready?max_lag=1")


@pytest.mark.parametrize("text", ["-1", "1.5", "x", "٣", "9" * 20])
def test_a_limit_that_is_no_number_is_refused(shown: Shown, text: str) -> None:
    refusal = shown.json(f"/health/ready?max_lag={text}", 400)["error"]
    assert refusal == f"Invalid value {text!r} for max_lag: expected a whole number of 0 or more."


# ---------------------------------------- who may ask


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1:1", "[::1]:1", "10.0.0.1", "Console.Example:80"])
def test_addresses_and_names_that_are_allowed_are_answered(show: Callable[..., Shown], host: str) -> None:
    shown = show(**{"penstock.ui.allowed.hosts": "other, console.example"})
    assert shown.client.get("/health/live", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example:1", "[evil]"])
def test_a_name_that_leads_here_from_elsewhere_is_refused(shown: Shown, host: str) -> None:
    answer = shown.client.get("/api/v1/overview", headers={"Host": host})
    assert answer.status_code == 421
    assert "penstock.ui.allowed.hosts" in answer.text


@pytest.mark.parametrize("path", ["/api/v1/overview", "/", "/errors?dead_letters=show"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}, 200),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}, 403),
        ({"Origin": "http://evil.example"}, 403),
    ],
)
def test_pages_of_other_sites_link_here_and_load_nothing(
    shown: Shown, path: str, headers: dict[str, str], status: int
) -> None:
    answer = shown.client.get(path, headers=headers)
    assert answer.status_code == status
    if status == 403:
        assert answer.json() == {"error": "The request came from a page of another site."}
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["/api/v1/overview", "/"])
def test_an_unexpected_error_is_an_answer_and_in_the_log_once(
    shown: Shown, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    monkeypatch.setattr(Answers, "overview", lambda answers: 1 // 0)
    client = TestClient(shown.client.app, base_url="http://localhost", raise_server_exceptions=False)
    for _ in range(3):
        answer = client.get(path)
        text = answer.json()["error"] if path.startswith("/api") else answer.text
        assert (answer.status_code, "ZeroDivisionError" in text) == (500, True)
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert caplog.messages == [f"The request for {path} failed."]


@pytest.mark.parametrize("path", ["/api/v1/overview", "/topology.svg", "/nothing", "/health/ready?max_lag=x"])
def test_each_answer_has_strict_headers(shown: Shown, path: str) -> None:
    headers = shown.client.get(path).headers
    assert headers["content-security-policy"].startswith("default-src 'self';")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"


def test_an_unknown_address_and_a_change_are_refused(shown: Shown) -> None:
    assert shown.json("/nothing", 404) == {"error": "Not Found"}
    assert shown.client.post("/api/v1/overview").status_code == 405


def test_an_application_that_has_ended_still_answers(shown: Shown) -> None:
    shown.streams.close()
    shown.after(10)
    assert shown.json("/api/v1/overview")["state"] == "NOT_RUNNING"


def test_the_page_of_the_documentation_lists_each_address(shown: Shown) -> None:
    page = (ROOT / "docs" / "ui.md").read_text(encoding="utf-8")
    table = page.partition("## Addresses")[2].partition("\n\nAn address")[0]
    listed = {address.partition("?")[0] for address in re.findall(r"`(/[^`]*)`", table)}
    served = {str(route.path) for route in cast(Starlette, shown.client.app).routes if isinstance(route, Route)}
    assert listed == {path for path in served if not path.startswith(("/static/", "/events"))}
