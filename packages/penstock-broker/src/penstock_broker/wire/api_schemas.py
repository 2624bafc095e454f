"""The schemas of an API's requests and responses, by its key.

Their modules are loaded on first use. schemas/ has the schemas, schema.py their format.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from penstock_broker.wire.schema import MessageSchema
from penstock_broker.wire.schemas.index import API_MODULES


def request_schema(key: int) -> MessageSchema:
    """Return the schema of the requests of an API."""
    schema: MessageSchema = _module(key).REQUEST
    return schema


def response_schema(key: int) -> MessageSchema:
    """Return the schema of the responses of an API."""
    schema: MessageSchema = _module(key).RESPONSE
    return schema


def _module(key: int) -> ModuleType:
    return importlib.import_module(f"penstock_broker.wire.schemas.{API_MODULES[key]}")
