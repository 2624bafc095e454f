"""`penstock lineage FILE`: the origin of each output of a program, which runs nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer

from penstock.plan.lineage import DataFormat, SourceLineage, SubtopologyLineage, TopologyLineage, lineage_by_name
from penstock.tools.cli.clients import ProgramOptions
from penstock.tools.cli.common import AsJson, option_groups, out, print_json
from penstock.tools.cli.program import load_program
from penstock.tools.cli.run import File


@option_groups
def lineage(
    file: File,
    topology: Annotated[
        str | None, typer.Option("--topology", metavar="NAME", help="One of the named topologies of the program.")
    ] = None,
    as_json: AsJson = False,
    *,
    options: ProgramOptions,
) -> None:
    """Show the topics and stores from which each output of a program comes, with their fields."""
    program = load_program(file)
    config = program.configured(options.overrides())
    chosen = program.topologies if topology is None else {topology: program.topology_named(topology)}
    found = lineage_by_name(chosen, config)
    if as_json:
        parts = [{"name": name, **_as_data(each)} for name, each in found.items()]
        print_json({"application_id": config.required("application.id"), "topologies": parts})
        return
    for name, each in found.items():
        for line in ([f"Topology: {name}"] if name else []) + list(_lines(each)):
            out.print(line, markup=False)


# ---------------------------------------- text


def _lines(found: TopologyLineage) -> Iterator[str]:
    for part in found.subtopologies:
        yield from _lines_of_part(f"Sub-topology: {part.id}", part)
    if found.global_stores is not None:
        yield from _lines_of_part("Global stores", found.global_stores)
    if found.outputs:
        yield "Outputs"
    for output in found.outputs:
        yield f"  {output.topic} <-- {_names(output.inputs)}"


def _lines_of_part(title: str, part: SubtopologyLineage) -> Iterator[str]:
    yield title
    for source in part.sources:
        yield f"  reads {_names(source.inputs)}{_internal(source.internal)}"
        yield from _lines_of_data(source.key, source.value)
    for store in part.stores:
        changelog = "" if store.changelog is None else f", changelog {store.changelog}"
        yield f"  keeps {store.name} ({store.kind}{changelog}) <-- {_names(store.sources)}"
        yield from _lines_of_data(store.key, store.value)
    for sink in part.sinks:
        stores = f"; stores: {_names(sink.stores)}" if sink.stores else ""
        yield f"  writes {sink.output}{_internal(sink.internal)} <-- {_names(sink.sources)}{stores}"
        yield from _lines_of_data(sink.key, sink.value)


def _lines_of_data(key: DataFormat, value: DataFormat) -> Iterator[str]:
    yield f"    key: {_text(key)}"
    yield f"    value: {_text(value)}"


def _text(data: DataFormat) -> str:
    fields = ", ".join(f"{field.name}: {field.type}" for field in data.fields)
    return f"{data.name or 'no serde'}{f' ({fields})' if fields else ''}"


def _internal(internal: bool) -> str:
    return " (repartition topic)" if internal else ""


def _names(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


# ---------------------------------------- JSON


def _as_data(found: TopologyLineage) -> dict[str, Any]:
    shared = found.global_stores
    return {
        "subtopologies": [{"id": part.id, **_part_as_data(part)} for part in found.subtopologies],
        "global_stores": None if shared is None else _part_as_data(shared),
        "outputs": [{"topic": output.topic, "inputs": output.inputs} for output in found.outputs],
    }


def _part_as_data(part: SubtopologyLineage) -> dict[str, Any]:
    return {
        "sources": [_source_as_data(source) for source in part.sources],
        "stores": [
            {
                "name": store.name,
                "kind": store.kind,
                "changelog": store.changelog,
                "sources": store.sources,
                **_data(store.key, store.value),
            }
            for store in part.stores
        ],
        "sinks": [
            {
                "node": sink.node,
                "topic": sink.topic,
                "topic_name_extractor": sink.topic_name_extractor,
                "internal": sink.internal,
                "sources": sink.sources,
                "stores": sink.stores,
                **_data(sink.key, sink.value),
            }
            for sink in part.sinks
        ],
    }


def _source_as_data(source: SourceLineage) -> dict[str, Any]:
    return {
        "node": source.node,
        "topics": source.topics,
        "topic_pattern": source.topic_pattern,
        "internal": source.internal,
        **_data(source.key, source.value),
    }


def _data(key: DataFormat, value: DataFormat) -> dict[str, Any]:
    return {
        part: {"format": data.name, "fields": [field._asdict() for field in data.fields]}
        for part, data in (("key", key), ("value", value))
    }
