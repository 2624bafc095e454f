"""The functions of `penstock savepoint restore --map`, and their results."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path

import typer
from rich.table import Table

from penstock.host.spark.checkpoints.entry_map import MapFunction, MappedStore
from penstock.tools.cli.common import err, print_table

_OPTION = "--map"


def map_functions(texts: Iterable[str], application: Path) -> dict[str, MapFunction]:
    """Return the functions by store.

    Their modules are found next to the program, or in the working directory. Ends with wrong usage if one is missing.
    """
    functions: dict[str, MapFunction] = {}
    for text in texts:
        store, equals, place = text.partition("=")
        module, colon, name = place.partition(":")
        if not (store and equals and module and colon and name):
            raise typer.BadParameter(f"expected STORE=MODULE:FUNCTION, got {text!r}", param_hint=_OPTION)
        if store in functions:
            raise typer.BadParameter(f"store {store} has two functions; expected one", param_hint=_OPTION)
        functions[store] = _function(module, name, application.resolve().parent if application.is_file() else Path())
    return functions


def _function(module: str, name: str, directory: Path) -> MapFunction:
    place = str(directory.resolve())
    if place not in sys.path:
        sys.path.insert(0, place)
    try:
        function = getattr(import_module(module), name, None)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise typer.BadParameter(f"there is no module {module} in {place}", param_hint=_OPTION) from error
    if not callable(function):
        raise typer.BadParameter(f"the module {module} has no function {name}", param_hint=_OPTION)
    found: MapFunction = function
    return found


def print_mapped(stores: Sequence[MappedStore]) -> None:
    """Print the numbers of entries of each store, and its first failures."""
    table = Table("store", "entries", "changed", "deleted", "moved", "failed", box=None, pad_edge=False)
    for each in stores:
        numbers = each.entries, each.changed, each.deleted, each.moved, each.failed
        table.add_row(each.name, *(f"{number:,}" for number in numbers))
    print_table(table)
    for each in stores:
        for failure in each.failures:
            err.print(f"store {each.name}, task {failure.task}, key {failure.key}: {failure.reason}", markup=False)
