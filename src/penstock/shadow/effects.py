"""The operators of a topology with effects outside of Kafka, which a comparison would repeat."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from penstock.errors import StreamsError
from penstock.plan.subtopology import BuiltTopology, ProcessorSpec
from penstock.plan.user_lines import made_at
from penstock.processor.api import Processor
from penstock.processor.park import StreamPark
from penstock.processor.stateless import StreamForeach, StreamPeek, StreamPrint

_EFFECTS: Final[tuple[tuple[type[Processor], str], ...]] = (
    (StreamForeach, "runs an action for each record (foreach)"),
    (StreamPeek, "runs an action for each record (peek)"),
    (StreamPrint, "prints each record"),
)


class Effect(NamedTuple):
    """An operator with an effect. line: of the program that created it, None if unknown. what: the effect, in words."""

    node: str
    line: str | None
    what: str

    def __str__(self) -> str:
        return f"{self.node}{made_at(self.line)} {self.what}"


def effects_of(built: BuiltTopology) -> Iterator[Effect]:
    """Yield the operators with effects. Functions and processors of users may have further ones, which are unknown."""
    for part in built.subtopologies:
        calling = {calls.node for calls in part.answers_topics.values()}
        yield from (Effect(node, built.node_lines.get(node), "calls a service") for node in sorted(calling))
        for node in part.nodes:
            if isinstance(node, ProcessorSpec) and node.name not in calling:
                processor = node.supplier.get()
                operator = processor.operator if isinstance(processor, StreamPark) else processor
                for kind, what in _EFFECTS:
                    if isinstance(operator, kind):
                        yield Effect(node.name, built.node_lines.get(node.name), what)


def check_no_effects(version: str, built: BuiltTopology) -> None:
    """Raise StreamsError if a version has operators with effects.

    Args:
        version: its name, such as "old".
        built: its topology.
    """
    if effects := list(effects_of(built)):
        lines = "\n".join(f"  - {each}" for each in effects)
        raise StreamsError(
            f"The {version} version has effects outside of Kafka, which the comparison would repeat:\n{lines}\n"
            "Nothing was run. Leave these operators out, or allow their effects (--allow-effects, or "
            "ShadowOptions(allows_effects=True))."
        )
