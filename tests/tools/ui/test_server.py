"""The server of an application: where it listens, and that it ends with the application."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import orjson
import pytest

from penstock import KafkaStreams, KafkaStreamsNamedTopologyWrapper
from penstock.errors import ConfigError
from penstock.host.api import GroupStatistics, HostStatistics, MemberStatistics, State, WatchedStatistics
from penstock.host.supervision.named import NamedHosts
from penstock.tools.ui.answers import Answers
from tests.support.waiting import until
from tests.test_named_topologies import Hosts, named
from tests.test_streams import TestHost
from tests.tools.ui.conftest import CONFIG, Tasks, UiHost, word_count

ROOT = Path(__file__).parents[3]


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> UiHost:
    host = UiHost()
    monkeypatch.setattr("penstock.streams.open_host", host.open)
    return host


Run = Callable[..., KafkaStreams]


@pytest.fixture
def run(host: UiHost) -> Iterator[Run]:
    """A function that starts an application with these values; it is closed at the end of the test."""
    started: list[KafkaStreams] = []

    def run(**values: Any) -> KafkaStreams:
        started.append(KafkaStreams(word_count(), {**CONFIG, "penstock.ui.port": 0, **values}))
        return started[-1].start()

    yield run
    for streams in started:
        streams.close()


def address_in(text: str) -> str:
    """Return the address that an application told the terminal."""
    found = re.search(r"shows itself at (http://\S+/)", text)
    assert found is not None, text
    return found[1]


def get(address: str) -> Any:
    with urlopen(address, timeout=60) as answer:
        return orjson.loads(answer.read())


def test_it_serves_from_the_start_to_the_end(host: UiHost, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    threads = set(threading.enumerate())
    streams = run()
    address = address_in(capsys.readouterr().err)
    assert address.startswith("http://127.0.0.1:")
    assert get(f"{address}api/v1/overview")["state"] == "REBALANCING"
    host.told().on_running()
    assert get(f"{address}health/ready")["state"] == "RUNNING"
    assert all(thread.daemon for thread in set(threading.enumerate()) - threads)
    host.closes = [False]
    assert not streams.close(0)
    assert get(f"{address}api/v1/overview")["state"] == "PENDING_SHUTDOWN"
    assert streams.close()
    with pytest.raises(URLError):
        urlopen(address, timeout=60)
    assert until(lambda: not set(threading.enumerate()) - threads)


def sections(lines: Iterator[bytes]) -> Iterator[dict[str, str]]:
    """Yield the sections that a stream of events brings."""
    for line in lines:
        if line.startswith(b"data: "):
            yield orjson.loads(line.removeprefix(b"data: "))


def test_an_open_page_follows_the_application_and_ends_with_it(
    host: UiHost,
    run: Run,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.tools.ui.routes.EVENTS_MS", 10)
    streams = run()
    address = address_in(capsys.readouterr().err)
    with urlopen(f"{address}events", timeout=60) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        found = sections(answer)
        assert "REBALANCING" in next(each["html"] for each in found if each["id"] == "state")
        host.told().on_running()
        assert "RUNNING" in next(each["html"] for each in found if each["id"] == "state")
        assert streams.close()
        assert all(each["id"] for each in found)  # to the end of the stream
    assert caplog.messages == []


def test_readers_that_go_leave_no_errors_and_no_more_than_so_many_calls(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failed: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", failed.append)
    calls, go_on = threading.Semaphore(0), threading.Event()

    real = Answers.overview

    def overview(answers: Answers) -> dict[str, Any]:
        calls.release()
        assert go_on.wait(60)
        return real(answers)

    monkeypatch.setattr(Answers, "overview", overview)
    monkeypatch.setattr("penstock.tools.ui.routes._MOST_CALLS", 2)
    run()
    host, port = address_in(capsys.readouterr().err).removeprefix("http://").rstrip("/").split(":")
    for _ in range(2):
        with socket.create_connection((host, int(port)), 60) as reader:
            reader.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert calls.acquire(timeout=60)
    with socket.create_connection((host, int(port)), 60) as reader:
        reader.sendall(b"GET /api/v1/overview HTTP/1.0\r\nHost: localhost\r\n\r\n")
        assert not calls.acquire(timeout=0.05)
        go_on.set()
        assert reader.makefile("rb").readline().endswith(b" 200 OK\r\n")
    assert failed == []
    assert caplog.messages == []


def test_only_so_many_pages_may_be_open(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.tools.ui.routes._MOST_LIVE_PAGES", 1)
    run()
    address = address_in(capsys.readouterr().err)
    with urlopen(f"{address}events", timeout=60) as answer:
        assert next(sections(answer))
        with pytest.raises(HTTPError, match="503"):
            urlopen(f"{address}events", timeout=60)


def test_the_token_for_control_is_written_to_the_terminal_alone(
    host: UiHost, run: Run, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    streams = run(**{"penstock.ui.control": "true"})
    told = capsys.readouterr().err
    host.told().on_running()
    token = told.partition("the token for control is ")[2].split()[0]
    headers = {"Authorization": f"Bearer {token}"}
    stop = Request(f"{address_in(told)}api/v1/control/stop", headers=headers, method="POST")
    with urlopen(stop, timeout=60) as answer:
        assert answer.status == 202
    assert streams.await_termination(60_000)
    assert token not in caplog.text


def test_an_ipv6_address_can_be_asked(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        run(**{"penstock.ui.host": "::1"})
    except ConfigError:
        pytest.skip("This machine has no IPv6.")
    assert get(f"{address_in(capsys.readouterr().err)}health/live")["state"] == "REBALANCING"


def test_a_port_that_is_taken_is_reported_and_nothing_runs(host: UiHost, run: Run) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{port}: .*Set penstock\.ui\.port and penstock\.ui\.host"):
            run(**{"penstock.ui.port": port})
    assert host.calls == []


def test_a_start_that_fails_leaves_nothing_that_listens(
    host: UiHost, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    host.refusal = ConfigError("not like this")
    with pytest.raises(ConfigError, match="not like this"):
        run()
    with pytest.raises(URLError):
        urlopen(address_in(capsys.readouterr().err), timeout=60)


def test_named_topologies_are_shown_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts = Hosts()
    monkeypatch.setattr("penstock.named_topologies.open_host", hosts.open)
    streams = KafkaStreamsNamedTopologyWrapper({**CONFIG, "penstock.ui.port": 0})
    try:
        streams.start([named(streams, "a"), named(streams, "b")])
        address = address_in(capsys.readouterr().err)
        hosts["a"].told().on_running()
        assert [(each["name"], each["state"]) for each in get(f"{address}api/v1/overview")["topologies"]] == [
            ("a", "RUNNING"),
            ("b", "REBALANCING"),
        ]
        assert [each["name"] for each in get(f"{address}topology.json")["topologies"]] == ["a", "b"]
        with urlopen(f"{address}topology.mmd?topology=b", timeout=60) as answer:
            assert b"b-in" in answer.read()
    finally:
        streams.close()


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ((State.RUNNING, State.REBALANCING), State.REBALANCING),
        ((None, State.REBALANCING), State.REBALANCING),
        ((State.RUNNING, None), State.RUNNING),
        ((State.NOT_RUNNING, State.RUNNING), State.RUNNING),
        ((None, State.NOT_RUNNING), None),
        ((State.NOT_RUNNING, State.NOT_RUNNING), State.NOT_RUNNING),
    ],
)
def test_named_topologies_that_are_watched_have_a_state_together(
    seen: tuple[State | None, State | None], expected: State | None
) -> None:
    hosts = NamedHosts()
    for name, state in zip(("a", "b"), seen, strict=True):
        host = UiHost()
        host.figures = {"watched": WatchedStatistics(state=state)}
        hosts.add(name, host)
    assert hosts.statistics().watched == WatchedStatistics(state=expected)


def test_the_members_of_several_groups_are_added_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts = Hosts()
    monkeypatch.setattr("penstock.named_topologies.open_host", hosts.open)
    group = GroupStatistics("consumer", "Stable", [MemberStatistics("m", "c", "h")])
    watched = WatchedStatistics(state=State.RUNNING, unseen="Output.", group=group)
    monkeypatch.setattr(TestHost, "statistics", lambda host: HostStatistics(watched=watched))
    monkeypatch.setattr(TestHost, "queries", lambda host: Tasks(host.built))
    streams = KafkaStreamsNamedTopologyWrapper({**CONFIG, "penstock.ui.port": 0})
    try:
        streams.start([named(streams, "a"), named(streams, "b")])
        address = address_in(capsys.readouterr().err)
        assert until(lambda: get(f"{address}api/v1/overview")["members"] == 2)
        with urlopen(address, timeout=60) as answer:
            assert "Its groups have 2 members." in answer.read().decode()
    finally:
        streams.close()


ENDS = """
import sys
from penstock import KafkaStreams, StreamsBuilder
from tests.tools.ui.conftest import CONFIG, Tasks, UiHost, word_count
import penstock.streams
from urllib.request import urlopen
host = UiHost()
penstock.streams.open_host = host.open
streams = KafkaStreams(word_count(), {**CONFIG, "penstock.ui.port": 0}).start()
server = streams._servers[0]
urlopen(server.address + "api/v1/overview").read()
host.told().on_running()
host.told().on_stopped()
"""


def test_it_does_not_keep_a_program_alive_that_has_ended() -> None:
    subprocess.run([sys.executable, "-c", ENDS], cwd=ROOT, check=True, timeout=120, capture_output=True)
