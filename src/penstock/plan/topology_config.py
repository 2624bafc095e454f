"""TopologyConfig: the configuration of a topology's construction, and of a single topology."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.config import StreamsConfig, current_names
from penstock.errors import ConfigError
from penstock.processor.wrapper import ProcessorWrapper

OVERRIDABLE = (
    "statestore.cache.max.bytes",
    "deserialization.exception.handler",
    "processing.exception.handler",
    "default.timestamp.extractor",
    "dsl.store.suppliers.class",
    "max.task.idle.ms",
    "penstock.topology.weight",
)
"""The keys that a topology may set for itself, also under their deprecated names."""


class TopologyConfig:
    """The configuration of a StreamsBuilder or a Topology (Kafka class: TopologyConfig).

    Without one, the configuration is unknown during construction: generated names are allowed
    (`ensure.explicit.internal.resource.naming`) and processors are not wrapped (`processor.wrapper.class`).

    Args:
        config: the configuration of the application.
        overrides: values that override it for this topology; keys of OVERRIDABLE.

    Raises:
        ConfigError: a value is invalid, a key cannot be overridden, or the wrapper is not a ProcessorWrapper.
    """

    def __init__(
        self, config: StreamsConfig | Mapping[str, Any] | None = None, overrides: Mapping[str, Any] | None = None
    ) -> None:
        self.config = config if isinstance(config, StreamsConfig) else StreamsConfig(config)
        self.overrides = current_names(overrides or {})
        wrong = sorted(set(self.overrides) - set(OVERRIDABLE))
        if wrong:
            raise ConfigError(
                f"Configuration {wrong[0]!r} cannot be set for one topology: expected one of {', '.join(OVERRIDABLE)}."
            )
        self.processor_wrapper = _wrapper(self.config)

    @property
    def ensure_explicit_names(self) -> bool:
        """Whether generated names of stores and internal topics are an error."""
        chosen: bool = self.config["ensure.explicit.internal.resource.naming"]
        return chosen


def _wrapper(config: StreamsConfig) -> ProcessorWrapper | None:
    given = config["processor.wrapper.class"]
    if given is None:
        return None
    wrapper = given() if isinstance(given, type) else given
    if not isinstance(wrapper, ProcessorWrapper):
        raise ConfigError(
            f"Invalid value {given!r} for configuration processor.wrapper.class: expected a ProcessorWrapper or its "
            "class."
        )
    wrapper.configure(config)
    return wrapper
