"""The life of an application over a host that does what the test says: states, listener, waiting, closing, signals."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest

from penstock import KafkaStreams
from penstock.application.close_options import CloseOptions
from penstock.application.life import VALID_TRANSITIONS
from penstock.errors import MissingSourceTopicError, StreamsError, StreamsNotStartedError
from penstock.host.api import HostListener, State, StreamThreadExceptionResponse
from penstock.host.group_membership_operation import GroupMembershipOperation
from tests.test_streams import CONFIG, TestHost, host, running, topology

__all__ = ["host"]


def test_a_state_has_the_predicates_of_kafka_streams() -> None:
    predicates = (
        State.has_not_started,
        State.is_running_or_rebalancing,
        State.is_shutting_down,
        State.has_completed_shutdown,
        State.has_started_or_finished_shutting_down,
    )
    holding = {state.name: "".join("x" if holds(state) else "-" for holds in predicates) for state in State}
    assert holding == {
        "CREATED": "x----",
        "REBALANCING": "-x---",
        "RUNNING": "-x---",
        "PENDING_SHUTDOWN": "--x-x",
        "NOT_RUNNING": "---xx",
        "PENDING_ERROR": "--x-x",
        "ERROR": "---xx",
    }


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
    assert figures == {
        "state": "REBALANCING",
        "records_in": 7,
        "bytes_in": 0,
        "records_out": 0,
        "answers_in": 0,
        "lag": 2,
    }
    streams.close()


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


def test_the_host_follows_the_last_of_two_threads_that_pause_and_resume(
    host: TestHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = running(host)
    others = [threading.Thread(target=streams.resume)]

    def pause_after_another_thread() -> None:
        if others:
            other = others.pop()
            other.start()
            other.join()
        host.calls.append("pause")

    monkeypatch.setattr(host, "pause", pause_after_another_thread)
    streams.pause()
    assert not streams.is_paused()
    assert host.calls[-1] == "resume"
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
    assert (host.closed_with, host.operations) == ([7], [leave])


@pytest.mark.parametrize(
    ("options", "operation"),
    [
        (None, GroupMembershipOperation.DEFAULT),
        (CloseOptions.timeout(7), GroupMembershipOperation.DEFAULT),
        *((CloseOptions.group_membership_operation(each), each) for each in GroupMembershipOperation),
    ],
)
def test_the_host_learns_from_the_options_whether_the_group_is_left(
    host: TestHost, options: CloseOptions | None, operation: GroupMembershipOperation
) -> None:
    assert running(host).close(options)
    assert host.operations == [operation]


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


def test_sigterm_during_the_start_closes_the_application(host: TestHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "start", lambda listener: os.kill(os.getpid(), signal.SIGTERM))
    streams = KafkaStreams(topology(), CONFIG)
    with pytest.raises(SystemExit) as ended, streams:
        raise AssertionError("It has not started.")
    assert (ended.value.code, streams.state(), streams.error()) == (143, State.NOT_RUNNING, None)
    assert host.closed_with


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
    def close(timeout_ms: int, operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT) -> bool:
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

    def close(timeout_ms: int, operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT) -> bool:
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
    def close(timeout_ms: int, operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT) -> bool:
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


def test_only_an_edit_leaves_a_state_in_which_an_application_has_ended() -> None:
    assert VALID_TRANSITIONS.keys() == set(State)
    ends = {State.NOT_RUNNING, State.ERROR}
    assert {state for state, following in VALID_TRANSITIONS.items() if following == {State.CREATED}} == ends
    assert all(ends.isdisjoint(VALID_TRANSITIONS[state]) for state in (State.CREATED, State.REBALANCING, State.RUNNING))
