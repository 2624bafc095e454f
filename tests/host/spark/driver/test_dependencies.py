"""What is sent to the executors of a cluster."""

from __future__ import annotations

import importlib
import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pyspark
import pytest
from pyspark import SparkContext

from penstock.errors import StreamsError
from penstock.host.spark.driver import dependencies


class Context:
    """Takes what is sent; the part of a SparkContext that is used."""

    def __init__(self, master: str) -> None:
        self.master = master
        self.sent: list[str] = []

    @property
    def listFiles(self) -> list[str]:  # noqa: N802  # Spark's name
        return [f"file:{path}" for path in self.sent]

    def addPyFile(self, path: str) -> None:  # noqa: N802  # Spark's name
        self.sent.append(path)


class Program:
    """Modules of a user's in `directory`, of which `mine`, `package` and `space.part` are loaded."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for name in (
            *("mine.py", "other.py", "package/__init__.py", "package/deep/lazy.py"),
            *("space/part.py", "space/unused.py"),
        ):
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"NAME = {name!r}\n")
        self.modules = [importlib.import_module(name) for name in ("mine", "package", "space.part")]

    def send(self, context: Context) -> Path | None:
        loaded = [json, pytest, pyspark, *self.modules]
        return dependencies.send_code(cast(SparkContext, context), loaded)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Program]:
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield Program(tmp_path)
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_penstock_and_the_modules_of_the_program_are_sent(program: Program) -> None:
    archive = program.send(Context("spark://somewhere:7077"))
    assert archive is not None
    names = {name for name in zipfile.ZipFile(archive).namelist() if name.endswith(".py")}
    assert {"penstock/__init__.py", "penstock/host/spark/worker/stage.py", "mine.py", "space/part.py"} <= names
    assert {"package/__init__.py", "package/deep/lazy.py"} <= names, "a package is sent whole"
    assert not {"other.py", "space/unused.py"} & names, "what is not loaded is not sent"
    assert not {name for name in names if name.startswith(("pyspark/", "pytest/", "json/"))}


def test_what_is_sent_can_be_imported(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = program.send(Context("yarn"))
    for name in ("mine", "package"):
        del sys.modules[name]
    monkeypatch.setattr(sys, "path", [str(archive), *(path for path in sys.path if path != str(program.directory))])
    module = importlib.import_module("package.deep.lazy")
    assert module.NAME == "package/deep/lazy.py"
    assert str(module.__file__).startswith(str(archive))


def test_equal_code_is_sent_once(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    # To compile all of Penstock takes seconds, and other tests import what is compiled.
    monkeypatch.setattr(dependencies, "_compiled", lambda name, path: b"")
    monkeypatch.setattr(dependencies, "default_directory", lambda: program.directory / "state")
    context = Context("spark://somewhere:7077")
    assert program.send(context) == program.send(context)
    assert len(context.sent) == 1
    (program.directory / "mine.py").write_text("NAME = 'changed'\n")
    program.send(context)
    assert len(set(context.sent)) == 2


@pytest.mark.parametrize("master", ["local", "local[2,4]", "local-cluster[2,1,1024]"])
def test_nothing_is_sent_on_one_machine(program: Program, master: str) -> None:
    context = Context(master)
    assert program.send(context) is None
    assert not context.sent


def test_too_much_is_refused_by_name(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dependencies, "MAXIMUM_BYTES", 1_000_000)
    (program.directory / "mine.py").write_text("#" * 1_000_000)
    with pytest.raises(StreamsError, match=r"the largest is mine\.py"):
        program.send(Context("spark://somewhere:7077"))
