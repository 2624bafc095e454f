"""Every error has a meaning and a remedy, and the page on errors is what the code has."""

from __future__ import annotations

import ast

import pytest

from scripts import errors

NOT_SHOWN = {
    "CommitRefusedError": "the member joins its group again",
    "RefusedActionError": "an answer of the JSON API",
    "RefusedOutputError": "the host sends the records again",
    "RefusedRequestError": "an answer of the schema registry",
    "RestoreStoppedError": "the end of a restore that is not needed any more",
    "UnusableSnapshotError": "the store is restored from its changelog",
    "WrongParameterError": "an answer of the JSON API",
}
"""The errors that no program and no command ends with, and what becomes of them."""


def raised_by_penstock() -> set[str]:
    """Return the names of all public classes below StreamsError and BrokerError, in all modules."""
    bases = {
        node.name: {each.id for each in node.bases if isinstance(each, ast.Name)}
        for source in errors.SOURCES
        for path in source.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    }
    found = {"StreamsError", "BrokerError"}
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return {name for name in found if not name.startswith("_")}


def test_the_page_on_errors_is_up_to_date() -> None:
    assert errors.PAGE.read_text(encoding="utf-8") == errors.page(), "run python scripts/errors.py"


def test_every_error_is_on_the_page_unless_no_user_sees_it() -> None:
    shown = {each.__name__ for each in (*errors.public_errors(), *errors.other_errors())}
    missing = raised_by_penstock() - shown - NOT_SHOWN.keys()
    assert not missing, f'give the docstring of each a paragraph that begins "{errors.REMEDY}"'
    assert not NOT_SHOWN.keys() & shown
    assert NOT_SHOWN.keys() <= raised_by_penstock()


@pytest.mark.parametrize("error", [*errors.public_errors(), *errors.other_errors()], ids=lambda error: error.__name__)
def test_every_error_says_what_it_means_and_what_to_do(error: type[Exception]) -> None:
    meaning, remedy, _ = errors.parts(error)
    assert meaning.endswith(".")
    assert remedy.endswith("."), 'the docstring has a paragraph that begins "What to do: "'
