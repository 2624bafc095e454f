"""The recipes of CONTRIBUTING.md name files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.findall(
    r"`((?:src|tests|docs|scripts|packages|news|deploy|\.github|\.ci)/[\w./-]+)`",
    (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"),
)


def test_the_recipes_name_files() -> None:
    assert len(NAMED) > 50


@pytest.mark.parametrize("name", sorted(set(NAMED)))
def test_a_named_file_exists(name: str) -> None:
    assert (ROOT / name).exists()
