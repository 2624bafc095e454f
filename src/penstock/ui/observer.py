"""Looks at a running application every so often, so that no request waits for brokers; keeps the last minute, and
points of the last day."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from penstock.application.life import ApplicationLife
from penstock.application.running_topology import RunningTopology
from penstock.errors import StreamsError
from penstock.host.api import Staleness, StoreSize, TaskMetadata
from penstock.metrics import Metric, MetricName
from penstock.metrics.host_metrics import OUTPUT_AGE
from penstock.ui import history
from penstock.ui.history import History, Point
from penstock_broker.common.clock import Clock, SystemClock, elapsed_milliseconds
from penstock_broker.common.log_limits import limit_rate

_failures = logging.getLogger(f"{__name__}.failures")
limit_rate(_failures, up_to=logging.ERROR)  # each look may fail for the same reason

INTERVAL_MS: Final = 2_000
"""Between two looks."""
KEPT_MS: Final = 60_000
"""How long looks are kept, for rates."""
_MEASURING_SHARE: Final = 0.01
"""The most of the time that metrics are made for curves alone: where that takes long, points repeat the last ages."""


class TopologyLook(NamedTuple):
    """What was seen of one topology. tasks: how far they are, None if that is not known, for the reason `problem`.
    committed: the last commit that can be read, None if there is none."""

    tasks: tuple[TaskMetadata, ...] | None
    committed: Staleness | None
    problem: str | None

    @property
    def lag(self) -> int | None:
        """How many offsets of all partitions are to come; None if that is not known."""
        return None if self.tasks is None else sum(task.lag for task in self.tasks)


@dataclass(frozen=True)
class Look:
    """What was seen at one moment. time_ms: since the epoch. elapsed_ms: of a clock that never goes back. statistics:
    those of the application. topologies: by name."""

    time_ms: int
    elapsed_ms: int
    statistics: Mapping[str, Any]
    topologies: Mapping[str, TopologyLook]

    @property
    def lag(self) -> int | None:
        """How many offsets all tasks are behind; None if that is not known of all topologies, or there is none."""
        lags = [each.lag for each in self.topologies.values()]
        known = [lag for lag in lags if lag is not None]
        return sum(known) if known and len(known) == len(lags) else None

    @property
    def processed(self) -> int:
        """How many records all tasks have processed since the start, those of repartition topics too; where that is not
        known, how far they have committed."""
        each = self.statistics.get("topologies", {"": self.statistics})
        return sum(sum(figures.get("processed", figures.get("advanced", {})).values()) for figures in each.values())

    @property
    def unseen(self) -> str | None:
        """What cannot be known of the application from outside, None if nothing is hidden."""
        found: str | None = self.statistics.get("unseen")
        return found

    def statistics_of(self, topology: str) -> Mapping[str, Any]:
        """Return the figures of one topology."""
        found: Mapping[str, Any] = self.statistics.get("topologies", {"": self.statistics}).get(topology, {})
        return found


class Rates(NamedTuple):
    """Changes a second over the looks that are kept; None before the second look, and of a lag that is not known."""

    records_in: float | None
    records_out: float | None
    processed: float | None
    lag: float | None


def behind_ms(lag: int | None, processed: float | None) -> int | None:
    """Return how long (ms) the records that wait take at a number of records a second; None if that is not known."""
    return None if lag is None or not processed else round(1000 * lag / processed)


class Observer:
    """Looks in a thread of its own from `start` to `close`; any thread may ask."""

    def __init__(
        self,
        application: ApplicationLife[Any],
        clock: Clock | None = None,
        elapsed_ms: Callable[[], int] = elapsed_milliseconds,
    ) -> None:
        """Have looked once, without asking brokers. clock, elapsed_ms: None and the default for those of the
        machine."""
        self.application = application
        """The application."""
        self._clock = clock or SystemClock()
        self._elapsed_ms = elapsed_ms
        self._started_ms = elapsed_ms()
        self._looks: deque[Look] = deque(maxlen=KEPT_MS // INTERVAL_MS + 1)
        self._looks.append(Look(self._clock.milliseconds(), self._started_ms, application.statistics(), {}))
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._measuring = threading.Lock()
        self._first_behind: Look | None = None
        self.history = History(history.RANGES)
        """What was seen over time."""
        self._ages: Mapping[str, float] = {}
        self._ages_until_ms = self._started_ms
        self._measured: tuple[Look, Mapping[str, Mapping[MetricName, Metric]]] | None = None
        self._sizing = threading.Lock()
        self._sizes: tuple[Look, Mapping[str, Mapping[str, StoreSize]]] | None = None

    # ---------------------------------------- looking

    def start(self, name: str, then: Callable[[], None] = lambda: None) -> None:
        """Look from now on. name: of the thread, which never keeps a program alive. then: called after each look."""
        threading.Thread(target=self._run, args=(then,), name=name, daemon=True).start()

    def close(self) -> None:
        """Look no more; harmless when called again."""
        self._closed.set()

    @property
    def is_closed(self) -> bool:
        """Whether it looks no more."""
        return self._closed.is_set()

    def _run(self, then: Callable[[], None]) -> None:
        while True:
            try:
                self.look()
                then()
            except Exception as error:
                _failures.exception("Could not read the figures of the application for its pages: %s", error)
            if self._closed.wait(INTERVAL_MS / 1000):
                return

    def look(self) -> None:
        """Look at the application now; returns when that is kept."""
        topologies = {name: _seen(each) for name, each in self.application.running_topologies().items()}
        statistics = self.application.statistics()
        look = Look(self._clock.milliseconds(), self._elapsed_ms(), statistics, topologies)
        with self._lock:
            self._looks.append(look)
        if look.lag is not None:  # else whether it keeps up is as it was
            waits = behind_ms(look.lag, self.rates().processed)
            if look.lag == 0 or (waits is not None and waits <= KEPT_MS):
                self._first_behind = None
            elif self._first_behind is None:
                self._first_behind = look
        self.history.take(look.elapsed_ms, look.lag, self._point)

    # ---------------------------------------- what was seen

    @property
    def uptime_ms(self) -> int:
        """For how long the application has been looked at (ms)."""
        return self._elapsed_ms() - self._started_ms

    @property
    def behind_since_ms(self) -> int | None:
        """Since when (ms since the epoch) more records wait than the application processes in a minute; None if it
        keeps up, or for the first minute, in which records may have just arrived, or a commit may take long."""
        first = self._first_behind
        lasts = first is not None and self.newest.elapsed_ms - first.elapsed_ms >= KEPT_MS
        return first.time_ms if first is not None and lasts else None

    @property
    def newest(self) -> Look:
        """The newest look."""
        with self._lock:
            return self._looks[-1]

    @property
    def age_ms(self) -> int:
        """How old the newest look is (ms)."""
        return self._elapsed_ms() - self.newest.elapsed_ms

    def metrics(self) -> Mapping[str, Mapping[MetricName, Metric]]:
        """Return the metrics of each topology, by its name; made once a look, however many pages are open."""
        with self._measuring:
            look = self.newest
            if self._measured is None or self._measured[0] is not look:
                topologies = self.application.running_topologies()
                self._measured = look, {name: topology.metrics() for name, topology in topologies.items()}
            return self._measured[1]

    def output_age(self) -> Mapping[str, float] | None:
        """Return the age (ms) that 50, 95 and 99 % of the output had at most when it was committed, as `p50`, `p95` and
        `p99`, over the samples of the metrics; of several topologies the largest; None if nothing was written."""
        found = {
            f"p{percent}": [
                float(metric.metric_value)
                for metrics in self.metrics().values()
                for name, metric in metrics.items()
                if name.name == f"{OUTPUT_AGE}-p{percent}"
            ]
            for percent in (50, 95, 99)
        }
        return {name: max(values) for name, values in found.items()} if all(found.values()) else None

    def _point(self) -> Point:
        """Return the figures of the newest look for curves."""
        look, rates, began_ms = self.newest, self.rates(), self._elapsed_ms()
        if began_ms >= self._ages_until_ms:
            self._ages = self.output_age() or {}
            self._ages_until_ms = began_ms + round((self._elapsed_ms() - began_ms) / _MEASURING_SHARE)
        records_out = rates.records_out if look.unseen is None else None
        ages = (self._ages.get(name) for name in ("p50", "p95", "p99"))
        return Point(look.time_ms, rates.records_in, records_out, look.lag, *ages)

    def store_sizes(self) -> Mapping[str, Mapping[str, StoreSize]]:
        """Return how large the stores of each topology are, by the names of both; none where that cannot be read now.
        Read once a look, and only if somebody asks."""
        with self._sizing:
            look = self.newest
            if self._sizes is None or self._sizes[0] is not look:
                topologies = self.application.running_topologies()
                self._sizes = look, {name: _sizes(topology) for name, topology in topologies.items()}
            return self._sizes[1]

    def rates(self) -> Rates:
        """Return what changes a second."""
        with self._lock:
            first, last = self._looks[0], self._looks[-1]
            lags = [(look.elapsed_ms, look.lag) for look in self._looks if look.topologies and look.lag is not None]
        return Rates(
            _rate(_figure(first, "records_in"), _figure(last, "records_in")),
            _rate(_figure(first, "records_out"), _figure(last, "records_out")),
            _rate((first.elapsed_ms, first.processed), (last.elapsed_ms, last.processed)),
            _rate(lags[0], lags[-1]) if lags and last.lag is not None else None,
        )


def _figure(look: Look, name: str) -> tuple[int, int]:
    return look.elapsed_ms, look.statistics.get(name, 0)


def _rate(before: tuple[int, int], now: tuple[int, int]) -> float | None:
    """Return the change a second between two values with their times (ms); None at the same time."""
    (began, first), (ended, last) = before, now
    return 1000 * (last - first) / (ended - began) if ended > began else None


def _sizes(topology: RunningTopology) -> Mapping[str, StoreSize]:
    try:
        return topology.store_sizes()
    except StreamsError:
        return {}


def _seen(topology: RunningTopology) -> TopologyLook:
    committed, problem = None, None
    try:
        staleness = topology.staleness()
        committed = staleness if staleness.age_ms is not None else None
        return TopologyLook(topology.task_metadata(), committed, None)
    except StreamsError as error:
        problem = str(error)
    return TopologyLook(None, committed, problem)
