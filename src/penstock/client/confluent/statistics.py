"""Statistics that librdkafka reports every `statistics.interval.ms`, summed over the clients of this process."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from penstock.client.settings import CONSUMER, PRODUCER, client_id
from penstock.config import StreamsConfig
from penstock.metrics import host_metrics as names
from penstock.metrics.host_metrics import CLIENT, operation_of
from penstock.metrics.measurements import NOTHING, Measurement

_MOST_CLIENTS = 1_000
_THROTTLED: Mapping[str, str] = {CONSUMER: names.FETCH_THROTTLE_TIME, PRODUCER: names.PRODUCE_THROTTLE_TIME}


class ClientStatistics:
    """Accumulates the reports of clients; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._measured: dict[str, dict[str, Measurement]] = {}
        self._bytes: dict[str, tuple[int, int]] = {}

    def report(self, role: str, text: str) -> None:
        """Add a report.

        Args:
            role: CONSUMER or PRODUCER; reports of other roles are ignored.
            text: the statistics of librdkafka, as JSON (STATISTICS.md).
        """
        if role not in _THROTTLED:
            return
        told: Mapping[str, Any] = orjson.loads(text)
        with self._lock:
            of_client = self._measured.setdefault(str(told["client_id"]), {})
            _keep_newest(self._measured)
            for name, measurement in self._of(role, told):
                if measurement.number:
                    known = operation_of(name, CLIENT, role)
                    of_client[known] = of_client.get(known, NOTHING).plus(measurement)

    def take_of(self, config: StreamsConfig) -> dict[str, Measurement]:
        """Return and remove the reports of an application's clients since the last call, by operation."""
        with self._lock:
            taken = [self._measured.pop(client_id(config, role), {}) for role in _THROTTLED]
        measured: dict[str, Measurement] = {}
        for of_client in taken:
            for known, measurement in of_client.items():
                measured[known] = measured.get(known, NOTHING).plus(measurement)
        return measured

    def _of(self, role: str, told: Mapping[str, Any]) -> Iterator[tuple[str, Measurement]]:
        brokers = told["brokers"].values()
        # librdkafka counts only throttled requests
        throttled = _together(brokers, "throttle", 1)
        yield _THROTTLED[role], throttled if throttled.number else Measurement(1, 0, 0, 0)
        yield names.REQUEST_LATENCY, _together(brokers, "rtt", 1_000)
        partitions = (each for topic in told["topics"].values() for each in topic["partitions"].values())
        buffered = sum(each["fetchq_size"] for each in partitions) if role == CONSUMER else told["msg_size"]
        yield names.BUFFERED_BYTES, Measurement(1, buffered, buffered, buffered)
        client, now = str(told["name"]), (int(told["tx_bytes"]), int(told["rx_bytes"]))
        before = self._bytes.pop(client, (0, 0))
        self._bytes[client] = now
        _keep_newest(self._bytes)
        for name, total, known in zip((names.OUTGOING_BYTE, names.INCOMING_BYTE), now, before, strict=True):
            more = total - known
            yield name, Measurement(1, more, more, more)


def _keep_newest(of_clients: dict[str, Any]) -> None:
    """Drop the oldest client if there are too many."""
    if len(of_clients) > _MOST_CLIENTS:
        del of_clients[next(iter(of_clients))]


def _together(brokers: Iterable[Mapping[str, Any]], window: str, units: int) -> Measurement:
    """Return a window's values over all brokers, in ms; units: the window's units per ms."""
    measured = NOTHING
    for broker in brokers:
        found = broker.get(window, {})
        if found.get("cnt"):
            total, least, most = (found[each] / units for each in ("sum", "min", "max"))
            measured = measured.plus(Measurement(found["cnt"], total, least, most))
    return measured


STATISTICS = ClientStatistics()
"""The statistics of all clients of this process."""
