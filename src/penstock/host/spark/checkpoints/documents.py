"""The small files of a checkpoint that are read as a whole (metadata, manifests, offsets, descriptions): content, and a
last line with a digest of it, so that a flipped bit or a torn file is noticed before the content is used.

Pure functions over bytes. Checkpoints of format 2 and older have no such line; who reads them checks the format that
their content names.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import orjson

from penstock.errors import TaskCorruptedError

_MARK = b"\nblake2b "
_DIGEST_BYTES = 16
_TRAILER_BYTES = len(_MARK) + 2 * _DIGEST_BYTES + 1


def sealed(content: bytes) -> bytes:
    """Return `content` as a file that `unsealed` can check."""
    return content + _MARK + digest_of(content).encode() + b"\n"


def unsealed(data: bytes, name: str) -> bytes:
    """Return the content of a file that `sealed` made; raises TaskCorruptedError, which names the file `name`, where it
    is damaged."""
    content, trailer = data[:-_TRAILER_BYTES], data[-_TRAILER_BYTES:]
    if trailer != _MARK + digest_of(content).encode() + b"\n":
        raise damaged(name, "it is torn or was changed: its content does not match the digest in its last line")
    return content


def is_sealed(data: bytes) -> bool:
    """Return whether a file looks like one that `sealed` made, whole or not: only files of old formats do not."""
    return _MARK in data[-2 * _TRAILER_BYTES :]


def parsed(content: bytes, name: str) -> dict[str, Any]:
    """Return the JSON object that is the content of the file `name`; raises TaskCorruptedError if there is none."""
    try:
        fields = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise damaged(name, f"it is not JSON ({error})") from error
    if not isinstance(fields, dict):
        raise damaged(name, "it is not a JSON object")
    return fields


def digest_of(content: bytes) -> str:
    """Return the digest of some content, in hexadecimal digits."""
    return blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()


def damaged(name: str, why: str) -> TaskCorruptedError:
    """Return the error for the damaged or missing file `name`, with the ways out."""
    return TaskCorruptedError(
        f"The checkpoint file {name} cannot be used: {why}. Restore the whole checkpoint directory from one copy, or a "
        "savepoint (penstock savepoint restore), or start over without its state (penstock reset). Nothing was changed."
    )
