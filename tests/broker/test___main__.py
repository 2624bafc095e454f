"""The command line of the broker."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock_broker.__main__
from penstock_broker.__main__ import main
from penstock_broker.config import BrokerConfig
from penstock_broker.server import Input

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


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[BrokerConfig, Input, bool]]:
    """The brokers that the command line would run."""
    noted: list[tuple[BrokerConfig, Input, bool]] = []

    def run(config: BrokerConfig, **how: Any) -> None:
        noted.append((config, how["input"], how["is_temporary"]))

    monkeypatch.setattr(penstock_broker.__main__, "run", run)
    return noted


def test_options_are_settings_and_without_them_the_defaults_hold(
    runs: list[tuple[BrokerConfig, Input, bool]], tmp_path: Path
) -> None:
    directory = ["--data-dir", str(tmp_path)]
    assert main(directory) == 0
    assert runs.pop() == (BrokerConfig(data_dir=tmp_path, port=9092), Input.UNUSED, False)
    numbers = ["--port", "0", "--num-partitions", "3", "--log-retention-ms", "5"]
    assert main([*directory, *numbers, "--no-auto-create-topics", "--temporary", "--stop-at-eof"]) == 0
    expected = BrokerConfig(data_dir=tmp_path, num_partitions=3, log_retention_ms=5, auto_create_topics=False)
    assert runs.pop() == (expected, Input.OF_PARENT, True)
    assert main([*directory, "--stop-at-eof", "--commands", "--schema-registry-port", "8081"]) == 0
    config, source, _ = runs.pop()
    assert (config.schema_registry_port, source) == (8081, Input.COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [([], "--data-dir"), (["--data-dir", "d", "--port", "x"], "invalid int value: 'x'"), (["more"], "--data-dir")],
)
def test_arguments_that_cannot_be_end_with_the_usage(
    runs: list[tuple[BrokerConfig, Input, bool]], capsys: pytest.CaptureFixture[str], arguments: list[str], reason: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert reason in capsys.readouterr().err
    assert runs == []
