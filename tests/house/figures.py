"""Prints the figures of CONTRIBUTING.md: how large the code is, by building.

python -m tests.house.figures
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from statistics import median, quantiles

from tests.house.limits import Module, modules

BUILDINGS = {
    "penstock_broker/wire/schemas/": "schemas (generated)",
    "penstock_broker/": "penstock-broker",
    "penstock/host/spark/": "Spark host",
    "penstock/host/threads/": "threads host",
    "penstock/host/": "shared by hosts",
    **dict.fromkeys(("penstock/tools/", "penstock/kip28/"), "tools"),
    "penstock/": "core",
}
"""Building by the beginning of a module's name; the first match counts."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
_SHORTEST = 5
"""Files of so few lines do not count for medians."""


def building_of(name: str) -> str:
    """Return the building of a module."""
    return next(building for prefix, building in BUILDINGS.items() if name.startswith(prefix))


def row(found: Sequence[Module]) -> str:
    """Return the cells of a row: modules, lines, code lines, sizes of modules, functions and the largest class."""
    lines = [len(module.text.splitlines()) for module in found]
    functions = [_length(node) for module in found for node in ast.walk(module.tree) if isinstance(node, Function)]
    classes = [_length(node) for module in found for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)]
    cells = (
        str(len(found)),
        f"{sum(lines):,}",
        f"{sum(map(_code_lines, found)):,}",
        _sizes([count for count in lines if count > _SHORTEST]),
        _sizes(functions),
        str(max(classes, default=0)),
    )
    return " | ".join(cells)


def _sizes(values: list[int]) -> str:
    return f"{median(values):.0f} / {quantiles(values, n=10)[-1]:.0f} / {max(values)}" if values else "-"


def _code_lines(module: Module) -> int:
    docstrings = {line for node in _strings(module.tree) for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    return sum(
        1
        for number, line in enumerate(module.text.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#") and number not in docstrings
    )


def _strings(tree: ast.Module) -> Iterator[ast.Expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node


def _length(node: Function | ast.ClassDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def main() -> None:
    """Print the table."""
    found = modules()
    print("| building | modules | lines | of code | module (median / p90 / max) | function | largest class |")
    print("|---|---:|---:|---:|---|---|---:|")
    for building in dict.fromkeys(reversed(BUILDINGS.values())):
        print(f"| {building} | {row([each for each in found if building_of(each.name) == building])} |")
    print(f"| all | {row(found)} |")


if __name__ == "__main__":
    main()
