"""Generated and legal names."""

from __future__ import annotations

import pytest

from penstock.errors import TopologyError
from penstock.plan.names import InternalNameProvider, RepartitionNames, check_name

LEGAL = "'.', '_' and '-'"


def test_processors_and_stores_take_numbers_from_one_counter() -> None:
    names = InternalNameProvider()
    assert names.new_processor_name("KSTREAM-SOURCE-") == "KSTREAM-SOURCE-0000000000"
    assert names.new_store_name("KSTREAM-REDUCE-") == "KSTREAM-REDUCE-STATE-STORE-0000000001"
    assert names.processor_name("mine", "KSTREAM-MAP-") == "mine"
    assert names.processor_name(None, "KSTREAM-MAP-") == "KSTREAM-MAP-0000000003"


def test_a_repartition_of_a_generated_store_has_generated_nodes() -> None:
    names = RepartitionNames.make("KSTREAM-REDUCE-STATE-STORE-0000000001", InternalNameProvider())
    assert names == RepartitionNames(
        topic="KSTREAM-REDUCE-STATE-STORE-0000000001-repartition",
        sink="KSTREAM-SINK-0000000000",
        filter="KSTREAM-FILTER-0000000001",
        source="KSTREAM-SOURCE-0000000002",
    )


@pytest.mark.parametrize("prefix", ["mine", "mine-repartition"])
def test_a_repartition_that_the_user_named_names_its_nodes_and_takes_the_numbers_all_the_same(prefix: str) -> None:
    provider = InternalNameProvider()
    names = RepartitionNames.make(prefix, provider)
    assert names == RepartitionNames(
        "mine-repartition", "mine-repartition-sink", "mine-repartition-filter", "mine-repartition-source"
    )
    assert provider.new_processor_name("") == "0000000003"


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "n" * 249])
def test_legal_names(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "Invalid topology: Name is illegal, it can't be empty"),
        ("..", 'Invalid topology: Name cannot be "." or ".."'),
        ("n" * 250, "Invalid topology: Name is illegal, it can't be longer than 249 characters, name: " + "n" * 250),
        (
            "a\n",
            f'Invalid topology: Name "a\n" is illegal, it contains a character other than ASCII alphanumerics, {LEGAL}',
        ),
    ],
)
def test_illegal_names(name: str, message: str) -> None:
    with pytest.raises(TopologyError) as caught:
        check_name(name)
    assert str(caught.value) == message
