"""Drawings of a graph of boxes in groups, as mermaid text and SVG.

The layout of the SVG is this module's own. The meaning of the boxes is unknown here: `describe.py` makes the graph of a
topology. Layout: a group is a block of rows, and a node is one row below the lowest of its parents in the group. Blocks
are side by side, below the first row, which has the loose nodes (topics) that lead into them. Loose nodes that lead
nowhere are below the blocks that lead to them. Lines back up to the first row run between the blocks and above that
row, so that they cross neither nodes nor titles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple
from xml.etree.ElementTree import Element, SubElement, tostring

from penstock.errors import counted
from penstock.notebook import xml_text

_CHARACTER, _LINE, _PADDING, _GAP, _ROW = 7.0, 30.0, 12.0, 24.0, 72.0
"""Pixels: character width, box height, space inside boxes, space between boxes, row height."""
_BESIDE_TITLE = 16
"""Space next to a title, in characters.

It has room for the title's figure, a line, and the figure of a node.
"""
_LANES = 5
"""Maximum number of parallel lines between two groups."""


_PLAIN, _STRONG, _FIGURE = "#f6f7f8", "#e8590c", "#9a3412"
"""Colours of nodes without a figure, of the largest figure, and of its text."""
_NODE_OPACITY, _GROUP_OPACITY = 0.6, 0.3
"""Opacity of the largest figure's colour on a node and on a group.

Nodes are drawn over their group.
"""


class Shape(Enum):
    """The look of a node.

    It has the opening and closing of the text in mermaid, and the colour and corner radius in SVG.
    """

    TOPIC = ("([", "])", "#fff3cd", 15)
    SOURCE = ("[/", "\\]", "#d1e7dd", 3)
    PROCESSOR = ("[", "]", "#e7f1ff", 3)
    SINK = ("[\\", "/]", "#f8d7da", 3)
    STORE = ("[(", ")]", "#e2e3e5", 15)

    def __init__(self, opening: str, closing: str, colour: str, radius: int) -> None:
        self.opening = opening
        self.closing = closing
        self.colour = colour
        self.radius = radius


@dataclass(frozen=True)
class Box:
    """A box with its text.

    Args:
        group: the title of its group, None for a loose node.
    """

    label: str
    shape: Shape
    group: str | None


@dataclass(frozen=True)
class Edge:
    """A line between two nodes, by their ids.

    It is dashed and without an arrow if one node only uses the other.
    """

    start: str
    end: str
    dashed: bool = False


class Figure(NamedTuple):
    """A measurement of a node or a group.

    Args:
        text: the measurement as text.
        share: its share of the largest measurement in the picture, from 0 to 1.
    """

    text: str
    share: float


@dataclass(frozen=True)
class Picture:
    """Nodes by id and the lines between them, both in drawing order."""

    nodes: Mapping[str, Box]
    edges: tuple[Edge, ...]

    @cached_property
    def neighbours(self) -> Mapping[str, Sequence[str]]:
        """The ids of the nodes connected to each node by a line."""
        found: dict[str, list[str]] = {id: [] for id in self.nodes}
        for edge in self.edges:
            found[edge.start].append(edge.end)
            if edge.end != edge.start:
                found[edge.end].append(edge.start)
        return found

    @cached_property
    def places(self) -> Mapping[str, _Box]:
        """The positions of the nodes, by their ids."""
        return _layout(self)

    def groups(self) -> dict[str, list[str]]:
        """Return the ids of the nodes of each group, by its title."""
        groups: dict[str, list[str]] = {}
        for id, node in self.nodes.items():
            if node.group is not None:
                groups.setdefault(node.group, []).append(id)
        return groups

    def folded(self, titles: Collection[str]) -> Picture:
        """Return the graph with a single node in each group of `titles`.

        The id of that node is the title.
        """
        if not titles:
            return self
        inside = {title: ids for title, ids in self.groups().items() if title in titles}
        places = {id: title for title, ids in inside.items() for id in ids}
        nodes: dict[str, Box] = {}
        for id, node in self.nodes.items():
            if (title := places.setdefault(id, id)) == id:
                nodes[id] = node
            elif title not in nodes:
                number = sum(self.nodes[each].shape is not Shape.STORE for each in inside[title])
                nodes[title] = Box(f"{title}, {counted(number, 'node')}", Shape.PROCESSOR, title)
        edges = (Edge(places[edge.start], places[edge.end], edge.dashed) for edge in self.edges)
        return Picture(nodes, tuple(dict.fromkeys(edge for edge in edges if edge.start != edge.end)))


# ---------------------------------------- mermaid


def mermaid(graph: Picture) -> str:
    """Return the mermaid flowchart of `graph`."""
    short = {id: f"n{number}" for number, id in enumerate(graph.nodes)}
    lines = ["flowchart TD"]
    for number, (title, ids) in enumerate(graph.groups().items()):
        lines.append(f'  subgraph g{number}["{_mermaid_text(title)}"]')
        lines.extend(f"    {short[id]}{_mermaid_shape(graph.nodes[id])}" for id in ids)
        lines.append("  end")
    lines.extend(f"  {short[id]}{_mermaid_shape(node)}" for id, node in graph.nodes.items() if node.group is None)
    lines.extend(f"  {short[edge.start]} {'-.-' if edge.dashed else '-->'} {short[edge.end]}" for edge in graph.edges)
    return "\n".join(lines) + "\n"


def _mermaid_shape(node: Box) -> str:
    return f'{node.shape.opening}"{_mermaid_text(node.label)}"{node.shape.closing}'


def _mermaid_text(text: str) -> str:
    text = " ".join(xml_text(text).splitlines())
    return text.replace("#", "#35;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")


# ---------------------------------------- positions of the boxes


@dataclass
class _Box:
    """A node's position: left edge and width in pixels, row from the top."""

    x: float
    width: float
    row: int

    @property
    def middle(self) -> float:
        return self.x + self.width / 2

    @property
    def y(self) -> float:
        return _GAP * 2 + self.row * _ROW


def _layout(graph: Picture) -> dict[str, _Box]:
    """Return the position of each node."""
    boxes: dict[str, _Box] = {}
    left = _GAP
    for ids in graph.groups().values():
        left = _place_group(graph, ids, left, boxes) + 2 * _GAP
    _place_loose(graph, boxes)
    return boxes


def _place_group(graph: Picture, ids: list[str], left: float, boxes: dict[str, _Box]) -> float:
    """Place the nodes of one group from `left` on; returns its right edge."""
    rows = _rows(graph, ids)
    beside_title = (len(str(graph.nodes[ids[0]].group)) + _BESIDE_TITLE) * _CHARACTER
    width = max(beside_title, *(_width(graph.nodes[id]) for id in ids))
    right = left
    for row in range(max(rows.values()) + 1):
        beside = [id for id in ids if rows[id] == row]
        beside.sort(key={id: _middle(graph.neighbours[id], boxes) for id in beside}.__getitem__)
        for column, id in enumerate(beside):
            boxes[id] = _Box(left + column * (width + _GAP), width, 1 + row)
        right = max(right, left + len(beside) * (width + _GAP) - _GAP)
    return right


def _middle(ids: Iterable[str], boxes: Mapping[str, _Box]) -> float:
    """Return the middle of the `ids` placed so far, far right (infinity) without any."""
    placed = [boxes[id].middle for id in ids if id in boxes]
    return sum(placed) / len(placed) if placed else math.inf


def _rows(graph: Picture, ids: list[str]) -> dict[str, int]:
    """Return the row of each node of a group, counted from its top.

    A store is in the row of the first node that uses it.
    """
    parents: dict[str, list[str]] = {id: [] for id in ids}
    for edge in graph.edges:
        if edge.start in parents and edge.end in parents and not edge.dashed:
            parents[edge.end].append(edge.start)
    rows: dict[str, int] = {}
    changes = True
    while changes:  # ends because groups have no cycles; after two passes if parents come before children
        changes = False
        for id in ids:
            row = 1 + max((rows.get(parent, 0) for parent in parents[id]), default=-1)
            changes = changes or rows.get(id) != row
            rows[id] = row
    for edge in reversed(graph.edges):
        if edge.dashed:
            rows |= {edge.end: rows[edge.start]} if edge.end in rows else {}
    return rows


def _place_loose(graph: Picture, boxes: dict[str, _Box]) -> None:
    """Place the nodes outside of groups.

    They go above the middle of their readers, or else below the middle of their writers, moved right if others are in
    the way.
    """
    groups = {title: [boxes[id] for id in ids] for title, ids in graph.groups().items()}
    loose = [id for id, node in graph.nodes.items() if node.group is None]
    readers: dict[str, list[str]] = {id: [] for id in loose}
    writers: dict[str, list[str]] = {id: [] for id in loose}
    for edge in graph.edges:
        if edge.start in readers:
            readers[edge.start].append(edge.end)
        if edge.end in writers:
            writers[edge.end].append(edge.start)
    taken: dict[int, float] = {}
    middles = {id: _middle(readers[id] or writers[id], boxes) for id in loose}
    for id in sorted(loose, key=middles.__getitem__):
        last = max((box.row for each in writers[id] for box in groups[str(graph.nodes[each].group)]), default=0)
        row = 0 if readers[id] else last + 1
        width = _width(graph.nodes[id])
        x = max(middles[id] - width / 2, taken.get(row, _GAP))
        for group in groups.values():  # from left to right: a row may run through the block of another group
            x = _beside(group, row, x, width)
        taken[row] = x + width + _GAP
        boxes[id] = _Box(x, width, row)


def _beside(group: list[_Box], row: int, x: float, width: float) -> float:
    """Return `x`, or the right edge of `group` if a box would overlap it.

    The box has its left edge at `x` and the given width.
    """
    rows = [box.row for box in group]
    left, right = min(box.x for box in group) - _GAP, max(box.x + box.width for box in group) + _GAP
    lies_on_it = min(rows) <= row <= max(rows) and x < right and x + width > left
    return right if lies_on_it else x


def _width(node: Box) -> float:
    return len(node.label) * _CHARACTER + 2 * _PADDING


# ---------------------------------------- SVG


def svg(
    graph: Picture,
    figures: Mapping[str, Figure] = MappingProxyType({}),
    addresses: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return the drawing of `graph` as an SVG document.

    Pages can change its colours by the classes.

    Args:
        graph: the nodes and lines.
        figures: the figures of nodes by id, and of groups by title; without any, the shape of a node determines its
            colour.
        addresses: the links of nodes by id, and of groups by title.
    """
    boxes = graph.places
    width = max((box.x + box.width for box in boxes.values()), default=0) + 2 * _GAP
    height = max((box.y for box in boxes.values()), default=0) + _LINE + 2 * _GAP
    size = {"width": f"{width:.0f}", "height": f"{height:.0f}", "viewBox": f"0 0 {width:.0f} {height:.0f}"}
    root = Element(
        "svg", {"xmlns": "http://www.w3.org/2000/svg", **size, "font-family": "monospace", "font-size": "11"}
    )
    marker = SubElement(SubElement(root, "defs"), "marker", _ARROW)
    SubElement(marker, "path", {"d": "M0 0 L10 5 L0 10 z", "fill": "#555", **_class("arrow")})

    def linked(id: str) -> Element:
        return SubElement(root, "a", {"href": addresses[id]}) if id in addresses else root

    for title, ids in graph.groups().items():
        _draw_group(root, linked, title, [boxes[id] for id in ids], figures.get(title))
    frames = {title: _frame([boxes[id] for id in ids]) for title, ids in graph.groups().items()}
    lanes = {end: lane for lane, end in enumerate(dict.fromkeys(edge.end for edge in graph.edges))}
    for edge in graph.edges:
        group = graph.nodes[edge.start].group
        start, end = boxes[edge.start], boxes[edge.end]
        if group is not None and end.row == 0:
            line = _line_back(start, end, frames[group].right, lanes[edge.end] % _LANES)
        elif start.row == 0:
            title = str(graph.nodes[edge.end].group)
            line = _line_down(start, end, frames[title].left + _title_width(title, figures.get(title)))
        else:
            line = _line(start, end, edge.dashed)
        _draw_line(root, line, edge.dashed)
    for id, node in graph.nodes.items():
        drawn = linked(id)
        kind, colour = ("plain", _PLAIN) if figures else (node.shape.name.lower(), node.shape.colour)
        _draw_box(drawn, node, boxes[id], {"fill": colour, **_class(kind)})
        if id in figures and id != node.group:  # the figure of a folded group is next to its title
            _draw_figure(drawn, figures[id], node, boxes[id])
        _text(drawn, boxes[id].middle, boxes[id].y + _LINE / 2 + 4, node.label, _LABEL)
    return tostring(root, encoding="unicode") + "\n"


def _class(kind: str) -> dict[str, str]:
    return {"class": f"penstock-{kind}"}


_LABEL = {"text-anchor": "middle", **_class("label")}
_GROUP = {"fill": "#fafafa", "stroke": "#bbb", "rx": "6", **_class("group")}
_FIGURE_TEXT = {"fill": _FIGURE, **_class("figure")}
_ARROW = {
    "id": "arrow",
    "viewBox": "0 0 10 10",
    "refX": "10",
    "refY": "5",
    "markerWidth": "7",
    "markerHeight": "7",
    "orient": "auto",
}


class _Frame(NamedTuple):
    """The edges of a group."""

    left: float
    top: float
    right: float
    bottom: float


def _frame(boxes: list[_Box]) -> _Frame:
    """Return the frame around the nodes of a group.

    It has space for the title above the figures of the nodes.
    """
    return _Frame(
        min(box.x for box in boxes) - _PADDING,
        min(box.y for box in boxes) - 2.5 * _PADDING,
        max(box.x + box.width for box in boxes) + _PADDING,
        max(box.y for box in boxes) + _LINE + _PADDING,
    )


def _draw_group(
    root: Element, linked: Callable[[str], Element], title: str, boxes: list[_Box], figure: Figure | None
) -> None:
    left, top, right, bottom = _frame(boxes)
    _rectangle(root, left, top, right - left, bottom - top, _GROUP)
    if figure is not None:
        style = {"fill": _STRONG, "fill-opacity": f"{_GROUP_OPACITY * figure.share:.2f}", "rx": "6"}
        _rectangle(root, left, top, right - left, bottom - top, style)
    style = {"fill": "#777", **_class("title")} if figure is None else _FIGURE_TEXT
    _text(linked(title), left + 6, top + 12, _shown_title(title, figure), style)


def _shown_title(title: str, figure: Figure | None) -> str:
    return title if figure is None else f"{title}: {figure.text}"


def _title_width(title: str, figure: Figure | None) -> float:
    """Return the width of a title, including the space at both ends."""
    return 2 * 6 + len(_shown_title(title, figure)) * _CHARACTER


def _line(start: _Box, end: _Box, dashed: bool) -> str:
    """Return the line between two nodes of a group, or to a node below it."""
    if dashed and start.row == end.row:
        return f"M{start.x + start.width:.1f} {start.y + _LINE / 2:.1f} H{end.x:.1f}"
    top, bottom = start.y + _LINE, end.y
    bend = (top + bottom) / 2
    curve = f"C{start.middle:.1f} {bend:.1f} {end.middle:.1f} {bend:.1f} {end.middle:.1f} {bottom:.1f}"
    return f"M{start.middle:.1f} {top:.1f} {curve}"


def _line_down(start: _Box, end: _Box, after_title: float) -> str:
    """Return the line from a node of the first row into a group.

    It runs between the row and the frames, and past the title.
    """
    top = start.y + _LINE
    x = max(end.middle, min(after_title, end.x + end.width - _PADDING))
    return f"M{start.middle:.1f} {top:.1f} V{top + _PADDING / 2 - 1:.1f} H{x:.1f} V{end.y:.1f}"


def _line_back(start: _Box, end: _Box, right: float, lane: int) -> str:
    """Return the line from a node up to a node of the first row.

    It runs along the group's edge `right`, then above the row.
    """
    shift = (1 + lane) * _GAP / (1 + _LANES)
    down, beside, above = start.y + _LINE + _PADDING / 2, right + shift, shift
    out = f"M{start.middle:.1f} {start.y + _LINE:.1f} V{down:.1f} H{beside:.1f} V{above:.1f}"
    return f"{out} H{end.middle:.1f} V{end.y:.1f}"


def _draw_line(root: Element, line: str, dashed: bool) -> None:
    style = {"fill": "none", "stroke": "#555", **_class("line")}
    style |= {"stroke-dasharray": "4 3"} if dashed else {"marker-end": "url(#arrow)"}
    SubElement(root, "path", {"d": line, **style})


def _draw_figure(root: Element, figure: Figure, node: Box, box: _Box) -> None:
    """Draw a figure above a node's corner, and colour the node by its share."""
    style = {"fill": _STRONG, "fill-opacity": f"{_NODE_OPACITY * figure.share:.2f}", "rx": str(node.shape.radius)}
    _rectangle(root, box.x, box.y, box.width, _LINE, style)
    _text(root, box.x + box.width, box.y - 4, figure.text, {"text-anchor": "end", **_FIGURE_TEXT})


def _draw_box(root: Element, node: Box, box: _Box, style: dict[str, str]) -> None:
    style = {"stroke": "#555", "rx": str(node.shape.radius), **style}
    _rectangle(root, box.x, box.y, box.width, _LINE, style)


def _rectangle(root: Element, x: float, y: float, width: float, height: float, style: dict[str, str]) -> None:
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "width": f"{width:.1f}", "height": f"{height:.1f}"}
    SubElement(root, "rect", place | style)


def _text(root: Element, x: float, y: float, text: str, style: dict[str, str]) -> None:
    SubElement(root, "text", {"x": f"{x:.1f}", "y": f"{y:.1f}", **style}).text = xml_text(text)
