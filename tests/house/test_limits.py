"""The source of the library keeps the limits of CONTRIBUTING.md; `exceptions.toml` may only shrink."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Sequence

import pytest

from tests.house.limits import (
    COMMENTED_LINES,
    EXCEPTIONS,
    LIMITS,
    UNTESTED_LINES,
    Module,
    measured,
    modules,
    packages_with_logic,
    shared_class_names,
    uncommented,
    untested,
)

ALLOWED = tomllib.loads(EXCEPTIONS.read_text())


pytestmark = pytest.mark.xdist_group("source")
"""One process parses the source once."""


@pytest.fixture(scope="module")
def found() -> Sequence[Module]:
    return modules()


@pytest.fixture(scope="module")
def exceeded(found: Sequence[Module]) -> dict[str, dict[str, int]]:
    return measured(found)


@pytest.mark.parametrize("limit", LIMITS)
def test_a_limit_holds(exceeded: dict[str, dict[str, int]], limit: str) -> None:
    assert exceeded[limit] == ALLOWED[limit], f"the limit of {limit} is {LIMITS[limit]}: divide what exceeds it"


def test_packages_only_import_and_export(found: Sequence[Module]) -> None:
    said = "an __init__ only imports and exports: move the rest to a module of the package"
    assert packages_with_logic(found) == ALLOWED["packages_with_logic"], said


def test_a_public_class_name_has_one_meaning(found: Sequence[Module]) -> None:
    said = "two public classes of one distribution have one name: rename the newer one"
    assert shared_class_names(found) == ALLOWED["shared_class_names"], said


def test_a_long_function_has_a_comment(found: Sequence[Module]) -> None:
    said = f"a function of more than {COMMENTED_LINES} lines needs a comment inside that says why, or fewer lines"
    assert uncommented(found) == ALLOWED["uncommented"], said


def test_a_module_has_its_own_tests(found: Sequence[Module]) -> None:
    said = f"a module of more than {UNTESTED_LINES} lines needs tests at its place: a/b.py those of tests/a/test_b.py"
    assert untested(found) == ALLOWED["untested"], said


def module(text: str, name: str = "a.py") -> Module:
    return Module(name, ast.parse(text), text)


def test_each_limit_is_measured() -> None:
    parameters = ", ".join(f"a{number}" for number in range(9))
    lines = "\n".join(f"        self.a{number} = {number}" for number in range(600))
    text = f"class C:\n    def __init__(self, {parameters}):\n{lines}\n"
    assert measured([module(text)]) == {
        "module_lines": {"a.py": 602},
        "class_lines": {"a.py:C": 602},
        "function_lines": {"a.py:C.__init__": 601},
        "parameters": {"a.py:C.__init__": 9},
        "attributes": {"a.py:C": 600},
    }


def test_long_functions_without_comments_are_found() -> None:
    body = "    pass\n" * 60
    silent, commented = f"def silent():\n{body}", f"def commented():\n    # Why.\n{body}"
    assert uncommented([module(f"# Outside.\n{silent}\n\n{commented}")]) == ["a.py:silent"]


def test_names_of_several_classes_are_found() -> None:
    text = "class Same: pass\nclass _Own: pass\n"
    found = [module(text, name) for name in ("one/a.py", "one/b.py", "another/a.py")]
    assert shared_class_names(found) == {"Same": ["one/a.py", "one/b.py"]}


def test_modules_without_tests_are_found() -> None:
    long = "\n" * 41
    names = ["penstock/streams.py", "penstock/state/nothing.py", "penstock/host/api.py", "penstock_broker/nothing.py"]
    assert untested([module(long, name) for name in names]) == [
        "penstock/state/nothing.py",
        "penstock_broker/nothing.py",
    ]


def test_logic_of_packages_is_found() -> None:
    plain = module('"""A package."""\nfrom a import b\n__all__ = ["b"]\n', "a/__init__.py")
    logic = module("def f(): pass\n", "b/__init__.py")
    assert packages_with_logic([plain, logic]) == ["b/__init__.py"]
