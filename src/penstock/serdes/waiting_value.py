"""The serde of the values in a store of waiting records.

The values are bytes already, and the serde only names the serde of the records' values within them.
"""

from __future__ import annotations

from penstock.serdes.api import Serde, or_default
from penstock.serdes.primitive import BytesSerde


class WaitingValueSerde(BytesSerde):
    """Converts such values.

    Args:
        inner: the serde of the records' values; None means the configured default.
    """

    def __init__(self, inner: Serde | None = None) -> None:
        self.inner = inner

    @property
    def inner_serdes(self) -> tuple[Serde | None, ...]:
        """The serde of the records' values."""
        return (self.inner,)

    def with_defaults(self, key_serde: Serde | None, value_serde: Serde | None) -> WaitingValueSerde:
        """Return this serde with the default value serde if it is missing."""
        return WaitingValueSerde(or_default(self.inner, value_serde, key_serde, value_serde))
