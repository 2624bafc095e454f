"""News fragments have names that towncrier takes, and the changelog has a place for them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import penstock

ROOT = Path(__file__).parents[2]
NEWS = ROOT / "news"
TOWNCRIER: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["towncrier"]
TYPES = [each["directory"] for each in TOWNCRIER["type"]]

_NAME = re.compile(rf"(\d+|\+[a-z0-9]+(-[a-z0-9]+)*)\.({'|'.join(TYPES)})\.md")
_RELEASE = re.compile(r"^## (\d+\.\d+\.\d+) \(\d{4}-\d\d-\d\d\)$", re.MULTILINE)


@pytest.mark.parametrize("name", ["7.added.md", "+lag.fixed.md", "+hidden-lag-of-2-tasks.security.md"])
def test_a_valid_name_is_known(name: str) -> None:
    assert _NAME.fullmatch(name)


@pytest.mark.parametrize("name", ["lag.fixed.md", "+lag.md", "+lag.bugfix.md", "+Lag.fixed.md", "7.fixed.rst"])
def test_another_name_is_refused(name: str) -> None:
    assert not _NAME.fullmatch(name)


def test_each_fragment_has_a_valid_name_and_a_sentence() -> None:
    for path in NEWS.iterdir():
        if path.name != "README.md":
            assert _NAME.fullmatch(path.name), f"{path.name}: news/README.md has the rule"
            assert path.read_text(encoding="utf-8").rstrip().endswith("."), path.name


def test_the_rules_name_the_types() -> None:
    rules = (NEWS / "README.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in rules for name in TYPES)


def test_the_changelog_has_a_place_for_the_next_release() -> None:
    text = (ROOT / TOWNCRIER["filename"]).read_text(encoding="utf-8")
    assert text.count(TOWNCRIER["start_string"]) == 1
    assert "Unreleased" not in text


def test_the_newest_release_notes_are_those_of_this_version() -> None:
    released = _RELEASE.findall((ROOT / TOWNCRIER["filename"]).read_text(encoding="utf-8"))
    if ".dev" in penstock.__version__:
        assert penstock.__version__.partition(".dev")[0] not in released
    else:
        assert penstock.__version__ == released[0]
