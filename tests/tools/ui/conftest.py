"""An application over a host that does what the test tells it, and a client that asks what it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from starlette.testclient import TestClient

from penstock import KafkaStreams, Materialized, Serdes, StreamsBuilder, Topology
from penstock.config import StreamsConfig
from penstock.errors import StateStoreNotAvailableError, StreamsError
from penstock.host.api import HostStatistics, Staleness, StoreSize, TaskMetadata
from penstock.plan.subtopology import BuiltTopology, TaskId
from penstock.record import TopicPartition
from penstock.state.api import StoreBuilder
from penstock.state.query.queryable import StoreQueryParameters
from penstock.state.query.request import StateQueryRequest, StateQueryResult
from penstock.tools.ui.answers import Answers
from penstock.tools.ui.observer import Observer
from penstock.tools.ui.routes import application
from penstock_broker.common.clock import MockClock
from tests.support.answers import check_answer
from tests.test_streams import TestHost

CONFIG: Mapping[str, Any] = {
    "application.id": "app",
    "bootstrap.servers": "localhost:1",
    "penstock.host": "threads",
    "default.key.serde": Serdes.string(),
    "default.value.serde": Serdes.string(),
}


def word_count(source: str = "lines", target: str = "counts-out") -> Topology:
    builder = StreamsBuilder()
    words = builder.stream(source).flat_map_values(str.split)
    words.group_by(lambda _, word: word).count(Materialized.as_("counts")).to_stream().to(target)
    return builder.build()


class Tasks:
    """What a host knows of its tasks and stores (implements what the ui asks of StateQueries)."""

    def __init__(self, built: BuiltTopology) -> None:
        self._builders = {name: store for spec in built.subtopologies for name, store in spec.stores.items()}
        self.positions: dict[str, tuple[int, int]] = {}
        """By task: the committed offset of its partition of `lines`, and the end."""
        self.committed = Staleness(0, 0, None)
        self.problem: StreamsError | None = None
        self.sizes: dict[str, StoreSize] = {}
        self.sized = 0
        """How often somebody asked for the sizes."""

    def stores(self) -> Mapping[str, StoreBuilder]:
        return self._builders

    def store(self, parameters: StoreQueryParameters) -> Any:
        raise StateStoreNotAvailableError(f"No store {parameters.store_name} is here.")

    def query(self, request: StateQueryRequest) -> StateQueryResult:
        raise StateStoreNotAvailableError(f"No store {request.store_name} is here.")

    def store_sizes(self) -> Mapping[str, StoreSize]:
        self.sized += 1
        if self.problem is not None:
            raise self.problem
        return self.sizes

    def staleness(self) -> Staleness:
        return self.committed

    def task_metadata(self) -> tuple[TaskMetadata, ...]:
        if self.problem is not None:
            raise self.problem
        found = []
        for name, (committed, end) in self.positions.items():
            task = TaskId.parse(name)
            partition = TopicPartition("lines", task.partition)
            found.append(TaskMetadata(task, {partition: committed}, {partition: end}))
        return tuple(found)


class UiHost(TestHost):
    """A host whose figures and tasks the test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.figures: dict[str, Any] = {}

    def statistics(self) -> HostStatistics:
        return HostStatistics(**self.figures)

    def tasks(self) -> Tasks:
        """Return what it knows of its tasks, for the test to set."""
        if self.answers is None:
            self.answers = Tasks(self.built)
        found: Tasks = self.answers
        return found

    def queries(self) -> Tasks:
        return self.tasks()


class Shown:
    """An application that runs, as its addresses show it; time moves by `after`."""

    def __init__(self, streams: KafkaStreams, host: UiHost, config: StreamsConfig, clock: MockClock) -> None:
        self.streams, self.host, self.config, self.clock = streams, host, config, clock
        self.observer = Observer(streams, self.clock, self.clock.milliseconds)
        self.client = TestClient(application(Answers(self.observer, config)), base_url="http://localhost")

    def after(self, milliseconds: int) -> None:
        """Let time pass, and look at the application."""
        self.clock.advance(milliseconds)
        self.observer.look()

    def json(self, path: str, status: int = 200) -> Any:
        """Return what an address answers in JSON, after a comparison with the schema."""
        answer = self.client.get(path)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/json"
        check_answer(path, answer.json(), status)
        return answer.json()


@pytest.fixture
def show(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Shown]]:
    """A function that runs a topology, and shows it."""
    started: list[KafkaStreams] = []
    clock = MockClock(1_000_000)
    for module in ("life", "uncaught_errors"):
        monkeypatch.setattr(f"penstock.application.{module}.SystemClock", lambda: clock)

    def run(topology: Topology | None = None, **values: Any) -> Shown:
        host = UiHost()
        monkeypatch.setattr("penstock.streams.open_host", host.open)
        config = StreamsConfig({**CONFIG, **values}, environment={})
        streams = KafkaStreams(topology or word_count(), config)
        started.append(streams.start())
        host.told().on_running()
        return Shown(streams, host, config, clock)

    yield run
    for streams in started:
        streams.close()


@pytest.fixture
def shown(show: Callable[..., Shown]) -> Shown:
    """A word count that runs."""
    return show()
