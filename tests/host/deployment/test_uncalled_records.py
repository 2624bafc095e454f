"""Which stores hold records of calls, and what is said about them."""

from __future__ import annotations

import pytest

from penstock.host.deployment.uncalled_records import (
    UncalledStore,
    operator_of,
    operators_with_answers,
    warn_of_uncalled_records,
)
from penstock.processor.waiting_records import WaitingRecord


def unread() -> bytes | None:
    raise AssertionError("The name of the store says enough.")


def entry(call_id: str) -> bytes:
    return WaitingRecord(b"k", b"v", 0, (), "orders", 0, 17, call_id=call_id).pack()


def test_operators_with_calls_are_known_by_their_answers_topics() -> None:
    topics = ["shop-ask-answers", "shop-ask-calls-changelog", "phone-answers", "shop-count-all-answers", "shopping"]
    assert operators_with_answers("shop", topics) == {"ask", "count-all"}


def test_a_store_with_the_name_of_an_operator_with_answers_is_one_of_calls() -> None:
    assert operator_of("ask-calls", {"ask", "pay"}, unread) == "ask"
    assert operator_of("ask", {"ask"}, lambda: None) is None
    assert operator_of("phone-calls", (), unread) is None


@pytest.mark.parametrize(
    ("call_id", "operator"),
    [
        ("orders-0-17-ask", "ask"),
        ("orders-0-17-ask:2", "ask"),
        ("orders-0-17-price:1/ask", "ask"),
        ("orders-0-17-price/ask:3", "ask"),
        ("0123456789abcdef0123456789abcdef/ask", "ask"),
        ("shop/0_0/ask/5", "ask"),
        ("orders-0-17-never-ask", "never-ask"),
        ("orders-0-17-other", None),
        ("", None),
    ],
)
def test_a_store_with_another_name_is_known_by_the_call_of_an_entry(call_id: str, operator: str | None) -> None:
    assert operator_of("questions", {"ask", "never-ask", "pay"}, lambda: entry(call_id)) == operator


@pytest.mark.parametrize(
    "value", [b"", b"7", b"\x02", b"\x01\x90", b"a text that is no waiting record", entry("orders")[:-1] + b"\xff"]
)
def test_other_stores_are_none_of_calls(value: bytes) -> None:
    assert operator_of("counts", {"ask"}, lambda: value) is None


def test_the_warning_has_the_number_of_records_and_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    stores = [UncalledStore("pay-calls", "pay", 2), UncalledStore("asked", "ask", 1), UncalledStore("old", "old", 0)]
    warn_of_uncalled_records(stores, "drop {store} and {operator}")
    assert caplog.messages == [
        f"{told} calls in store {store}, and the program has no such operator with calls: nothing calls for them. "
        f"Give the operator its name (named='{name}') and its calls= again{own} until no record waits, or give them "
        f"up: drop {store} and {name}."
        for name, store, told, own in (
            ("ask", "asked", "1 record of operator ask waits for", ", with store_name='asked',"),
            ("pay", "pay-calls", "2 records of operator pay wait for", ""),
        )
    ]
