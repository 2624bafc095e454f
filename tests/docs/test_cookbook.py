"""The cookbook: each recipe is a program of its own that prints what the page shows, and the index has all recipes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT, run_and_compare, sections

PAGES = [str(page.relative_to(ROOT)) for page in sorted((ROOT / "docs" / "cookbook").glob("*.md"))]
RECIPES = [(page, recipe) for page in PAGES for recipe in sections(page)]
SLOW = ("FastAPI with two replicas", "Parquet, then live")
"""They wait for groups of consumers, for more than three seconds each."""


@pytest.mark.parametrize(
    ("page", "recipe"),
    [pytest.param(*each, marks=[pytest.mark.slow] if each[1] in SLOW else [], id=each[1]) for each in RECIPES],
)
def test_a_recipe_prints_what_the_page_shows(
    page: str, recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_STATE_DIR", str(tmp_path))
    names: dict[str, Any] = {"__name__": "page"}
    for number in sections(page)[recipe]:
        run_and_compare(page, number, names)


def test_the_index_has_all_recipes() -> None:
    index = (ROOT / "docs" / "cookbook.md").read_text(encoding="utf-8")
    listed = [(f"docs/{page}", recipe) for recipe, page in re.findall(r"^\| \[(.*)\]\((.*)#", index, re.MULTILINE)]
    assert sorted(listed) == sorted(RECIPES)
