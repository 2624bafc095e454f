"""Sections of several pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlencode

from penstock.errors import counted
from penstock.metrics.drop_reasons import DropReason
from penstock.notebook import time_text
from penstock.tools.ui.formatting import NONE, duration, number
from penstock.tools.ui.markup import Content, Markup, element, joined, table
from penstock.tools.ui.observer import KEPT_MS
from penstock.tools.ui.schema import DroppedAnswer, OverviewAnswer

_REASONS: Final = {
    DropReason.NULL_KEY: "without a key",
    DropReason.NULL_VALUE: "without a value",
    DropReason.LATE: "too late: its window is closed, or the store no longer retains its time",
    DropReason.DUPLICATE: "a duplicate within the interval of the deduplication",
    DropReason.OUT_OF_ORDER: "older than the value that the versioned table has",
    DropReason.OUTDATED: "an answer to a row that has changed since",
    DropReason.INVALID_TIMESTAMP: "without a valid timestamp",
    DropReason.DESERIALIZATION: "not readable, and the deserialization exception handler continued",
    DropReason.PROCESSING: "the node failed, and the processing exception handler continued",
    DropReason.SERIALIZATION: "not writable, and the production exception handler continued",
    DropReason.NO_PARTITION: "the partitioner named no partition",
}


def heading(topology: str) -> list[Markup]:
    """Return the name of a named topology as a heading."""
    return [element("h2", topology)] if topology else []


def of_topology(topology: str, name: str) -> str:
    """Return the name of a task or node, with the name of its named topology."""
    return f"{topology} {name}".strip()


def store_query(topology: str, store: str) -> str:
    """Return the parameters of an address for a store."""
    return urlencode({"store": store, **({"topology": topology} if topology else {})})


def spaced(parts: Sequence[Markup]) -> list[Content]:
    """Return parts with a space after each."""
    return [each for part in parts for each in (part, " ")]


def state_line(answer: OverviewAnswer) -> Markup:
    """Return a summary of the application's state and progress."""
    state, since = answer["state"], answer["state_since_ms"]
    if state == "RUNNING" and answer["paused_since_ms"] is not None:
        state, since = "PAUSED", answer["paused_since_ms"]
    keeps_up = _keeps_up(answer) if state == "RUNNING" else ""
    if answer["watched"] or state is None:
        badge = element("strong", "WATCHED", class_="state created")
        does = _run_by(state, answer["members"], len(answer["topologies"]))
    else:
        badge = element("strong", state, class_=f"state {state.lower().replace('_', '-')}")
        does = f"since {time_text(since)}."
    lines = [element("p", badge, f" {does} {keeps_up}", role="status")]
    if answer["error"] is not None:
        lines.append(element("pre", answer["error"], class_="problem"))
    problems = [each for each in answer["topologies"] if each["problem"] is not None]
    lines += [element("p", f"{each['name']} {each['problem']}".strip(), class_="problem") for each in problems]
    return joined(lines)


def _run_by(state: str | None, members: int | None, groups: int) -> str:
    """Return a text about the processes that run a watched application.

    Args:
        state: the observed state.
        members: number of members of its groups, None without groups.
        groups: number of groups: one per topology.
    """
    if state is None:
        why = "its last commit is more than a minute old" if members is None else "the brokers do not answer"
        return f"Whether another process runs it cannot be seen: {why}."
    if members is None:
        return "Another process runs it: its last commit is recent."
    its = "its group has" if groups == 1 else "its groups have"
    return f"{its.capitalize()} {counted(members, 'member')}." if members else f"No process runs it: {its} no members."


def _keeps_up(answer: OverviewAnswer) -> str:
    if answer["lag"] is None:
        return "Its lag is unknown."
    if not answer["lag"]:
        return "It keeps up: no record waits."
    records = counted(answer["lag"], "record")
    if answer["behind_ms"] is not None and answer["behind_ms"] <= KEPT_MS:
        return f"It keeps up: {records} to process, which takes about {duration(answer['behind_ms'])}."
    since = answer["behind_since_ms"]
    behind = f"{records} to process"
    if since is not None:
        behind = f"It is {records} behind, and has not kept up since {time_text(since)}"
    if answer["catch_up_ms"] is not None:
        return f"{behind}. It catches up in about {duration(answer['catch_up_ms'])}."
    return f"{behind}." if since is None else f"{behind}. It does not catch up."


def commits_table(answer: OverviewAnswer) -> Markup:
    """Return the topologies of an overview with their last commits."""
    rows = [
        (
            each["name"] or answer["application_id"],
            each["state"] or NONE,
            number(each["lag"]),
            NONE if each["commit"] is None else number(each["commit"]["number"]),
            NONE if each["commit"] is None else f"{duration(each['commit']['age_ms'])} ago",
        )
        for each in answer["topologies"]
    ]
    return table("Commits", ("Topology", "State", "Lag#", "Commit#", "Made#"), rows, "No topology runs.")


def asking(fields: Sequence[Markup], confirmation: str, button: str) -> Markup:
    """Return the form of an action with its `fields`, the token, and a confirmation."""
    return element(
        "form",
        *fields,
        element(
            "label",
            "Token, which the application wrote to the terminal when it started",
            element("input", type="password", name="token", required=True, autocomplete="off"),
        ),
        element(
            "label",
            element("input", type="checkbox", name="confirmed", value="yes", required=True),
            f" {confirmation}",
        ),
        element("button", button, type="submit"),
        action="/control",
        method="post",
    )


def dropped_table(caption: str, dropped: Sequence[DroppedAnswer], empty: str) -> Markup:
    """Return the number of records that each node or store has dropped, and the reasons."""
    rows = [
        (of_topology(each["topology"], each["name"]), number(each["records"]), _REASONS[DropReason(each["reason"])])
        for each in dropped
    ]
    return table(caption, ("Node or store", "Records#", "Reason"), rows, empty)
