"""The common environment of all groups: their storage, limits and time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock_broker.common.clock import Clock
from penstock_broker.config import BrokerConfig
from penstock_broker.groups.group_log import GroupLog
from penstock_broker.groups.timers import Timers
from penstock_broker.topics import TopicRegistry
from penstock_broker.wire.codec import Message

Answer = Callable[[Message], None]
"""Gives the response to a pending request."""


@dataclass(frozen=True, slots=True)
class GroupContext:
    """The environment of a group.

    Args:
        config: the broker's settings.
        topics: the broker's topics.
        log: storage of the groups.
        timers: delayed actions.
        clock: the time of changes.
    """

    config: BrokerConfig
    topics: TopicRegistry
    log: GroupLog
    timers: Timers
    clock: Clock
