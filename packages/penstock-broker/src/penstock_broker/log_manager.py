"""Periodic maintenance of the logs: retention, flushes and compaction (Kafka classes: LogManager, LogCleaner).

Decides time and order. Not here: the work on one log (log.py, log_flusher.py, cleaner.py).

Rule: all work is split into steps, and other requests are handled at least every STEP_SECONDS. A thread would make
requests wait longer, because the interpreter switches threads every 5 ms; only blocking disk operations run in one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Set
from contextlib import suppress
from functools import partial
from typing import Final
from weakref import WeakSet

from penstock_broker.batch import InvalidBatchError
from penstock_broker.common.clock import Clock
from penstock_broker.config import BrokerConfig
from penstock_broker.partition import Partition
from penstock_broker.segment import Segment
from penstock_broker.topic_config import NEVER
from penstock_broker.topics import TopicRegistry

STEP_SECONDS: Final = 0.002
"""Longest maintenance time (s) before other requests are handled."""

Steps = Iterator[Callable[[], None] | None]
"""Work split into steps; a step may return a remainder for a thread."""

_log = logging.getLogger(__name__)


class LogManager:
    """The maintenance of all logs.

    Args:
        config: the broker's settings.
        topics: its topics.
        clock: the machine's clock.
    """

    def __init__(self, config: BrokerConfig, topics: TopicRegistry, clock: Clock) -> None:
        self._config = config
        self._topics = topics
        self._clock = clock
        self._uncleanable: WeakSet[Partition] = WeakSet()

    async def run(self) -> None:
        """Maintain the logs until the task is cancelled."""
        retention_interval_ms = self._config.log_retention_check_interval_ms
        await asyncio.gather(
            _repeat(
                retention_interval_ms,
                self.delete_old_segments,
                first_ms=min(retention_interval_ms, self._config.log_initial_task_delay_ms),
            ),
            _repeat(self._config.log_flush_scheduler_interval_ms, self.flush),
            _repeat(self._config.log_cleaner_backoff_ms, self.clean),
            _repeat(self._config.log_cleaner_backoff_ms, self.remove_files_set_aside),
            _repeat(self._config.producer_id_expiration_check_interval_ms, self.forget_silent_producers),
        )

    def delete_old_segments(self) -> Steps:
        """Delete segments past the topics' retention; a step is one partition."""
        for partition in self._partitions():
            partition.delete_old_segments(self._clock.milliseconds())
            yield None

    def remove_files_set_aside(self) -> Steps:
        """Remove files that left their logs (`file.delete.delay.ms`); a step is one partition."""
        now = self._clock.milliseconds()
        for partition in self._partitions():
            partition.log.segments.remove_files_set_aside(now)
            yield None

    def flush(self) -> Steps:
        """Force closed segments, and logs with a passed `flush.ms`, to disk.

        A step is one partition or file.
        """
        for partition in self._partitions():
            flusher = partition.log.flusher
            for segment in flusher.closed_unflushed():
                yield partial(_force_to_disk, segment)
                flusher.note_flushed(segment)
            if partition.config.flush_ms < NEVER:
                flusher.flush_if_due(partition.config, self._clock.milliseconds())
            yield None

    def forget_silent_producers(self) -> Steps:
        """Forget producers that have been silent for too long; a step is one partition."""
        for partition in self._partitions():
            partition.producers.forget_silent(self._clock.milliseconds() - self._config.producer_id_expiration_ms)
            yield None

    def clean(self) -> Steps:
        """Compact logs, dirtiest first, until no log is dirty enough.

        A step is a part of a batch.
        """
        failed: set[Partition] = set()
        while (partition := self._dirtiest(failed)) is not None:
            try:
                yield from partition.clean(self._config.log_cleaner_dedupe_buffer_size, self._clock.milliseconds())
            except OSError as error:
                if not partition.is_deleted:
                    _log.warning("cannot compact %s; it is tried again: %s", partition.name, error)
                failed.add(partition)
            except InvalidBatchError as error:
                _log.error("%s is not compacted until the broker starts again: %s", partition.name, error)
                self._uncleanable.add(partition)

    def _dirtiest(self, failed: Set[Partition]) -> Partition | None:
        now = self._clock.milliseconds()
        compacted = (one for one in self._partitions() if one.config.compact and one.log.segments.closed)
        found = [(one.dirtiness(now), one) for one in compacted if one not in failed and one not in self._uncleanable]
        due = [(how.ratio, one) for how, one in found if how.is_due]
        return max(due, key=lambda each: each[0], default=(0, None))[1]

    def _partitions(self) -> Iterator[Partition]:
        for topic in self._topics.all():
            for partition in tuple(topic.partitions):
                if not partition.is_deleted:
                    yield partition


def _force_to_disk(segment: Segment) -> None:
    try:
        with suppress(FileNotFoundError):  # it left the log meanwhile
            segment.force_to_disk()
    except OSError as error:
        _log.error("cannot force the closed segment %s to disk; the next start verifies it: %s", segment.path, error)


async def _repeat(interval_ms: int, steps: Callable[[], Steps], first_ms: int | None = None) -> None:
    await asyncio.sleep((interval_ms if first_ms is None else first_ms) / 1000)
    while True:
        try:
            pause_at = time.monotonic() + STEP_SECONDS
            for rest in steps():
                if rest is not None:
                    await asyncio.to_thread(rest)
                if time.monotonic() >= pause_at:
                    await asyncio.sleep(0)
                    pause_at = time.monotonic() + STEP_SECONDS
        except Exception:
            _log.exception("the maintenance of the logs failed; it runs again in %d ms", interval_ms)
        await asyncio.sleep(interval_ms / 1000)
