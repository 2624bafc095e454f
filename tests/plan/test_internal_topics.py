"""Names and configurations of repartition and changelog topics."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import TopologyError
from penstock.plan.internal_topics import (
    DAY_MS,
    changelog_config,
    changelog_topic,
    check_topic_name,
    full_name,
    repartition_topic,
)
from penstock.state.api import StoreBuilder
from penstock.state.stores import Stores
from penstock.windows import LONG_MAX
from tests.plan.plans import store, versioned_store

COMPACT = {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}
WINDOWED = {**COMPACT, "cleanup.policy": "compact,delete"}


def windows(retention_ms: int = 1000) -> StoreBuilder:
    return StoreBuilder(Stores.in_memory_window_store("w", retention_ms, 10, False))


@pytest.mark.parametrize("name", ["a", "a.b_c-D9", "x" * 249])
def test_a_legal_name_is_returned(name: str) -> None:
    assert check_topic_name(name) == name


@pytest.mark.parametrize(
    ("name", "says"),
    [("", "'' cannot be the name of a topic: it is empty."), ("a, b", r"several topics go in a list, \['a', 'b'\]\.")],
)
def test_an_illegal_name_is_refused_with_its_reason(name: str, says: str) -> None:
    with pytest.raises(TopologyError, match=says):
        check_topic_name(name)


def test_records_of_a_repartition_topic_stay_whatever_their_time() -> None:
    topic = repartition_topic("app", "r-repartition", 3)
    assert (topic.name, topic.partitions) == (full_name("app", "r-repartition"), 3) == ("app-r-repartition", 3)
    assert topic.config == {
        "cleanup.policy": "delete",
        "message.timestamp.type": "CreateTime",
        "retention.ms": "-1",
        "segment.bytes": "52428800",
    }


@pytest.mark.parametrize("partitions", [0, -1])
def test_a_repartition_topic_has_at_least_one_partition(partitions: int) -> None:
    with pytest.raises(ValueError, match="Number of partitions must be at least 1"):
        repartition_topic("app", "r", partitions)


def test_repartition_topics_do_not_share_their_configuration() -> None:
    one, other = (repartition_topic("app", name, None).config for name in "ab")
    assert one == other
    assert one is not other


CASES: list[tuple[StoreBuilder, dict[str, Any]]] = [
    (store(), COMPACT),
    (windows(), {**WINDOWED, "retention.ms": str(1000 + DAY_MS)}),
    (windows(LONG_MAX), {**WINDOWED, "retention.ms": str(LONG_MAX)}),
    (StoreBuilder(Stores.in_memory_session_store("s", 7)), {**WINDOWED, "retention.ms": str(7 + DAY_MS)}),
    (versioned_store(), {**COMPACT, "min.compaction.lag.ms": str(1000 + DAY_MS)}),
]


@pytest.mark.parametrize(("builder", "expected"), CASES)
def test_a_changelog_keeps_entries_as_long_as_its_store(builder: StoreBuilder, expected: dict[str, Any]) -> None:
    assert changelog_config(builder) == expected


def test_settings_of_a_store_win_and_those_of_all_keep_retention() -> None:
    of_all = {"retention.ms": "1", "segment.bytes": "2"}
    assert changelog_config(windows(), of_all, 5) == {**WINDOWED, "retention.ms": "1005", "segment.bytes": "2"}
    own = store(changelog_config={"segment.bytes": "3"})
    assert changelog_config(own, of_all) == {**COMPACT, "retention.ms": "1", "segment.bytes": "3"}


def test_the_changelog_of_a_store_is_its_own_topic_or_its_source() -> None:
    assert changelog_topic("app", store()) == ("app-store-changelog", COMPACT)
    assert changelog_topic("app", store(), "in")[0] == "in"
    with pytest.raises(TopologyError, match="characters"):
        changelog_topic("my app", store())
