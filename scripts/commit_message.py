"""Checks the message of a commit; the commit-msg hook of .pre-commit-config.yaml runs it.

python scripts/commit_message.py FILE     fail, with the reasons, unless the message in FILE keeps the rules

The rules are in CONTRIBUTING.md. They leave out the messages of merges, and those of commits that will be squashed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

LONGEST_SUBJECT: Final = 72
"""The most characters of a subject: git log shows it whole on a terminal of 80 columns."""

_SUBJECT: Final = re.compile(r"[a-z][a-z0-9_./-]*: [a-z]\S* \S.*")
_LEFT_OUT: Final = ("Merge ", "fixup! ", "squash! ")
_SCISSORS: Final = re.compile(r"^# -+ >8 -+$", re.MULTILINE)


def written(text: str) -> list[str]:
    """Return the lines of a message without comments and without the diff that `git commit --verbose` appends."""
    message = _SCISSORS.split(text)[0]
    return [line.rstrip() for line in message.splitlines() if not line.startswith("#")]


def faults(text: str) -> Iterator[str]:
    """Yield the rules that a message breaks, each as a sentence."""
    subject, *rest = written(text.lstrip()) or [""]
    if subject.startswith(_LEFT_OUT):
        return
    if not _SUBJECT.fullmatch(subject):
        yield f"The subject is `area: verb object`, such as `broker: answer DescribeLogDirs`, not `{subject}`."
    if subject.endswith("."):
        yield "The subject has no full stop."
    if len(subject) > LONGEST_SUBJECT:
        yield f"The subject has {len(subject)} characters; {LONGEST_SUBJECT} is the most."
    if rest and rest[0]:
        yield "The second line is empty."
    if not any(rest):
        yield "The body gives the reason, in a sentence or two."


def main(path: str) -> int:
    """Print the rules that the message in a file breaks; return 1 if there are any, else 0."""
    found = list(faults(Path(path).read_text(encoding="utf-8")))
    for fault in found:
        print(fault, file=sys.stderr)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
