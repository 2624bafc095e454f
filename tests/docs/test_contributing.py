"""The recipes of CONTRIBUTING.md name files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`((?:src|tests|docs|scripts|packages|news|deploy|\.github|\.ci)/[\w./-]+)`", PAGE)
DEFINED = re.findall(r"`([\w.]+)`\s+(?:of|in|\()\s*`((?:src|tests|scripts|packages)/[\w./-]+\.\w+)`", PAGE)
"""Pairs of a name and the file that has it."""


def test_the_recipes_name_files() -> None:
    assert len(NAMED) > 50


@pytest.mark.parametrize("name", sorted(set(NAMED)))
def test_a_named_file_exists(name: str) -> None:
    assert (ROOT / name).exists()


@pytest.mark.parametrize(("name", "path"), sorted(set(DEFINED)))
def test_a_named_file_has_the_name(name: str, path: str) -> None:
    assert re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", (ROOT / path).read_text(encoding="utf-8"))
