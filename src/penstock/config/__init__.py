"""The configuration of an application: `streams_config` reads and validates values, `keys` defines them."""

from __future__ import annotations

from penstock.config.streams_config import (
    FORMER_NAMES,
    StreamsConfig,
    current_names,
    did_you_mean,
    environment_name,
    keys_of,
    redacted,
    warn_of_keys_without_effect,
    warn_without_effect,
)

__all__ = [
    "FORMER_NAMES",
    "StreamsConfig",
    "current_names",
    "did_you_mean",
    "environment_name",
    "keys_of",
    "redacted",
    "warn_of_keys_without_effect",
    "warn_without_effect",
]
