"""The pages for browsers. They show the same figures as the JSON, without JavaScript as of the moment when they were
loaded; the script of the pages replaces the sections that change.

A page is made of sections by their ids. Whatever comes from users is escaped by `markup`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import orjson

from penstock.errors import StreamsError
from penstock.notebook import time_text
from penstock.plan.picture import Figure
from penstock.ui.answers import MEASURES, Answer, Answers, redrive_command
from penstock.ui.markup import Content, Markup, element, joined, table
from penstock.ui.observer import KEPT_MS
from penstock.ui.parameters import DEFAULT_LIMIT, MOST_ENTRIES, Parameters, WrongParameterError, selection

Sections = dict[str, Markup]
"""Parts of a page by their ids, in order."""

_LONGEST: Final = 1_000
"""Characters of a key or a value that are shown."""

NONE: Final = "-"
"""Stands for a figure that is not known."""

_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


class Page(NamedTuple):
    """A page: its address, its name, and what makes its sections. live: those that change by themselves; fixed: the
    others, which stand behind them."""

    path: str
    title: str
    live: Callable[[Parameters], Sections]
    fixed: Callable[[Parameters], Sections] = lambda parameters: {}


class Pages:
    """Makes the pages of one application."""

    def __init__(self, answers: Answers, actions: Sequence[str] = ()) -> None:
        """Show what `answers` says. actions: those that the application takes."""
        self._answers = answers
        self._actions = actions
        self._control_page = Page("/control", "Control", self._control_state, self._control_form)
        self.all: Sequence[Page] = (
            Page("/", "Overview", self._overview),
            Page("/topology", "Topology", self._nodes, self._pictures),
            Page("/tasks", "Tasks", self._tasks),
            Page("/commits", "Commits", self._commits),
            Page("/state", "State", self._last_commits, self._state),
            Page("/errors", "Errors", self._errors, self._dead_letters),
            *([Page("/changes", "What would change", lambda _: {}, self._changes)] if answers.find_changes else []),
            *([self._control_page] if actions else []),
        )
        """The pages in the order of the menu."""

    def html(self, page: Page, parameters: Parameters, outcome: Sections | None = None) -> str:
        """Return a whole page. outcome: what became of an action."""
        sections = {**page.live(parameters), **(outcome or {}), **page.fixed(parameters)}
        name = str(self._answers.config["application.id"])
        query = f"?{urlencode(dict(parameters))}" if parameters else ""
        menu = [
            element("a", each.title, href=each.path, aria_current="page" if each is page else None) for each in self.all
        ]
        head = element(
            "head",
            element("meta", charset="utf-8"),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("meta", name="color-scheme", content="light dark"),
            element("title", f"{page.title} · {name}"),
            element("link", rel="stylesheet", href="/static/ui.css"),
            element("link", rel="icon", href="/static/ui.svg"),
            element("script", src="/static/ui.js", defer=True),
        )
        body = element(
            "body",
            element("a", "To the content", class_="skip", href="#content"),
            element("header", element("strong", name), element("nav", *menu, aria_label="Pages")),
            element(
                "main",
                element("h1", page.title),
                *(element("section", section, id=id) for id, section in sections.items()),
                id="content",
                tabindex="-1",
            ),
            element("footer", element("p", f"Penstock. {_OFFLINE}", id="live")),
            data_events=f"/events{page.path.rstrip('/')}{query}",
        )
        return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"

    # ---------------------------------------- overview

    def _overview(self, parameters: Parameters) -> Sections:
        answer = self._answers.overview()
        figures = {
            "Records in": (_rate(answer["records_in_per_second"]), f"{_number(answer['records_in'])} since the start"),
            "Records out": (
                _rate(answer["records_out_per_second"]),
                f"{_number(answer['records_out'])} since the start",
            ),
            "Lag": (_number(answer["lag"]), _trend(answer)),
            "Output age p50": _output_age(answer["output_age_ms"]),
            "Stream time": _stream_time(answer["stream_time"]),
            "Dropped": (_number(answer["records_dropped"]), "records without a result, see below"),
            "Errors": (_number(answer["errors"]), "that stopped all tasks"),
            "Uptime": (duration(answer["uptime_ms"]), ""),
        }
        return {
            "state": _state(answer),
            "figures": element(
                "dl",
                *(
                    element("div", element("dt", name), element("dd", value, element("small", note)))
                    for name, (value, note) in figures.items()
                ),
            ),
            "topologies": _topologies(answer),
            "dropped": _dropped(answer["dropped"]),
            "about": element("p", f"Penstock {answer['version']}, host {answer['host']}.", class_="empty"),
        }

    # ---------------------------------------- topology

    def _nodes(self, parameters: Parameters) -> Sections:
        measured = self._answers.nodes()
        sections: Sections = {"node": self._chosen_node(parameters, measured)} if "node" in parameters else {}
        for number, topology in enumerate(self._answers.topologies()["topologies"]):
            lags = self._answers.measured(topology["name"], "lag")
            parts = [
                element(
                    "details",
                    element("summary", f"{kind} {part['id']}", *_of_part(part)),
                    table(
                        f"Nodes of {kind.lower()} {part['id']}",
                        _NODE_COLUMNS,
                        [
                            _node(
                                topology["name"],
                                node,
                                measured.get((topology["name"], node["name"]), {}),
                                lags.get(node["name"]),
                            )
                            for node in part["nodes"]
                        ],
                        "It has no nodes.",
                    ),
                    open=True,
                )
                for kind, key in (("Sub-topology", "subtopologies"), ("Global store", "global_stores"))
                for part in topology[key]
            ]
            sections[f"nodes-{number}"] = joined([*_named(topology["name"]), *parts])
        sections["hint"] = element(
            "p",
            "Oldest is the largest age of a record behind a sink. Records of each node are counted with "
            "metrics.recording.level=DEBUG.",
            class_="empty",
        )
        return sections

    def _chosen_node(self, parameters: Parameters, measured: Mapping[tuple[str, str], Mapping[str, float]]) -> Markup:
        """Return all that is known of the node that the parameters name. measured: of all nodes."""
        chosen, of = parameters["node"], parameters.get("topology", "")
        kinds = {store["store"]: store["kind"] for store in self._answers.stores()["stores"] if store["topology"] == of}
        for topology in self._answers.topologies()["topologies"]:
            for part in (*topology["subtopologies"], *topology["global_stores"]):
                for node in part["nodes"]:
                    if (topology["name"], node["name"]) == (of, chosen):
                        return _details(node, of, kinds, measured.get((of, chosen), {}))
        return element("p", f"This topology has no node {chosen}.", class_="problem", role="alert")

    def _pictures(self, parameters: Parameters) -> Sections:
        chosen = parameters.get("measure", "")
        sections: Sections = {"measures": _measures(chosen)}
        for number, topology in enumerate(self._answers.topologies()["topologies"]):
            name = topology["name"]
            query = f"?{urlencode({'topology': name, **({'measure': chosen} if chosen in MEASURES else {})})}"
            picture = element("img", src=f"/topology.svg{query}", alt=f"Picture of the topology {name}".strip())
            forms = joined(
                [
                    element("a", "Mermaid", href=f"/topology.mmd{query}"),
                    " · ",
                    element("a", "JSON", href="/topology.json"),
                ]
            )
            link = element("a", picture, href=f"/topology.svg{query}")
            sections[f"picture-{number}"] = element("figure", link, element("figcaption", forms))
        return sections

    def picture(self, parameters: Parameters) -> str:
        """Return the picture of a topology, coloured by what the parameter `measure` names; raises UnknownTopologyError
        and WrongParameterError."""
        name, topology = self._answers.topology_named(parameters.get("topology"))
        measure = parameters.get("measure")
        if not measure:
            return topology.describe().to_svg()
        if measure not in MEASURES:
            raise WrongParameterError(
                f"Invalid value {measure!r:.100} for measure: expected one of {', '.join(MEASURES)}."
            )
        values = self._answers.measured(name, measure)
        largest = max(values.values(), default=0) or 1
        show = duration if measure == "age" else _number
        return topology.describe().to_svg(
            {node: Figure(show(value), max(0.0, value / largest)) for node, value in values.items()}
        )

    # ---------------------------------------- tasks

    def _tasks(self, parameters: Parameters) -> Sections:
        answer = self._answers.tasks()
        partitions = [
            (
                _of_topology(task["topology"], task["task"]),
                each["topic"],
                str(each["partition"]),
                _number(each["committed_offset"]),
                _number(each["end_offset"]),
                _number(each["lag"]),
            )
            for task in answer["tasks"]
            for each in task["partitions"]
        ]
        records = [
            (
                _of_topology(task["topology"], task["task"]),
                _number(task["processed"]),
                _number(task["dropped"]),
                NONE if task["stream_time_at_ms"] is None else time_text(task["stream_time_at_ms"]),
                _number(task["lag"]),
            )
            for task in answer["tasks"]
        ]
        others = [
            (_of_topology(task["topology"], task["task"]), kind)
            for kind, key in (("standby", "standby_tasks"), ("restoring its state", "restoring_tasks"))
            for task in answer[key]
        ]
        columns = ("Task", "Topic", "Partition#", "Committed#", "End#", "Lag#")
        return {
            "problems": joined(element("p", each, class_="problem") for each in answer["problems"]),
            "tasks": table("Tasks", _TASK_COLUMNS, records, "No task runs here."),
            "partitions": table("Partitions", columns, partitions, "No task reads a topic of the brokers."),
            "others": table(
                "Other tasks", ("Task", "What it does"), others, "No standby task, and none that restores."
            ),
        }

    # ---------------------------------------- commits

    def _commits(self, parameters: Parameters) -> Sections:
        sections: Sections = {}
        for number, topology in enumerate(self._answers.commits()["topologies"]):
            commits = topology["commits"]
            phases = list(dict.fromkeys(phase for each in commits for phase in each["phases_ms"]))
            rows = [
                (
                    _number(each["number"]),
                    time_text(each["committed_at_ms"]),
                    _number(each["records"]),
                    duration(sum(each["phases_ms"].values())),
                    *(duration(each["phases_ms"].get(phase, 0)) for phase in phases),
                )
                for each in reversed(commits)
            ]
            columns = ("Commit#", "Ended", "Records#", "Took#", *(f"{phase.capitalize()}#" for phase in phases))
            what = table("Last commits", columns, rows, "Nothing was committed since the start.")
            sections[f"commits-{number}"] = joined([*_named(topology["name"]), *_bars(commits, phases), what])
        return sections

    # ---------------------------------------- state

    def _last_commits(self, parameters: Parameters) -> Sections:
        return {"commits": _topologies(self._answers.overview())}

    def _state(self, parameters: Parameters) -> Sections:
        try:
            stores = self._answers.stores()["stores"]
        except StreamsError as error:
            return {"stores": element("p", str(error), class_="problem")}
        rows = [
            (
                element("a", each["store"], href=f"/state?{_address(each)}"),
                each["topology"],
                each["kind"].replace("_", " "),
                ", ".join(each["processors"]),
            )
            for each in stores
        ]
        sections = {
            "stores": table("Stores", ("Store", "Topology", "Kind", "Used by"), rows, "The topology has no stores.")
        }
        if "store" in parameters:
            sections["form"] = _form(parameters)
            sections["entries"] = self._entries(parameters)
        return sections

    def _entries(self, parameters: Parameters) -> Markup:
        try:
            topology, chosen, limit = selection(parameters)
            answer = self._answers.entries(parameters["store"], topology, chosen, limit)
        except StreamsError as error:
            return element("p", str(error), class_="problem", role="alert")
        fields = list(dict.fromkeys(field for entry in answer["entries"] for field in entry))
        rows = [[_value(field, entry.get(field)) for field in fields] for entry in answer["entries"]]
        commit = answer["commit"]
        read = "Nothing is committed yet" if commit is None else f"As of commit {commit['number']}"
        age = "" if commit is None else f", made {duration(commit['age_ms'])} before this page was loaded"
        more = f" There are more entries than these {len(rows)}." if answer["more"] else ""
        return joined(
            [
                table("Entries", [field.replace("_", " ") for field in fields], rows, "No entry."),
                element("p", f"{read}{age}.{more}", class_="empty"),
            ]
        )

    # ---------------------------------------- errors

    def _errors(self, parameters: Parameters) -> Sections:
        answer = self._answers.errors()
        shown = [
            element(
                "details",
                element("summary", f"{time_text(each['seen_at_ms'])} {each['error'].splitlines()[0][:_LONGEST]}"),
                element("p", f"The uncaught exception handler answered {each['response']}."),
                element("pre", each["traceback"]),
            )
            for each in answer["errors"]
        ]
        count = f"Errors that have stopped all tasks since the start: {answer['count']}."
        return {"count": element("p", count), "errors": joined(shown)}

    def _dead_letters(self, parameters: Parameters) -> Sections:
        """Return how dead letters go back, and where it is asked for, which ones there are."""
        topic = self._answers.dead_letter_topic
        if topic is None:
            return {}
        parts: list[Content] = [
            element("h2", "Dead letters"),
            element("p", f"Records that could not be processed are in the topic {topic}. This writes them back: "),
            element("pre", redrive_command(topic)),
        ]
        if "dead_letters" not in parameters:
            parts.append(element("p", element("a", "Show what it would write", href="/errors?dead_letters=show")))
            return {"dead-letters": joined(parts)}
        try:
            answer = self._answers.dead_letters()
        except StreamsError as error:
            return {"dead-letters": joined([*parts, element("p", str(error), class_="problem", role="alert")])}
        rows = [
            (
                f"{each['topic']}-{each['partition']}",
                each["target"],
                each["exception"],
                _number(each["records"]),
                each["message"][:_LONGEST],
            )
            for each in answer["letters"]
        ]
        columns = ("From", "To", "Error", "Records#", "First message")
        parts.append(table("Dead letters", columns, rows, "No dead letter is left to be written back."))
        if answer["without_source"]:
            text = f"Errors of punctuators, which have no record: {_number(answer['without_source'])}."
            parts.append(element("p", text, class_="empty"))
        return {"dead-letters": joined(parts)}

    # ---------------------------------------- what would change

    def _changes(self, parameters: Parameters) -> Sections:
        try:
            lines = self._answers.changes()["changes"]
        except StreamsError as error:
            return {"changes": element("p", str(error), class_="problem", role="alert")}
        shown = "\n".join(lines) or "nothing changes"
        hint = element("p", "What the program does to the application when it starts on the checkpoint.")
        return {"changes": joined([hint, element("pre", shown)])}

    # ---------------------------------------- control

    def control(self, outcome: Markup) -> str:
        """Return the page on control after an action, with its `outcome_of`."""
        return self.html(self._control_page, {}, {"outcome": outcome})

    def _control_state(self, parameters: Parameters) -> Sections:
        return {"state": _state(self._answers.overview())}

    def _control_form(self, parameters: Parameters) -> Sections:
        choices = [
            element("label", element("input", type="radio", name="action", value=action, required=True), f" {text}")
            for action, text in _ACTIONS.items()
            if action in self._actions
        ]
        fields = [
            element("fieldset", element("legend", "What to do"), *choices),
            element(
                "label",
                "Token, which the application wrote to the terminal when it started",
                element("input", type="password", name="token", required=True, autocomplete="off"),
            ),
            element(
                "label",
                element("input", type="checkbox", name="confirmed", value="yes", required=True),
                f" Do this with {self._answers.config['application.id']}",
            ),
            element("button", "Do it", type="submit"),
        ]
        return {"form": element("form", *fields, action="/control", method="post")}


_ACTIONS: Final = {
    "pause": "Pause: finish the running commit, then process nothing",
    "resume": "Resume after a pause",
    "savepoint": "Savepoint: copy the state of the last commit",
    "redrive": "Redrive: write the dead letters back to where they came from",
    "stop": "Stop: finish the running commit, then end the application and these pages",
}

_OFFLINE: Final = "These figures are those of the moment when the page was loaded."


_MEASURES: Final = {"": "kind", "lag": "lag", "records": "records/s", "age": "age of records"}
"""What the picture can be coloured by, as people say it."""


def _measures(chosen: str) -> Markup:
    """Return the links that colour the picture."""
    links = [
        element(
            "a",
            text,
            href="/topology" + (f"?measure={name}" if name else ""),
            aria_current="true" if name == chosen else None,
        )
        for name, text in _MEASURES.items()
    ]
    return element("p", "Colours of the picture: ", joined(part for link in links for part in (link, " ")))


def outcome_of(action: str = "", done: Mapping[str, Any] | None = None, problem: str = "") -> Markup:
    """Return what became of an action: what it has `done`, or the `problem` for which it has not."""
    if problem:
        return element("p", problem, class_="problem", role="alert")
    facts = "".join(f" {name.replace('_', ' ').capitalize()}: {value}." for name, value in (done or {}).items())
    return element("p", f"Asked for: {action}.{facts}", role="status")


def _state(answer: Answer) -> Markup:
    """Return the first look: does it run, and does it keep up."""
    state = "PAUSED" if answer["paused"] and answer["state"] == "RUNNING" else answer["state"]
    badge = element("strong", state, class_=f"state {state.lower().replace('_', '-')}")
    keeps_up = _keeps_up(answer) if state == "RUNNING" else ""
    if answer["watched"]:
        badge = element("strong", "WATCHED", class_="state created")
        keeps_up = f"Another process runs it, or none does: see its last commit. {keeps_up}"
    lines = [element("p", badge, " ", keeps_up, role="status")]
    if answer["error"] is not None:
        lines.append(element("pre", answer["error"], class_="problem"))
    problems = [each for each in answer["topologies"] if each["problem"] is not None]
    lines += [element("p", f"{each['name']} {each['problem']}".strip(), class_="problem") for each in problems]
    return joined(lines)


def _keeps_up(answer: Answer) -> str:
    if answer["lag"] is None:
        return "How far it is behind is not known."
    if not answer["lag"]:
        return "It keeps up: no record waits."
    if answer["behind_ms"] is not None and answer["behind_ms"] <= KEPT_MS:
        return f"It keeps up: {_number(answer['lag'])} records wait, which take it {duration(answer['behind_ms'])}."
    since = answer["behind_since_ms"]
    behind = f"It is {_number(answer['lag'])} records behind"
    if since is not None:
        behind += f", and has not kept up since {time_text(since)}"
    if answer["lag_per_second"] is None:
        return f"{behind}."
    if answer["catch_up_ms"] is None:
        return f"{behind}. It does not catch up."
    return f"{behind}. It catches up in about {duration(answer['catch_up_ms'])}."


def _topologies(answer: Answer) -> Markup:
    rows = [
        (
            each["name"] or answer["application_id"],
            each["state"],
            _number(each["lag"]),
            NONE if each["commit"] is None else _number(each["commit"]["number"]),
            NONE if each["commit"] is None else f"{duration(each['commit']['age_ms'])} ago",
        )
        for each in answer["topologies"]
    ]
    return table("Commits", ("Topology", "State", "Lag#", "Commit#", "Made#"), rows, "No topology runs.")


_BARS_HEIGHT: Final = 160
_BAR_WIDTH: Final = 12


def _bars(commits: Sequence[Answer], phases: Sequence[str]) -> list[Markup]:
    """Return a picture with a bar for each commit, the newest at the right, and what its colours are."""
    longest = max((sum(each["phases_ms"].values()) for each in commits), default=0)
    if not longest:
        return []
    bars: list[Markup] = []
    for place, each in enumerate(commits):
        parts: list[Markup] = []
        bottom = float(_BARS_HEIGHT)
        for phase in phases:
            height = _BARS_HEIGHT * each["phases_ms"].get(phase, 0) / longest
            bottom -= height
            size = {"x": f"{place * _BAR_WIDTH}", "y": f"{bottom:.2f}", "height": f"{height:.2f}"}
            parts.append(element("rect", class_=f"phase-{phase}", width=f"{_BAR_WIDTH - 2}", **size))
        split = ", ".join(f"{phase} {duration(took)}" for phase, took in each["phases_ms"].items())
        title = f"Commit {each['number']}, {_number(each['records'])} records: {split}"
        bars.append(element("g", element("title", title), *parts))
    box = f"0 0 {max(len(commits) * _BAR_WIDTH, 20 * _BAR_WIDTH)} {_BARS_HEIGHT}"
    title = f"The last {len(commits)} commits; the highest bar is {duration(longest)}"
    picture = element("svg", *bars, viewBox=box, role="img", aria_label=title, class_="bars")
    legend = joined(element("span", phase, class_=f"phase phase-{phase}") for phase in phases)
    return [element("p", title, ". ", legend), picture]


def _trend(answer: Answer) -> str:
    change = answer["lag_per_second"]
    if change is None or not answer["lag"]:
        return "records that wait"
    return f"records that wait, {change:+,.1f}/s"


def _output_age(age: Any) -> tuple[str, str]:
    """Return how old output was at its commit."""
    if age is None:
        return NONE, "age of output at its commit"
    return duration(age["p50"]), f"age of output at its commit; p95 {duration(age['p95'])}, p99 {duration(age['p99'])}"


def _stream_time(times: Any) -> tuple[str, str]:
    if times is None:
        return NONE, "the largest timestamp that a task has seen"
    return time_text(times["max_at_ms"]), f"skew {duration(times['skew_ms'])} between the tasks"


def _dropped(dropped: Sequence[Answer]) -> Markup:
    rows = [
        (_of_topology(each["topology"], each["name"]), _number(each["records"]), each["reason"]) for each in dropped
    ]
    return table("Dropped records", ("Node or store", "Records#", "Reasons of such a node"), rows, "No record dropped.")


def _of_topology(topology: str, task: str) -> str:
    return f"{topology} {task}".strip()


def _address(store: Answer) -> str:
    return urlencode({"store": store["store"], **({"topology": store["topology"]} if store["topology"] else {})})


_FIELDS: Final = (
    ("key", "Key", "text"),
    ("from", "From key", "text"),
    ("to", "To key", "text"),
    ("from_time", "From time (ms)", "number"),
    ("to_time", "To time (ms)", "number"),
    ("limit", f"Rows, up to {MOST_ENTRIES}", "number"),
)
"""The fields of the form for entries: parameter, label and kind."""


def _form(parameters: Parameters) -> Markup:
    """Return the form that chooses entries of a store."""
    hidden = [
        element("input", type="hidden", name=name, value=parameters[name])
        for name in ("store", "topology")
        if name in parameters
    ]
    fields = [
        element(
            "label",
            label,
            element(
                "input",
                type=kind,
                name=name,
                value=parameters.get(name, str(DEFAULT_LIMIT) if name == "limit" else ""),
                min="0" if kind == "number" else None,
            ),
        )
        for name, label, kind in _FIELDS
    ]
    title = element("h2", f"Entries of {parameters['store']}")
    button = element("button", "Show", type="submit")
    return joined([title, element("form", *hidden, *fields, button, action="/state", method="get")])


def _value(field: str, value: Any) -> Content:
    """Return a key, a value or a time of an entry, shortened."""
    if value is None:
        return NONE
    if field.startswith("window_") or field in ("timestamp", "valid_to"):
        return time_text(value)
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    cut = f"... ({len(text):,} characters)" if len(text) > _LONGEST else ""
    return element("code", f"{text[:_LONGEST]}{cut}")


def _named(name: str) -> list[Markup]:
    return [element("h2", name)] if name else []


_TASK_COLUMNS: Final = ("Task", "Records#", "Dropped#", "Stream time", "Lag#")

_NODE_COLUMNS: Final = (
    *("Node", "Kind", "Topics and stores", "Next nodes"),
    *("Lag#", "Records#", "Records/s#", "Oldest#"),
)


def _node(topology: str, node: Answer, measured: Mapping[str, float], lag: float | None) -> list[Content]:
    match node["kind"]:
        case "source":
            uses = ", ".join(node["topics"]) if node["topic_pattern"] is None else node["topic_pattern"]
        case "sink":
            uses = node["topic"]
        case _:
            uses = ", ".join(node["stores"])
    age = measured.get("record-e2e-latency-max")
    return [
        joined([_node_link(topology, node["name"]), *_line(node["line"])]),
        node["kind"],
        uses,
        ", ".join(node.get("successors", ())),
        _number(lag),
        _number(measured.get("process-total")),
        _number(measured.get("process-rate")),
        NONE if age is None else duration(age),
    ]


def _of_part(part: Answer) -> list[Markup]:
    """Return what was measured of a sub-topology."""
    found = []
    if part["share_of_time"] is not None:
        found.append(f"{100 * part['share_of_time']:.0f} % of the time of all tasks")
    if part["state_bytes"] is not None:
        found.append(f"{_size(part['state_bytes'])} of state")
    return [element("small", ", ".join(found))] if found else []


def _size(number: float) -> str:
    """Return a number of bytes in its largest unit."""
    for unit in ("bytes", "KiB", "MiB"):
        if number < 1024:
            return f"{_number(number)} {unit}"
        number /= 1024
    return f"{number:,.1f} GiB"


def _node_link(topology: str, node: str) -> Markup:
    query = {"node": node, **({"topology": topology} if topology else {})}
    return element("a", element("code", node), href=f"/topology?{urlencode(query)}")


def _details(node: Answer, topology: str, kinds: Mapping[str, str], measured: Mapping[str, float]) -> Markup:
    """Return what is known of a node. kinds: of the stores, by name."""
    rows: list[tuple[str, Content]] = [("Kind", node["kind"]), ("Line", node["line"] or NONE)]
    if node["kind"] == "source":
        rows.append(("Topics", node["topic_pattern"] or ", ".join(node["topics"])))
    if node["kind"] == "sink":
        rows.append(("Topic", node["topic"]))
    if node["serdes"] is not None:
        rows += [(f"Serde of {part}s", name) for part, name in node["serdes"].items()]
    for store in node.get("stores", ()):
        link = element("a", store, href=f"/state?{_address({'store': store, 'topology': topology})}")
        rows.append(("Store", joined([link, f" ({kinds[store].replace('_', ' ')})" if store in kinds else ""])))
    for way in ("predecessors", "successors"):
        links = [_node_link(topology, each) for each in node.get(way, ())]
        if links:
            rows.append((way.capitalize(), joined(part for link in links for part in (link, " "))))
    rows += [(name, _number(value)) for name, value in sorted(measured.items())]
    return joined([element("h2", f"Node {node['name']}"), table("Node", ("What", "Value"), rows, "")])


def _line(line: str | None) -> list[Markup]:
    """Return the file and the line that made a node, without the directories."""
    return [] if line is None else [element("small", PurePath(line).name, title=line)]


def _number(value: float | None) -> str:
    """Return a figure with its thousands apart."""
    if value is None:
        return NONE
    return f"{value:,.1f}" if value % 1 and abs(value) < 100 else f"{value:,.0f}"


def _rate(value: float | None) -> str:
    return NONE if value is None else f"{_number(value)}/s"


def duration(milliseconds: float) -> str:
    """Return a time in its two largest units."""
    if milliseconds < 1_000:
        return f"{milliseconds:.0f} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1_000:.1f} s"
    parts: list[str] = []
    left = int(milliseconds)
    for size, unit in _UNITS:
        number, left = divmod(left, size)
        if number or parts:
            parts.append(f"{number} {unit}")
    return " ".join(parts[:2])
