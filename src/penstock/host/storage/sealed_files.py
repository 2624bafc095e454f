"""Small files that end with a line with a digest of their content.

A flipped bit or a torn file is detected before the content is used; the files are read completely. The functions are
pure, over bytes.
"""

from __future__ import annotations

from hashlib import blake2b

_MARK = b"\nblake2b "
_DIGEST_BYTES = 16
_TRAILER_BYTES = len(_MARK) + 2 * _DIGEST_BYTES + 1


def sealed(content: bytes) -> bytes:
    """Return `content` as a file for `unsealed`."""
    return content + _MARK + digest_of(content).encode() + b"\n"


def unsealed(data: bytes) -> bytes | None:
    """Return the content of a file of `sealed`, None if it is torn or changed."""
    content, trailer = data[:-_TRAILER_BYTES], data[-_TRAILER_BYTES:]
    return content if trailer == _MARK + digest_of(content).encode() + b"\n" else None


def is_sealed(data: bytes) -> bool:
    """Return whether a file looks like one of `sealed`, intact or not."""
    return _MARK in data[-2 * _TRAILER_BYTES :]


def digest_of(content: bytes) -> str:
    """Return the digest of `content`, hexadecimal."""
    return blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()
