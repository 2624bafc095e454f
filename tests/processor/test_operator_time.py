"""The clocks of operators."""

from __future__ import annotations

from typing import Any, cast

import pytest

from penstock import Record
from penstock.processor.api import EngineContext, HeldResults
from penstock.processor.operator_time import EmissionInterval
from penstock.processor.window_emission import EmitTimeWindowsOnClose
from penstock.state.windowed_api import EngineWindowStore
from penstock.windows import TimeWindows

RECORD = Record("k", "v", 0)


class Context:
    """The part of a context that the clocks ask."""

    def __init__(self) -> None:
        self.now = 0
        self.record_metadata = None
        self.metadata: dict[str, int] = {}

    def current_system_time_ms(self) -> int:
        return self.now

    def processor_metadata(self) -> dict[str, int]:
        return self.metadata

    def emit_with_epoch(self, results: HeldResults) -> None:
        pass

    def config(self, key: str) -> Any:
        return {"penstock.emit.interval.ms": 1_000}[key]


@pytest.mark.parametrize("leap_ms", [0, 315_360_000_000])
def test_the_interval_between_final_results_begins_again_where_the_clock_went_back(leap_ms: int) -> None:
    context = Context()

    def is_over_at(now: int) -> bool:
        context.now = now
        interval = EmissionInterval(cast(EngineContext, context), "node", lambda _: None)  # as after a restart
        return interval.is_over(RECORD)

    assert is_over_at(5_000)
    assert not is_over_at(5_999)
    assert is_over_at(6_000 + leap_ms)
    assert is_over_at(4_000)
    assert not is_over_at(4_999)
    assert is_over_at(5_000)


def test_windows_that_an_earlier_version_has_emitted_are_not_emitted_again() -> None:
    context = Context()
    context.metadata["node/last_emit_window_close_time"] = 30
    store = cast(EngineWindowStore, None)  # nothing is looked up: all windows closed before 30 were emitted
    windows = TimeWindows.of_size_with_no_grace(10)
    emission = EmitTimeWindowsOnClose(store, cast(EngineContext, context), "node", "store", windows)
    emission.time_passed(RECORD, 30)
    assert context.metadata["store"] == 30
