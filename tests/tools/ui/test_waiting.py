"""Records that wait, as JSON and on their page: for the answers of calls, and parked ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import Backoff, Calls, Park, StreamsBuilder, Topology
from penstock.host.api import State
from penstock.host.calls.measuring import CallFigures
from penstock.host.measuring.call_measuring import measured_calls
from penstock.metrics.host_metrics import NODE_ID, PARKED_RECORDS, HostMeasurements, Operation
from penstock.metrics.measurements import Measurement, measured_once
from penstock.processor.waiting_records import WaitingRecord, WaitingRecords
from penstock.state.query.queryable import StoreQueryParameters
from penstock.state.query.request import StateQueryRequest, StateQueryResult
from tests.application.test_store_entries import Partitions
from tests.tools.ui.conftest import Shown, Tasks
from tests.tools.ui.test_pages import HOSTILE, page

STORE = "charge-parked"
FAILED = WaitingRecord(b"ann", b"tea", 5_000, (), "orders", 1, 17, attempts=2, due=9_000, failure="OSError: <no>")


async def price(order: str) -> str:
    return order


def charging() -> Topology:
    builder = StreamsBuilder()
    orders = builder.stream("orders")
    orders.map_values(price, named="price", calls=Calls(capacity=7)).to("priced")
    orders.foreach(print, named="charge", on_error=Park(backoff=Backoff(1_000), attempts=3))
    return builder.build()


class Parking(Tasks):
    """The tasks of a host, with the store of parked records."""

    def __init__(self, tasks: Tasks) -> None:
        self.__dict__.update(vars(tasks))
        self.parked = Partitions(tasks.stores()[STORE])

    def store(self, parameters: StoreQueryParameters) -> Any:
        return self.parked.store(parameters)

    def query(self, request: StateQueryRequest) -> StateQueryResult:
        return self.parked.query(request)


@pytest.fixture
def shown(show: Callable[..., Shown]) -> Shown:
    """An application that calls and parks."""
    return show(charging())


@pytest.fixture
def records(shown: Shown) -> list[WaitingRecords]:
    """The parked records of its two tasks."""
    parking = Parking(shown.host.tasks())
    shown.host.answers = parking
    return [WaitingRecords(store) for store in parking.parked.stores]


def measure(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the host measure 3 calls of 2 ms, 4 ms and 6 ms, and 5 parked records."""
    measured = HostMeasurements(2, 30_000)
    figures = CallFigures(
        2, 6, answered=3, failed=1, retries=4, latency=Measurement(3, 12.0, 2.0, 6.0), percentiles=(4, 6)
    )
    for operation, measurement in measured_calls({"price": figures}):
        measured.take(operation, measurement, 1_000)
    for task, count in (("0_0", 2), ("0_1", 3)):
        measured.take(Operation(PARKED_RECORDS, task, NODE_ID, "charge"), measured_once(count), 1_000)
    monkeypatch.setattr(shown.host, "measured", lambda: measured.at(1_000))


def test_operators_have_their_figures(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    measure(shown, monkeypatch)
    found = shown.json("/api/v1/waiting")
    (calls,) = found["calls"]
    assert calls.pop("answered_per_second") > calls.pop("failed_per_second") > 0
    assert calls == {
        "topology": "",
        "node": "price",
        "capacity": 7,
        "in_flight": 2,
        "waiting": 6,
        "answered": 3,
        "failed": 1,
        "retries": 4,
        "latency_avg_ms": 4.0,
        "latency_p50_ms": 4.0,
        "latency_p99_ms": 6.0,
        "latency_max_ms": 6.0,
    }
    assert found["parked"] == [{"topology": "", "node": "charge", "store": STORE, "records": 5}]
    text = page(shown, "/waiting").text
    assert " price 2 7 6 3 " in text
    assert f" charge {STORE} 5 " in text


def test_figures_that_are_not_measured_are_unknown(shown: Shown) -> None:
    found = shown.json("/api/v1/waiting")
    assert {name for name, value in found["calls"][0].items() if value is not None} == {"topology", "node", "capacity"}
    assert found["parked"][0]["records"] is None
    assert " price - 7 - - - - - - - - - " in page(shown, "/waiting").text


def test_other_applications_have_no_operators_of_either_kind(show: Callable[..., Shown]) -> None:
    shown = show()
    found = shown.json("/api/v1/waiting")
    assert (found["calls"], found["parked"]) == ([], [])
    text = page(shown, "/waiting").text
    assert "No operator has calls." in text
    assert "No operator parks records." in text


def test_parked_keys_are_shown_with_their_first_records(shown: Shown, records: list[WaitingRecords]) -> None:
    one, two = records
    one.append(FAILED)
    one.append(FAILED)
    two.append(WaitingRecord(b"bob", b"cup", 4_000, (), None, -1, -1))
    found = shown.json(f"/api/v1/parked/{STORE}")
    assert found.pop("first") == [
        {
            "partition": 0,
            "key": "'ann'",
            "records": 2,
            "attempts": 2,
            "next_attempt_at_ms": 9_000,
            "failure": "OSError: <no>",
            "timestamp": 5_000,
            "topic": "orders",
            "source_partition": 1,
            "offset": 17,
        },
        {
            "partition": 1,
            "key": "'bob'",
            "records": 1,
            "attempts": 0,
            "next_attempt_at_ms": 0,
            "failure": "",
            "timestamp": 4_000,
            "topic": None,
            "source_partition": -1,
            "offset": -1,
        },
    ]
    assert found == {
        "topology": "",
        "store": STORE,
        "keys": 2,
        "records": 3,
        "bytes": one.size_bytes + two.size_bytes,
        "oldest_at_ms": 4_000,
        "next_attempt_at_ms": 0,
    }
    assert f"/waiting?store={STORE}" in {each["href"] for each in page(shown, "/waiting").with_tag("a")}
    text = page(shown, f"/waiting?store={STORE}").text
    assert "3 records of 2 keys" in text
    assert "'ann' 0 2 2 1970-01-01 00:00:09.000 OSError: <no> 1970-01-01 00:00:05.000 orders-1, offset 17" in text
    assert f"penstock parked retry PROGRAM.py {STORE} --all" in text


def test_a_page_has_a_bounded_number_of_keys(shown: Shown, records: list[WaitingRecords]) -> None:
    for number in range(103):
        records[0].append(WaitingRecord(b"%d" % number, b"v", 1, (), "orders", 0, number, due=5))
    found = shown.json(f"/api/v1/parked/{STORE}")
    assert (found["keys"], len(found["first"]), found["next_attempt_at_ms"]) == (103, 100, 5)
    assert "There are 3 other keys." in page(shown, f"/waiting?store={STORE}").text


def test_an_empty_store_has_no_oldest_record(shown: Shown, records: list[WaitingRecords]) -> None:
    found = shown.json(f"/api/v1/parked/{STORE}")
    assert (found["keys"], found["oldest_at_ms"], found["next_attempt_at_ms"]) == (0, None, None)
    assert "No record is parked at the newest commit." in page(shown, f"/waiting?store={STORE}").text


def test_keys_and_errors_of_users_are_text(shown: Shown, records: list[WaitingRecords]) -> None:
    records[0].append(WaitingRecord(HOSTILE.encode(), b"v", 1, (), HOSTILE, 0, 1, failure=HOSTILE))
    found = page(shown, f"/waiting?store={STORE}")
    assert all(each.keys() == {"src", "defer"} for each in found.with_tag("script"))


def test_other_stores_have_no_parked_keys(shown: Shown) -> None:
    refused = shown.json("/api/v1/parked/price-calls", 404)
    assert refused["error"] == "There is no store 'price-calls' of parked records; there are: charge-parked."
    assert "There is no store &#x27;x&#x27;" in shown.client.get("/waiting?store=x").text.replace("&#39;", "&#x27;")
    assert shown.json(f"/api/v1/parked/{STORE}?topology=other", 404)["error"].startswith("This application has no")


def test_parked_keys_are_read_while_the_application_runs(shown: Shown, records: list[WaitingRecords]) -> None:
    shown.host.fails(ValueError("broken"))
    assert shown.streams.state() is State.ERROR
    refused = shown.json(f"/api/v1/parked/{STORE}", 503)
    assert refused["error"] == "The stores cannot be read: the state is ERROR."
