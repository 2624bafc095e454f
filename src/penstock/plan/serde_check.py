"""The serdes of a topology's nodes and stores under a configuration.

Before any record is processed, errors report missing serdes, with the node, its topic or store and the line of the
program. They also report joins of keys that are never equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.config import StreamsConfig
from penstock.errors import ConfigError, StreamsError, TopologyError
from penstock.plan.subtopology import (
    BuiltTopology,
    DeadLetterSinkSpec,
    ProcessorSpec,
    SinkSpec,
    SourceSpec,
    SubtopologySpec,
)
from penstock.plan.user_lines import made_at
from penstock.serdes import Serde
from penstock.serdes.api import missing_serde
from penstock.serdes.format import read_type
from penstock.state.build import store_serde
from penstock.state.custom import CustomStoreSupplier
from penstock.windows import Windowed

_PARTS: Final = ("key", "value")


def check_serdes(built: BuiltTopology, config: StreamsConfig) -> None:
    """Check the serdes of all sources, sinks and stores of `built`.

    Raises StreamsError if a source or a sink has no serde, ConfigError if a store has no serde, and TopologyError if
    records would meet with keys of types that are never equal.
    """
    config = config.overridden(built.config_overrides)
    parts = built.subtopologies if built.global_topology is None else (*built.subtopologies, built.global_topology)
    for subtopology in parts:
        for node in subtopology.nodes:
            if not isinstance(node, ProcessorSpec):
                for part in _PARTS:
                    node_serde(node, part, config, built.node_lines)
        _check_stores(subtopology, config, built.store_lines)
    _check_keys_meet(built, config)


def check_serdes_are_shared(built: BuiltTopology, config: StreamsConfig, processes: str) -> None:
    """Raise StreamsError if a source, a sink or a store has a serde that only one process can read.

    processes: says by which key of the configuration several processes run the tasks.
    """
    config = config.overridden(built.config_overrides)
    parts = built.subtopologies if built.global_topology is None else (*built.subtopologies, built.global_topology)
    for subtopology in parts:
        for node in subtopology.nodes:
            if not isinstance(node, ProcessorSpec):
                for part in _PARTS:
                    made = made_at(built.node_lines.get(node.name))
                    _check_shared(
                        node_serde(node, part, config), f"{node.name}, which {_does(node)}{made}", part, processes
                    )
        for name, builder in subtopology.stores.items():
            if not isinstance(builder.supplier, CustomStoreSupplier):
                for part in _PARTS:
                    made = made_at(built.store_lines.get(name))
                    _check_shared(store_serde(builder, part, config), f"Store {name}{made}", part, processes)


def _check_shared(serde: Serde, user: str, part: str, processes: str) -> None:
    if serde.is_of_one_process:
        raise StreamsError(
            f"{user}, has a {type(serde).__name__} for {part}s whose schema registry is in the memory of one process "
            f"(mock://), but {processes}, so what one process writes would be unreadable in the others. Use a registry "
            "that they share: `penstock broker --schema-registry` serves one at http://127.0.0.1:8081."
        )


def node_serde(
    node: SourceSpec | SinkSpec, part: str, config: StreamsConfig, lines: Mapping[str, str] | None = None
) -> Serde:
    """Return the serde of `node` for its keys or values; raises StreamsError without one.

    Args:
        node: a source or a sink.
        part: "key" or "value".
        config: the configuration with the default serdes.
        lines: the program lines of the nodes, by name, for the message.
    """
    kind = "source" if isinstance(node, SourceSpec) else "sink"
    own = node.key_serde if part == "key" else node.value_serde
    serde: Serde | None = config[f"default.{part}.serde"] if own is None else own
    try:
        if serde is None:
            raise missing_serde(part)
        return serde.with_defaults(config["default.key.serde"], config["default.value.serde"])
    except ConfigError as missing:
        failure = StreamsError(f"Failed to initialize {part} serdes for {kind} node {node.name}")
        failure.add_note(
            f"{node.name}, which {_does(node)}{made_at((lines or {}).get(node.name))}, has no serde for {part}s: "
            f"name one{_where(node)}, such as {part}_serde=Serdes.string() in {_options(node)}, or set "
            f"default.{part}.serde."
        )
        raise failure from missing


def _check_keys_meet(built: BuiltTopology, config: StreamsConfig) -> None:
    """Raise TopologyError if sources whose records meet read keys that are never equal.

    The types of the keys determine that. Operators check the serdes that they know; this check includes those of the
    configuration.
    """
    sources = [node for part in built.subtopologies for node in part.nodes if isinstance(node, SourceSpec)]
    for group in built.copartition_groups:
        known: tuple[SourceSpec, type] | None = None
        for node in sources:
            if group.isdisjoint(node.topics):
                continue
            keys = read_type(node_serde(node, "key", config))
            # An operator below may put keys into windows, or take them out, without another topic.
            if keys is None or keys is Windowed:
                continue
            if known is None:
                known = node, keys
            elif not (issubclass(keys, known[1]) or issubclass(known[1], keys)):
                one, two = (_keys_of(*each, built.node_lines) for each in (known, (node, keys)))
                raise TopologyError(
                    f"{one}, and {two}, so no records would meet. Name the serde of the keys where one is read, "
                    f"such as key_serde=Serdes.string() in {_options(node)}, correct default.key.serde, or convert the "
                    "keys of one side first, such as with select_key."
                )


def _keys_of(node: SourceSpec, keys: type, lines: Mapping[str, str]) -> str:
    serde = "default.key.serde" if node.key_serde is None else "its own serde"
    made = made_at(lines.get(node.name))
    return f"{node.name}, which {_does(node)}{made}, has keys of type {keys.__name__} by {serde}"


def _check_stores(subtopology: SubtopologySpec, config: StreamsConfig, lines: Mapping[str, str]) -> None:
    for name, builder in subtopology.stores.items():
        if isinstance(builder.supplier, CustomStoreSupplier):  # it has its own serdes
            continue
        for part in _PARTS:
            try:
                store_serde(builder, part, config)
            except ConfigError as error:
                users = ", ".join(
                    node.name for node in subtopology.nodes if isinstance(node, ProcessorSpec) and name in node.stores
                )
                error.add_note(f"Store {name!r} belongs to {users}{made_at(lines.get(name))}.")
                raise


def _options(node: SourceSpec | SinkSpec) -> str:
    """Return the classes of options that may have the serdes of `node`."""
    if isinstance(node, DeadLetterSinkSpec):
        return "the Calls or the Park"
    if node.repartition:
        return "Grouped, Joined, StreamJoined, Deduplicated or Repartitioned"
    return "Consumed" if isinstance(node, SourceSpec) else "Produced"


def _where(node: SourceSpec | SinkSpec) -> str:
    """Return the place of the options with the serdes of `node`."""
    return f" at {', '.join(node.parents)}" if isinstance(node, DeadLetterSinkSpec) else " there"


def _does(node: SourceSpec | SinkSpec) -> str:
    if isinstance(node, SinkSpec):
        return "writes to the topics that a function names" if node.topic is None else f"writes to topic {node.topic}"
    if node.pattern is not None:
        return f"reads the topics that match {node.pattern.pattern}"
    return f"reads topic {', '.join(node.topics)}"
