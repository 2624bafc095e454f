"""Which stores hold records of calls, and what is said about them."""

from __future__ import annotations

import pytest

from penstock.host.deployment.uncalled_records import stores_of_calls, warn_of_uncalled_records


def test_only_a_store_whose_operator_has_an_answers_topic_is_one_of_calls() -> None:
    topics = {"shop-ask-answers", "shop-counts-answers", "phone-answers"}
    assert [*stores_of_calls("shop", ["ask-calls", "phone-calls", "counts"], topics)] == ["ask-calls"]


def test_the_warning_has_the_number_of_records_and_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_uncalled_records({"pay-calls": 2, "ask-calls": 1, "old-calls": 0}, "drop {store}")
    assert caplog.messages == [
        f"{told} calls in store {name}-calls, and the program has no such operator with calls: nothing calls for them. "
        f"Give the operator its name (named='{name}') and its calls= again until no record waits, or give them up: "
        f"drop {name}-calls."
        for name, told in (
            ("ask", "1 record of operator ask waits for"),
            ("pay", "2 records of operator pay wait for"),
        )
    ]
