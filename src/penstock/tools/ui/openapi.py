"""The OpenAPI 3.1 description of all addresses that answer in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

import penstock
from penstock.tools.ui.schema import ADDRESSES, Address, Failure


@cache
def document() -> dict[str, Any]:
    """Return the description; its schemas are in JSON Schema."""
    types = [*dict.fromkeys(kind for each in ADDRESSES.values() for kind in (each.answer, each.unavailable, Failure))]
    references, schemas = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    of = dict(zip(types, references, strict=True))
    return {
        "openapi": "3.1.0",
        "info": {"title": "An application of Penstock", "version": penstock.__version__},
        "paths": {path: {address.method: _operation(path, address, of)} for path, address in ADDRESSES.items()},
        "components": {"schemas": schemas},
    }


def _operation(path: str, address: Address, schemas: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the description of an address; schemas: by type."""
    placed = [name.partition("}")[0] for name in path.split("{")[1:]]
    given = [
        *({"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in placed),
        *(
            {"name": name, "in": "query", "description": what, "schema": {"type": "string"}}
            for name, what in address.parameters.items()
        ),
    ]
    return {
        "summary": address.what,
        "parameters": given,
        "responses": {
            "2XX": _response("The answer.", schemas[address.answer]),
            "503": _response("Why not now.", schemas[address.unavailable]),
            "default": _response("Why there is none.", schemas[Failure]),
        },
    }


def _response(description: str, schema: Any) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}
