"""What clients report becomes measurements."""

from __future__ import annotations

import orjson

from penstock.client.confluent.statistics import ClientStatistics
from penstock.config import StreamsConfig
from penstock.metrics.measurements import Measurement

APP = StreamsConfig({"application.id": "app"}, environment={})


def report(sent: int, throttled: int = 0, client: str = "app-consumer") -> str:
    broker = {
        "throttle": {"min": throttled, "max": throttled, "sum": throttled, "cnt": 1},
        "rtt": {"min": 1_000, "max": 3_000, "sum": 4_000, "cnt": 2},
    }
    partitions = {"0": {"fetchq_size": 30}, "1": {"fetchq_size": 12}}
    told = {
        "name": f"{client}#consumer-1",
        "client_id": client,
        "brokers": {"one": broker, "bootstrap": {}},
        "topics": {"in": {"partitions": partitions}},
        "msg_size": 7,
        "tx_bytes": sent,
        "rx_bytes": 2 * sent,
    }
    return orjson.dumps(told).decode()


def test_reports_are_added_up_and_totals_become_what_came_since() -> None:
    statistics = ClientStatistics()
    statistics.report("consumer", report(100, 5))
    statistics.report("consumer", report(150, 25))
    assert statistics.take_of(APP) == {
        "fetch-throttle-time/client/consumer": Measurement(2, 30, 5, 25),
        "request-latency/client/consumer": Measurement(4, 8, 1, 3),
        "buffered-bytes/client/consumer": Measurement(2, 84, 42, 42),
        "outgoing-byte/client/consumer": Measurement(2, 150, 50, 100),
        "incoming-byte/client/consumer": Measurement(2, 300, 100, 200),
    }
    assert statistics.take_of(APP) == {}


def test_buffers_of_producers_are_their_queues_and_admins_are_left_out() -> None:
    statistics = ClientStatistics()
    statistics.report("admin", report(1, client="app-admin"))
    statistics.report("producer", report(1, client="app-producer"))
    found = statistics.take_of(APP)
    assert found["buffered-bytes/client/producer"] == Measurement(1, 7, 7, 7)
    assert "produce-throttle-time/client/producer" in found
    assert not [name for name in found if name.endswith("admin")]


def test_an_application_takes_the_reports_of_its_own_clients() -> None:
    statistics = ClientStatistics()
    statistics.report("consumer", report(100, client="app-consumer"))
    statistics.report("consumer", report(100, client="other-consumer"))
    found = statistics.take_of(APP)
    assert found["buffered-bytes/client/consumer"].number == 1
    assert statistics.take_of(APP) == {}
    assert statistics.take_of(StreamsConfig({"application.id": "other"}, environment={})) == found
