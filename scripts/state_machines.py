"""Writes the state machines into ARCHITECTURE.md, from the tables by which the code goes.

python scripts/state_machines.py           write them
python scripts/state_machines.py --check   fail if the page is not what would be written
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final

from penstock.application import life
from penstock.host.threads import member_states, phases
from penstock_broker import transaction_log
from penstock_broker.groups.classic import state as classic
from penstock_broker.groups.consumer import state as consumer
from penstock_broker.groups.streams import state as streams

PAGE: Final = Path(__file__).resolve().parents[1] / "ARCHITECTURE.md"

MACHINES: Final[Mapping[str, Mapping[Any, Collection[Any]]]] = {
    "An application (application/life.py)": life.VALID_TRANSITIONS,
    "An instance of the threads host (host/threads/phases.py)": phases.VALID_TRANSITIONS,
    "A member of the classic protocol (host/threads/member_states.py)": member_states.CLASSIC_TRANSITIONS,
    "A member of the streams protocol (host/threads/member_states.py)": member_states.STREAMS_TRANSITIONS,
    "A transaction of the broker (penstock_broker/transaction_log.py)": transaction_log.NEXT_STATES,
    "A classic group of the broker (penstock_broker/groups/classic/state.py)": classic.NEXT_STATES,
    "A consumer group of the broker (penstock_broker/groups/consumer/state.py)": consumer.NEXT_STATES,
    "A streams group of the broker (penstock_broker/groups/streams/state.py)": streams.NEXT_STATES,
}
"""The machines by title: state -> the states that may follow it."""

_SECTION: Final = re.compile(r"(?<=## State machines\n\n).*?(?=\n## )", re.DOTALL)


def page(text: str) -> str:
    """Return the text of the page with the machines drawn."""
    return _SECTION.sub("\n".join(_drawn()), text)


def _drawn() -> Iterator[str]:
    yield "```text"
    for title, transitions in MACHINES.items():
        width = max(len(state.name) for state in transitions)
        yield f"{title}"
        for state, following in transitions.items():
            names = [each.name for each in _in_order(type(state), following)]
            yield f"  {state.name:{width}} -> {', '.join(names)}" if names else f"  {state.name}"
    yield "```\n"


def _in_order(states: type[Enum], chosen: Collection[Enum]) -> list[Enum]:
    return [state for state in states if state in chosen]


def main() -> int:
    """Write the page, or with `--check` compare it; return the exit code."""
    text = PAGE.read_text(encoding="utf-8")
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page(text), encoding="utf-8")
    elif text != page(text):
        print("ARCHITECTURE.md is not up to date: run python scripts/state_machines.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
