"""The default stores of windowed aggregations, and the serdes of their tables' keys.

Rule: a store keeps a window as long as records may change it; a user's retention must not be shorter.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.calendar_windows import CalendarWindows
from penstock.dsl.options import Materialized
from penstock.serdes import Serde
from penstock.serdes.windowed import CalendarWindowedSerde, SessionWindowedSerde, TimeWindowedSerde
from penstock.state.api import StoreBuilder
from penstock.state.suppliers import SessionBytesStoreSupplier, WindowBytesStoreSupplier
from penstock.windows import LONG_MAX, EmitStrategy, SessionWindows, SlidingWindows, Windows


def window_size(windows: Windows | SlidingWindows) -> int:
    """Return the size of `windows` in ms."""
    return windows.time_difference_ms if isinstance(windows, SlidingWindows) else windows.size_ms


def window_store(
    options: Materialized,
    name: str,
    windows: Windows | SlidingWindows,
    emit_strategy: EmitStrategy,
    key_serde: Serde | None,
    value_serde: Serde | None,
) -> StoreBuilder:
    """Return the store `name` of the results of `windows`, with `options`, whose serdes take precedence.

    Raises ValueError if the options retain windows for too short a time.
    """
    size, grace = window_size(windows), windows.grace_period_ms
    needed = 2 * size + grace if isinstance(windows, SlidingWindows) else size + grace
    retention = needed if options.retention_ms is None else options.retention_ms
    if retention < needed:
        shown = (
            f"2 * time difference plus the grace period. Got time difference=[{size}]"
            if isinstance(windows, SlidingWindows)
            else f"its window size plus the grace period. Got size=[{size}]"
        )
        raise ValueError(
            f"The retention period of the window store {name} must be no smaller than {shown}, "
            f"grace=[{grace}], retention=[{retention}]"
        )
    final = emit_strategy is EmitStrategy.ON_WINDOW_CLOSE
    supplier = options.supplier_of(WindowBytesStoreSupplier) or WindowBytesStoreSupplier(
        name,
        retention_ms=min(retention, LONG_MAX),
        window_size_ms=size,
        retain_duplicates=False,
        in_memory=options.in_memory,
        time_ordered=final,
        keeps_headers=None,
    )
    if isinstance(windows, CalendarWindows):  # also a store of the user's, which knows one size
        supplier = replace(supplier, calendar=windows)
    store = options.builder(supplier, key_serde, value_serde, timestamped=True)
    # results that leave in time order cannot wait in a cache, which orders them by key
    return store.with_caching_disabled() if final and isinstance(windows, SlidingWindows) else store


def session_store(
    options: Materialized,
    name: str,
    windows: SessionWindows,
    emit_strategy: EmitStrategy,
    key_serde: Serde | None,
    value_serde: Serde | None,
) -> StoreBuilder:
    """Return the store `name` of the results of sessions, with `options`, whose serdes take precedence.

    Raises ValueError if the options retain sessions for too short a time.
    """
    gap, grace = windows.inactivity_gap_ms, windows.grace_period_ms
    retention = gap + grace if options.retention_ms is None else options.retention_ms
    if retention < gap + grace:
        raise ValueError(
            f"The retention period of the session store {name} must be no smaller than the session inactivity gap "
            f"plus the grace period. Got gap=[{gap}], grace=[{grace}], retention=[{retention}]"
        )
    final = emit_strategy is EmitStrategy.ON_WINDOW_CLOSE
    supplier = options.supplier_of(SessionBytesStoreSupplier) or SessionBytesStoreSupplier(
        name, retention, in_memory=options.in_memory, time_ordered=final, keeps_headers=None
    )
    store = options.builder(supplier, key_serde, value_serde, timestamped=False)
    return store.with_caching_disabled() if final else store


def window_table_serde(store: StoreBuilder, windows: Windows | SlidingWindows) -> Serde | None:
    """Return the key serde of `store`'s table, or None without an inner serde."""
    if store.key_serde is None:
        return None
    if isinstance(windows, CalendarWindows):
        return CalendarWindowedSerde(store.key_serde, windows)
    return TimeWindowedSerde(store.key_serde, window_size(windows))


def session_table_serde(store: StoreBuilder) -> Serde | None:
    """Return the key serde of `store`'s table, or None without an inner serde."""
    return None if store.key_serde is None else SessionWindowedSerde(store.key_serde)
