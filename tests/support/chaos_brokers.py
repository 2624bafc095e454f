"""Brokers of a test's own that it kills and starts again: the embedded one and a real Kafka behind the same calls."""

from __future__ import annotations

import random
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka.admin import AdminClient

from penstock_broker.process import BrokerProcess
from tests.support.kafka import RealKafka
from tests.support.ports import free_port


class EmbeddedBroker:
    """The embedded broker; a context manager that ends it."""

    def __init__(self, directory: Path) -> None:
        """Keep its log in `directory`."""
        # All input is read again at the end, whatever its timestamps.
        self._process = BrokerProcess(directory, port=free_port())

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


class KafkaBrokers:
    """A real Kafka of one broker, or of three, of which that one is killed which leads something of the application; a
    context manager that ends them."""

    def __init__(self, seed: int, brokers: int) -> None:
        """Start nothing yet; seed: draws what the broker that is killed leads."""
        self._kafka = RealKafka(brokers, settings={"broker.session.timeout.ms": "4000"} if brokers > 1 else None)
        self._draw = random.Random(seed)
        self._brokers = brokers
        self._killed = 1

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
        """End one with SIGKILL: the leader of a partition of positions, of transactions, or of any other topic."""
        self._killed = 1 if self._brokers == 1 else self._leader()
        self._kafka.kill(self._killed)

    def resume(self) -> None:
        """Start it again, and wait until it serves."""
        self._kafka.resume(self._killed)

    def _leader(self) -> int:
        topics = AdminClient({"bootstrap.servers": self.bootstrap_servers}).list_topics(timeout=30).topics
        chosen = self._draw.choice(["__consumer_offsets", "__transaction_state", *sorted(topics)])
        leaders = [each.leader for each in topics[chosen].partitions.values()] if chosen in topics else []
        return int(self._draw.choice([each for each in leaders if each > 0] or [1]))
