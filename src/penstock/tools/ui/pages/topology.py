"""The topology: its nodes with their measurements, and its picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from os.path import basename
from typing import Final, NamedTuple, TypeVar
from urllib.parse import quote_plus, urlencode

from penstock.errors import counted
from penstock.notebook import time_text
from penstock.plan.describe import TopologyDescription
from penstock.plan.picture import Figure
from penstock.tools.ui.answers import Answers
from penstock.tools.ui.formatting import NONE, duration, number, percent, rate, size
from penstock.tools.ui.markup import Content, Markup, element, joined, table
from penstock.tools.ui.pages.layout import Page, Sections
from penstock.tools.ui.pages.sections import asking, heading, spaced, store_query
from penstock.tools.ui.parameters import Parameters, WrongParameterError
from penstock.tools.ui.schema import TappedRecordAnswer
from penstock.tools.ui.topologies import Answer

K = TypeVar("K")


class Measure(NamedTuple):
    """A measure for the colours of the picture.

    Args:
        title: its readable name.
        field: of nodes and sub-topologies in the JSON.
        show: formats a figure.
        of: a sentence that names the measured objects.
    """

    title: str
    field: str
    show: Callable[[float], str]
    of: str


_MEASURES: Final = {
    "records": Measure(
        "records/s",
        "records_per_second",
        rate,
        "Records a second are measured of each sub-topology, and with metrics.recording.level=DEBUG of each node.",
    ),
    "time": Measure(
        "share of time",
        "share_of_time",
        percent,
        "The share of the time of all tasks is measured of each sub-topology. It is not measured of nodes, because "
        "that would cost time for each record.",
    ),
    "lag": Measure("lag", "lag", number, "The lag is that of the partitions that a source or a sub-topology reads."),
    "state": Measure(
        "bytes of state",
        "state_bytes",
        size,
        "Bytes of state are measured of each sub-topology: the stores of a task share a local database.",
    ),
    "errors": Measure(
        "errors",
        "errors",
        number,
        "Errors are the records that a node or store dropped, or that a handler skipped, since the start. The page on "
        "errors shows those that stopped all tasks.",
    ),
    "age": Measure(
        "age of records", "age_ms", duration, "The age is the largest one of a record, measured of sources and sinks."
    ),
}


_NODE_COLUMNS: Final = (
    *("Node", "Kind", "Topics and stores", "Next nodes"),
    *("Lag#", "Records#", "Records/s#", "Errors#", "Oldest#"),
)


class _View(NamedTuple):
    """A reader's view of the topologies.

    Args:
        measure: the name of a measure, empty for colours by kind.
        folded: the sub-topologies drawn as one node, in the form of `_part_id`.
    """

    measure: str
    folded: frozenset[str]

    @staticmethod
    def of(parameters: Parameters) -> _View:
        measure = parameters.get("measure", "")
        folded = frozenset(filter(None, parameters.get("folded", "").split(",")))
        return _View(measure if measure in _MEASURES else "", folded)

    def address(self, path: str = "/topology", **others: str) -> str:
        """Return an address with further parameters that keeps this view."""
        query = {**others, "measure": self.measure, "folded": ",".join(sorted(self.folded))}
        given = {name: value for name, value in query.items() if value}
        return f"{path}?{urlencode(given)}" if given else path

    def node_addresses(self, topology: str) -> Callable[[str], str]:
        """Return a function from a node's name to its address in this view.

        It is fast enough for thousands of nodes.
        """
        start = self.address(topology=topology)
        start += "&node=" if "?" in start else "?node="
        return lambda node: start + quote_plus(node)


def _part_id(topology: str, part: int) -> str:
    return f"{topology}:{part}" if topology else str(part)


def page(answers: Answers, actions: Sequence[str]) -> Page:
    """Return the page; actions: those available for the application."""
    can_tap = "tap" in actions
    return Page(
        "/topology",
        "Topology",
        lambda parameters: _sections(answers, parameters),
        lambda parameters: _tap_form(answers, parameters) if can_tap and "node" in parameters else {},
    )


def _tap_form(answers: Answers, parameters: Parameters) -> Sections:
    """Return the form that opens or closes the tap of the node in the parameters."""
    node, of = parameters["node"], parameters.get("topology", "")
    topology = answers.observer.application.running_topologies().get(of)
    parts = () if topology is None else topology.describe().subtopologies
    if topology is None or node not in [each.name for part in parts for each in part.nodes]:
        return {}
    is_open = topology.tapped(node) is not None
    hidden = {"action": "untap" if is_open else "tap", "node": node, "topology": of}
    fields = [element("input", type="hidden", name=name, value=value) for name, value in hidden.items()]
    title = "Close the tap" if is_open else "Tap this node"
    hint = (
        "The last 20 records that reach the node are kept and shown above, until the tap is closed, or nobody has "
        "looked at them for ten minutes. Meanwhile tasks read all records into objects, which may cost time."
    )
    form = asking(fields, f"{title}: {node}", title)
    return {"tap": joined([element("h2", title), element("p", hint, class_="empty"), form])}


def _sections(answers: Answers, parameters: Parameters) -> Sections:
    view, topologies = _View.of(parameters), answers.topologies.all()
    sections: Sections = {}
    if "node" in parameters:
        sections["node"] = _chosen_node(answers, parameters, topologies, view)
    sections["measures"] = _measures(view, topologies)
    for place, topology in enumerate(topologies):
        named = heading(topology["name"])
        sections[f"picture-{place}"] = joined([*named, _figure(answers, topology, view)])
        sections[f"nodes-{place}"] = joined(
            _nodes(topology["name"], part, kind, view)
            for kind, key in (("Sub-topology", "subtopologies"), ("Global store", "global_stores"))
            for part in topology[key]
        )
    sections["hint"] = element(
        "p",
        "Oldest is the largest age of a record that the node has processed. Records of each node are counted with "
        "metrics.recording.level=DEBUG.",
        class_="empty",
    )
    return sections


def _measures(view: _View, topologies: Sequence[Answer]) -> Markup:
    """Return the links for colours and folds, and the legend of the colours.

    The former colour the pictures, and fold their sub-topologies.
    """
    titles = {"": "kind", **{name: measure.title for name, measure in _MEASURES.items()}}
    colours = [
        element(
            "a",
            title,
            href=view._replace(measure=name).address(),
            aria_current="true" if name == view.measure else None,
        )
        for name, title in titles.items()
    ]
    every = frozenset(_part_id(each["name"], part["id"]) for each in topologies for part in _parts(each))
    folds = [
        element("a", title, href=view._replace(folded=folded).address())
        for title, folded in (("fold all sub-topologies", every), ("unfold all", frozenset[str]()))
        if folded != view.folded
    ]
    lines = [
        element("p", "Colours of the picture: ", *spaced(colours)),
        element("p", "A click on the name of a sub-topology folds it: ", *spaced(folds)),
    ]
    if view.measure:
        lines.append(element("p", _MEASURES[view.measure].of, class_="empty"))
    return joined(lines)


def _parts(topology: Answer) -> list[Answer]:
    return [*topology["subtopologies"], *topology["global_stores"]]


def _figure(answers: Answers, topology: Answer, view: _View) -> Markup:
    """Return the picture of a topology, with links to its other forms."""
    name = topology["name"]
    forms = [
        element("a", "SVG", href=view.address("/topology.svg", topology=name)),
        " · ",
        element("a", "Mermaid", href="/topology.mmd" + (f"?{urlencode({'topology': name})}" if name else "")),
        " · ",
        element("a", "JSON", href="/topology.json"),
    ]
    drawn = _with_links(_Drawing.of(answers, topology, view))
    label = f"Picture of the topology {name}".strip()
    return element("figure", drawn, element("figcaption", *forms), aria_label=label, tabindex="0")


class _Drawing(NamedTuple):
    """A picture of a topology.

    Args:
        topology: its name.
        description: its description.
        view: the reader's view.
        figures: of nodes by name.
        part_figures: of sub-topologies and global stores by id.
    """

    topology: str
    description: TopologyDescription
    view: _View
    figures: tuple[tuple[str, Figure], ...]
    part_figures: tuple[tuple[int, Figure], ...]

    @staticmethod
    def of(answers: Answers, topology: Answer, view: _View) -> _Drawing:
        """Return the picture of a topology, coloured by the measure of `view`.

        `topology` has the figures.
        """
        parts = _parts(topology)
        return _Drawing(
            topology["name"],
            answers.topologies.named(topology["name"])[1].describe(),
            view,
            _coloured({node["name"]: node for part in parts for node in part["nodes"]}, view.measure),
            _coloured({part["id"]: part for part in parts}, view.measure),
        )

    def svg(
        self,
        node_address: Callable[[str], str] | None = None,
        part_address: Callable[[int], str] | None = None,
    ) -> str:
        """Return the picture as SVG; for the arguments see `TopologyDescription.to_svg`."""
        ids = [part.id for part in self.description.subtopologies]
        ids += [part.id for part in self.description.global_stores]
        return self.description.to_svg(
            dict(self.figures),
            part_figures=dict(self.part_figures),
            folded=[id for id in ids if _part_id(self.topology, id) in self.view.folded],
            node_address=node_address,
            part_address=part_address,
        )


@lru_cache(maxsize=8)
def _with_links(drawing: _Drawing) -> Markup:
    """Return a picture with links on its nodes and sub-topologies.

    A click on a node shows it, and on a sub-topology folds it. The last pictures are cached: open pages request them
    repeatedly, and a picture coloured by kind, or of an idle application, does not change.
    """
    name, view = drawing.topology, drawing.view

    def part_address(part: int) -> str:
        return view._replace(folded=view.folded ^ {_part_id(name, part)}).address() + "#measures"

    return Markup(drawing.svg(view.node_addresses(name), part_address))


def _coloured(answers: Mapping[K, Answer], name: str) -> tuple[tuple[K, Figure], ...]:
    """Return the figures of nodes or sub-topologies for a measure; empty for colours by kind."""
    if not name:
        return ()
    measure = _MEASURES[name]
    values = {key: each[measure.field] for key, each in answers.items() if each.get(measure.field) is not None}
    largest = max(values.values(), default=0) or 1
    return tuple((key, Figure(measure.show(value), max(0.0, value / largest))) for key, value in values.items())


def picture(answers: Answers, parameters: Parameters) -> str:
    """Return the picture of a topology; raises UnknownTopologyError and WrongParameterError.

    The parameter `measure` names the measure of its colours, and `folded` the sub-topologies that are drawn as one node
    each.
    """
    name, _ = answers.topologies.named(parameters.get("topology"))
    measure = parameters.get("measure")
    if measure and measure not in _MEASURES:
        raise WrongParameterError(
            f"Invalid value {measure!r:.100} for measure: expected one of {', '.join(_MEASURES)}."
        )
    return _Drawing.of(answers, answers.topologies.one(name), _View.of(parameters)).svg()


def _chosen_node(answers: Answers, parameters: Parameters, topologies: Sequence[Answer], view: _View) -> Markup:
    """Return the details of the node in the parameters."""
    chosen, of = parameters["node"], parameters.get("topology", "")
    for topology in topologies:
        for node in (node for part in _parts(topology) for node in part["nodes"]):
            if (topology["name"], node["name"]) == (of, chosen):
                stores = answers.topologies.named(of)[1].state_stores()
                kinds = {name: builder.kind for name, builder in stores.items()}
                return _details(node, of, kinds, answers.topologies.nodes().get((of, chosen), {}), view)
    return element("p", f"This topology has no node {chosen}.", class_="problem", role="alert")


def _nodes(topology: str, part: Answer, kind: str, view: _View) -> Markup:
    """Return the collapsible nodes of a sub-topology."""
    address = view.node_addresses(topology)
    rows = [_node(node, address) for node in part["nodes"]]
    return element(
        "details",
        element("summary", f"{kind} {part['id']}", *_of_part(part)),
        table(f"Nodes of {kind.lower()} {part['id']}", _NODE_COLUMNS, rows, "It has no nodes."),
        open=True,
    )


def _node(node: Answer, address: Callable[[str], str]) -> list[Content]:
    match node["kind"]:
        case "source":
            uses = ", ".join(node["topics"]) if node["topic_pattern"] is None else node["topic_pattern"]
        case "sink":
            uses = node["topic"]
        case _:
            uses = ", ".join(node["stores"])
    return [
        joined([_node_link(node["name"], address), *_line(node["line"])]),
        node["kind"],
        uses,
        ", ".join(node.get("successors", ())),
        number(node["lag"]),
        number(node["records"]),
        number(node["records_per_second"]),
        number(node["errors"]),
        NONE if node["age_ms"] is None else duration(node["age_ms"]),
    ]


def _of_part(part: Answer) -> list[Markup]:
    """Return the measurements of a sub-topology."""
    found = []
    if part["share_of_time"] is not None:
        found.append(f"{percent(part['share_of_time'])} of the time of all tasks")
    if part["records_per_second"] is not None:
        found.append(f"{number(part['records_per_second'])} records/s")
    if part["lag"] is not None:
        found.append(f"lag {number(part['lag'])}")
    if part["state_bytes"] is not None:
        found.append(f"{size(part['state_bytes'])} of state")
    if part["errors"]:
        found.append(counted(int(part["errors"]), "error"))
    return [element("small", ", ".join(found))] if found else []


def _node_link(node: str, address: Callable[[str], str]) -> Markup:
    return element("a", element("code", node), href=address(node))


def _details(
    node: Answer, topology: str, kinds: Mapping[str, str], measured: Mapping[str, float], view: _View
) -> Markup:
    """Return the details of a node; kinds: of the stores, by name."""
    rows: list[tuple[str, Content]] = [("Kind", node["kind"]), ("Line", node["line"] or NONE)]
    if node["kind"] == "source":
        rows.append(("Topics", node["topic_pattern"] or ", ".join(node["topics"])))
    if node["kind"] == "sink":
        rows.append(("Topic", node["topic"]))
    if node["serdes"] is not None:
        rows += [(f"Serde of {part}s", name) for part, name in node["serdes"].items()]
    for store in node.get("stores", ()):
        link = element("a", store, href=f"/state?{store_query(topology, store)}")
        rows.append(("Store", joined([link, f" ({kinds[store].replace('_', ' ')})" if store in kinds else ""])))
    for way in ("predecessors", "successors"):
        if links := [_node_link(each, view.node_addresses(topology)) for each in node.get(way, ())]:
            rows.append((way.capitalize(), joined(spaced(links))))
    rows += [(name, number(value)) for name, value in sorted(measured.items())]
    shown = [element("h2", f"Node {node['name']}"), table("Node", ("What", "Value"), rows, "")]
    return joined(shown if node["tapped"] is None else [*shown, _tapped(node["tapped"])])


def _tapped(records: list[TappedRecordAnswer]) -> Markup:
    """Return the records of an open tap of a node."""
    rows = [
        (
            each["key"],
            each["value"],
            time_text(each["timestamp"]),
            each["task"],
            NONE if each["topic"] is None else f"{each['topic']}-{each['partition']} at {each['offset']}",
        )
        for each in records
    ]
    columns = ("Key", "Value", "Timestamp", "Task", "Input record")
    return joined([element("h3", "Tap"), table("Tap", columns, rows, "No record has reached the node since.")])


def _line(line: str | None) -> list[Markup]:
    """Return the file and the line that created a node, without the directories."""
    return [] if line is None else [element("small", basename(line), title=line)]
