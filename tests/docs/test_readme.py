"""The README leads to each page of the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize("page", PAGES)
def test_the_readme_names_each_page(page: str) -> None:
    named = re.findall(r"\((docs/[\w-]+\.md)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert page in named, "add it to the list of pages in README.md"
