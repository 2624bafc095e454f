"""A Kafka broker for tests, in a process of its own.

It starts quickly and needs neither Java nor Spark.

Contains its start and end, and the faults that a test injects. Not here: the broker itself (penstock_broker).
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from penstock_broker.common.durations import Duration, milliseconds
from penstock_broker.errors import BrokerError
from penstock_broker.process import BrokerProcess

_MEMORY: Final = Path("/dev/shm")
_MIN_FREE_MEMORY: Final = 256 * 1024 * 1024


class EmbeddedBroker(BrokerProcess):
    """A broker for a test; a context manager that ends it.

    Any Kafka client connects to `bootstrap_servers`. Faults apply to the next requests of an API, in the order in which
    they were injected. APIs have Kafka's names, such as Produce or TxnOffsetCommit, and errors have the names of
    Kafka's protocol, such as NOT_LEADER_OR_FOLLOWER.

    Args:
        directory: directory of the data, which is kept afterwards; None for a directory that is removed at the end, in
            memory (/dev/shm) if possible, otherwise in the directory of temporary files.
        port: TCP port on the loopback address; 0 for any free port, which a restart keeps.
        num_partitions: partitions of a topic that is created without a number.
        auto_create_topics: whether a missing topic is created when a client asks for it.
        schema_registry_port: TCP port of a schema registry next to the broker, with its address in
            `schema_registry_url`; 0 for any free port, which a restart keeps; None for no registry. It needs the extras
            `avro` and `ui`.
        arguments: more arguments of `python -m penstock_broker`, such as `--log-retention-ms`, `-1`.
    """

    def __init__(
        self,
        directory: Path | str | None = None,
        *,
        port: int = 0,
        num_partitions: int = 1,
        auto_create_topics: bool = True,
        schema_registry_port: int | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        self._temporary = None if directory is not None else _temporary_directory()
        of_tests = ("--commands",) if directory is not None else ("--commands", "--temporary")
        super().__init__(
            Path(directory or self._temporary or ""),
            port=port,
            num_partitions=num_partitions,
            auto_create_topics=auto_create_topics,
            schema_registry_port=schema_registry_port,
            arguments=(*of_tests, *arguments),
        )

    def start(self) -> Self:
        """Start the broker, wait until clients can connect, and return it.

        Raises:
            BrokerError: it is already running, or it cannot start; with its output.
        """
        is_new = self._temporary is not None and not self._temporary.exists()
        try:
            super().start()
        except BrokerError:
            if is_new:
                self.stop()
            raise
        return self

    def stop(self) -> None:
        """End the broker cleanly and remove temporary data."""
        super().stop()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _leave_to_the_parent(self) -> None:
        super()._leave_to_the_parent()
        self._temporary = None

    def restart(self) -> None:
        """Kill the broker if it is running, and restart it on its data and port.

        Raises:
            BrokerError: it cannot start.
        """
        self.kill()
        self.start()

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic.

        Args:
            name: its name.
            partitions: number of partitions.
            configs: its configuration; all values are text, as in Kafka.

        Raises:
            BrokerError: it exists, or the name, the number or the configuration is rejected.
        """
        for key, value in (configs or {}).items():
            if not isinstance(value, str):
                raise BrokerError(f"the configuration {key} of topic {name!r} is {value!r}: expected text, '{value}'")
        self.command("create_topic", name=name, partitions=partitions, configs=dict(configs or {}))

    def fail(self, api: str, error: str, times: int = 1) -> None:
        """Answer the next requests of an API with an error; they have no effect.

        Args:
            api: name of the API.
            error: name of the error.
            times: number of affected requests.

        Raises:
            BrokerError: there is no such API or error.
        """
        self.command("fail", api=api, error=error, times=times)

    def delay(self, api: str, delay_ms: Duration, times: int = 1) -> None:
        """Delay the answers to the next requests of an API, which take effect at once.

        Args:
            api: name of the API.
            delay_ms: the delay (ms).
            times: number of affected requests.

        Raises:
            BrokerError: there is no such API, or the delay is negative.
            TypeError: the delay is neither a whole number nor a timedelta.
        """
        self.command("delay", api=api, delay_ms=milliseconds(delay_ms, "delay_ms"), times=times)

    def drop_connection(self, api: str, times: int = 1) -> None:
        """Close the connection of the next requests of an API, which have no effect.

        Args:
            api: name of the API.
            times: number of affected requests.

        Raises:
            BrokerError: there is no such API.
        """
        self.command("drop_connection", api=api, times=times)

    def lose_answer(self, api: str, times: int = 1) -> None:
        """Close the connection of the next requests of an API after they took effect.

        Args:
            api: name of the API.
            times: number of affected requests.

        Raises:
            BrokerError: there is no such API.
        """
        self.command("lose_answer", api=api, times=times)

    def kill_before_answer(self, api: str) -> None:
        """Kill the broker after it handled the next request of an API, before it answers.

        Args:
            api: name of the API.

        Raises:
            BrokerError: there is no such API.
        """
        self.command("kill_before_answer", api=api, times=1)

    def clear_faults(self) -> None:
        """Remove the faults that have not happened yet."""
        self.command("clear_faults")


def _temporary_directory() -> Path:
    has_memory = os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _MIN_FREE_MEMORY
    return (_MEMORY if has_memory else Path(tempfile.gettempdir())) / f"penstock-broker-{uuid.uuid4().hex}"
