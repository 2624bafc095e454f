"""The broker as a subprocess, for demos, tests and `penstock run` without a broker.

Contains BrokerProcess. Not here: the broker itself (server.py).

Rules: it is a process and never a thread, because a thread competes with busy Python code and answers a hundred times
later. The standard input of the broker is a pipe from its parent, and the broker ends when the pipe closes; so it never
outlives its parent, even if that is killed.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from penstock_broker.common.forks import stay_in_this_process
from penstock_broker.common.private_files import UnsafePathError, open_private, private_directory
from penstock_broker.errors import BrokerError
from penstock_broker.server import READY_LINE, REGISTRY_LINE

LOG_NAME: Final = "broker.log"
"""Name of the file in the data directory with the broker's warnings and errors."""

START_TIMEOUT_SECONDS: Final = 60.0
"""Maximum time (s) for a broker to recover its log and listen."""

STOP_TIMEOUT_SECONDS: Final = 30.0
"""Maximum time (s) for a broker to force its logs to disk and end.

After that it is killed.
"""


class BrokerProcess:
    """A broker in its own process; a context manager that ends it.

    Args:
        data_dir: directory of the log; created if missing.
        port: TCP port on the loopback address; 0 for any free port, which a restart keeps.
        num_partitions: partitions of a topic that is created without a number.
        auto_create_topics: whether a client's Metadata request may create a missing topic.
        schema_registry_port: TCP port of a schema registry next to the broker; 0 for any free port, which a restart
            keeps; None for no registry.
        arguments: more arguments of `python -m penstock_broker`, such as `--log-retention-ms`, `-1`.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int = 0,
        num_partitions: int = 1,
        auto_create_topics: bool = True,
        schema_registry_port: int | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        self._arguments = tuple(arguments)
        self._data_dir = data_dir
        self._port = port
        self._num_partitions = num_partitions
        self._auto_create_topics = auto_create_topics
        self._schema_registry_port = schema_registry_port
        self._process: subprocess.Popen[bytes] | None = None
        self._address = ""
        self._registry_url = ""
        self._sending = threading.Lock()
        stay_in_this_process(self)

    @property
    def bootstrap_servers(self) -> str:
        """The address for `bootstrap.servers`.

        Raises:
            BrokerError: the broker was never started.
        """
        if not self._address:
            raise BrokerError("the broker was not started; call start() or use it in a with statement")
        return self._address

    @property
    def schema_registry_url(self) -> str:
        """The URL of the schema registry, for the Avro and Protobuf serdes.

        Raises:
            BrokerError: the broker was never started, or has no registry.
        """
        if not self._registry_url:
            raise BrokerError("the broker was not started, or was not asked for a schema registry")
        return self._registry_url

    @property
    def pid(self) -> int | None:
        """The id of the process, or None if it is not running."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> Self:
        """Start the broker, wait until clients can connect, and return it.

        Raises:
            BrokerError: it is already running, or it ended or was not ready in START_TIMEOUT_SECONDS; with its output.
        """
        if self.pid is not None:
            raise BrokerError(f"the broker is already running as process {self.pid} at {self._address}")
        try:
            private_directory(self._data_dir)
            log = open_private(self._data_dir / LOG_NAME, "ab+")
        except UnsafePathError as error:
            raise BrokerError(str(error)) from error
        except OSError as error:
            raise BrokerError(f"cannot use the data directory {self._data_dir}: {error}") from error
        with log:
            self._start(log)
        return self

    def _start(self, log: IO[bytes]) -> None:
        log.seek(0, os.SEEK_END)
        self._process = subprocess.Popen(
            self._command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            # A Ctrl-C at the terminal is for the parent, which may still need the broker while it ends.
            start_new_session=True,
        )
        try:
            lines = self._wait_for_lines(self._process, log)
        except BaseException:
            self.kill()
            raise
        self._address = lines[-1].removeprefix(READY_LINE)
        self._port = int(self._address.rpartition(":")[2])
        if self._schema_registry_port is not None:
            self._registry_url = lines[0].removeprefix(REGISTRY_LINE)
            self._schema_registry_port = int(self._registry_url.rpartition(":")[2])

    def _command(self) -> list[str]:
        command = [sys.executable, "-m", "penstock_broker", "--stop-at-eof", "--data-dir", str(self._data_dir)]
        command += ["--port", str(self._port), "--num-partitions", str(self._num_partitions), *self._arguments]
        if self._schema_registry_port is not None:
            command += ["--schema-registry-port", str(self._schema_registry_port)]
        return command if self._auto_create_topics else [*command, "--no-auto-create-topics"]

    def _wait_for_lines(self, process: subprocess.Popen[bytes], log: IO[bytes]) -> list[str]:
        assert process.stdout is not None
        logged_before = log.tell()
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        output = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while READY_LINE.encode() not in output or not output.endswith(b"\n"):
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    raise BrokerError(f"the broker was not ready after {START_TIMEOUT_SECONDS:.0f} s and was stopped")
                chunk = os.read(process.stdout.fileno(), 4096)
                if not chunk:
                    log.seek(logged_before)
                    said = log.read().decode("utf-8", "replace").strip()
                    raise BrokerError(said.removeprefix("error: ") or "the broker ended without a message")
                output += chunk
        return output.decode().splitlines()

    def command(self, do: str, **arguments: object) -> None:
        """Send a command to a broker started with `--commands`, and wait for its execution.

        Args:
            do: the command (commands.py).
            arguments: its arguments.

        Raises:
            BrokerError: the broker is not running, or rejects the command.
        """
        with self._sending:
            process = self._process
            if process is None or process.stdin is None or process.stdout is None:
                raise BrokerError("the broker does not run; call start() or use it in a with statement")
            try:
                process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
                process.stdin.flush()
                answer = process.stdout.readline()
            except OSError as error:
                raise BrokerError(f"the broker has ended: {error}") from error
        if not answer:
            raise BrokerError("the broker has ended")
        refusal = json.loads(answer).get("error")
        if refusal is not None:
            raise BrokerError(refusal)

    def stop(self) -> None:
        """End the broker cleanly, or kill it after STOP_TIMEOUT_SECONDS."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._reap()

    def kill(self) -> None:
        """End the broker with SIGKILL, like a crash.

        start() restarts it with the same data and port.
        """
        if self._process is not None:
            self._process.kill()
            self._reap()

    def _reap(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.wait()
            _close_pipes(process)

    def _leave_to_the_parent(self) -> None:
        """Forget the broker in a forked process, and close the pipes to it."""
        process, self._process = self._process, None
        self._sending = threading.Lock()  # a thread of the parent may have held it
        if process is not None:
            _close_pipes(process)


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
