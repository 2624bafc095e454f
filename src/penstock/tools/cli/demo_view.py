"""The display of the demo: the counts, a progress bar and the rate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table

_ROWS = 12


class WordCounts:
    """The latest count of each word, and the plain counts of the same text.

    Args:
        expected: the plain counts of the text.
    """

    def __init__(self, expected: Counter[str]) -> None:
        self.expected = expected
        self.total = expected.total()
        self.counts: dict[str, int] = {}
        self.counted = 0
        """Words that are in `counts`: the sum of its values."""
        self.updates = 0

    def update(self, updates: Iterable[tuple[str, int]]) -> None:
        """Apply updates of the table, in their order."""
        for word, count in updates:
            self.counted += count - self.counts.get(word, 0)
            self.counts[word] = count
            self.updates += 1

    def complete(self) -> bool:
        """Return whether every word of the text has been counted."""
        return self.counted >= self.total

    def exact(self) -> bool:
        """Return whether the counts equal a plain count, word by word."""
        return self.counts == self.expected


class DemoView:
    """Renders the counts, for rich's Live.

    Args:
        words: the counts to show.
    """

    def __init__(self, words: WordCounts) -> None:
        self._words = words
        self._progress = Progress(
            TextColumn("words counted"),
            BarColumn(bar_width=40),
            TaskProgressColumn(),
            TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
            TextColumn("[bold]{task.fields[rate]}[/]"),
            TextColumn("{task.fields[seconds]:.0f} s"),
        )
        self._bar = self._progress.add_task("words", total=words.total, rate="", seconds=0.0)

    def render(self, seconds: float) -> RenderableType:
        """Return the display, `seconds` after the start of the application."""
        rate = f"{self._words.counted / seconds:,.0f} words/s" if seconds > 0 else ""
        self._progress.update(self._bar, completed=self._words.counted, rate=rate, seconds=seconds)
        return Group(self._table(), self._progress)

    def _table(self) -> Table:
        table = Table("word", "count", "", title="counts-store, the largest counts", min_width=60)
        table.columns[1].justify = "right"
        largest = sorted(self._words.counts.items(), key=lambda each: (-each[1], each[0]))[:_ROWS]
        top = largest[0][1] if largest else 1
        for word, count in largest:
            table.add_row(word, f"{count:,}", "█" * max(1, round(30 * count / top)), style=None)
        for _ in range(_ROWS - len(largest)):
            table.add_row("", "", "")
        return table
