"""KafkaStreams over a host that does what the test says: its session, its id, and edits of its topology."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from penstock import Materialized, Serdes, StreamsBuilder, TimeWindows
from penstock.config import StreamsConfig
from penstock.errors import ConfigError, StreamsError
from penstock.host.api import HostListener, HostStatistics, State, StreamThreadExceptionResponse
from penstock.host.group_membership_operation import GroupMembershipOperation
from penstock.metrics.host_metrics import NOT_MEASURED, Measured
from penstock.plan.subtopology import BuiltTopology
from penstock.plan.topology import Topology
from penstock.state.restore_listener import StateRestoreListener
from penstock.streams import KafkaStreams
from penstock.task.taps import TappedRecord

CONFIG = {"application.id": "app", "bootstrap.servers": "localhost:1"}


class TestHost:
    """A host without tasks. `on_start` is called in `start`; `closes` says what `close` answers, call by call."""

    __test__ = False

    def __init__(self) -> None:
        self.listener: HostListener | None = None
        self.config: StreamsConfig | None = None
        self.session: Any = None
        self.until_end = False
        self.refusal: StreamsError | None = None
        self.closes: list[bool] = []
        self.closed_with: list[int] = []
        self.operations: list[GroupMembershipOperation] = []
        self.answers: Any = None
        self.calls: list[str] = []
        self.responses: list[StreamThreadExceptionResponse] = []
        self.taps: dict[str, list[TappedRecord]] = {}

    def open(
        self,
        built: BuiltTopology,
        config: StreamsConfig,
        session: Any,
        until_end: bool = False,
        restore_listener: StateRestoreListener | None = None,
    ) -> TestHost:
        self.built, self.session, self.until_end = built, session, until_end
        self.config, self.restore_listener = config, restore_listener
        return self

    def start(self, listener: HostListener) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.listener = listener
        self.calls.append("start")

    def told(self) -> HostListener:
        assert self.listener is not None
        return self.listener

    def close(self, timeout_ms: int, operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT) -> bool:
        self.closed_with.append(timeout_ms)
        self.operations.append(operation)
        return self.closes.pop(0) if self.closes else True

    def fails(self, error: Exception) -> None:
        """Fail as a host does that starts nothing again."""
        self.responses.append(self.told().on_failure(error))
        self.told().on_error(error)

    def pause(self) -> None:
        self.calls.append("pause")

    def resume(self) -> None:
        self.calls.append("resume")

    def clean_up(self) -> None:
        self.calls.append("clean_up")

    def reset(self) -> None:
        self.calls.append("reset")

    def summary(self) -> str:
        return "guarantee here, broker there"

    def statistics(self) -> HostStatistics:
        return HostStatistics(records_in=7, lag=2)

    def measured(self) -> Measured:
        return NOT_MEASURED

    def table(self, store_name: str, as_of: int | None = None) -> str:
        assert self.config is not None
        return f"{self.config['application.id']}: {store_name}"

    def tapped(self, node: str, limit: int) -> Sequence[TappedRecord]:
        return self.taps[node]

    def untap(self, node: str) -> None:
        self.calls.append(f"untap {node}")

    def queries(self) -> Any:
        return self.answers


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> TestHost:
    host = TestHost()
    monkeypatch.setattr("penstock.streams.open_host", host.open)
    program_reaches_its_end = "penstock.application.life.ended_with"
    monkeypatch.setattr(program_reaches_its_end, lambda is_of_a_test: None)
    return host


def topology() -> Topology:
    return Topology().add_source("source", "in").add_sink("sink", "out", "source")


def running(host: TestHost) -> KafkaStreams:
    streams = KafkaStreams(topology(), CONFIG)
    streams.start()
    host.told().on_running()
    return streams


def test_a_session_of_the_users_is_handed_to_the_host(host: TestHost) -> None:
    session = object()
    with KafkaStreams(topology(), CONFIG, spark=session):
        assert host.session is session


def test_an_application_needs_an_id() -> None:
    with pytest.raises(ConfigError, match=r"application\.id"):
        KafkaStreams(topology(), {})


def counting(store: str, windowed: bool = False) -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("in").group_by(lambda key, word: word)
    if windowed:
        words.windowed_by(TimeWindows.of_size_with_no_grace(1_000)).count(Materialized.as_(store))
    else:
        words.count(Materialized.as_(store))
    return builder.build()


TEXT_CONFIG = {
    **CONFIG,
    "penstock.host": "threads",
    "default.key.serde": Serdes.string(),
    "default.value.serde": Serdes.string(),
}


@pytest.fixture
def without_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.savepoints.topics_of", lambda config: {})


@pytest.mark.usefixtures("without_brokers")
def test_an_edit_shows_what_changes_and_starts_the_changed_topology(host: TestHost) -> None:
    streams = KafkaStreams(counting("counts"), TEXT_CONFIG)
    streams.start()
    host.told().on_running()
    before = host.told()
    changed = counting("counts").add_source("more", "more").add_sink("copies", "copies", "more")
    edit = streams.edit(changed)
    assert edit.lines[0] == "store counts keeps its state"
    assert "store counts keeps its state" in str(edit)
    assert "<svg" in edit._repr_mimebundle_()["text/html"]
    assert host.closed_with
    assert host.calls == ["start", "start"]
    assert "copies" in str(streams.describe())
    before.on_stopped()  # late, by the host that was closed
    before.on_error(ValueError("late"))
    host.told().on_running()
    assert streams.state() is State.RUNNING
    assert streams.error() is None
    streams.close()


@pytest.mark.usefixtures("without_brokers")
def test_an_edit_that_loses_state_changes_nothing(host: TestHost) -> None:
    streams = KafkaStreams(counting("counts"), TEXT_CONFIG)
    streams.start()
    host.told().on_running()
    with pytest.raises(StreamsError, match=r"so the old one keeps running:\n.*store counts has the layout"):
        streams.edit(counting("counts", windowed=True))
    with pytest.raises(StreamsError, match=r"store counts is not in the changed topology.*removing=\['counts'\]"):
        streams.edit(counting("others"))
    assert streams.state() is State.RUNNING
    assert host.calls == ["start"]
    edit = streams.edit(counting("others"), removing=["counts"])
    assert {"store others is new and starts empty"} < set(edit.lines)
    assert host.calls == ["start", "start"]
    assert streams.edit(counting("others"), removing=["counts"]).lines == ()  # the cell again
    streams.close()


@pytest.mark.usefixtures("without_brokers")
def test_an_edit_starts_an_application_that_was_closed_or_has_failed(
    host: TestHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.application.life.DEFAULT_CLOSE_TIMEOUT_MS", 10)
    streams = KafkaStreams(topology(), TEXT_CONFIG)
    streams.start()
    streams.close()
    streams.edit(topology())
    host.told().on_running()
    assert streams.state() is State.RUNNING
    host.fails(ValueError("no"))
    assert streams.state() is State.ERROR
    streams.edit(topology())
    host.told().on_running()
    assert (streams.state(), streams.error()) == (State.RUNNING, None)
    host.closes = [False]
    host.told().on_rebalancing()
    with pytest.raises(TimeoutError, match="did not end within"):
        streams.edit(topology())
    streams.edit(topology())
    assert streams.state() is State.REBALANCING
    host.refusal = StreamsError("no broker")
    with pytest.raises(StreamsError, match="no broker"):
        streams.edit(topology())
    assert streams.state() is State.ERROR
    host.refusal = None
    streams.edit(topology())
    streams.close()
