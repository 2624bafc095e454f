"""The options of `suppress`: limits, and buffers that may be full."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock.dsl.suppressed import BufferConfig, EagerBufferConfig, StrictBufferConfig, Suppressed
from penstock.errors import TopologyError
from penstock.windows import LONG_MAX


def test_final_results_need_a_buffer_that_never_emits_early() -> None:
    with pytest.raises(TypeError, match="never emits early"):
        Suppressed.until_window_closes(BufferConfig.max_records(3))  # type: ignore[arg-type]  # what the test is about
    Suppressed.until_window_closes(BufferConfig.max_records(3).shut_down_when_full())


def test_a_bound_does_not_turn_logging_on_again() -> None:
    config = BufferConfig.unbounded().with_logging_disabled()
    assert not config.with_max_records(3).with_max_bytes(9).logging
    assert not config.emit_early_when_full().shut_down_when_full().with_no_bound().logging


def test_a_change_of_one_setting_keeps_the_others() -> None:
    eager = BufferConfig.max_records(3).with_max_bytes(9).with_logging_enabled({"retention.ms": "5"})
    assert isinstance(eager, EagerBufferConfig)
    strict = eager.shut_down_when_full()
    assert isinstance(strict, StrictBufferConfig)
    for config in (eager, strict, strict.emit_early_when_full()):
        assert (config.record_limit, config.byte_limit) == (3, 9)
        assert (config.logging, config.changelog_config) == (True, {"retention.ms": "5"})
    assert strict.emit_early_when_full() == eager
    unlimited = eager.with_no_bound()
    assert isinstance(unlimited, StrictBufferConfig)
    assert (unlimited.record_limit, unlimited.byte_limit) == (LONG_MAX, LONG_MAX)
    assert unlimited.changelog_config == {"retention.ms": "5"}
    assert eager.with_logging_disabled().changelog_config == {}


def test_the_time_limit_is_in_ms_and_none_until_windows_close() -> None:
    config = Suppressed.BufferConfig.unbounded()
    assert Suppressed.until_time_limit(timedelta(seconds=2), config).time_limit_ms == 2000
    assert Suppressed.until_window_closes(config).time_limit_ms is None


def test_a_name_must_be_legal() -> None:
    suppressed = Suppressed.until_time_limit(5, BufferConfig.unbounded())
    assert suppressed.with_name("held").name == "held"
    with pytest.raises(TopologyError, match="is illegal"):
        suppressed.with_name("a b")
