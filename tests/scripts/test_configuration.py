"""The reference of the configuration is what the code has."""

from __future__ import annotations

import re

import pytest

from penstock.config.keys import KEYS
from scripts import configuration


def test_the_reference_of_the_configuration_is_up_to_date() -> None:
    assert configuration.PAGE.read_text(encoding="utf-8") == configuration.page(), "run python scripts/configuration.py"


def test_each_key_has_an_entry_with_type_default_importance_and_host() -> None:
    facts = r"- Type: [^\n]+\. Default: [^\n]+\. Importance: (?:high|medium|low)\. Host: ([^.]+)\.$"
    entries = re.findall(rf"^### ([\w.]+)\n\n[^\n]+\n\n{facts}", configuration.page(), re.MULTILINE)
    assert sorted(name for name, *_ in entries) == sorted(KEYS)
    assert {hosts for *_, hosts in entries} == {"Spark", "threads", "Spark, threads"}


def test_the_reference_contains_nothing_of_this_machine() -> None:
    assert str(KEYS["state.dir"].default) not in configuration.page()


@pytest.mark.parametrize("name", ["penstock.batch.max.bytes", "poll.ms"])
def test_a_key_without_effect_on_a_host_names_the_one_to_set_there(name: str) -> None:
    assert re.search(r"^- On \w+: set [\w.]+\.$", "\n".join(configuration.entry(KEYS[name])), re.MULTILINE)
