"""The examples, on the test driver, with real rows (tests/examples/data/README.md says where they come from)."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from penstock.serdes import Serdes
from penstock.testing import TestRecord, TopologyTestDriver
from penstock.tools.cli.program import load_program

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
STRING, JSON, INTEGER = Serdes.string(), Serdes.json(), Serdes.integer()


def rows(name: str) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in (HERE / "data" / f"{name}.jsonl").read_bytes().splitlines()]


@contextmanager
def running(name: str, **config: Any) -> Iterator[TopologyTestDriver]:
    program = load_program(EXAMPLES / name)
    with TopologyTestDriver(program.topology, {**program.config, **config}) as driver:
        yield driver


@pytest.mark.parametrize("path", [*EXAMPLES.glob("*.py")], ids=lambda path: path.name)
def test_an_example_is_a_file_under_60_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) < 60


def test_word_count() -> None:
    text = (EXAMPLES / "data" / "python-language-reference.txt").read_text().splitlines()[:300]
    with running("word_count.py") as driver:
        driver.create_input_topic("plaintext-input", STRING, STRING).pipe_value_list(text)
        counts = driver.create_output_topic("word-count-output", STRING, Serdes.long()).read_key_values_to_map()
    assert counts == Counter(word for line in text for word in line.lower().split())


def test_stock_market_statistics() -> None:
    with running("stock_market_statistics.py", **{"statestore.cache.max.bytes": 0}) as driver:
        trades = driver.create_input_topic("stocks", STRING, JSON)
        prices: dict[tuple[str, int], list[float]] = defaultdict(list)
        for second, row in enumerate(row for row in rows("stocks") if row["ticker"] in ("GOOG", "AAPL")):
            time = 100_000 + 1000 * second
            trades.pipe_input(row["ticker"], row, time)
            for start in range(time - 4000, time + 1000, 1000):
                prices[row["ticker"], start].append(row["price"])
        stats = driver.create_output_topic("stockstats-output", STRING, JSON).read_key_values_to_map()
    expected = {
        orjson.dumps({"ticker": ticker, "start": start}).decode(): (len(paid), min(paid), sum(paid) / len(paid))
        for (ticker, start), paid in prices.items()
    }
    found = {key: (value["count_trades"], value["min_price"], value["avg_price"]) for key, value in stats.items()}
    assert found.keys() == expected.keys()
    assert all(found[key] == pytest.approx(expected[key]) for key in expected)


def test_click_stream_enrichment() -> None:
    with running("click_stream_enrichment.py") as driver:
        profiles = driver.create_input_topic("clicks.user.profile", INTEGER, JSON)
        views = driver.create_input_topic("clicks.pages.views", INTEGER, JSON)
        searches = driver.create_input_topic("clicks.search", INTEGER, JSON)
        profiles.pipe_input(1, {"name": "Mathias", "zipcode": "94301", "interests": ["surfing"]}, 0)
        searches.pipe_input(1, {"terms": "surf boards"}, 1000)
        views.pipe_input(1, {"page": "collections/mens-wetsuits"}, 1500)
        views.pipe_input(
            2, {"page": "product/long-board"}, 1600
        )  # of a user without a profile, who has searched for nothing
        views.pipe_input(1, {"page": "about"}, 5000)
        driver.advance_wall_clock_time(2000)  # results without a search are checked once a second
        searches.pipe_input(1, {"terms": "later"}, 9000)
        activity = driver.create_output_topic("clicks.user.activity", INTEGER, JSON).read_key_values_to_list()
    told = [
        (user, each["page"], each["profile"] and each["profile"]["name"], each["search_terms"])
        for user, each in activity
    ]
    assert told == [
        (1, "collections/mens-wetsuits", "Mathias", "surf boards"),
        (2, "product/long-board", None, ""),
        (1, "about", "Mathias", ""),
    ]


def test_flights_with_planes() -> None:
    planes = {row["tailnum"]: row for row in rows("planes")}
    flights = {f"{row['carrier']}{row['flight']}": row for row in rows("flights")}
    with running("flights_with_planes.py") as driver:
        flight_topic = driver.create_input_topic("flights", STRING, JSON)
        plane_topic = driver.create_input_topic("planes", STRING, JSON)
        plane_topic.pipe_key_value_list(list(planes.items())[::2])
        flight_topic.pipe_key_value_list(flights.items())
        plane_topic.pipe_key_value_list(list(planes.items())[1::2])  # comes after the flights that it is for
        planned = driver.create_output_topic("planned-flights", STRING, JSON).read_key_values_to_map()
    assert {key: value["seats"] for key, value in planned.items()} == {
        key: planes[flight["tailnum"]]["seats"] for key, flight in flights.items() if flight["tailnum"] in planes
    }


def test_delays_in_a_row() -> None:
    flights = rows("flights")
    with running("delays_in_a_row.py") as driver:
        topic = driver.create_input_topic("flights", STRING, JSON)
        topic.pipe_record_list(TestRecord(str(row["flight"]), row, row["departed"]) for row in flights)
        told = driver.create_output_topic("delays", STRING, JSON).read_key_values_to_list()
    expected: list[tuple[str, list[int]]] = []
    last: dict[str, list[int]] = {}
    for row in flights:
        if row["delay"] > 0:
            if row["origin"] not in last or row["departed"] - last[row["origin"]][-1] > 600_000:
                last[row["origin"]] = []
                expected.append((row["origin"], last[row["origin"]]))
            last[row["origin"]].append(row["departed"])
    end = max(row["departed"] for row in flights if row["delay"] > 0)
    over = [(origin, times) for origin, times in expected if times[-1] + 600_000 < end]
    assert len(over) > 3
    assert sorted((origin, value["minutes"], value["flights"]) for origin, value in told) == sorted(
        (origin, (times[-1] - times[0]) // 60_000, len(times)) for origin, times in over
    )


def test_wind_at_departure() -> None:
    events = [("weather", row["observed"], row) for row in rows("weather")]
    events += [("flights", row["departed"], row) for row in rows("flights")]
    wind: dict[str, float] = {}
    expected = []
    with running("wind_at_departure.py") as driver:
        topics = {name: driver.create_input_topic(name, STRING, JSON) for name in ("weather", "flights")}
        for name, time, row in sorted(events, key=lambda event: event[1]):
            topics[name].pipe_input(row["origin"], row, time)
            if name == "weather":
                wind[row["origin"]] = row["wind_speed"]
            else:
                expected.append((row["flight"], wind.get(row["origin"])))
        flights = driver.create_output_topic("flights-with-wind", STRING, JSON).read_values_to_list()
        counts = driver.create_output_topic("departures", STRING, JSON).read_key_values_to_map()
    assert [(flight["flight"], flight["wind_speed"]) for flight in flights] == expected
    assert set(counts) == {"EWR", "JFK", "LGA"}
    assert sum(count["departures"] for count in counts.values()) <= len(expected)


def test_word_count_without_the() -> None:
    text = (EXAMPLES / "data" / "python-language-reference.txt").read_text().splitlines()[:300]
    with running("word_count_without_the.py") as driver:
        driver.create_input_topic("wordcount-input", STRING, STRING).pipe_value_list(text)
        counts = driver.create_output_topic("wordcount-output", STRING, STRING).read_key_values_to_map()
    expected = Counter(word for line in text for word in re.findall(r"\w+", line.lower()) if word != "the")
    assert counts == {word: str(count) for word, count in expected.items()}


def test_word_count_processor() -> None:
    with running("word_count_processor.py") as driver:
        lines = driver.create_input_topic("source-topic", STRING, STRING)
        told = driver.create_output_topic("sink-topic", STRING, STRING)
        lines.pipe_input("k", "All streams", 1000)  # emitted immediately, because stream time starts here
        assert told.read_key_values_to_list() == [("all", "1"), ("streams", "1")]
        lines.pipe_input("k", "all is well", 1500)
        assert told.is_empty()
        lines.pipe_input("k", "well", 2100)
        records = told.read_records_to_list()
    assert [(each.key, each.value) for each in records] == [("all", "2"), ("is", "1"), ("streams", "1"), ("well", "2")]
    assert {each.timestamp for each in records} == {2100}


def test_database_changes() -> None:
    with running("database_changes.py", **{"statestore.cache.max.bytes": 0}) as driver:
        customers = driver.create_input_topic("customers", STRING, JSON)
        orders = driver.create_input_topic("orders", STRING, JSON)
        shipments = driver.create_output_topic("shipments", STRING, JSON)
        by_city = driver.create_output_topic("customers-by-city", STRING, Serdes.long())
        customers.pipe_input("1", {"city": "Ulm"})
        customers.pipe_input("2", {"city": "Ulm"})
        orders.pipe_input("1", {"item": "book"})
        customers.pipe_input("1", {"city": "Bonn"})
        orders.pipe_input("1", {"item": "pen"})
        customers.pipe_input("1", None)
        orders.pipe_input("1", {"item": "ink"})
        told = [(each["item"], each["ship_to"]) for each in shipments.read_values_to_list()]
        assert told == [("book", "Ulm"), ("pen", "Bonn"), ("ink", None)]
        assert by_city.read_key_values_to_map() == {"Ulm": 1, "Bonn": 0}
        customers_left = driver.get_key_value_store("customers")
        assert customers_left is not None
        assert customers_left.get("1") is None
