"""The tasks and their positions in each partition."""

from __future__ import annotations

from typing import Final

from penstock.notebook import time_text
from penstock.tools.ui.answers import Answers
from penstock.tools.ui.formatting import NONE, number
from penstock.tools.ui.markup import element, joined, table
from penstock.tools.ui.pages.layout import Page, Sections
from penstock.tools.ui.pages.sections import of_topology
from penstock.tools.ui.schema import TasksAnswer

_TASK_COLUMNS: Final = ("Task", "Records#", "Dropped#", "Stream time", "Lag#", "Worker", "Waits for")
_PARTITION_COLUMNS: Final = ("Task", "Topic", "Partition#", "Committed#", "End#", "Lag#")
_OTHER_COLUMNS: Final = ("Task", "What it does")
_MEMBER_COLUMNS: Final = ("Topology", "Member", "Client", "Host")


def page(answers: Answers) -> Page:
    """Return the page."""
    return Page("/tasks", "Tasks", lambda parameters: _sections(answers.tasks()))


def _sections(answer: TasksAnswer) -> Sections:
    partitions = [
        (
            of_topology(task["topology"], task["task"]),
            each["topic"],
            str(each["partition"]),
            number(each["committed_offset"]),
            number(each["end_offset"]),
            number(each["lag"]),
        )
        for task in answer["tasks"]
        for each in task["partitions"]
    ]
    records = [
        (
            of_topology(task["topology"], task["task"]),
            number(task["processed"]),
            number(task["dropped"]),
            NONE if task["stream_time_at_ms"] is None else time_text(task["stream_time_at_ms"]),
            number(task["lag"]),
            NONE if task["worker"] is None else task["worker"],
            ", ".join(f"{each['topic']}-{each['partition']}" for each in task["waits_for"]),
        )
        for task in answer["tasks"]
    ]
    others = [
        (of_topology(task["topology"], task["task"]), kind)
        for kind, tasks in (("standby", answer["standby_tasks"]), ("restoring its state", answer["restoring_tasks"]))
        for task in tasks
    ]
    members = [
        (group.topology, member.member, member.client, member.host)
        for group in answer["groups"]
        for member in group.members
    ]
    groups = {"members": table("Members of the group", _MEMBER_COLUMNS, members, "The group has no members.")}
    return {
        "problems": joined(element("p", each, class_="problem") for each in answer["problems"]),
        "tasks": table("Tasks", _TASK_COLUMNS, records, "No task runs here."),
        "partitions": table("Partitions", _PARTITION_COLUMNS, partitions, "No task reads a topic of the brokers."),
        **(
            groups
            if answer["groups"]
            else {"others": table("Other tasks", _OTHER_COLUMNS, others, "No standby or restoring tasks.")}
        ),
    }
