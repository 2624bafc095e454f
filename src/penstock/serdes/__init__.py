"""Serdes: how keys and values become bytes and come back."""

from penstock.serdes.api import Serde
from penstock.serdes.json import JsonSerde
from penstock.serdes.primitive import (
    BytesSerde,
    DoubleSerde,
    IntegerSerde,
    LongSerde,
    Serdes,
    StringSerde,
)

__all__ = ["BytesSerde", "DoubleSerde", "IntegerSerde", "JsonSerde", "LongSerde", "Serde", "Serdes", "StringSerde"]
