"""The place of `default.value.serde` within another serde."""

from __future__ import annotations

from typing import Any

from penstock.serdes.api import Serde, inner_serde


class DefaultValueSerde(Serde[Any]):
    """Represents `default.value.serde` until a task knows the configuration."""

    def with_defaults(self, key_serde: Serde | None, value_serde: Serde | None) -> Serde:
        """Return the default; raises ConfigError without one."""
        return inner_serde(value_serde, "value").with_defaults(key_serde, value_serde)
