"""The topics of the brokers, for an application that is about to start."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Final

from penstock.client.api import Admin

_PATIENCE_SECONDS: Final = 2.0
"""Maximum time (s) until all brokers of a cluster know a new topic."""

_PAUSE_SECONDS: Final = 0.2


def listed_topics(admin: Admin, wanted: Collection[str]) -> dict[str, int]:
    """Return the number of partitions of each topic on the brokers.

    A missing topic of `wanted` may be new, and unknown to the broker that answers: it is requested again for 2 s.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    topics = admin.topics()
    while not topics.keys() >= set(wanted) and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
        topics = admin.topics()
    return topics
