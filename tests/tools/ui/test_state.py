"""Tasks and the content of stores, as JSON and on the pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest

from penstock.host.threads.commit_times import InstanceCommit
from tests.host.threads.test_queries import Play
from tests.host.threads.test_queries import topology as every_kind
from tests.tools.ui.conftest import Shown
from tests.tools.ui.test_pages import HOSTILE, page


@pytest.fixture
def play() -> Play:
    """An instance with stores of every kind."""
    play = Play(**{"processing.guarantee": "exactly_once_v2"})
    play.write(("a", "x", 1), ("b", "x", 2), ("a", "x", 12), ("c<i>", "x", 3))
    play.write(("a", "old", 5), ("a", "new", 9), topic="versions")
    play.commits()
    play.commit = InstanceCommit(3, play.clock.milliseconds() - 500)
    return play


@pytest.fixture
def stores(show: Callable[..., Shown], play: Play) -> Shown:
    """An application with these stores."""
    shown = show(every_kind())
    shown.host.answers = play.queries
    return shown


def entries(shown: Shown, store: str, **parameters: Any) -> list[Any]:
    """Return the entries of a store, as lists of their fields."""
    answer = shown.json(f"/api/v1/stores/{store}?{urlencode(parameters)}")
    assert answer["store"] == store
    assert (answer["commit"]["number"], answer["commit"]["age_ms"]) == (3, 500)
    return [list(entry.values()) for entry in answer["entries"]]


def test_a_key_and_a_range_of_a_key_value_store(stores: Shown) -> None:
    assert entries(stores, "counts", key="a") == [[0, "a", 2, 12]]
    assert entries(stores, "counts", key="none") == [[None, "none", None]]
    assert entries(stores, "counts") == [[0, "a", 2, 12], [0, "b", 1, 2], [0, "c<i>", 1, 3]]
    assert entries(stores, "counts", **{"from": "b", "to": "c"}) == [[0, "b", 1, 2]]
    assert entries(stores, "memory", partition=1) == []


def test_entries_have_their_partitions(stores: Shown, play: Play) -> None:
    play.write(("d", "x", 4), partition=1)
    play.commits()
    play.commit = InstanceCommit(3, play.clock.milliseconds() - 500)
    assert entries(stores, "counts")[2:] == [[0, "c<i>", 1, 3], [1, "d", 1, 4]]
    assert entries(stores, "counts", key="d") == entries(stores, "counts", partition=1) == [[1, "d", 1, 4]]
    assert stores.json("/api/v1/stores/counts?key=d")["entries"][0]["partition"] == 1


def test_windows_sessions_and_versions(stores: Shown) -> None:
    assert entries(stores, "windows", key="a") == [[0, 0, "a", 1, 1], [0, 10, "a", 1, 12]]
    assert entries(stores, "windows", key="a", from_time=5) == [[0, 10, "a", 1, 12]]
    assert entries(stores, "windows", to_time=5) == [
        [0, 0, 10, "a", 1, 1],
        [0, 0, 10, "b", 1, 2],
        [0, 0, 10, "c<i>", 1, 3],
    ]
    assert entries(stores, "windows", **{"from": "b", "to": "b"}) == [[0, 0, 10, "b", 1, 2]]
    assert entries(stores, "sessions", key="b") == [[0, 2, 2, "b", 1]]
    assert entries(stores, "sessions", **{"from": "b", "to": "b"}) == [[0, 2, 2, "b", 1]]
    assert entries(stores, "versions", key="a") == [[0, "a", "new", 9], [0, "a", "old", 5, 9]]


def test_an_answer_has_a_limit(stores: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = stores.json("/api/v1/stores/counts?limit=2")
    assert ([entry["key"] for entry in answer["entries"]], answer["more"]) == (["a", "b"], True)
    assert not stores.json("/api/v1/stores/counts?limit=3")["more"]
    monkeypatch.setattr("penstock.tools.ui.answers.MOST_BYTES", 10)
    answer = stores.json("/api/v1/stores/counts")
    assert (len(answer["entries"]), answer["more"]) == (1, True)


@pytest.mark.parametrize(
    ("address", "status", "told"),
    [
        ("nothing", 404, "nothing"),
        ("counts?topology=other", 404, "no topology 'other'"),
        ("counts?limit=1001", 400, "from 0 to 1000"),
        ("counts?from_time=now", 400, "Invalid value 'now' for from_time"),
        ("versions", 400, "name a key"),
    ],
)
def test_what_cannot_be_read_is_reported(stores: Shown, address: str, status: int, told: str) -> None:
    assert told in stores.json(f"/api/v1/stores/{address}", status)["error"]
    store, _, query = address.partition("?")
    assert told in page(stores, f"/state?store={store}&{query}").text


def test_stores_are_not_read_after_the_end(stores: Shown) -> None:
    stores.streams.close()
    assert "NOT_RUNNING" in stores.json("/api/v1/stores/counts", 503)["error"]
    assert "NOT_RUNNING" in page(stores, "/state?store=counts").text


def test_the_page_on_state_shows_stores_and_entries(stores: Shown) -> None:
    found = page(stores, "/state")
    assert "/state?store=sessions" in [each["href"] for each in found.with_tag("a")]
    assert "counts timestamped key value 3 - - - KSTREAM-AGGREGATE" in found.text
    assert not found.with_tag("form")
    found = page(stores, "/state?store=windows&key=a&from=&to=&limit=7&from_time=&to_time=")
    assert " 0 1970-01-01 00:00:00.010 10 ms a 1 1970-01-01 00:00:00.012 12 ms " in found.text
    assert "As of commit 3, made 500 ms before" in found.text
    given = {each["name"]: each["value"] for each in found.with_tag("input")}
    assert given == {
        "store": "windows",
        "key": "a",
        "from": "",
        "to": "",
        "from_time": "",
        "to_time": "",
        "partition": "",
        "limit": "7",
    }
    assert "There are more entries than these 1." in page(stores, "/state?store=counts&limit=1").text


def test_hostile_and_long_keys_and_values_are_text(stores: Shown, play: Play) -> None:
    play.write((HOSTILE, "<b>" * 400_000, 20), topic="versions")
    play.commits()
    html = stores.client.get(f"/state?{urlencode({'store': 'versions', 'key': HOSTILE})}").text
    assert "<script>" not in html
    assert "<b>" not in html
    assert "\x00" not in html
    assert "(1,200,000 characters)" in html
    assert len(html) < 50_000
    answer = stores.json(f"/api/v1/stores/versions?{urlencode({'key': HOSTILE})}")
    assert answer["entries"][0]["key"] == HOSTILE


def test_the_page_on_tasks_shows_how_far_they_are(shown: Shown) -> None:
    assert "No task runs here." in page(shown, "/tasks").text
    shown.host.figures = {"processed": {"0_1": 9_000}, "dropped": {"0_1": 2}, "standbys": {"1_0": 4}, "restoring": {}}
    shown.host.tasks().positions = {"0_1": (1_000, 5_000)}
    shown.after(10)
    text = page(shown, "/tasks").text
    assert "0_1 9,000 2 - 4,000 " in text
    assert "0_1 lines 1 1,000 5,000 4,000 " in text
    assert "1_0 standby " in text
