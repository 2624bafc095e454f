"""KafkaStreams over a host that does what the test tells it: states, listener, handler, waiting, closing."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, cast

import pytest

from penstock import Consumed, Materialized, Serdes, StateQueryRequest, StreamsBuilder, TimeWindows
from penstock.application.close_options import CloseOptions, GroupMembershipOperation
from penstock.config import StreamsConfig
from penstock.errors import ConfigError, MissingSourceTopicError, StreamsError, StreamsNotStartedError
from penstock.host.api import HostListener, HostStatistics, State, StreamThreadExceptionResponse
from penstock.metrics.host_metrics import NOT_MEASURED, Measured
from penstock.plan.subtopology import BuiltTopology
from penstock.plan.topology import Topology
from penstock.state.query.queryable import QueryableStoreTypes, StoreQueryParameters
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
        self.left_group: list[bool] = []
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

    def close(self, timeout_ms: int, leave_group: bool = True) -> bool:
        self.closed_with.append(timeout_ms)
        self.left_group.append(leave_group)
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

    def table(self, store_name: str) -> str:
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


def test_a_life_goes_through_the_states_of_kafka_streams(host: TestHost) -> None:
    streams = KafkaStreams(topology(), CONFIG)
    seen: list[tuple[State, State]] = []
    streams.set_state_listener(lambda new, old: seen.append((new, old)))
    assert streams.state() is State.CREATED
    streams.start()
    host.told().on_running()
    assert streams.state() is State.RUNNING
    assert streams.close()
    assert seen == [
        (State.REBALANCING, State.CREATED),
        (State.RUNNING, State.REBALANCING),
        (State.PENDING_SHUTDOWN, State.RUNNING),
        (State.NOT_RUNNING, State.PENDING_SHUTDOWN),
    ]


def test_one_line_at_the_start_is_the_summary_of_the_host(host: TestHost, capsys: pytest.CaptureFixture[str]) -> None:
    with KafkaStreams(topology(), CONFIG):
        assert capsys.readouterr().err == "app: guarantee here, broker there\n"


def test_a_block_starts_and_closes(host: TestHost) -> None:
    with KafkaStreams(topology(), CONFIG) as streams:
        assert streams.state() is State.REBALANCING
    assert streams.state() is State.NOT_RUNNING
    assert len(host.closed_with) == 1


def test_an_application_starts_once(host: TestHost) -> None:
    streams = running(host)
    with pytest.raises(RuntimeError, match="starts once"):
        streams.start()
    streams.close()
    with pytest.raises(RuntimeError, match="starts once"):
        streams.start()


def test_setters_are_refused_after_the_start(host: TestHost) -> None:
    streams = running(host)
    with pytest.raises(RuntimeError, match="before the start"):
        streams.set_state_listener(None)
    with pytest.raises(RuntimeError, match="set_global_state_restore_listener can only be called before the start"):
        streams.set_global_state_restore_listener(None)
    with pytest.raises(RuntimeError, match="before the start"):
        streams.set_uncaught_exception_handler(None)
    streams.close()


def test_what_must_not_start_is_refused_and_leaves_nothing_open(host: TestHost) -> None:
    host.refusal = MissingSourceTopicError("no topic 'in'")
    streams = KafkaStreams(topology(), CONFIG)
    with pytest.raises(MissingSourceTopicError):
        streams.start()
    assert streams.state() is State.ERROR
    assert len(host.closed_with) == 1


def test_an_error_ends_the_application_and_is_raised_in_await_termination(host: TestHost) -> None:
    streams = KafkaStreams(topology(), CONFIG)
    asked: list[BaseException] = []

    def handler(error: BaseException) -> StreamThreadExceptionResponse:
        asked.append(error)
        return StreamThreadExceptionResponse.SHUTDOWN_CLIENT

    streams.set_uncaught_exception_handler(handler)
    streams.start()
    host.told().on_running()
    failure = StreamsError("a lambda failed")
    threading.Thread(target=host.fails, args=(failure,)).start()
    with pytest.raises(StreamsError, match="a lambda failed"):
        streams.await_termination(WAIT_SECONDS * 1000)
    assert asked == [failure]
    assert streams.state() is State.ERROR
    assert streams.close()
    assert len(host.closed_with) == 1


def test_a_failing_handler_or_listener_does_not_keep_the_application_from_ending(host: TestHost) -> None:
    def fails(*_: Any) -> Any:
        raise ZeroDivisionError

    streams = KafkaStreams(topology(), CONFIG)
    streams.set_uncaught_exception_handler(fails)
    streams.set_state_listener(fails)
    streams.start()
    host.fails(StreamsError("gone"))
    with pytest.raises(StreamsError, match="gone"):
        streams.await_termination(0)


def test_without_a_handler_the_error_is_logged(host: TestHost, caplog: pytest.LogCaptureFixture) -> None:
    streams = running(host)
    host.fails(StreamsError("gone"))
    streams.close()
    assert "app ends: gone" in caplog.text


def test_nothing_ends_that_was_not_started(host: TestHost) -> None:
    with pytest.raises(StreamsNotStartedError, match=r"app has not been started.* start\(\)"):
        KafkaStreams(topology(), CONFIG).await_termination(10)


def test_waiting_has_a_bound(host: TestHost) -> None:
    streams = running(host)
    assert not streams.await_termination(timeout_ms=1)
    streams.close()
    assert streams.await_termination(timeout_ms=0)


def test_a_close_that_is_out_of_time_can_be_called_again(host: TestHost) -> None:
    host.closes = [False]
    streams = running(host)
    assert not streams.close(timeout_ms=5)
    assert streams.state() is State.PENDING_SHUTDOWN
    assert streams.close()
    assert streams.state() is State.NOT_RUNNING
    assert host.closed_with[0] == 5


def test_closing_twice_and_closing_what_never_started_is_harmless(host: TestHost) -> None:
    streams = KafkaStreams(topology(), CONFIG)
    assert streams.close()
    assert streams.close()
    assert streams.state() is State.NOT_RUNNING
    assert host.closed_with == []
    with pytest.raises(ValueError, match="negative"):
        streams.close(-1)


def test_run_to_end_returns_when_the_host_has_reached_the_end(host: TestHost, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(listener: HostListener) -> None:
        listener.on_running()
        threading.Thread(target=listener.on_stopped).start()

    monkeypatch.setattr(host, "start", start)
    streams = KafkaStreams(topology(), CONFIG)
    streams.run_to_end(WAIT_SECONDS * 1000)
    assert host.until_end
    assert streams.state() is State.NOT_RUNNING
    assert len(host.closed_with) == 1


def test_run_to_end_has_a_bound_and_closes(host: TestHost) -> None:
    with pytest.raises(TimeoutError, match="did not reach"):
        KafkaStreams(topology(), CONFIG).run_to_end(timeout_ms=1)
    assert len(host.closed_with) == 1


def test_statistics_are_those_of_the_host_and_the_state(host: TestHost) -> None:
    streams = KafkaStreams(topology(), CONFIG)
    assert streams.statistics() == {"state": "CREATED"}
    streams.start()
    figures = {name: value for name, value in streams.statistics().items() if value != {} and value != ()}
    assert figures == {"state": "REBALANCING", "records_in": 7, "bytes_in": 0, "records_out": 0, "lag": 2}
    streams.close()


def test_a_session_of_the_users_is_handed_to_the_host(host: TestHost) -> None:
    session = object()
    with KafkaStreams(topology(), CONFIG, spark=session):
        assert host.session is session


def test_an_application_needs_an_id() -> None:
    with pytest.raises(ConfigError, match=r"application\.id"):
        KafkaStreams(topology(), {})


class Answers:
    """Answers queries with what it was asked."""

    def store(self, parameters: StoreQueryParameters) -> StoreQueryParameters:
        return parameters


def test_stores_are_read_while_the_application_runs(host: TestHost) -> None:
    host.answers = Answers()
    asked = StoreQueryParameters.from_name_and_type("counts", QueryableStoreTypes.key_value_store())
    with pytest.raises(StreamsNotStartedError, match="has not been started, you can retry after calling start"):
        KafkaStreams(topology(), CONFIG).store(asked)
    streams = running(host)
    assert streams.store(asked) == asked
    host.told().on_rebalancing()
    assert streams.store(asked.with_partition(1)).partition == 1
    streams.close()
    with pytest.raises(RuntimeError, match="KafkaStreams is not running"):
        streams.store(asked)


@pytest.mark.parametrize("answer", list(StreamThreadExceptionResponse))
def test_the_host_does_what_the_handler_answers(host: TestHost, answer: StreamThreadExceptionResponse) -> None:
    streams = KafkaStreams(topology(), CONFIG)
    streams.set_uncaught_exception_handler(lambda _: answer)
    streams.start()
    host.told().on_running()
    assert host.told().on_failure(StreamsError("a lambda failed")) is answer
    assert streams.state() is State.RUNNING
    streams.close()


def test_a_handler_that_answers_nothing_ends_the_application(host: TestHost, caplog: pytest.LogCaptureFixture) -> None:
    streams = KafkaStreams(topology(), CONFIG)
    streams.set_uncaught_exception_handler(lambda _: None)  # type: ignore[arg-type, return-value]  # what is tested
    streams.start()
    host.fails(StreamsError("gone"))
    assert host.responses == [StreamThreadExceptionResponse.SHUTDOWN_CLIENT]
    assert "failed itself" in caplog.text


def test_a_rebalance_is_a_state_and_running_follows(host: TestHost) -> None:
    streams = running(host)
    host.told().on_rebalancing()
    assert streams.state() is State.REBALANCING
    host.told().on_running()
    assert streams.state() is State.RUNNING
    streams.close()


def test_a_pause_reaches_the_host_and_is_no_state(host: TestHost) -> None:
    streams = running(host)
    assert not streams.is_paused()
    streams.pause()
    assert streams.is_paused()
    assert streams.state() is State.RUNNING
    streams.resume()
    assert not streams.is_paused()
    assert host.calls == ["start", "pause", "resume"]
    streams.close()


def test_an_application_may_begin_with_a_pause(host: TestHost) -> None:
    streams = KafkaStreams(topology(), CONFIG)
    streams.pause()
    streams.start()
    assert host.calls == ["pause", "start"]
    streams.close()


def test_cleaning_up_is_refused_while_it_runs(host: TestHost) -> None:
    streams = KafkaStreams(topology(), CONFIG)
    streams.clean_up()
    streams.start()
    host.told().on_running()
    with pytest.raises(RuntimeError, match="Cannot clean up while running"):
        streams.clean_up()
    streams.close()
    streams.clean_up()
    assert host.calls == ["clean_up", "start", "clean_up"]


def test_close_takes_options(host: TestHost) -> None:
    streams = running(host)
    leave = GroupMembershipOperation.LEAVE_GROUP
    options = CloseOptions.timeout(7).with_group_membership_operation(leave)
    assert options == CloseOptions.group_membership_operation(leave).with_timeout(7)
    assert streams.close(options)
    assert (host.closed_with, host.left_group) == ([7], [True])


@pytest.mark.parametrize(
    ("options", "leaves"),
    [
        (None, True),
        (CloseOptions.timeout(7), True),
        (CloseOptions.group_membership_operation(GroupMembershipOperation.REMAIN_IN_GROUP), False),
    ],
)
def test_the_group_is_left_unless_the_options_say_otherwise(
    host: TestHost, options: CloseOptions | None, leaves: bool
) -> None:
    assert running(host).close(options)
    assert host.left_group == [leaves]


WAIT_SECONDS = 120


def in_a_block(streams: KafkaStreams) -> None:
    with streams:
        threading.Event().wait(WAIT_SECONDS)


def to_the_end(streams: KafkaStreams) -> None:
    streams.run_to_end(WAIT_SECONDS * 1000)


@contextmanager
def terminated_once(is_started: threading.Event) -> Iterator[None]:
    """Send SIGTERM to this process when `is_started` is set."""

    def kill() -> None:
        assert is_started.wait(WAIT_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield
    finally:
        killer.join()


@pytest.mark.parametrize("run", [in_a_block, to_the_end])
@pytest.mark.parametrize("has_handler", [False, True])
def test_sigterm_closes_in_order_and_ends_the_program(
    host: TestHost,
    monkeypatch: pytest.MonkeyPatch,
    run: Callable[[KafkaStreams], None],
    has_handler: bool,
) -> None:
    called: list[int] = []

    def handler(number: int, frame: object) -> None:
        called.append(number)

    before = signal.signal(signal.SIGTERM, handler if has_handler else signal.SIG_DFL)
    try:
        streams, is_started = KafkaStreams(topology(), CONFIG), threading.Event()
        monkeypatch.setattr(host, "summary", lambda: is_started.set())
        with terminated_once(is_started), pytest.raises(SystemExit) as ended:
            run(streams)
        assert ended.value.code == 143
        assert streams.state() is State.NOT_RUNNING
        assert host.closed_with
        assert called == ([signal.SIGTERM] if has_handler else [])
        assert signal.getsignal(signal.SIGTERM) == (handler if has_handler else signal.SIG_DFL)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_sigterm_closes_an_application_that_is_waited_for(host: TestHost, monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGTERM)
    streams = running(host)
    wait = streams._wait_until_ended

    def terminated(timeout_ms: int | None = None) -> bool:
        monkeypatch.setattr(streams, "_wait_until_ended", wait)
        os.kill(os.getpid(), signal.SIGTERM)
        return wait(timeout_ms)

    monkeypatch.setattr(streams, "_wait_until_ended", terminated)
    with pytest.raises(SystemExit) as ended:
        streams.await_termination(WAIT_SECONDS * 1000)
    assert (ended.value.code, streams.state()) == (143, State.NOT_RUNNING)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_block_that_does_not_start_leaves_the_handler_of_sigterm(host: TestHost) -> None:
    before = signal.getsignal(signal.SIGTERM)
    host.refusal = StreamsError("no")
    with pytest.raises(StreamsError), KafkaStreams(topology(), CONFIG):
        pass
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_second_sigterm_does_not_stop_the_close(host: TestHost) -> None:
    def close(timeout_ms: int, leave_group: bool = True) -> bool:
        os.kill(os.getpid(), signal.SIGTERM)
        return TestHost.close(host, timeout_ms)

    host.close = close  # type: ignore[method-assign]  # a host that takes its time
    with pytest.raises(SystemExit), KafkaStreams(topology(), CONFIG) as streams:
        os.kill(os.getpid(), signal.SIGTERM)
    assert streams.state() is State.NOT_RUNNING


def test_a_later_sigterm_gives_the_running_commit_up_and_the_next_one_ends_the_process(
    host: TestHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = 0
    monkeypatch.setattr("penstock.termination.elapsed_milliseconds", lambda: now_ms)
    kept: list[object] = []
    monkeypatch.setattr("atexit.register", kept.append)
    monkeypatch.setattr("atexit.unregister", lambda callback: callback in kept and kept.remove(callback))
    before = signal.getsignal(signal.SIGTERM)

    def close(timeout_ms: int, leave_group: bool = True) -> bool:
        nonlocal now_ms
        now_ms += 1_000
        if not host.closed_with:
            host.closed_with.append(timeout_ms)
            os.kill(os.getpid(), signal.SIGTERM)
        host.closed_with.append(timeout_ms)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        return False  # a function of the user does not return

    host.close = close  # type: ignore[method-assign]  # a host that takes its time
    try:
        with pytest.raises(SystemExit), KafkaStreams(topology(), CONFIG) as streams:
            os.kill(os.getpid(), signal.SIGTERM)
        assert host.closed_with == [60_000, 0]
        assert streams.state() is State.NOT_RUNNING
        assert kept == [], "the end of the program does not wait"
    finally:
        signal.signal(signal.SIGTERM, before)


def interrupted_while_it_closes(host: TestHost) -> None:
    def close(timeout_ms: int, leave_group: bool = True) -> bool:
        if not host.closed_with:
            host.closed_with.append(timeout_ms)
            raise KeyboardInterrupt
        return TestHost.close(host, timeout_ms)

    host.close = close  # type: ignore[method-assign]  # as if Ctrl-C came in it


def test_ctrl_c_says_what_it_waits_for(
    host: TestHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At the end of a block and of the program, and in run_to_end."""

    def interrupted(timeout_ms: int | None = None) -> bool:
        raise KeyboardInterrupt

    announced = "stopping after the running commit; Ctrl-C again gives that commit up."
    with pytest.raises(KeyboardInterrupt), KafkaStreams(topology(), CONFIG):
        raise KeyboardInterrupt
    assert announced in capsys.readouterr().err
    streams = running(host)
    wait = streams._wait_until_ended
    monkeypatch.setattr(streams, "_wait_until_ended", interrupted)
    streams._keep_the_program_alive()
    assert announced in capsys.readouterr().err
    monkeypatch.setattr(streams, "_wait_until_ended", wait)
    to_end = KafkaStreams(topology(), CONFIG)
    monkeypatch.setattr(to_end, "await_termination", interrupted)
    with pytest.raises(KeyboardInterrupt):
        to_end.run_to_end()
    assert announced in capsys.readouterr().err
    with KafkaStreams(topology(), CONFIG):
        pass
    assert announced not in capsys.readouterr().err


def test_ctrl_c_during_the_close_gives_the_running_commit_up(host: TestHost) -> None:
    interrupted_while_it_closes(host)
    with pytest.raises(KeyboardInterrupt), KafkaStreams(topology(), CONFIG) as streams:
        raise KeyboardInterrupt
    assert host.closed_with == [60_000, 0]
    assert streams.state() is State.NOT_RUNNING
    streams._keep_the_program_alive()  # the end of the program does not wait


def test_the_end_of_a_program_does_not_wait_for_what_a_close_has_waited_for_in_vain(
    host: TestHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[object] = []
    monkeypatch.setattr("atexit.register", kept.append)
    monkeypatch.setattr("atexit.unregister", kept.remove)
    streams = running(host)
    host.closes = [False, False]
    assert not streams.close(0)
    assert kept == [streams._keep_the_program_alive], "there was no time to wait"
    assert not streams.close(1)
    assert kept == []


def test_ctrl_c_twice_at_the_end_of_a_program_raises_nothing_there(
    host: TestHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = running(host)
    interrupted_while_it_closes(host)

    def interrupted(timeout_ms: int | None = None) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(streams, "_wait_until_ended", interrupted)
    streams._keep_the_program_alive()
    assert host.closed_with == [60_000, 0]


def test_an_application_of_another_thread_leaves_sigterm_alone(host: TestHost) -> None:
    seen: list[Any] = []

    def run() -> None:
        with KafkaStreams(topology(), CONFIG):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]


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


def test_a_cell_that_runs_again_closes_the_application_that_it_has_started(
    host: TestHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = running(host)
    second = running(host)
    assert first.state() is State.RUNNING  # as in Kafka, outside of a notebook
    first.close()
    second.close()
    notebook = ModuleType("IPython")
    vars(notebook)["get_ipython"] = object
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    first = running(host)
    other = KafkaStreams(topology(), {**CONFIG, "application.id": "other"})
    other.start()
    second = running(host)
    assert (first.state(), other.state(), second.state()) == (State.NOT_RUNNING, State.REBALANCING, State.RUNNING)
    assert "app: closing the application that this notebook has started before." in capsys.readouterr().err
    other.close()
    second.close()


def test_a_query_that_is_no_query_is_refused_with_what_to_write() -> None:
    builder = StreamsBuilder()
    text = Consumed.with_(Serdes.string(), Serdes.string())
    builder.stream("in", text).group_by_key().count(Materialized.as_("counts"))
    streams: Any = KafkaStreams(builder.build(), {"application.id": "a", "penstock.host": "threads"})
    name, uncalled = "counts", cast("Any", QueryableStoreTypes.key_value_store)
    with pytest.raises(TypeError, match=r"got 'counts': write StoreQueryParameters.from_name_and_type\("):
        streams.store(name)
    with pytest.raises(TypeError, match=r"write StateQueryRequest.in_store\(\"counts\"\).with_query\("):
        streams.query(StateQueryRequest.in_store(name))
    with pytest.raises(TypeError, match=r"call it, such as QueryableStoreTypes.key_value_store\(\)"):
        StoreQueryParameters.from_name_and_type(name, uncalled)
