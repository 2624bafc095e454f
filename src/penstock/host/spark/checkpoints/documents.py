"""The small files of a checkpoint: metadata, manifests, offsets, descriptions.

This module returns their content, or the error for a damaged file. Pure functions over bytes. Checkpoints of format 2
and older have no digest in their last line; their readers check the format that the content names.
"""

from __future__ import annotations

from typing import Any

import orjson

from penstock.errors import TaskCorruptedError
from penstock.host.storage import sealed_files


def unsealed(data: bytes, name: str) -> bytes:
    """Return the content of a file that `sealed_files.sealed` made.

    Raises TaskCorruptedError, which names the file `name`, if it is damaged.
    """
    content = sealed_files.unsealed(data)
    if content is None:
        raise damaged(name, "it is torn or was changed: its content does not match the digest in its last line")
    return content


def parsed(content: bytes, name: str) -> dict[str, Any]:
    """Return the JSON object in the file `name`; raises TaskCorruptedError for other content."""
    try:
        fields = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise damaged(name, f"it is not JSON ({error})") from error
    if not isinstance(fields, dict):
        raise damaged(name, "it is not a JSON object")
    return fields


def damaged(name: str, why: str) -> TaskCorruptedError:
    """Return the error for the damaged or missing file `name`, with the remedies."""
    return TaskCorruptedError(
        f"The checkpoint file {name} cannot be used: {why}. Restore the whole checkpoint directory from one copy, or a "
        "savepoint (penstock savepoint restore), or start over without its state (penstock reset). Nothing was changed."
    )
