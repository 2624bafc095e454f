"""The tables of docs/api are what the docstrings have, for readers of the Markdown itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.extensions.public_api import PAGES
from scripts import api_tables

LISTS = [path for path in sorted(Path(PAGES).glob("*.md")) if path.name != "index.md"]


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_the_tables_are_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == api_tables.page(path), "run python scripts/api_tables.py"


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_each_entry_has_a_row_with_a_sentence(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    seen = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)  # what a Git host shows
    names = [entry.rpartition(".")[2] for entry in re.findall(r"^\.\. auto\w+:: ([\w.]+)", text, re.MULTILINE)]
    rows = dict(re.findall(r"^\| \*\*`(\w+).*?`\*\* \| (.*) \|$", seen, re.MULTILINE))
    assert list(rows) == names
    assert all(rows.values())
    assert "autoclass" not in seen


def test_methods_are_rows_too() -> None:
    text = (PAGES / "dsl.md").read_text(encoding="utf-8")
    assert "| `KStream.filter(predicate, named, on_error, calls)` | Return the records that match `predicate(" in text
