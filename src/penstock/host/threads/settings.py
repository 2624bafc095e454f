"""The settings of an instance, which its host derives from the configuration."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.host.threads.task_manager import BufferLimits

MAX_POLL_INTERVAL_MS = 300_000
"""The default of max.poll.interval.ms."""


@dataclass(frozen=True)
class Settings:
    """Intervals and bounds of an instance.

    Args:
        commit_interval_ms: between two commits; 0 commits after each run.
        limits: of the buffered records.
        exactly_once: whether each commit is one transaction.
        max_poll_interval_ms: longest time of a task's action before the tasks are left to other instances.
    """

    commit_interval_ms: int
    limits: BufferLimits
    exactly_once: bool = False
    max_poll_interval_ms: int = MAX_POLL_INTERVAL_MS
