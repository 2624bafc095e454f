"""`Stores` checks its arguments."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.state.stores import Stores, default_segment_interval_ms
from tests.support.stores import STRING


@pytest.mark.parametrize(
    ("history", "interval"),
    [(0, 2_000), (60_000, 20_000), (300_000, 60_000), (3_600_000, 300_000), (86_400_000, 3_600_000)],
)
def test_the_segments_of_a_history_are_a_share_of_it(history: int, interval: int) -> None:
    assert default_segment_interval_ms(history) == interval


def test_stores_check_their_arguments_as_kafka_does() -> None:
    refused: list[tuple[Any, str]] = [
        (lambda: Stores.lru_map("s", -1), "maxCacheSize cannot be negative"),
        (lambda: Stores.persistent_window_store("s", -1, 0, False), "retentionPeriod cannot be negative"),
        (lambda: Stores.in_memory_window_store("s", 1, -1, False), "windowSize cannot be negative"),
        (
            lambda: Stores.persistent_timestamped_window_store("s", 1, 2, False),
            r"window store s must be no smaller than its window size. Got size=\[2\], retention=\[1\]",
        ),
        (lambda: Stores.in_memory_session_store("s", -1), "retentionPeriod cannot be negative"),
        (lambda: Stores.persistent_session_store("s", -1), "retentionPeriod cannot be negative"),
        (lambda: Stores.persistent_versioned_key_value_store("s", -1), "historyRetention cannot be negative"),
        (lambda: Stores.persistent_versioned_key_value_store("s", 1, 0), "segmentInterval cannot be zero or negative"),
    ]
    for call, text in refused:
        with pytest.raises(ValueError, match=text):
            call()
    nothing: Any = None
    with pytest.raises(TypeError, match="name cannot be null"):
        Stores.persistent_window_store(nothing, 1, 1, False)
    with pytest.raises(TypeError, match="supplier cannot be null"):
        Stores.window_store_builder(nothing, STRING, STRING)


def test_only_suppliers_serdes_and_names_of_the_right_type_are_accepted() -> None:
    supplier, wrong = Stores.in_memory_key_value_store("s"), dict[str, Any](name="s")
    refused: list[tuple[Any, str]] = [
        (lambda: Stores.lru_map(5, 1), "name of a store must be a str, not 5"),  # type: ignore[arg-type]  # refused
        (lambda: Stores.key_value_store_builder("s", STRING, STRING), r"persistent_key_value_store\('s'\)"),  # type: ignore[arg-type]  # refused
        (lambda: Stores.key_value_store_builder(supplier, wrong, STRING), "Expected a Serde of keys for store 's'"),  # type: ignore[arg-type]  # refused
        (lambda: Stores.key_value_store_builder(supplier, STRING, wrong), "Expected a Serde of values"),  # type: ignore[arg-type]  # refused
    ]
    for call, text in refused:
        with pytest.raises(TypeError, match=text):
            call()


@pytest.mark.parametrize(("duplicates", "config"), [(True, {"cleanup.policy": "delete"}), (False, {})])
def test_the_changelog_of_duplicates_is_not_compacted(duplicates: bool, config: dict[str, str]) -> None:
    supplier = Stores.persistent_window_store("s", 100, 10, duplicates)
    assert Stores.window_store_builder(supplier, STRING, None).changelog_config == config
