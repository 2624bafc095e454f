"""The header of states: version and kind."""

from __future__ import annotations

import pytest

from penstock import aggregations
from penstock.errors import SerializationError
from tests.support.aggregations import store_serde

WITH_OWN_STATES = {
    "count": aggregations.count(),
    "sum": aggregations.sum(),
    "mean": aggregations.mean(),
    "approx_distinct": aggregations.approx_distinct(),
    "quantiles": aggregations.quantiles([0.5]),
    "combined": aggregations.combined(total=aggregations.sum()),
}


@pytest.mark.parametrize("name", WITH_OWN_STATES)
def test_bytes_of_a_later_version_or_another_kind_are_refused(name: str) -> None:
    aggregation = WITH_OWN_STATES[name]
    serde = store_serde(aggregation)
    data = serde.serialize("t", aggregation.added(aggregation.initial(), 3))
    assert data[0] == 1
    later = b"\x02" + data[1:]
    with pytest.raises(
        SerializationError, match=rf"aggregations\.{name}: their version is 2, .* a store with a new name"
    ):
        serde.deserialize("t", later)
    for other in (data[:1] + b"?" + data[2:], b"", b"\x01"):
        with pytest.raises(
            SerializationError, match=rf"aggregations\.{name}: they are the state of another aggregation"
        ):
            serde.deserialize("t", other)


def test_every_kind_has_its_own_byte() -> None:
    kinds = [store_serde(aggregation).kind for aggregation in WITH_OWN_STATES.values()]  # type: ignore[attr-defined]  # of StateSerde
    assert len(set(kinds)) == len(kinds)


@pytest.mark.parametrize("name", WITH_OWN_STATES)
def test_a_serde_of_states_reads_the_same_with_any_headers(name: str) -> None:
    serde = store_serde(WITH_OWN_STATES[name])
    assert not serde.uses_headers or name == "combined"
    assert serde.repeatable or name == "combined"
