"""The distribution is penstock-streams; on PyPI, penstock is another project, which no text tells users to install."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement

import penstock
import penstock_broker
from penstock.extras import DISTRIBUTION

ROOT: Final = Path(__file__).parents[2]

_INSTALLED: Final = re.compile(
    r"""(?x)
    \b (?:pip3? \s+ install | uv \s+ add | poetry \s+ add | pipx \s+ install)
    (?: [ \t]+ [^\s`;&|\#]+ )*?         # options and other packages
    \s+ ["'\\]* penstock (?! [-_.\w] )  # neither penstock-streams nor a file
    | \b penstock \\? \[ \w+ \\? \]     # a requirement with an extra
    | \b penstock \s* [=>~]= \s* \d     # a requirement with a version
    """
)
"""A requirement of the project on PyPI that has the name of our package."""


def texts() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each file of the repository that has texts for users."""
    directories = (
        *("src", "packages", "docs", "deploy", "examples", "scripts", "benchmarks", "tests"),
        *("news", ".ci", ".github"),
    )
    files = (path for name in directories for path in sorted((ROOT / name).rglob("*")) if path != Path(__file__))
    for path in (*files, *ROOT.glob("*.md"), ROOT / "Makefile", ROOT / "pyproject.toml", ROOT / "requirements.lock"):
        if path.is_file() and "__pycache__" not in path.parts:
            try:
                yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
            except UnicodeDecodeError:  # a picture
                continue


def test_no_text_installs_the_other_project() -> None:
    found = [(name, match[0]) for name, text in texts() for match in _INSTALLED.finditer(text)]
    assert not found, f"the distribution is {DISTRIBUTION}"


@pytest.mark.parametrize(
    "text",
    [
        "pip install penstock",
        "`pip install 'penstock[ui]'`",
        "pip install --upgrade pyspark 'penstock'",
        "(`pip install\npenstock`)",
        r'"!pip install \"penstock\""',
        "dependencies = ['penstock>=0.1']",
        "uv add penstock",
    ],
)
def test_what_installs_the_other_project_is_found(text: str) -> None:
    assert _INSTALLED.search(text)


@pytest.mark.parametrize(
    "text",
    [
        "pip install 'penstock-streams[ui]'",
        "pip install '.[ui]' && penstock demo",
        "`pip install .`, then `penstock demo`",
        'pip install "$(ls ./penstock_streams-*.whl)[ui]"',
        "pip install .    # penstock demo needs no Spark",
    ],
)
def test_what_installs_this_project_is_not(text: str) -> None:
    assert not _INSTALLED.search(text)


def test_both_distributions_have_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"penstock-broker=={penstock_broker.__version__}" in project["dependencies"]
    assert penstock_broker.__version__ == penstock.__version__


def test_the_messages_name_the_distribution_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == DISTRIBUTION


def test_the_lock_pins_all_extras_and_groups_of_the_distribution() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lists = (*declared["project"]["optional-dependencies"].values(), *declared["dependency-groups"].values())
    names = {Requirement(line).name for lines in lists for line in lines if isinstance(line, str)}
    assert "penstock" not in names
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert f"{DISTRIBUTION} (pyproject.toml)" in lock
    assert names <= set(re.findall(r"^([a-z0-9-]+)(?:\[[a-z,]+\])?==", lock, re.MULTILINE))
