"""Brokers of a test's own that it kills and starts again: the embedded one and a real Kafka behind the same calls."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.broker.process import BrokerProcess
from tests.support.kafka import RealKafka


class EmbeddedBroker:
    """The embedded broker; a context manager that ends it."""

    def __init__(self, directory: Path) -> None:
        """Keep its log in `directory`."""
        self._process = BrokerProcess(directory)

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.stop()

    @property
    def bootstrap_servers(self) -> str:
        """Its address."""
        return self._process.bootstrap_servers

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._process.kill()

    def resume(self) -> None:
        """Start it again, and wait until it serves."""
        self._process.start()


class KafkaBroker:
    """A real Kafka of one broker; a context manager that ends it."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._kafka = RealKafka()

    def __enter__(self) -> Self:
        self._kafka.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._kafka.close()

    @property
    def bootstrap_servers(self) -> str:
        """Its address."""
        return self._kafka.bootstrap_servers

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._kafka.kill(1)

    def resume(self) -> None:
        """Start it again, and wait until it serves."""
        self._kafka.resume(1)
