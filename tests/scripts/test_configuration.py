"""The reference of the configuration is what the code has."""

from __future__ import annotations

import re

import pytest

from penstock.config.keys import KEYS
from scripts import configuration


def test_the_reference_of_the_configuration_is_up_to_date() -> None:
    assert configuration.PAGE.read_text(encoding="utf-8") == configuration.page(), "run python scripts/configuration.py"


def test_each_key_has_a_row_with_a_type_an_importance_and_a_host() -> None:
    rows = re.findall(
        r"^\| `([\w.]+)` \| ([^|]+) \|[^|]*\| (high|medium|low) \| ([^|]+) \|", configuration.page(), re.M
    )
    assert sorted(name for name, *_ in rows) == sorted(KEYS)
    assert {host for *_, host in rows} == {"Spark", "threads", "Spark, threads"}


def test_the_reference_contains_nothing_of_this_machine() -> None:
    assert str(KEYS["state.dir"].default) not in configuration.page()


@pytest.mark.parametrize("name", ["penstock.batch.max.bytes", "poll.ms"])
def test_a_key_without_effect_on_a_host_names_the_one_to_set_there(name: str) -> None:
    assert re.search(r"Without effect on \w+: set [\w.]+\.$", configuration.meaning(KEYS[name]))
