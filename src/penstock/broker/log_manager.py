"""What the broker does with its logs from time to time: retention and flushes (Kafka class: LogManager).

Here lives when this is done and in which order. Not here: what is done to one log (log.py).

Rule: one partition is one short step, and other requests are served between two of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

from penstock.broker.config import BrokerConfig
from penstock.broker.partition import Partition
from penstock.broker.topic_config import NEVER
from penstock.broker.topics import TopicRegistry
from penstock.clock import Clock

_log = logging.getLogger(__name__)


class LogManager:
    """The upkeep of all logs.

    Args:
        config: the broker's settings.
        topics: its topics.
        clock: the time of this machine.
    """

    def __init__(self, config: BrokerConfig, topics: TopicRegistry, clock: Clock) -> None:
        self._config = config
        self._topics = topics
        self._clock = clock

    async def run(self) -> None:
        """Keep the logs until the task is cancelled."""
        await asyncio.gather(
            _repeat(self._config.log_retention_check_interval_ms, self.delete_old_segments),
            _repeat(self._config.log_flush_scheduler_interval_ms, self.flush),
        )

    def delete_old_segments(self) -> Iterator[None]:
        """Delete what the topics' retention does not keep; a step is one partition."""
        for partition in self._partitions():
            partition.delete_old_segments(self._clock.milliseconds())
            yield

    def flush(self) -> Iterator[None]:
        """Force the logs to disk whose `flush.ms` has passed; a step is one partition."""
        for partition in self._partitions():
            if partition.config.flush_ms < NEVER:
                partition.flush_if_due(self._clock.milliseconds())
                yield

    def _partitions(self) -> Iterator[Partition]:
        for topic in self._topics.all():
            for partition in tuple(topic.partitions):
                if not partition.is_deleted:
                    yield partition


async def _repeat(interval_ms: int, steps: Callable[[], Iterator[None]]) -> None:
    while True:
        await asyncio.sleep(interval_ms / 1000)
        try:
            for _ in steps():
                await asyncio.sleep(0)
        except Exception:
            _log.exception("the upkeep of the logs failed; it is tried again in %d ms", interval_ms)
