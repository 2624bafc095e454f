"""The rows of configuration keys: descriptions, defaults and choices."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import penstock
from penstock.config import FORMER_NAMES, StreamsConfig
from penstock.config.keys import KEYS


def test_every_row_says_what_it_does_and_its_default_is_valid() -> None:
    for name, row in KEYS.items():
        assert row.importance in ("high", "medium", "low"), name
        assert row.doc.endswith("."), name
        if row.default is not None:
            assert row.parse(name, row.default) == row.default


SOURCE = Path(penstock.__file__).parent
ROWS = {SOURCE / "config" / name for name in ("kafka_keys.py", "penstock_keys.py", "constants.py")}


def test_the_code_reads_each_key() -> None:
    read = "".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py") if path not in ROWS)
    assert [name for name in KEYS if f'"{name}"' not in read] == [], "a row that no host reads: see CONTRIBUTING.md"


CHOICES = [
    (key.name, choice)
    for key in KEYS.values()
    if re.fullmatch(r"\S+(, \S+)+", key.parse.takes)
    for choice in key.parse.takes.split(", ")
]


@pytest.mark.parametrize(("key", "choice"), CHOICES)
def test_a_choice_may_be_in_small_letters_or_capitals(key: str, choice: str) -> None:
    for written in (choice.lower(), choice.upper()):
        assert StreamsConfig({key: written}, environment={})[key] == choice


def test_a_key_has_one_row_and_a_deprecated_name_has_none() -> None:
    assert all(name == row.name for name, row in KEYS.items())
    assert KEYS.keys().isdisjoint(FORMER_NAMES)
    assert KEYS.keys() >= set(FORMER_NAMES.values())
