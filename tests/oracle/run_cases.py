"""Runs conformance cases and says which differ: `python tests/oracle/run_cases.py FILE... [options]`; see README.md.

The last line is `N passed, M failed`; before it stands the number of cases that were not run, by what they miss. Exits
with 1 when a case failed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if not __package__:  # run as a script: the root of the repository is not on the path
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.oracle.interpreter import case_runner, divergences
from tests.oracle.interpreter.comparison import differences

Case = dict[str, Any]


def read_cases(path: Path) -> Iterator[Case]:
    """Yield the cases of a file, one JSON object a line."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)


@dataclass
class Tally:
    """What became of the cases; prints each failure when it is noted. verbose: with all differences."""

    verbose: bool
    passed: int = 0
    failed: int = 0
    divergent: int = 0
    not_run: int = 0
    missing: Counter[str] = field(default_factory=Counter)

    def note_not_run(self, missing: list[str]) -> None:
        """Count a case that was not run because of what it is `missing`."""
        self.not_run += 1
        self.missing.update(missing)

    def note(self, case: Case, actual: dict[str, Any]) -> None:
        """Compare and count a case that was run."""
        found = differences(case.get("expected", {}), actual)
        if not found:
            self.passed += 1
        elif divergences.diverges(case):
            self.divergent += 1
        else:
            self.failed += 1
            print(f"FAILED {case['id']}, {len(found)} differences")
            if self.verbose:
                print("".join(f"    {line}\n" for line in found), end="")

    def print_summary(self) -> None:
        """Print the counts; the last line is that of passed and failed cases."""
        if self.divergent:
            print(f"{self.divergent} differ on purpose (DIVERGENCES.md)")
        print(f"{self.not_run} not run" + (", by what they miss (a case may miss several):" if self.missing else ""))
        for name, count in sorted(self.missing.items(), key=lambda item: (-item[1], item[0])):
            print(f"    {count:5} {name}")
        print(f"{self.passed} passed, {self.failed} failed")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    options = _options(arguments)
    tally = Tally(options.verbose)
    written: list[str] = []
    for path in options.files:
        for case in read_cases(path):
            missing = case_runner.missing(case)
            if missing:
                tally.note_not_run(missing)
                continue
            actual = case_runner.run(case, options.execution)
            tally.note(case, actual)
            written.append(json.dumps({**case, "expected": actual}))
    if options.write is not None:
        options.write.write_text("".join(f"{line}\n" for line in written), encoding="utf-8")
    tally.print_summary()
    return 1 if tally.failed else 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Runs conformance cases and says which differ.")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="case files, one JSON object a line")
    parser.add_argument(
        "--execution", choices=("auto", "record"), default="auto", help="column by column, or record by record"
    )
    parser.add_argument("--write", type=Path, metavar="OUT", help="write the cases that were run, with the results")
    parser.add_argument("--verbose", action="store_true", help="show each difference")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
