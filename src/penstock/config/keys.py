"""The configuration keys: one row per key, with type, default, importance and one line of documentation.

Keys of Kafka keep their names; Penstock's own begin with `penstock.`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.config.definition import ConfigKey
from penstock.config.kafka_keys import KAFKA_KEYS
from penstock.config.penstock_keys import PENSTOCK_KEYS

KEYS: Final[Mapping[str, ConfigKey]] = {key.name: key for key in (*KAFKA_KEYS, *PENSTOCK_KEYS)}
"""All keys with a row, by name."""
