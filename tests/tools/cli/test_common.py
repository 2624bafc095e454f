"""What the commands share."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import typer
from rich.table import Table

from penstock.tools.cli.common import AsJson, err, option_groups, out, print_json, print_table

TEXT = "y:key:z [bold]b[/bold] :warning:"


def test_names_of_emoji_stay_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"error": TEXT})
    assert json.loads(capsys.readouterr().out) == {"error": TEXT}
    out.print(TEXT, markup=False)
    err.print(TEXT, markup=False)
    assert capsys.readouterr() == (f"{TEXT}\n", f"{TEXT}\n")


def test_a_table_keeps_its_cells_where_no_terminal_cuts_them(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("key", "first error", box=None)
    table.add_row("k" * 60, "e" * 90)
    print_table(table)
    assert "k" * 60 + "  " + "e" * 90 in capsys.readouterr().out.replace("   ", "  ")


@dataclass(frozen=True)
class Where:
    """A group of options."""

    topic: Annotated[str, typer.Option("--topic")]
    partition: Annotated[int, typer.Option("--partition", "-p")] = 0


def test_the_fields_of_a_group_are_options_of_the_command_in_the_order_of_its_parameters() -> None:
    called = []

    @option_groups
    def command(name: Annotated[str, typer.Argument()] = "all", *, where: Where, as_json: AsJson = False) -> None:
        """Do it."""
        called.append((name, where, as_json))

    app = typer.Typer()
    app.command()(command)
    found: Any = typer.main.get_command(app)
    assert [each.opts for each in found.params][:4] == [["name"], ["--topic"], ["--partition", "-p"], ["--json"]]
    assert found.help == "Do it."
    found(["--topic", "words", "-p", "3", "--json"], standalone_mode=False)
    found(["one", "--topic", "words"], standalone_mode=False)
    assert called == [("all", Where("words", 3), True), ("one", Where("words", 0), False)]
