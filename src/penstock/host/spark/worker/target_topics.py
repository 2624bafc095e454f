"""The partitions of the topics that records are sent to. Runs in workers.

Which topics a `TopicNameExtractor` or a handler names shows while records are processed; one that was made after the
start is looked up when the first record is sent there. Its number of partitions is kept until the next start, as is
that of the topics that were there.
"""

from __future__ import annotations

import time
from functools import lru_cache

from penstock.host.spark.clients import open_admin
from penstock.host.spark.protocol.application_description import DESCRIPTIONS_AT_HAND, ApplicationDescription

_PATIENCE_SECONDS = 2.0
"""How long a new topic may be missing: brokers learn of it one by one."""

_LOOK_SECONDS = 0.1
_MISSING_SECONDS = 1.0
"""How long a missing topic is assumed to be missing before brokers are asked again."""


class TargetPartitions(dict[str, int]):
    """The number of partitions by topic; looks up a topic that it does not know."""

    def __init__(self, description: ApplicationDescription) -> None:
        """Know the topics that were there at the start."""
        super().__init__(description.topic_partitions)
        self._description = description
        self._missing: dict[str, float] = {}

    def __missing__(self, topic: str) -> int:
        """Return the partitions of a topic that was made since; raises KeyError if there is none, KafkaError if brokers
        do not answer."""
        asked = time.monotonic()
        missing_since = self._missing.get(topic)
        if missing_since is None or asked - missing_since >= _MISSING_SECONDS:
            patience = _PATIENCE_SECONDS if missing_since is None else 0.0
            while (found := open_admin(self._description).topics().get(topic)) is None:
                if time.monotonic() - asked >= patience:
                    self._missing = {topic: time.monotonic()}  # the last one: there may be any number
                    break
                time.sleep(_LOOK_SECONDS)
            else:
                self[topic] = found
                return found
        raise KeyError(topic)


@lru_cache(maxsize=DESCRIPTIONS_AT_HAND)
def target_topics(description: ApplicationDescription) -> TargetPartitions:
    """Return the topics as this process knows them."""
    return TargetPartitions(description)
