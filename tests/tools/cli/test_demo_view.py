"""What the demo shows while it counts."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from penstock.tools.cli import demo
from penstock.tools.cli.demo_view import DemoView, WordCounts


def test_the_time_and_the_rate_are_those_of_the_result() -> None:
    words = WordCounts(Counter({"a": 30, "b": 10}))
    words.update([("a", 20)])
    console = Console(width=150)
    with console.capture() as captured:
        console.print(DemoView(words).render(10.0))
    assert "20 of 40 2 words/s 10 s" in captured.get()


@pytest.mark.parametrize(
    ("started_as", "command"),
    [
        ("/opt/venv/bin/penstock", "/opt/venv/bin/penstock"),
        ("/opt/src/penstock/tools/cli/main.py", f"{sys.executable} -m penstock.tools.cli.main"),
    ],
)
def test_what_to_type_next_works_where_no_penstock_is_on_the_path(
    started_as: str, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", [started_as, "demo"])
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    demo._tell_where_to_look_next(tmp_path, tmp_path / "program.py")
    shown = capsys.readouterr().out
    assert f"{command} describe program.py" in shown
    assert f"how to run an application       {Path(__file__).parents[3] / 'docs' / 'guide.md'}" in shown
