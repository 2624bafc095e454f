"""The dashboard at the end of a test run: for each family of conformance cases and each host, whether it is green.

A test that shows something about a family carries the mark `family(NAME, HOST)`; the mark travels with its report, so
that runs over several processes count too. Nothing is shown where no such test ran.
"""

from __future__ import annotations

from collections import Counter

import pytest

_PROPERTY = "family"
_OUTCOMES = {"passed": "passed", "failed": "failed", "error": "failed", "skipped": "skipped"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Write the marks of tests where their reports show them."""
    for item in items:
        for mark in item.iter_markers("family"):
            item.user_properties.append((_PROPERTY, mark.args))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the dashboard."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for outcome, name in _OUTCOMES.items():
        for report in terminalreporter.stats.get(outcome, []):
            for key, value in getattr(report, "user_properties", ()):
                if key == _PROPERTY:
                    family, host = value
                    found.setdefault((family, host), Counter())[name] += 1
    if found:
        terminalreporter.section("families by host")
        for line in table(found):
            terminalreporter.write_line(line)


def table(found: dict[tuple[str, str], Counter[str]]) -> list[str]:
    """Return the lines of the dashboard: a row for each family, a column for each host."""
    hosts = sorted({host for _, host in found})
    families = sorted({family for family, _ in found})
    width = max(len(family) for family in families)
    lines = [" " * width + "".join(f"  {host:>16}" for host in hosts)]
    for family in families:
        marks = (_mark(found.get((family, host), Counter())) for host in hosts)
        lines.append(f"{family:{width}}" + "".join(f"  {mark:>16}" for mark in marks))
    return lines


def _mark(counts: Counter[str]) -> str:
    if counts["failed"]:
        return f"FAILED {counts['failed']} of {counts.total()}"
    if counts["passed"]:
        return f"ok {counts['passed']}"
    return "skipped" if counts["skipped"] else "-"
