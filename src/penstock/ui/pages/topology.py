"""The topology: its nodes with what was measured of them, and its picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Final
from urllib.parse import urlencode

from penstock.plan.picture import Figure
from penstock.ui.answers import MEASURES, Answer, Answers
from penstock.ui.formatting import NONE, duration, number, size
from penstock.ui.markup import Content, Markup, element, joined, table
from penstock.ui.pages.layout import Page, Sections
from penstock.ui.pages.sections import heading, store_query
from penstock.ui.parameters import Parameters, WrongParameterError

_MEASURES: Final = {"": "kind", "lag": "lag", "records": "records/s", "age": "age of records"}
"""What the picture can be coloured by, as people say it."""


_NODE_COLUMNS: Final = (
    *("Node", "Kind", "Topics and stores", "Next nodes"),
    *("Lag#", "Records#", "Records/s#", "Oldest#"),
)


def page(answers: Answers) -> Page:
    """Return the page."""
    return Page(
        "/topology",
        "Topology",
        lambda parameters: _nodes(answers, parameters),
        lambda parameters: _pictures(answers, parameters),
    )


def _nodes(answers: Answers, parameters: Parameters) -> Sections:
    measured = answers.nodes()
    sections: Sections = {"node": _chosen_node(answers, parameters, measured)} if "node" in parameters else {}
    for place, topology in enumerate(answers.topologies()["topologies"]):
        lags = answers.measured(topology["name"], "lag")
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
        sections[f"nodes-{place}"] = joined([*heading(topology["name"]), *parts])
    sections["hint"] = element(
        "p",
        "Oldest is the largest age of a record behind a sink. Records of each node are counted with "
        "metrics.recording.level=DEBUG.",
        class_="empty",
    )
    return sections


def _chosen_node(
    answers: Answers, parameters: Parameters, measured: Mapping[tuple[str, str], Mapping[str, float]]
) -> Markup:
    """Return all that is known of the node that the parameters name. measured: of all nodes."""
    chosen, of = parameters["node"], parameters.get("topology", "")
    kinds = {store["store"]: store["kind"] for store in answers.stores()["stores"] if store["topology"] == of}
    for topology in answers.topologies()["topologies"]:
        for part in (*topology["subtopologies"], *topology["global_stores"]):
            for node in part["nodes"]:
                if (topology["name"], node["name"]) == (of, chosen):
                    return _details(node, of, kinds, measured.get((of, chosen), {}))
    return element("p", f"This topology has no node {chosen}.", class_="problem", role="alert")


def _pictures(answers: Answers, parameters: Parameters) -> Sections:
    chosen = parameters.get("measure", "")
    sections: Sections = {"measures": _measures(chosen)}
    for place, topology in enumerate(answers.topologies()["topologies"]):
        name = topology["name"]
        query = f"?{urlencode({'topology': name, **({'measure': chosen} if chosen in MEASURES else {})})}"
        image = element("img", src=f"/topology.svg{query}", alt=f"Picture of the topology {name}".strip())
        forms = joined(
            [
                element("a", "Mermaid", href=f"/topology.mmd{query}"),
                " · ",
                element("a", "JSON", href="/topology.json"),
            ]
        )
        link = element("a", image, href=f"/topology.svg{query}")
        sections[f"picture-{place}"] = element("figure", link, element("figcaption", forms))
    return sections


def picture(answers: Answers, parameters: Parameters) -> str:
    """Return the picture of a topology, coloured by what the parameter `measure` names; raises UnknownTopologyError
    and WrongParameterError."""
    name, topology = answers.topology_named(parameters.get("topology"))
    measure = parameters.get("measure")
    if not measure:
        return topology.describe().to_svg()
    if measure not in MEASURES:
        raise WrongParameterError(f"Invalid value {measure!r:.100} for measure: expected one of {', '.join(MEASURES)}.")
    values = answers.measured(name, measure)
    largest = max(values.values(), default=0) or 1
    show = duration if measure == "age" else number
    return topology.describe().to_svg(
        {node: Figure(show(value), max(0.0, value / largest)) for node, value in values.items()}
    )


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
        number(lag),
        number(measured.get("process-total")),
        number(measured.get("process-rate")),
        NONE if age is None else duration(age),
    ]


def _of_part(part: Answer) -> list[Markup]:
    """Return what was measured of a sub-topology."""
    found = []
    if part["share_of_time"] is not None:
        found.append(f"{100 * part['share_of_time']:.0f} % of the time of all tasks")
    if part["state_bytes"] is not None:
        found.append(f"{size(part['state_bytes'])} of state")
    return [element("small", ", ".join(found))] if found else []


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
        link = element("a", store, href=f"/state?{store_query(topology, store)}")
        rows.append(("Store", joined([link, f" ({kinds[store].replace('_', ' ')})" if store in kinds else ""])))
    for way in ("predecessors", "successors"):
        links = [_node_link(topology, each) for each in node.get(way, ())]
        if links:
            rows.append((way.capitalize(), joined(part for link in links for part in (link, " "))))
    rows += [(name, number(value)) for name, value in sorted(measured.items())]
    return joined([element("h2", f"Node {node['name']}"), table("Node", ("What", "Value"), rows, "")])


def _line(line: str | None) -> list[Markup]:
    """Return the file and the line that made a node, without the directories."""
    return [] if line is None else [element("small", PurePath(line).name, title=line)]
