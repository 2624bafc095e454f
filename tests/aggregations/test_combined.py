"""Several aggregations in one state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from penstock import Serdes, aggregations
from penstock.aggregations import Aggregation
from penstock.errors import ConfigError, SerializationError
from penstock.serdes import DoubleSerde, LongSerde, Serde
from tests.support.aggregations import result_of, state_of, stored_state_of

ORDERS = [{"price": 5, "by": "ann"}, {"price": 2}, {"price": 9, "by": "bob"}]


def price(order: dict[str, Any]) -> Any:
    return order["price"]


def serde_of(aggregation: Aggregation[Any, Any], value_serde: Serde | None = None) -> Serde:
    serde = aggregation.state_serde(value_serde)
    assert serde is not None
    return serde


OF_ORDERS = aggregations.combined(
    total=aggregations.sum(price), highest=aggregations.max(price), buyers=aggregations.collect(lambda o: o.get("by"))
)


def test_each_aggregation_has_its_name_and_needs_no_serde_for_plain_values() -> None:
    serde = serde_of(OF_ORDERS)
    state = stored_state_of(OF_ORDERS, ORDERS, serde)
    assert OF_ORDERS.result(state) == {"total": 16, "highest": 9, "buyers": ["ann", "bob"]}


def test_an_added_aggregation_starts_with_the_next_value_and_a_removed_one_is_left_out() -> None:
    before = aggregations.combined(total=aggregations.sum(), old=aggregations.last())
    after = aggregations.combined(number=aggregations.count(), total=aggregations.sum())
    data = serde_of(before, LongSerde()).serialize("t", state_of(before, [1, 2]))
    state = after.added(serde_of(after, LongSerde()).deserialize("t", data), 4)
    assert after.result(state) == {"number": 1, "total": 7}


def test_a_name_with_another_aggregation_is_refused() -> None:
    before, after = aggregations.combined(x=aggregations.sum()), aggregations.combined(x=aggregations.mean())
    data = serde_of(before).serialize("t", state_of(before, [1]))
    with pytest.raises(SerializationError, match=r"aggregations\.mean: they are the state of another aggregation"):
        serde_of(after).deserialize("t", data)


def test_the_bytes_of_a_state_stay_the_same() -> None:
    """They are in changelogs."""
    both = aggregations.combined(n=aggregations.count(), s=aggregations.sum())
    data = serde_of(both, LongSerde()).serialize("t", both.initial())
    assert data == b"\x01C\0\0\0\x01n\0\0\0\x0a\x01N" + bytes(8) + b"\0\0\0\x01s\xff\xff\xff\xff"
    with pytest.raises(SerializationError, match="combined"):
        serde_of(both, LongSerde()).deserialize("t", data[:-1])


def test_combined_aggregations_can_be_combined() -> None:
    inner = aggregations.combined(least=aggregations.min(), most=aggregations.max())
    outer = aggregations.combined(range=inner, number=aggregations.count())
    state = stored_state_of(outer, [3, None, 8], serde_of(outer, LongSerde()))
    assert outer.result(state) == {"range": {"least": 3, "most": 8}, "number": 2}


def test_it_subtracts_if_all_of_its_aggregations_do() -> None:
    able = aggregations.combined(total=aggregations.sum(price), mean=aggregations.mean(price))
    assert able.subtractable
    assert not OF_ORDERS.subtractable
    left = able.subtracted(state_of(able, ORDERS), ORDERS[0])
    assert able.result(left) == result_of(able, ORDERS[1:]) == {"total": 11, "mean": 5.5}


def test_a_column_is_taken_if_each_aggregation_takes_its_own() -> None:
    both = aggregations.combined(
        number=aggregations.count(), total=aggregations.sum(), mean=aggregations.mean(), most=aggregations.max()
    )

    def takes(aggregation: Aggregation[Any, Any], values: list[Any], serde: Serde) -> bool:
        own = serde_of(aggregation, serde)
        return aggregation.takes_column(list(map(aggregation.part, values)), own.unchanging_types.__contains__)

    assert takes(both, [1, 2], LongSerde())
    assert takes(both, [1.0], DoubleSerde())
    assert not takes(both, ["a"], Serdes.string())
    assert not takes(both, [1], Serdes.serde_from(lambda value: b"", lambda data: 0))
    assert not takes(OF_ORDERS, ORDERS, Serdes.json())


@dataclass
class Price:
    cents: int


def cents(order: dict[str, Any]) -> Price:
    return Price(order["price"])


def test_an_annotation_gives_the_serde_of_other_parts() -> None:
    last = aggregations.combined(last=aggregations.last(cents))
    assert last.result(stored_state_of(last, ORDERS, serde_of(last))) == {"last": Price(9)}


def test_values_without_a_serde_have_the_default_one() -> None:
    last = aggregations.combined(last=aggregations.last())
    serde = serde_of(last).with_defaults(None, Serdes.string())
    assert last.result(stored_state_of(last, ["a", "b"], serde)) == {"last": "b"}
    with pytest.raises(ConfigError, match="specify a value serde"):
        serde_of(last).with_defaults(None, None)


@pytest.mark.parametrize("make", [aggregations.combined, lambda: aggregations.combined(total=sum)])
def test_something_else_than_aggregations_is_refused(make: Any) -> None:
    with pytest.raises(TypeError, match=r"aggregation.*combined\(\)|combined\(\) needs an aggregation"):
        make()


def test_a_function_that_was_not_called_is_refused() -> None:
    mistaken: Any = aggregations.top
    with pytest.raises(TypeError, match=r"Expected the call aggregations\.top\(n\) for most of combined\(\)"):
        aggregations.combined(most=mistaken)
