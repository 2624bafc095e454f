"""Observes a running application periodically, so that no request waits for brokers.

It keeps the observations of the last minute, and points of the last day.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple

from msgspec import Meta

from penstock.application.life import ApplicationLife
from penstock.application.running_topology import RunningTopology
from penstock.errors import StreamsError
from penstock.host.api import HostStatistics, Staleness, StoreSize, TaskMetadata
from penstock.metrics import Metric, MetricName
from penstock.metrics.host_metrics import OUTPUT_AGE
from penstock.tools.ui import history
from penstock.tools.ui.history import History, Point
from penstock_broker.common.clock import Clock, SystemClock, elapsed_milliseconds
from penstock_broker.common.log_limits import limit_rate

_failures = logging.getLogger(f"{__name__}.failures")
limit_rate(_failures, up_to=logging.ERROR)  # each observation may fail for the same reason

INTERVAL_MS: Final = 2_000
"""Time between two observations."""
KEPT_MS: Final = 60_000
"""How long observations are kept, for rates."""
_MEASURING_SHARE: Final = 0.01
"""Largest share of the time spent on metrics for curves alone: if that takes long, points repeat the last ages."""


class TopologyLook(NamedTuple):
    """An observation of one topology.

    Args:
        tasks: their positions, None if unknown because of `problem`.
        committed: the last readable commit, None if absent.
        problem: the reason why tasks are unknown.
    """

    tasks: tuple[TaskMetadata, ...] | None
    committed: Staleness | None
    problem: str | None

    @property
    def lag(self) -> int | None:
        """The lag (offsets) of all partitions; None if unknown."""
        return None if self.tasks is None else sum(task.lag for task in self.tasks)


@dataclass(frozen=True)
class Look:
    """An observation of the application.

    Args:
        time_ms: since the epoch.
        elapsed_ms: by a monotonic clock.
        statistics: those of the application.
        topologies: by name.
    """

    time_ms: int
    elapsed_ms: int
    statistics: HostStatistics
    topologies: Mapping[str, TopologyLook]

    @property
    def lag(self) -> int | None:
        """The lag (offsets) of all tasks, None if unknown.

        It is unknown without topologies, or if that of any is unknown.
        """
        lags = [each.lag for each in self.topologies.values()]
        known = [lag for lag in lags if lag is not None]
        return sum(known) if known and len(known) == len(lags) else None

    @property
    def processed(self) -> int:
        """The number of records that all tasks have processed since the start.

        Records of repartition topics count too. If the number is unknown, the committed positions are used.
        """
        return sum(sum(_processed(figures).values()) for figures in self.statistics.by_topology().values())

    @property
    def unseen(self) -> str | None:
        """The figures that cannot be seen from outside, None if all can."""
        return None if self.statistics.watched is None else self.statistics.watched.unseen

    def statistics_of(self, topology: str) -> HostStatistics:
        """Return the figures of one topology."""
        return self.statistics.by_topology().get(topology, HostStatistics())


@dataclass(frozen=True)
class OutputAge:
    """Ages of output."""

    p50: Annotated[float, Meta(description="the age (ms) that 50 % of the output had at most, within a fifth")]
    p95: Annotated[float, Meta(description="the same for 95 %")]
    p99: Annotated[float, Meta(description="the same for 99 %")]


class Rates(NamedTuple):
    """Changes per second over the kept observations.

    None before the second observation, and for an unknown lag.
    """

    records_in: float | None
    records_out: float | None
    processed: float | None
    lag: float | None


def behind_ms(lag: int | None, processed: float | None) -> int | None:
    """Return the time (ms) for the waiting records at a rate; None if unknown.

    `processed` is the rate per second.
    """
    return None if lag is None or not processed else round(1000 * lag / processed)


class Observer:
    """Observes in a thread of its own from `start` to `close`; any thread may read.

    The constructor makes the first observation, without asking brokers.

    Args:
        application: the application to observe.
        clock: a clock; None for that of the machine.
        elapsed_ms: a monotonic clock.
    """

    def __init__(
        self,
        application: ApplicationLife[Any],
        clock: Clock | None = None,
        elapsed_ms: Callable[[], int] = elapsed_milliseconds,
    ) -> None:
        self.application = application
        """The application."""
        self._clock = clock or SystemClock()
        self._elapsed_ms = elapsed_ms
        self._started_ms = elapsed_ms()
        self._looks: deque[Look] = deque(maxlen=KEPT_MS // INTERVAL_MS + 1)
        self._looks.append(Look(self._clock.milliseconds(), self._started_ms, application.host_statistics(), {}))
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._measuring = threading.Lock()
        self._first_behind: Look | None = None
        self.history = History(history.RANGES)
        """The observations over time."""
        self._age: OutputAge | None = None
        self._ages_until_ms = self._started_ms
        self._measured: tuple[Look, Mapping[str, Mapping[MetricName, Metric]]] | None = None
        self._sizing = threading.Lock()
        self._sizes: tuple[Look, Mapping[str, Mapping[str, StoreSize]]] | None = None

    # ---------------------------------------- observing

    def start(self, name: str, then: Callable[[], None] = lambda: None) -> None:
        """Start observing.

        Args:
            name: of the thread, which never keeps a program alive.
            then: called after each observation.
        """
        threading.Thread(target=self._run, args=(then,), name=name, daemon=True).start()

    def close(self) -> None:
        """Stop observing; harmless if called again."""
        self._closed.set()

    @property
    def is_closed(self) -> bool:
        """Whether the observer is closed."""
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
        """Observe the application now; returns after the observation is stored."""
        topologies = {name: _seen(each) for name, each in self.application.running_topologies().items()}
        statistics = self.application.host_statistics()
        look = Look(self._clock.milliseconds(), self._elapsed_ms(), statistics, topologies)
        with self._lock:
            self._looks.append(look)
        if look.lag is not None:  # otherwise keep the last finding
            waits = behind_ms(look.lag, self.rates().processed)
            if look.lag == 0 or (waits is not None and waits <= KEPT_MS):
                self._first_behind = None
            elif self._first_behind is None:
                self._first_behind = look
        self.history.take(look.elapsed_ms, look.lag, self._point)

    # ---------------------------------------- observations

    @property
    def uptime_ms(self) -> int:
        """The time (ms) since the first observation."""
        return self._elapsed_ms() - self._started_ms

    @property
    def behind_since_ms(self) -> int | None:
        """The time (ms since the epoch) since which the application is behind.

        It is behind if more records wait than it processes in a minute; None if it keeps up. It is also None for the
        first minute, in which records may have just arrived, or a commit may take long.
        """
        first = self._first_behind
        lasts = first is not None and self.newest.elapsed_ms - first.elapsed_ms >= KEPT_MS
        return first.time_ms if first is not None and lasts else None

    @property
    def newest(self) -> Look:
        """The newest observation."""
        with self._lock:
            return self._looks[-1]

    @property
    def age_ms(self) -> int:
        """The age of the newest observation (ms)."""
        return self._elapsed_ms() - self.newest.elapsed_ms

    def metrics(self) -> Mapping[str, Mapping[MetricName, Metric]]:
        """Return the metrics of each topology, by its name.

        They are computed once per observation, however many pages are open.
        """
        with self._measuring:
            look = self.newest
            if self._measured is None or self._measured[0] is not look:
                topologies = self.application.running_topologies()
                self._measured = look, {name: topology.metrics() for name, topology in topologies.items()}
            return self._measured[1]

    def output_age(self) -> OutputAge | None:
        """Return the ages of output over the samples of the metrics, of several topologies the largest.

        None if nothing was written.
        """
        found = [
            [
                float(metric.metric_value)
                for metrics in self.metrics().values()
                for name, metric in metrics.items()
                if name.name == f"{OUTPUT_AGE}-p{percent}"
            ]
            for percent in (50, 95, 99)
        ]
        return OutputAge(*map(max, found)) if all(found) else None

    def _point(self) -> Point:
        """Return the figures of the newest observation for curves."""
        look, rates, began_ms = self.newest, self.rates(), self._elapsed_ms()
        if began_ms >= self._ages_until_ms:
            self._age = self.output_age()
            self._ages_until_ms = began_ms + round((self._elapsed_ms() - began_ms) / _MEASURING_SHARE)
        records_out = rates.records_out if look.unseen is None else None
        age = self._age
        ages = (None, None, None) if age is None else (age.p50, age.p95, age.p99)
        return Point(look.time_ms, rates.records_in, records_out, look.lag, *ages)

    def store_sizes(self) -> Mapping[str, Mapping[str, StoreSize]]:
        """Return the sizes of the stores of each topology, by topology and store.

        Sizes that cannot be read now are missing. They are read once per observation, and only on request.
        """
        with self._sizing:
            look = self.newest
            if self._sizes is None or self._sizes[0] is not look:
                topologies = self.application.running_topologies()
                self._sizes = look, {name: _sizes(topology) for name, topology in topologies.items()}
            return self._sizes[1]

    def rates(self) -> Rates:
        """Return the changes per second."""
        with self._lock:
            first, last = self._looks[0], self._looks[-1]
            lags = [(look.elapsed_ms, look.lag) for look in self._looks if look.topologies and look.lag is not None]

        def change(figure: Callable[[Look], int]) -> float | None:
            return _rate((first.elapsed_ms, figure(first)), (last.elapsed_ms, figure(last)))

        return Rates(
            change(lambda look: look.statistics.records_in),
            change(lambda look: look.statistics.records_out),
            change(lambda look: look.processed),
            _rate(lags[0], lags[-1]) if lags and last.lag is not None else None,
        )


def _processed(figures: HostStatistics) -> Mapping[str, int]:
    """Return the number of processed records by task, of a watched group that of committed offsets."""
    advanced = None if figures.watched is None else figures.watched.advanced
    return figures.processed if advanced is None else advanced


def _rate(before: tuple[int, int], now: tuple[int, int]) -> float | None:
    """Return the change per second between two values; None for equal times.

    Each value comes after its time (ms).
    """
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
