"""The options of `suppress`: limits, and buffers that may be full."""

from __future__ import annotations

import pytest

from penstock.dsl.suppressed import BufferConfig, Suppressed


def test_final_results_need_a_buffer_that_never_emits_early() -> None:
    with pytest.raises(TypeError, match="never emits early"):
        Suppressed.until_window_closes(BufferConfig.max_records(3))  # type: ignore[arg-type]  # what the test is about
    Suppressed.until_window_closes(BufferConfig.max_records(3).shut_down_when_full())


def test_a_bound_does_not_turn_logging_on_again() -> None:
    config = BufferConfig.unbounded().with_logging_disabled()
    assert not config.with_max_records(3).with_max_bytes(9).logging
    assert not config.emit_early_when_full().shut_down_when_full().with_no_bound().logging
