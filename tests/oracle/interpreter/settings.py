"""The `config` of a case as Penstock's configuration, and the fields of a case that are built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.oracle.interpreter.functions import TIMESTAMP_EXTRACTORS
from tests.oracle.interpreter.handlers import DESERIALIZATION_HANDLERS, PROCESSING_HANDLERS, PRODUCTION_HANDLERS
from tests.oracle.interpreter.serdes import SERDES
from tests.oracle.interpreter.vocabulary import PLAIN, Reader

APPLICATION_ID = "oracle"

# Keys of a case -> (key of the configuration, reader). `emit_interval_ms` is 0 where it is absent.
_KEYS: Mapping[str, tuple[str, Reader]] = {
    "default.key.serde": ("default.key.serde", SERDES),
    "default.value.serde": ("default.value.serde", SERDES),
    "default.timestamp.extractor": ("default.timestamp.extractor", TIMESTAMP_EXTRACTORS),
    "deserialization.exception.handler": ("deserialization.exception.handler", DESERIALIZATION_HANDLERS),
    "processing.exception.handler": ("processing.exception.handler", PROCESSING_HANDLERS),
    "production.exception.handler": ("production.exception.handler", PRODUCTION_HANDLERS),
    "errors.dead.letter.queue.topic.name": ("errors.dead.letter.queue.topic.name", PLAIN),
    "ensure.explicit.internal.resource.naming": ("ensure.explicit.internal.resource.naming", PLAIN),
    "dsl.store.format": ("dsl.store.format", PLAIN),
    "dsl.store.suppliers.class": ("dsl.store.suppliers.class", PLAIN),
    "emit_interval_ms": ("penstock.emit.interval.ms", PLAIN),
    "statestore.cache.max.bytes": ("statestore.cache.max.bytes", PLAIN),
    "topology.optimization": ("topology.optimization", PLAIN),
    "upgrade.from": ("upgrade.from", PLAIN),
}

_CASE_FIELDS = {
    "id",
    "family",
    "note",
    "config",
    "initial_wall_clock_ms",
    "size_dependent",
    "kafka_fault",
    "topology_config",
    "inputs",
    "outputs",
    "topology",
    "steps",
    "expected",
    "may_fail",  # left by the generator of random cases
}


def missing(case: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the fields, settings and serdes of a case ask for that is not built."""
    yield from (f"case({name})" for name in case if name not in _CASE_FIELDS)
    for key, value in case.get("config", {}).items():
        if key not in _KEYS:
            yield f"config {key}"
        else:
            yield from _KEYS[key][1].missing(value)
    for topics in (case.get("inputs", {}), case.get("outputs", {})):
        for serdes in topics.values():
            for serde in serdes:
                yield from SERDES.missing(serde)


def configuration(case: Mapping[str, Any], execution: str) -> dict[str, Any]:
    """Return the configuration of a case, run in the `execution` auto or record."""
    result: dict[str, Any] = {
        "application.id": APPLICATION_ID,
        "penstock.execution": execution,
        "penstock.emit.interval.ms": 0,
    }
    for key, value in case.get("config", {}).items():
        name, reader = _KEYS[key]
        result[name] = reader.read(value)
    return result
