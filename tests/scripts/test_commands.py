"""The reference of the commands is what the code has."""

from __future__ import annotations

import re

import pytest
from typer.core import TyperGroup

from penstock.tools.cli.main import COMMANDS
from scripts import commands


def test_the_reference_of_the_commands_is_up_to_date() -> None:
    assert commands.PAGE.read_text(encoding="utf-8") == commands.page(), "run python scripts/commands.py"


@pytest.mark.parametrize(("name", "found"), list(commands.every_command()))
def test_each_command_and_each_option_has_a_help_text(name: str, found: object) -> None:
    assert getattr(found, "help", None), name
    if not isinstance(found, TyperGroup):
        assert [each.name for each in getattr(found, "params", ()) if not each.help] == []


def test_groups_and_their_commands_are_listed() -> None:
    names = [name for name, _ in commands.every_command()]
    assert set(COMMANDS) < set(names)
    assert "savepoint take" in names


def test_values_and_defaults_are_shown() -> None:
    page = commands.page()
    assert "| `--format, -f text\\|mermaid\\|svg` | Kafka's text, " in page
    assert " a mermaid flowchart or an SVG picture. Default: `text`. |" in page
    assert "penstock query [OPTIONS] FILE [STORE] [KEY]" in page
    assert "| `--from HOST:PORT` | Brokers of the cluster to read. Required. |" in page


def test_the_readme_names_each_command() -> None:
    lines = (commands.ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    [row] = [line for line in lines if line.startswith("| Tools |")]
    assert re.findall(r"`(?:penstock )?([\w-]+)`", row) == list(COMMANDS)
