"""Runs the Python blocks of README.md and of the pages in docs, and compares their output with what the pages show."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.core import TyperGroup

import penstock
from penstock import Consumed, Serdes, StreamsBuilder, Topology
from penstock.tools.cli.main import command

ROOT = Path(__file__).parents[2]

BROKER_README = "packages/penstock-broker/README.md"

PAGES = [
    str(page.relative_to(ROOT))
    for page in (
        *sorted(ROOT.glob("*.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
        ROOT / "benchmarks" / "README.md",
        ROOT / BROKER_README,
    )
]
"""All pages of the site."""

BLOCKS: Mapping[str, int] = {
    "README.md": 2,
    "docs/broker.md": 3,
    "docs/calendar-windows.md": 4,
    "docs/calling-services.md": 10,
    "docs/changing-a-topology.md": 2,
    "docs/columns.md": 3,
    "docs/coming-from/faust.md": 1,
    "docs/coming-from/java.md": 1,
    "docs/coming-from/quix.md": 1,
    "docs/coming-from/spark.md": 1,
    "docs/comparing-versions.md": 1,
    "docs/cookbook/joins.md": 10,
    "docs/cookbook/records.md": 14,
    "docs/cookbook/services.md": 16,
    "docs/cookbook/state.md": 17,
    "docs/cookbook/windows.md": 14,
    "docs/features.md": 3,
    "docs/first-papers.md": 2,
    "docs/formats.md": 5,
    "docs/guide.md": 6,
    "docs/index.md": 2,
    "docs/kafka-platform.md": 2,
    "docs/lake.md": 4,
    "docs/life.md": 3,
    "docs/metrics.md": 1,
    "docs/notebook.md": 7,
    "docs/openlineage.md": 1,
    "docs/orchestrators.md": 1,
    "docs/partitioners.md": 2,
    "docs/queries.md": 9,
    "docs/retry-and-park.md": 2,
    "docs/security.md": 1,
    "docs/sizing.md": 1,
    "docs/spark.md": 4,
    "docs/state.md": 1,
    "docs/testing-kafka-programs.md": 6,
    "docs/threads.md": 2,
    "docs/topics-on-spark.md": 1,
    "docs/topologies.md": 12,
    "docs/tracing.md": 2,
    "docs/tutorial.md": 7,
    "docs/ui.md": 1,
    BROKER_README: 3,
}
"""How many Python blocks each page has; the tests of tests/docs and tests/host/spark/test_pages.py run all of them."""


def blocks(page: str) -> list[str]:
    """Return the Python blocks of `page`, each with blank lines before it, so that errors name lines of the page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        "\n" * text.count("\n", 0, match.start(1)) + match[1]
        for match in re.finditer(r"```python\n(.*?)```", text, re.DOTALL)
    ]


def given(**names: Any) -> dict[str, Any]:
    """Return names for a block: those of `from penstock import *`, and those that the page takes as defined."""
    return {
        "__name__": "page",
        "penstock": penstock,
        **{name: getattr(penstock, name) for name in penstock.__all__},
        **names,
    }


def run_block(page: str, number: int, names: dict[str, Any], replaced: Mapping[str, str] | None = None) -> None:
    """Run block `number` of `page` in `names`, which gets what the block defines.

    replaced: addresses and directories of the page, and those of the test.
    """
    code = blocks(page)[number]
    for old, new in (replaced or {}).items():
        assert old in code, f"block {number} of {page} has no {old!r}"
        code = code.replace(old, new)
    exec(compile(code, str(ROOT / page), "exec", dont_inherit=True), names)


def printed(page: str, code: str) -> str:
    """Return the output that `page` shows below the block that contains `code`: the next block, if it is text."""
    fences = re.findall(r"```(\w*)\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    place = next(index for index, (_, text) in enumerate(fences) if code in text)
    return "".join(text for language, text in fences[place + 1 : place + 2] if language == "text")


def run_and_compare(page: str, number: int, names: dict[str, Any], replaced: Mapping[str, str] | None = None) -> None:
    """Run block `number` of `page`, which must print what the page shows below it."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        run_block(page, number, names, replaced)
    assert output.getvalue() == printed(page, blocks(page)[number].lstrip("\n")), f"block {number} of {page}"


def fences(page: str) -> list[tuple[str, str]]:
    """Return the language, empty without one, and the text of each fenced block of `page`."""
    return re.findall(r"^```([^\n]*)\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def command_lines(page: str) -> Iterator[str]:
    """Yield the command lines of `page`: the lines of shell blocks, and in sessions those behind a prompt. A line that
    continues in the next one is one with it."""
    for language, block in fences(page):
        lines = re.sub(r"\\\n\s*", "", block).splitlines()
        if language == "sh":
            yield from lines
        elif language == "console":
            yield from (line.removeprefix("$ ") for line in lines if line.startswith("$ "))


def parsed(line: str) -> Any:
    """Return the context of click for the `penstock` command of a line; raises what click raises for wrong usage."""
    name, *arguments = shlex.split(line.partition("penstock ")[2], comments=True)
    found = command(name)
    while isinstance(found, TyperGroup):
        found, arguments = subcommand(found, arguments)
    return found.make_context(name, arguments)


def subcommand(group: TyperGroup, arguments: list[str]) -> tuple[Any, list[str]]:
    """Return the command of a group that runs for `arguments`, its default one if they name none, and the rest."""
    context = group.make_context(None, list(arguments))
    name, *rest = [*context._protected_args, *context.args]
    return group.commands[name], rest


def sections(page: str) -> dict[str, list[int]]:
    """Return the headings of the second level of `page`, and the numbers of the Python blocks below each."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found: dict[str, list[int]] = {}
    number = 0
    for match in re.finditer(r"^## (.*)$|^```python$", text, re.MULTILINE):
        if match[1] is not None:
            found[match[1]] = section = []
        else:
            section.append(number)
            number += 1
    return found


def run_blocks(page: str) -> dict[str, Any]:
    """Return the names that all blocks of `page` define, run one after the other."""
    names: dict[str, Any] = {"__name__": "page"}
    for number in range(BLOCKS[page]):
        run_block(page, number, names)
    return names


@dataclass(frozen=True)
class Order:
    """An order of the page on topics."""

    currency: str
    amount: float


def converting_orders() -> Topology:
    """Return the topology of the page on topics: orders in, their amounts converted by a global table out."""
    builder = StreamsBuilder()
    orders = builder.stream("orders", Consumed.with_(Serdes.string(), Serdes.json(Order)))
    run_block("docs/topics-on-spark.md", 0, given(builder=builder, orders=orders, convert=_convert))
    return builder.build()


def _convert(order: Order, rate: float) -> float:
    return order.amount * rate
