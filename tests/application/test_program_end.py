"""What the end of a program, and of a process that it has forked, means for an application that nobody has closed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from penstock.application.program_end import ForgottenApplications, ended_with, is_in_a_test
from penstock.host.api import State
from penstock.testing import EmbeddedBroker
from tests.support.waiting import WAIT_SECONDS
from tests.test_streams import TestHost, host, running

__all__ = ["host"]

STARTED = """
import penstock.streams
from penstock import KafkaStreams, Topology

class Host:
    def start(self, listener): listener.on_running()
    def summary(self): return "runs"
    def close(self, timeout_ms, operation=None):
        print("closed within", timeout_ms, flush=True)
        return True

penstock.streams.open_host = lambda *arguments, **options: Host()
topology = Topology().add_source("source", "in").add_sink("sink", "out", "source")
def started():
    streams = KafkaStreams(topology, {"application.id": "app", "bootstrap.servers": "localhost:1"})
    streams.start()
    return streams
"""


def ended(directory: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (directory / "test_program.py").write_text(STARTED + text)
    return subprocess.run(
        [sys.executable, *arguments, "test_program.py"],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runner", "text"),
    [
        ("pytest", "def test_it():\n    started()\n    assert False"),
        ("unittest", "import unittest\nclass Case(unittest.TestCase):\n    def test_it(self): started()"),
    ],
)
def test_a_test_that_has_not_closed_its_application_ends(tmp_path: Path, runner: str, text: str) -> None:
    done = ended(tmp_path, text, "-m", runner)
    assert done.returncode == (1 if runner == "pytest" else 0), done
    assert "closed within" in done.stdout
    assert "app: The test that started it has not closed it" in done.stderr


def test_a_program_whose_main_thread_fails_ends(tmp_path: Path) -> None:
    done = ended(tmp_path, "first, second = started(), started()\nraise ValueError('no')")
    assert done.returncode == 1
    assert done.stdout.count("closed within") == 2
    assert done.stderr.count("app: The main thread has ended with ValueError, so the application is closed now.") == 2


def test_a_program_that_reaches_its_end_waits_for_its_application(tmp_path: Path) -> None:
    lines = [
        "import threading",
        "closing = threading.Timer(0.3, started().close)",
        "closing.daemon = True",
        "closing.start()",
        "print('end', flush=True)",
    ]
    done = ended(tmp_path, "\n".join(lines))
    assert (done.returncode, done.stdout) == (0, "end\nclosed within 60000\n")


def in_a_child(check: object) -> int:
    """Return the exit code of a process that is forked and calls `check`."""
    pid = os.fork()
    if pid == 0:
        try:
            assert callable(check)
            os._exit(0 if check() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_leaves_the_application_to_its_parent(host: TestHost, monkeypatch: pytest.MonkeyPatch) -> None:
    unregistered: list[object] = []
    streams = running(host)
    monkeypatch.setattr("atexit.unregister", unregistered.append)

    def check() -> bool:
        was_left = streams.state() is State.NOT_RUNNING and streams.close() and not host.closed_with
        return was_left and streams._keep_the_program_alive in unregistered

    with streams._changed:  # as if another thread of the parent had it
        assert in_a_child(check) == 0
    assert streams.state() is State.RUNNING
    streams.close()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_leaves_the_broker_to_its_parent(tmp_path: Path) -> None:
    with EmbeddedBroker() as broker:
        data = broker._data_dir

        def check() -> bool:
            broker.stop()
            return broker.pid is None

        assert in_a_child(check) == 0
        broker.create_topic("in")
        assert data.is_dir()


def test_a_program_waits_unless_a_test_or_an_error_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys, "ps1", raising=False)
    monkeypatch.delattr(sys, "last_value", raising=False)
    assert ended_with(is_of_a_test=False) is None
    monkeypatch.setattr(sys, "last_value", KeyError("k"), raising=False)
    assert ended_with(is_of_a_test=False) == "The main thread has ended with KeyError"
    assert str(ended_with(is_of_a_test=True)).startswith("The test that started it has not closed it")
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    assert ended_with(is_of_a_test=False) is None, "an interactive session goes on after an error"


def test_the_main_thread_is_in_a_test_from_wherever_it_is_asked() -> None:
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(is_in_a_test()))
    thread.start()
    thread.join()
    assert [is_in_a_test(), *found] == [True, True]


def test_forgotten_applications_share_the_time_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    forgotten = ForgottenApplications()
    assert forgotten.close_timeout_ms() == 10_000
    now += 4
    assert forgotten.close_timeout_ms() == 6_000
    now += 60
    assert forgotten.close_timeout_ms() == 0
