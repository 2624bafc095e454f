"""The topics of the brokers, for an application that is about to start."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Final

from penstock.client.api import Admin

_PATIENCE_SECONDS: Final = 2.0
"""How long a broker of a cluster may take to hear of a topic that another one has created."""

_PAUSE_SECONDS: Final = 0.2


def listed_topics(admin: Admin, wanted: Collection[str]) -> dict[str, int]:
    """Return the partitions of each topic of the brokers. One of `wanted` that is missing may be new: the brokers are
    asked again for 2 s, since the one that answers may not know it yet."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    topics = admin.topics()
    while not topics.keys() >= set(wanted) and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
        topics = admin.topics()
    return topics
