"""What librdkafka reports of the clients of this process every `statistics.interval.ms`, added up until it is taken."""

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
    """The reports of clients; any thread may bring one."""

    def __init__(self) -> None:
        """Have no reports."""
        self._lock = threading.Lock()
        self._measured: dict[str, dict[str, Measurement]] = {}
        self._bytes: dict[str, tuple[int, int]] = {}

    def report(self, role: str, text: str) -> None:
        """Take a report.

        Args:
            role: CONSUMER or PRODUCER; others are left out.
            text: the statistics as librdkafka gives them, in JSON (STATISTICS.md).
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
        """Give up what the clients of an application have reported since the last time, by operations of clients."""
        with self._lock:
            taken = [self._measured.pop(client_id(config, role), {}) for role in _THROTTLED]
        measured: dict[str, Measurement] = {}
        for of_client in taken:
            for known, measurement in of_client.items():
                measured[known] = measured.get(known, NOTHING).plus(measurement)
        return measured

    def _of(self, role: str, told: Mapping[str, Any]) -> Iterator[tuple[str, Measurement]]:
        brokers = told["brokers"].values()
        # librdkafka counts only what brokers did throttle
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
    """Forget the oldest client if there are too many."""
    if len(of_clients) > _MOST_CLIENTS:
        del of_clients[next(iter(of_clients))]


def _together(brokers: Iterable[Mapping[str, Any]], window: str, units: int) -> Measurement:
    """Return the value of a window over all brokers, in ms; units: how many of the window's units make one ms."""
    measured = NOTHING
    for broker in brokers:
        found = broker.get(window, {})
        if found.get("cnt"):
            total, least, most = (found[each] / units for each in ("sum", "min", "max"))
            measured = measured.plus(Measurement(found["cnt"], total, least, most))
    return measured


STATISTICS = ClientStatistics()
"""The reports of all clients of this process."""
