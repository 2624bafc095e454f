"""`windowed_by` and `emit_strategy`: what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import EmitStrategy, Materialized, Stores, StreamsBuilder, UnlimitedWindows
from penstock.errors import TopologyError
from tests.support.windows import SESSION, SLIDING, TUMBLING, grouped


def test_unlimited_windows_have_no_final_results() -> None:
    stream = grouped(StreamsBuilder()).windowed_by(UnlimitedWindows.of())
    with pytest.raises(ValueError, match="ON_WINDOW_CLOSE emit strategy cannot be used for UnlimitedWindows"):
        stream.emit_strategy(EmitStrategy.on_window_close())


@pytest.mark.parametrize("windows", [TUMBLING, SLIDING, SESSION], ids=["tumbling", "sliding", "session"])
def test_names_that_are_not_legal_and_functions_that_do_not_fit_are_refused(windows: Any) -> None:
    stream: Any = grouped(StreamsBuilder()).windowed_by(windows)
    with pytest.raises(TopologyError, match="illegal"):
        stream.count(named="a b")
    with pytest.raises(TypeError, match=r"reducer\(aggregate, value\)"):
        stream.reduce(lambda aggregate: aggregate)


@pytest.mark.parametrize(
    ("supplier", "expected"),
    [
        (Stores.in_memory_session_store("s", 20), "KeyValueBytesStoreSupplier or .*, which `Stores` creates"),
        (Stores.lru_map("s", 3), "expected WindowBytesStoreSupplier, which"),
        (Stores.in_memory_window_store("s", 20, 10, False), "expected SessionBytesStoreSupplier, which"),
    ],
)
def test_a_store_of_another_kind_is_refused_by_name(supplier: Any, expected: str) -> None:
    stream, kept = grouped(StreamsBuilder()), Materialized.as_(supplier)
    of_kind = {"session": stream.count, "lru": stream.windowed_by(TUMBLING).count}
    make = of_kind.get(supplier.kind, stream.windowed_by(SESSION).count)
    with pytest.raises(TypeError, match=rf"cannot use store .s. of {type(supplier).__name__}.*{expected}"):
        make(kept)
