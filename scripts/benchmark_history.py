"""Writes docs/benchmark-history.md and its pictures below docs/images, from the runs in benchmarks/history.

python scripts/benchmark_history.py           write the page and the pictures
python scripts/benchmark_history.py --check   fail if they are not what would be written
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

if not __package__:  # run as a script: the root of the repository is not on the path
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.history import Run, runs

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "benchmark-history.md"
IMAGES: Final = ROOT / "docs" / "images"

_INTRODUCTION: Final = """# Figures by version

The [benchmarks](../benchmarks/README.md) write their rates into a history with `--save`, and this page shows it. Rates
of different machines cannot be compared, so the curves compare systems within each run: how many times as fast Penstock
is as another system, as the geometric mean over the rows that both answered. Above the broken line, Penstock is faster.
The tables have the rates themselves, with the CPU seconds for a million events or words in brackets.
"""

_WIDTH, _HEIGHT = 800, 320
_LEFT, _LEGEND, _TOP, _BOTTOM = 48, 380, 16, 48
_MARGIN: Final = 1.2
_TICKS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
_FONT: Final = 'font-family="sans-serif" font-size="12"'
_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c564b")
_GRID: Final = 'stroke="#999" stroke-width="1"'


def picture(name: str, found: Sequence[Run]) -> str:
    """Return the curves of a benchmark as SVG: a line for each pair of systems, a point for each run."""
    ratios = [run.ratios() for run in found]
    pairs = list(dict.fromkeys(pair for each in ratios for pair in each))
    values = [1.0, *(value for each in ratios for value in each.values())]
    low, high = min(values) / _MARGIN, max(values) * _MARGIN
    right, bottom = _WIDTH - _LEGEND, _HEIGHT - _BOTTOM
    space = (right - _LEFT) / len(found)

    def y(value: float) -> float:
        return bottom - math.log(value / low) / math.log(high / low) * (bottom - _TOP)

    across = [_LEFT + space * (number + 0.5) for number in range(len(found))]
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" {_FONT}>',
        f"<title>{escape(name)}: how many times as fast Penstock is</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
        f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" {_GRID}/>',
        f'<path d="M{_LEFT} {y(1.0):.1f}H{right}" {_GRID} stroke-dasharray="4 4"/>',
    ]
    for value in (each for each in _TICKS if low <= each <= high):
        lines += [f'<text x="{_LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>']
    for at, run in zip(across, found, strict=True):
        for line, text in enumerate((run.version, run.commit), 1):
            lines += [f'<text x="{at:.1f}" y="{bottom + 16 * line}" text-anchor="middle">{escape(text)}</text>']
    for number, pair in enumerate(pairs):
        points = [(at, y(each[pair])) for at, each in zip(across, ratios, strict=True) if pair in each]
        lines += _curve(pair, points, _COLOURS[number % len(_COLOURS)], _TOP + 12 + 20 * number)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _curve(pair: tuple[str, str], points: Sequence[tuple[float, float]], colour: str, label: int) -> list[str]:
    """Return the line of a pair of systems, with its points and its label."""
    way = " ".join(f"{across:.1f},{down:.1f}" for across, down in points)
    x = _WIDTH - _LEGEND + 20
    return [
        f'<polyline points="{way}" fill="none" stroke="{colour}" stroke-width="2"/>',
        *(f'<circle cx="{across:.1f}" cy="{down:.1f}" r="4" fill="{colour}"/>' for across, down in points),
        f'<circle cx="{x}" cy="{label - 4}" r="4" fill="{colour}"/>',
        f'<text x="{x + 12}" y="{label}">{escape(" : ".join(pair))}</text>',
    ]


def page(found: Sequence[Run]) -> str:
    """Return the page."""
    parts = [_INTRODUCTION]
    for name, group in groupby(found, key=lambda run: run.benchmark):
        of_it = list(group)
        parts.append(f"\n## `{name}`\n\n![The ratios of {name} by version](images/{_image(name)})\n")
        parts += [_table(run) for run in of_it]
    return "".join(parts)


def _table(run: Run) -> str:
    systems = list(dict.fromkeys(each.system for each in run.rates))
    units = sorted({each.unit for each in run.rates})
    rates = {(each.row, each.system): (each.value, each.cpu_seconds_per_million) for each in run.rates}
    lines = [
        f"\n{run.version} ({run.commit}), {run.date}, {run.machine}; {' and '.join(units)}:\n",
        f"| | {' | '.join(systems)} |",
        f"|---|{'---:|' * len(systems)}",
    ]
    for row in dict.fromkeys(each.row for each in run.rates):
        cells = [_cell(*rates[row, system]) if (row, system) in rates else "" for system in systems]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(rate: float, cpu: float | None) -> str:
    return f"{rate:,.0f}" if cpu is None else f"{rate:,.0f} ({cpu:.1f})"


def _image(benchmark: str) -> str:
    return f"benchmark-{benchmark.replace('_', '-')}.svg"


def files(found: Sequence[Run]) -> dict[Path, str]:
    """Return the page and the pictures, by file."""
    pictures = {
        IMAGES / _image(name): picture(name, list(group))
        for name, group in groupby(found, key=lambda run: run.benchmark)
    }
    return {PAGE: page(found), **pictures}


def main(arguments: Sequence[str]) -> int:
    """Write the files, or with --check return 1 if one is out of date."""
    written = files(runs())
    if "--check" in arguments:
        old = [path for path, text in written.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
        print("\n".join(f"{path} is out of date: run python scripts/benchmark_history.py" for path in old))
        return 1 if old else 0
    for path, text in written.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
