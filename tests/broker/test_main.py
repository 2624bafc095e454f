"""The command line of the broker."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

WAIT = 60


def test_the_command_line_says_the_address_and_ends_on_signals(tmp_path: Path) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        command = [sys.executable, "-m", "penstock_broker", "--data-dir", str(tmp_path), "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("Kafka broker is ready: bootstrap.servers=127.0.0.1:")
            process.send_signal(number)
            assert process.wait(WAIT) == 0


def test_the_command_line_says_what_is_wrong(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock_broker", "--data-dir", str(tmp_path), "--host", "0.0.0.0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: cannot listen on '0.0.0.0'")
    assert "Traceback" not in done.stderr


def test_it_loads_nothing_that_only_tests_need() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "penstock_broker", "--help"]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert " penstock_broker.server\n" in loaded
    assert " hypothesis\n" not in loaded
    assert " kio\n" not in loaded
