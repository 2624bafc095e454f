"""The notebook of the examples runs, shows what it promises, and can run its cells again."""

from __future__ import annotations

import ast
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.host.support import wait_for

WITH_SPARK = pytest.param(
    "spark",
    marks=[
        pytest.mark.spark,
        pytest.mark.xdist_group("spark"),
        pytest.mark.skipif(find_spec("pyspark") is None, reason="There is no pyspark"),
    ],
)
NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"


class Cells:
    """The code of the notebook, by the beginning of a line in a cell, and the names that it has defined."""

    def __init__(self) -> None:
        cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
        self.sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        self.names: dict[str, Any] = {"__name__": "__main__"}

    def run(self, beginning: str) -> Any:
        """Run the cell with a line that begins so; returns the value of its last line, as a notebook would show it."""
        (source,) = (each for each in self.sources if any(_begins(line, beginning) for line in each.splitlines()))
        module = ast.parse(source, str(NOTEBOOK))
        last = module.body.pop()
        exec(compile(module, str(NOTEBOOK), "exec"), self.names)
        if isinstance(last, ast.Expr):
            return eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), self.names)
        exec(compile(ast.Module([last], []), str(NOTEBOOK), "exec"), self.names)
        return None


def _begins(line: str, beginning: str) -> bool:
    """Return whether a line begins so; a single name is a line of its own."""
    return line == beginning if beginning.isidentifier() else line.startswith(beginning)


@pytest.fixture
def cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cells]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ipython = ModuleType("IPython")
    vars(ipython)["get_ipython"] = object
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    cells = Cells()
    yield cells
    for name, end in (("streams", "close"), ("broker", "stop")):
        with suppress(KeyError):
            getattr(cells.names[name], end)()


@pytest.mark.slow
@pytest.mark.parametrize("host", ["threads", WITH_SPARK])
def test_the_notebook(cells: Cells, host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def shown(beginning: str) -> str:
        html: str = cells.run(beginning)._repr_mimebundle_()["text/html"]
        return html

    before = {thread.name for thread in threading.enumerate()}
    cells.run("broker =")
    cells.names["config"]["penstock.host"] = host
    for _ in range(2):
        assert "KTable" in shown("text = ")
        assert [record.value for record in cells.run("words.head")] == ["to", "be", "or", "not", "to"]
        first = cells.run("counts.head")
        assert dict(zip(first["key"], first["value"], strict=True))["to"] == 2
        assert dict(cells.run("tested").to_numpy()[:, :2]) == {"a": 3, "b": 1, "c": 1}
    for _ in range(2):
        assert "KafkaStreams words" in shown("streams = ")
        wait_for(lambda: "question" in shown("streams.view"))
    cells.run('for line in ("whether')
    wait_for(lambda: "suffer" in str(cells.run("store =")))
    assert cells.run("store =")["key"].iloc[0] == "to"
    capsys.readouterr()
    assert list(cells.run("table =")) == ["partition", "key", "value", "timestamp"]
    if find_spec("polars") and find_spec("duckdb"):
        assert "letters" in capsys.readouterr().out
    else:  # pyarrow's table
        assert "key_count" in capsys.readouterr().out
    cells.run("tap =")
    wait_for(lambda: "of outrageous fortune" in shown("tap"))
    changed = shown("streams.edit")
    assert "store counts keeps its state" in changed
    assert "store initials is new and starts empty" in changed
    wait_for(lambda: cells.names["streams"].state().value == "RUNNING")
    cells.names["producer"].produce("lines", value="To")
    cells.names["producer"].flush()
    wait_for(lambda: dict(cells.run("store =").to_numpy()[:, :2]).get("to") == 4)
    assert "the functions are the new ones" in shown("streams.edit")
    cells.run("streams.close")
    assert host == "spark" or list(tmp_path.iterdir()) == []  # a session of Spark keeps files
    if host == "threads":  # a session of Spark goes on, for the next application
        wait_for(lambda: not {thread.name for thread in threading.enumerate()} - before)
