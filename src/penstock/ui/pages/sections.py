"""Sections that several pages have."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

from penstock.errors import counted
from penstock.notebook import time_text
from penstock.ui.formatting import NONE, duration, number
from penstock.ui.markup import Content, Markup, element, joined, table
from penstock.ui.observer import KEPT_MS
from penstock.ui.topologies import Answer


def heading(topology: str) -> list[Markup]:
    """Return the name of a named topology over what is shown of it."""
    return [element("h2", topology)] if topology else []


def of_topology(topology: str, name: str) -> str:
    """Return the name of a task or node with that of its named topology."""
    return f"{topology} {name}".strip()


def store_query(topology: str, store: str) -> str:
    """Return the parameters of an address that name a store."""
    return urlencode({"store": store, **({"topology": topology} if topology else {})})


def spaced(parts: Sequence[Markup]) -> list[Content]:
    """Return parts with a space after each."""
    return [each for part in parts for each in (part, " ")]


def state_line(answer: Answer) -> Markup:
    """Return the first look: does it run, and does it keep up."""
    state = "PAUSED" if answer["paused"] and answer["state"] == "RUNNING" else answer["state"]
    badge = element("strong", state, class_=f"state {state.lower().replace('_', '-')}")
    keeps_up = _keeps_up(answer) if state == "RUNNING" else ""
    if answer["watched"]:
        badge = element("strong", "WATCHED", class_="state created")
        keeps_up = f"{_run_by(answer['members'])} {keeps_up}"
    lines = [element("p", badge, " ", keeps_up, role="status")]
    if answer["error"] is not None:
        lines.append(element("pre", answer["error"], class_="problem"))
    problems = [each for each in answer["topologies"] if each["problem"] is not None]
    lines += [element("p", f"{each['name']} {each['problem']}".strip(), class_="problem") for each in problems]
    return joined(lines)


def _run_by(members: int | None) -> str:
    """Return who runs an application that this process watches. members: of its group, None if it has none."""
    if members is None:
        return "The age of its last commit shows whether another process is running it."
    return (
        f"Its group has {counted(members, 'member')}." if members else "No process runs it: its group has no members."
    )


def _keeps_up(answer: Answer) -> str:
    if answer["lag"] is None:
        return "Its lag is unknown."
    if not answer["lag"]:
        return "It keeps up: no record waits."
    if answer["behind_ms"] is not None and answer["behind_ms"] <= KEPT_MS:
        return f"It keeps up: {number(answer['lag'])} records wait, which take it {duration(answer['behind_ms'])}."
    since = answer["behind_since_ms"]
    behind = f"It is {number(answer['lag'])} records behind"
    if since is not None:
        behind += f", and has not kept up since {time_text(since)}"
    if answer["lag_per_second"] is None:
        return f"{behind}."
    if answer["catch_up_ms"] is None:
        return f"{behind}. It does not catch up."
    return f"{behind}. It catches up in about {duration(answer['catch_up_ms'])}."


def commits_table(answer: Answer) -> Markup:
    """Return the topologies of an overview with their last commits."""
    rows = [
        (
            each["name"] or answer["application_id"],
            each["state"],
            number(each["lag"]),
            NONE if each["commit"] is None else number(each["commit"]["number"]),
            NONE if each["commit"] is None else f"{duration(each['commit']['age_ms'])} ago",
        )
        for each in answer["topologies"]
    ]
    return table("Commits", ("Topology", "State", "Lag#", "Commit#", "Made#"), rows, "No topology runs.")
