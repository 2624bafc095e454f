"""Serdes: conversion of keys and values to bytes and back."""

from penstock.serdes.api import Serde
from penstock.serdes.factory import Serdes, WrapperSerde, serde_of_type
from penstock.serdes.json import JsonSerde, PydanticSerde, TypedJsonSerde
from penstock.serdes.list import ListSerde
from penstock.serdes.message_pack import MessagePackSerde, PydanticMessagePackSerde
from penstock.serdes.primitive import (
    BooleanSerde,
    ByteBufferSerde,
    BytesSerde,
    DoubleSerde,
    FloatSerde,
    IntegerSerde,
    LongSerde,
    ShortSerde,
    StringSerde,
    UUIDSerde,
    VoidSerde,
)

__all__ = [
    "BooleanSerde",
    "ByteBufferSerde",
    "BytesSerde",
    "DoubleSerde",
    "FloatSerde",
    "IntegerSerde",
    "JsonSerde",
    "ListSerde",
    "LongSerde",
    "MessagePackSerde",
    "PydanticMessagePackSerde",
    "PydanticSerde",
    "Serde",
    "Serdes",
    "ShortSerde",
    "StringSerde",
    "TypedJsonSerde",
    "UUIDSerde",
    "VoidSerde",
    "WrapperSerde",
    "serde_of_type",
]
