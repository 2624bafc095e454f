"""Every error has a meaning and a remedy, and the page on errors is what the code has."""

from __future__ import annotations

import pytest

from scripts import errors


def test_the_page_on_errors_is_up_to_date() -> None:
    assert errors.PAGE.read_text(encoding="utf-8") == errors.page(), "run python scripts/errors.py"


@pytest.mark.parametrize("error", [*errors.public_errors(), *errors.OTHERS], ids=lambda error: error.__name__)
def test_every_error_says_what_it_means_and_what_to_do(error: type[Exception]) -> None:
    meaning, remedy, _ = errors.parts(error)
    assert meaning.endswith(".")
    assert remedy.endswith("."), 'the docstring has a paragraph that begins "What to do: "'
