"""A proxy that loses and damages answers of brokers while it is asked to, and passes all others on."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from tests.support import api_keys
from tests.support.proxy import Proxy

GROUPS: Final = frozenset(
    (
        api_keys.JOIN_GROUP,
        api_keys.SYNC_GROUP,
        api_keys.HEARTBEAT,
        api_keys.OFFSET_COMMIT,
        api_keys.TXN_OFFSET_COMMIT,
    )
)
"""What members of a group, and producers of a transaction, ask the coordinator of a group for."""

COMMITS: Final = frozenset(
    (
        api_keys.OFFSET_COMMIT,
        api_keys.INIT_PRODUCER_ID,
        api_keys.ADD_PARTITIONS_TO_TXN,
        api_keys.ADD_OFFSETS_TO_TXN,
        api_keys.TXN_OFFSET_COMMIT,
        api_keys.END_TXN,
    )
)
"""What producers ask coordinators for, from the start of a transaction to its end."""


class LossyProxy(Proxy):
    """Passes all answers on until something else is asked for."""

    def __init__(self, bootstrap_servers: str) -> None:
        """Listen at one port for each broker that `bootstrap_servers` names."""
        self._lost: Collection[int] = frozenset()
        self._damaged: bytes | None = None
        super().__init__(bootstrap_servers, self._changed)

    def lose_answers(self, to: Collection[int] = GROUPS) -> None:
        """Lose all answers to requests of these APIs from now on; the requests arrive."""
        self._lost = to

    def damage(self, text: bytes) -> None:
        """Flip a bit of this text in each fetched batch from now on."""
        self._damaged = text

    def pass_all(self) -> None:
        """Pass on all answers as they are from now on; those that were lost stay lost."""
        self._lost, self._damaged = frozenset(), None

    def _changed(self, key: int, answer: bytes) -> bytes | None:
        if key in self._lost:
            return None
        text = self._damaged
        if key == api_keys.FETCH and text is not None:
            return answer.replace(text, bytes((text[0] ^ 1,)) + text[1:])
        return answer
