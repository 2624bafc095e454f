"""The page on calling services is one program that prints what the page shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.docs.pages import BLOCKS, run_and_compare

PAGE = "docs/calling-services.md"


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    for variable in ("PRICES_URL", "PRICES_TOKEN", "ANSWER_KEYS"):
        monkeypatch.setenv(variable, "")
    names: dict[str, Any] = {"__name__": "page"}
    yield names
    names["service"].shutdown()
    names["service"].server_close()


def test_the_program_prints_what_the_page_shows(names: dict[str, Any]) -> None:
    for number in range(BLOCKS[PAGE]):
        run_and_compare(PAGE, number, names)
