"""Opens hosts by name: the one place where a module is imported by its name, so that nobody needs the packages of all.

`KafkaStreams` gives `penstock.host`; a host that is not installed is told by the name of what is missing.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from penstock.config import StreamsConfig
from penstock.errors import ConfigError
from penstock.host.api import Host, HostFactory
from penstock.plan.subtopology import BuiltTopology

_FACTORIES: Mapping[str, tuple[str, str]] = {"spark": ("penstock.host.spark.driver", "SparkHost")}
"""Name of the host -> module and class; called with the built topology, the configuration, session and until_end."""


def open_host(built: BuiltTopology, config: StreamsConfig, session: Any = None, until_end: bool = False) -> Host:
    """Return the host that `penstock.host` names, not yet started.

    Args:
        built: the topology to run.
        config: the application's configuration.
        session: a SparkSession to run in; None for one that the host makes and ends itself.
        until_end: stop by itself at the end that the inputs have when it starts.

    Raises:
        ConfigError: the host is unknown, or a package that it needs is not installed.
    """
    name = config["penstock.host"]
    if name not in _FACTORIES:
        raise ConfigError(f"Invalid value {name!r} for penstock.host: expected one of {', '.join(_FACTORIES)}.")
    module, attribute = _FACTORIES[name]
    try:
        factory: HostFactory = vars(importlib.import_module(module))[attribute]
    except ModuleNotFoundError as error:
        raise ConfigError(f"penstock.host={name} needs the package {error.name}, which is not installed.") from error
    return factory(built, config, session=session, until_end=until_end)
