"""What the commands share."""

from __future__ import annotations

import json

import pytest

from penstock.cli.common import err, out, print_json

TEXT = "y:key:z [bold]b[/bold] :warning:"


def test_names_of_emoji_stay_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"error": TEXT})
    assert json.loads(capsys.readouterr().out) == {"error": TEXT}
    out.print(TEXT, markup=False)
    err.print(TEXT, markup=False)
    assert capsys.readouterr() == (f"{TEXT}\n", f"{TEXT}\n")
