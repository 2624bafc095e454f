"""The datasets of OpenLineage of a topology: the topics that it reads and writes, and its stores.

Topics have the names of OpenLineage's specification, the same as in other integrations. A store has a name of its own,
since only some hosts and stores have a changelog topic; that topic is a symlink. Repartition topics are left out, as
are topics that a function chooses for each record. Keys and values are two columns, with their fields nested.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.facet_v2 import (
    DatasetFacet,
    dataset_type_dataset,
    lineage,
    schema_dataset,
    symlinks_dataset,
)

from penstock import __version__
from penstock.config import StreamsConfig
from penstock.config.definition import THREADS
from penstock.extras import DISTRIBUTION
from penstock.plan.lineage import DataFormat, StoreLineage, TopologyLineage

PRODUCER: Final = f"pkg:pypi/{DISTRIBUTION}@{__version__}"
"""The URI of this version of Penstock, as a package URL."""

_DEFAULT_PORT: Final = 9092


@dataclass(frozen=True)
class DatasetNames:
    """The names of an application's datasets.

    Args:
        brokers: `host:port` of the first of bootstrap.servers.
        application_id: of the application.
        has_changelogs: whether the host writes changelog topics.
    """

    brokers: str
    application_id: str
    has_changelogs: bool

    @staticmethod
    def of(config: StreamsConfig) -> DatasetNames:
        """Return the names of the application with the configuration `config`."""
        first = str(config.required("bootstrap.servers")).split(",")[0].strip().rpartition("//")[2]
        brokers = first if re.search(r":\d+$", first) else f"{first}:{_DEFAULT_PORT}"
        has_changelogs = config["penstock.host"] == THREADS or config["penstock.changelog.topics"]
        return DatasetNames(brokers, config.required("application.id"), has_changelogs)

    @property
    def topics(self) -> str:
        """The namespace of topics."""
        return f"kafka://{self.brokers}"

    @property
    def stores(self) -> str:
        """The namespace of the stores of this application."""
        return f"penstock://{self.brokers}/{self.application_id}"


class Datasets:
    """The inputs and outputs of an application.

    Args:
        lineages: of its topologies.
        matched: the known topics of its tasks, for sources with a pattern.
        names: of the datasets.
    """

    def __init__(self, lineages: Iterable[TopologyLineage], matched: Collection[str], names: DatasetNames) -> None:
        self._lineages = tuple(lineages)
        sources = [source for each in self._lineages for part in each.parts for source in part.sources]
        self._matched = set(matched).difference(*(source.topics for source in sources if source.internal))
        self._names = names

    def inputs(self) -> list[InputDataset]:
        """Return the topics of others that the application reads, each once."""
        found: dict[str, InputDataset] = {}
        for source in (source for each in self._lineages for part in each.parts for source in part.sources):
            for topic in () if source.internal else self._topics(source.inputs):
                facets = {**_type("TOPIC"), **_schema(source.key, source.value)}
                found.setdefault(topic, InputDataset(self._names.topics, topic, facets=facets))
        return list(found.values())

    def outputs(self) -> list[OutputDataset]:
        """Return the topics that the application writes for others, each once, and its stores."""
        found: dict[str, OutputDataset] = {}
        stores = []
        for each in self._lineages:
            origins = {output.topic: output.inputs for output in each.outputs}
            for part in each.parts:
                for sink in part.sinks:
                    if sink.topic is not None and not sink.internal:
                        facets = {
                            **_type("TOPIC"),
                            **_schema(sink.key, sink.value),
                            **self._origin(origins[sink.topic]),
                        }
                        found.setdefault(sink.topic, OutputDataset(self._names.topics, sink.topic, facets=facets))
                stores += [self._store(store, each.origin(store.sources)) for store in part.stores]
        return [*found.values(), *stores]

    def _store(self, store: StoreLineage, origin: Iterable[str]) -> OutputDataset:
        facets = {**_type("STATE_STORE", store.kind), **_schema(store.key, store.value), **self._origin(origin)}
        if self._names.has_changelogs and store.changelog is not None:
            topic = symlinks_dataset.Identifier(self._names.topics, store.changelog, "TOPIC")
            facets["symlinks"] = symlinks_dataset.SymlinksDatasetFacet([topic], producer=PRODUCER)
        return OutputDataset(self._names.stores, store.name, facets=facets)

    def _origin(self, names: Iterable[str]) -> dict[str, DatasetFacet]:
        """Return the facet with the topics from which a dataset comes."""
        topics = dict.fromkeys(self._topics(names))
        inputs: list[lineage.LineageInput] = [
            lineage.LineageDatasetInput(self._names.topics, topic, "DATASET") for topic in topics
        ]
        return {"lineage": lineage.LineageDatasetFacet(inputs, producer=PRODUCER)} if inputs else {}

    def _topics(self, names: Iterable[str]) -> Iterator[str]:
        """Yield the topics of a source, or of sources: names as they are, and all matches of patterns."""
        patterns = {source.topic_pattern for each in self._lineages for part in each.parts for source in part.sources}
        for name in names:
            if name in patterns:
                yield from sorted(topic for topic in self._matched if re.fullmatch(name, topic))
            else:
                yield name


def _type(name: str, subtype: str | None = None) -> dict[str, DatasetFacet]:
    return {"datasetType": dataset_type_dataset.DatasetTypeDatasetFacet(name, subtype, producer=PRODUCER)}


def _schema(key: DataFormat, value: DataFormat) -> dict[str, DatasetFacet]:
    """Return the facet with the columns `key` and `value`; empty without serdes."""
    parts = [("key", key), ("value", value)]
    fields = [_column(name, data) for name, data in parts if data.name is not None]
    return {"schema": schema_dataset.SchemaDatasetFacet(fields, producer=PRODUCER)} if fields else {}


def _column(name: str, data: DataFormat) -> schema_dataset.SchemaDatasetFacetFields:
    nested = [schema_dataset.SchemaDatasetFacetFields(field.name, field.type) for field in data.fields]
    return schema_dataset.SchemaDatasetFacetFields(name, data.name, fields=nested)
