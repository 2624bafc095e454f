"""The tables for those who come from other libraries have a decision for each public name of these."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from pyspark.sql import streaming
from pyspark.sql.streaming import state, stateful_processor

from scripts import coming_from

BY_NAME = {file.stem: file for file in coming_from.LIBRARIES}


def test_each_library_has_its_names() -> None:
    assert set(BY_NAME) == {"faust", "quix", "spark"}


@pytest.mark.parametrize("file", BY_NAME.values(), ids=lambda file: file.stem)
def test_the_pages_are_up_to_date(file: Path) -> None:
    found = coming_from.library(file)
    assert found.page.read_text(encoding="utf-8") == coming_from.page(found), "run python scripts/coming_from.py"


def test_the_names_of_spark_are_those_of_the_installed_version() -> None:
    for name, listed in coming_from.library(BY_NAME["spark"]).names.items():
        [found, *_] = [vars(each)[name] for each in (streaming, state, stateful_processor) if name in vars(each)]
        public = {each for each, _ in inspect.getmembers(found) if not each.startswith("_") and not each.isupper()}
        assert public == set(listed), name


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('Application = "config ', 'Application = "teleport config ', "without a decision: Application.teleport"),
        ('names = "Application.topic"', 'names = "Application.look"', "no such name: Application.look"),
        ('names = "Application.topic"', 'names = "Application.topic Application.run"', "twice: Application.run"),
    ],
)
def test_a_name_without_one_decision_is_reported(old: str, new: str, said: str, tmp_path: Path) -> None:
    text = BY_NAME["quix"].read_text(encoding="utf-8")
    assert old in text
    changed = tmp_path / "quix.toml"
    changed.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(coming_from.DecisionError, match=said):
        coming_from.library(changed)
