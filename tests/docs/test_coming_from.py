"""The pages for those who come from another library: their programs print what the pages show, and the methods and keys
of Penstock that their tables name exist."""

from __future__ import annotations

import re
from typing import Any

import pytest

import penstock
from penstock import testing
from penstock.config.keys import KEYS
from tests.docs.pages import BLOCKS, ROOT, run_and_compare

PAGES = [str(page.relative_to(ROOT)) for page in sorted((ROOT / "docs" / "coming-from").glob("*.md"))]
PUBLIC = {name: getattr(module, name) for module in (penstock, testing) for name in module.__all__}
MEMBERS = {*PUBLIC, *(member for found in PUBLIC.values() if isinstance(found, type) for member in type.__dir__(found))}


@pytest.mark.parametrize("page", PAGES)
def test_the_programs_print_what_the_page_shows(page: str) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    for number in range(BLOCKS[page]):
        run_and_compare(page, number, names)


@pytest.mark.parametrize("page", [page for page in PAGES if not page.endswith("java.md")])
def test_the_names_of_ours_exist(page: str) -> None:
    rows = re.findall(r"^\| .* \| (.*) \|$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
    code = [found for row in rows for found in re.findall(r"`([^`]+)`", row)]
    keys = [found.partition("=")[0] for found in code if re.fullmatch(r"[a-z0-9]+(\.[a-z0-9]+)+(=\S+)?", found)]
    assert [key for key in keys if key not in KEYS] == []
    methods = [name for found in code for name in re.findall(r"(?:^|[ .])([a-z_]{4,}|[A-Z][A-Za-z]+)\(", found)]
    assert len(methods) > 10
    assert [name for name in methods if name not in MEMBERS] == []
