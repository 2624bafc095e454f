"""The progress of transfers: which topic it is about."""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

import pytest

from penstock.client.api import Admin
from penstock.errors import RetriableError
from penstock.tools.transfers.progress import identified


class _Brokers:
    """Brokers of which one does not know a new topic yet."""

    def topic_ids(self, names: Collection[str]) -> dict[str, str]:
        return {name: f"id of {name}" for name in names if name != "new"}


def test_a_topic_without_an_id_is_not_taken_for_another_one() -> None:
    brokers = cast("Admin", _Brokers())
    assert identified(brokers, ["old"]) == {"old": "id of old"}
    with pytest.raises(RetriableError, match="no id for topic new"):
        identified(brokers, ["old", "new"])
