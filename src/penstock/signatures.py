"""The parameters of users' functions. Annotations stay unread: they may be names that exist for type checkers only."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

if sys.version_info >= (3, 14):
    from annotationlib import Format


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature of `function`, None for a built-in that has none."""
    try:
        if sys.version_info >= (3, 14):  # where annotations are evaluated when they are read (PEP 649)
            return inspect.signature(function, annotation_format=Format.FORWARDREF)
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None
