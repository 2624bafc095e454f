"""mypy and pyright find in chains.py the types that stand there, and mypy finds mistakes that are made in a chain."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import CogroupedKStream, KGroupedStream, KGroupedTable, KStream, KTable, TimeWindowedKStream

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
# mypy's cache is a database: two that open a new one at the same time find it locked. So may the second of two runs in
# one process, where the first has not closed it.
pytestmark = pytest.mark.xdist_group("mypy")
PROGRAM = """
from penstock import Consumed, ProcessorContext, Serdes, StreamsBuilder

async def asked(text: str) -> int:
    return len(text)

def ask(context: ProcessorContext) -> None:
    context.call(asked, {argument})

builder = StreamsBuilder()
lines = builder.stream("lines", Consumed.with_(key_serde=Serdes.string(), value_serde=Serdes.string()))
numbers = builder.stream("numbers", Consumed.with_(key_serde=Serdes.string(), value_serde=Serdes.long()))
{statement}
"""


def mypy(path: Path) -> str:
    """Return what mypy says of the file `path`, checked as strictly as the package."""
    cache = ("--no-sqlite-cache", "--cache-dir", ".mypy_cache/typing")  # files, and no others': no database is locked
    return _said("mypy", "--config-file", "pyproject.toml", "--no-error-summary", *cache, str(path))


def pyright(path: Path) -> str:
    """Return what pyright says of the file `path`; nothing if it finds no error."""
    said = _said("basedpyright", "--level", "error", "--pythonpath", sys.executable, str(path))
    return "" if said.startswith("0 errors") else said


def _said(checker: str, *arguments: str) -> str:
    command = [sys.executable, "-m", checker, *arguments]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout


UNTYPED = {"process", "process_values", "transform_values"}
"""Operators whose results have the types of the annotation, since suppliers have no types."""
TERMINAL = {"print", "to", "to_lake", "to_spark"}


@pytest.mark.parametrize(
    "kind", [KStream, KTable, KGroupedStream, KGroupedTable, TimeWindowedKStream, CogroupedKStream]
)
def test_each_operator_is_in_a_chain(kind: type) -> None:
    operators = {name for name, _ in inspect.getmembers(kind, callable) if not name.startswith("_")}
    chained = set(re.findall(r"\.(\w+)\(", (HERE / "chains.py").read_text(encoding="utf-8")))
    assert operators - chained <= UNTYPED | TERMINAL, "add a chain with assert_type to tests/typing/chains.py"


@pytest.mark.parametrize("check", [mypy, pyright])
def test_types_are_known_through_chains(check: Callable[[Path], str]) -> None:
    assert check(HERE / "chains.py") == ""


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("lines.map_values(lambda line: line + 1)", "[operator]"),
        ("lines.map_values(len).filter(lambda key, length: length.isdigit())", "[attr-defined]"),
        ("lines.group_by_key().reduce(lambda one, other: len(one))", "[arg-type]"),
        ("lines.merge(numbers)", "[arg-type]"),
        ("lines.join(numbers.to_table(), lambda line, number: line + number)", "[operator]"),
    ],
)
def test_mistakes_in_a_chain_are_found(statement: str, error: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(statement=statement, argument="'text'"))
    assert error in mypy(program)


def test_the_argument_of_a_call_has_the_type_that_its_function_takes(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(statement="", argument="5"))
    assert "[arg-type]" in mypy(program)
    program.write_text(PROGRAM.format(statement="", argument="'text'"))
    assert mypy(program) == ""
