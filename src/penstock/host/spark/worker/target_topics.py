"""The partitions of output topics. Runs in workers.

The topics that a `TopicNameExtractor` or a handler names are only known while records are processed; a topic created
after the start is looked up when the first record is sent to it. Its number of partitions is kept until the next start,
as is that of the topics that existed at the start.
"""

from __future__ import annotations

import time
from functools import lru_cache

from penstock.host.spark.clients import open_admin
from penstock.host.spark.protocol.application_description import DESCRIPTIONS_AT_HAND, ApplicationDescription

_PATIENCE_SECONDS = 2.0
"""How long a new topic may be missing: it becomes known to one broker after another."""

_LOOK_SECONDS = 0.1
_MISSING_SECONDS = 1.0
"""How long a missing topic is assumed to be missing before brokers are asked again."""


class TargetPartitions(dict[str, int]):
    """The number of partitions by topic; looks up unknown topics.

    It starts with the topics that existed at the start of the application.
    """

    def __init__(self, description: ApplicationDescription) -> None:
        super().__init__(description.topic_partitions)
        self._description = description
        self._missing: dict[str, float] = {}

    def __missing__(self, topic: str) -> int:
        """Return the partitions of a topic that was created since the start.

        Raises KeyError if it does not exist, KafkaError if brokers do not answer.
        """
        asked = time.monotonic()
        missing_since = self._missing.get(topic)
        if missing_since is None or asked - missing_since >= _MISSING_SECONDS:
            patience = _PATIENCE_SECONDS if missing_since is None else 0.0
            while (found := open_admin(self._description).topics().get(topic)) is None:
                if time.monotonic() - asked >= patience:
                    self._missing = {topic: time.monotonic()}  # only the last one: there may be any number
                    break
                time.sleep(_LOOK_SECONDS)
            else:
                self[topic] = found
                return found
        raise KeyError(topic)


@lru_cache(maxsize=DESCRIPTIONS_AT_HAND)
def target_topics(description: ApplicationDescription) -> TargetPartitions:
    """Return the topics known to this process."""
    return TargetPartitions(description)
