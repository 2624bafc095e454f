"""mypy finds in chains.py the types that stand there, and finds mistakes that are made in a chain."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
# mypy's cache is a database: two that open a new one at once find it locked. So may the second of two runs in one
# process, where the first has not closed it.
pytestmark = pytest.mark.xdist_group("mypy")
PROGRAM = """
from penstock import Consumed, Serdes, StreamsBuilder

builder = StreamsBuilder()
lines = builder.stream("lines", Consumed.with_(key_serde=Serdes.string(), value_serde=Serdes.string()))
numbers = builder.stream("numbers", Consumed.with_(key_serde=Serdes.string(), value_serde=Serdes.long()))
{statement}
"""


def checked(path: Path) -> str:
    """Return what mypy says of the file `path`, checked as strictly as the package."""
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", "--no-error-summary", str(path)]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout


def test_types_are_known_through_chains() -> None:
    assert checked(HERE / "chains.py") == ""


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
    program.write_text(PROGRAM.format(statement=statement))
    assert error in checked(program)
