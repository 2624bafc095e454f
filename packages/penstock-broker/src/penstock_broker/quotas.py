"""Client quotas: usage limits per client id, and throttling of clients above them.

Contains rates and the decision (Kafka classes: ClientQuotaManager, ClientRequestQuotaManager, Rate). Not here: the APIs
that set quotas (quota_apis.py), and the throttling of a connection (connection.py).

Rules, as in Kafka since KIP-219: the answer is sent at once with the throttle time, and the client's connection is not
read for that time. A Fetch above its quota is answered without records. Usage is averaged over `quota.window.num`
windows, so a client may use up the quota of all of them in a burst. A client id without a quota of its own has the
default quota; the usage of each client id is measured separately.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Final

from penstock_broker.config import BrokerConfig
from penstock_broker.errors import ApiError
from penstock_broker.metadata_store import MetadataStore
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
"""Bytes per second of Produce requests."""

CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
"""Bytes per second of fetched records."""

REQUEST_PERCENTAGE: Final = "request_percentage"
"""Share of the time, in percent, that the broker spends on the client's requests."""

_PRODUCE, _FETCH = 0, 1
_WRITE_TXN_MARKERS: Final = 27
"""The only API whose response has no throttle time."""
_NO_LIMIT: Final = 2**31 - 1


class Rate:
    """An amount per second, averaged over the last windows (Kafka class: Rate).

    Args:
        windows: number of windows.
        window_ms: length of each window (ms).
    """

    __slots__ = ("_samples", "_window_ms", "_windows")

    def __init__(self, windows: int, window_ms: int) -> None:
        self._windows = windows
        self._window_ms = window_ms
        self._samples: deque[list[float]] = deque()

    def record(self, amount: float, now: float) -> None:
        """Add an amount.

        Args:
            amount: the amount; negative to revert one.
            now: the time (ms).
        """
        if not self._samples or now - self._samples[-1][0] >= self._window_ms:
            self._samples.append([now, 0.0])
        self._samples[-1][1] += amount

    def span_ms(self, now: float) -> float:
        """Return the time (ms) over which the rate is averaged.

        Args:
            now: the time (ms).
        """
        while self._samples and now - self._samples[0][0] >= self._windows * self._window_ms:
            self._samples.popleft()
        elapsed = now - self._samples[0][0] if self._samples else 0.0
        # The time before the first use counts too; otherwise a single request would be a high rate.
        missing = self._windows - 1 - int(elapsed // self._window_ms)
        return max(elapsed + max(missing, 0) * self._window_ms, self._window_ms)

    def throttle_ms(self, quota: float, now: float) -> float:
        """Return the time (ms) until the rate is back at the quota.

        Args:
            quota: the highest rate, per second.
            now: the time (ms).
        """
        span = self.span_ms(now)
        rate = sum(amount for _, amount in self._samples) * 1000 / span
        return max((rate - quota) / quota * span, 0.0)


class ClientQuotas:
    """The quotas of clients and their usage.

    Args:
        config: the broker's settings.
        store: its database, which stores the quotas.
    """

    def __init__(self, config: BrokerConfig, store: MetadataStore) -> None:
        self._windows = config.quota_window_num
        self._window_ms = config.quota_window_size_seconds * 1000
        self._most_clients = config.max_quota_clients
        self._store = store
        self._quotas = store.client_quotas()
        # Least recently used client id first.
        self._rates: OrderedDict[str, dict[str, Rate]] = OrderedDict()

    @property
    def are_set(self) -> bool:
        """Whether any client has a quota."""
        return bool(self._quotas)

    def all(self) -> Mapping[str | None, Mapping[str, float]]:
        """Return the quotas by client id; the key None holds the default quotas."""
        return self._quotas

    def set(self, client_id: str | None, quotas: dict[str, float]) -> None:
        """Replace the quotas of a client.

        Args:
            client_id: its id; None for the default quotas.
            quotas: values by name; empty to remove them.

        Raises:
            ApiError: POLICY_VIOLATION if too many clients have quotas, KAFKA_STORAGE_ERROR; nothing was changed.
        """
        if quotas and client_id not in self._quotas and len(self._quotas) >= self._most_clients:
            raise ApiError(
                ErrorCode.policy_violation, f"{self._most_clients} clients have quotas already (max_quota_clients)"
            )
        self._store.save_client_quotas(client_id, quotas)
        self._quotas.pop(client_id, None)
        if quotas:
            self._quotas[client_id] = quotas

    def _quota(self, client_id: str, name: str) -> float | None:
        own = self._quotas.get(client_id, {})
        return own[name] if name in own else self._quotas.get(None, {}).get(name)

    def most_fetched_bytes(self, client_id: str) -> int:
        """Return the maximum bytes of one Fetch, above which it could never meet its quota."""
        quota = self._quota(client_id, CONSUMER_BYTE_RATE)
        return _NO_LIMIT if quota is None else max(int(quota * (self._windows - 1) * self._window_ms / 1000), 1)

    def throttle(
        self, key: int, client_id: str, request_bytes: int, response: Message | None, busy_ms: float, now: float
    ) -> tuple[Message | None, int]:
        """Record a request, and return its response and the throttle time (ms).

        Args:
            key: the API.
            client_id: the client.
            request_bytes: size of the request.
            response: its response; None if the client gets no response.
            busy_ms: processing time (ms) of the request.
            now: the time (ms).
        """
        busy = busy_ms / 10  # percent of a second
        wait_ms = min(self._used(client_id, REQUEST_PERCENTAGE, busy, now), self._window_ms)
        if key == _PRODUCE:
            wait_ms = max(wait_ms, self._used(client_id, PRODUCER_BYTE_RATE, request_bytes, now))
        elif key == _FETCH and response is not None:
            fetched = sum(
                len(part.get("records") or b"") for topic in response["responses"] for part in topic["partitions"]
            )
            wait_ms = max(wait_ms, self._used(client_id, CONSUMER_BYTE_RATE, fetched, now))
            if round(wait_ms):
                self._used(client_id, CONSUMER_BYTE_RATE, -fetched, now)
                response = {"responses": []}
        if round(wait_ms) and response is not None and key != _WRITE_TXN_MARKERS:
            response = response | {"throttle_time": round(wait_ms)}
        return response, round(wait_ms)

    def _used(self, client_id: str, name: str, amount: float, now: float) -> float:
        """Record a client's usage, and return the resulting throttle time (ms)."""
        quota = self._quota(client_id, name)
        if quota is None:
            return 0.0
        rates = self._rates.get(client_id)
        if rates is None:
            if len(self._rates) >= self._most_clients:
                self._rates.popitem(last=False)
            rates = self._rates[client_id] = {}
        self._rates.move_to_end(client_id)
        rate = rates.get(name)
        if rate is None:
            rate = rates[name] = Rate(self._windows, self._window_ms)
        rate.record(amount, now)
        return rate.throttle_ms(quota, now)
