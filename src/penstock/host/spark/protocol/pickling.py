"""The former name of `host/packing/pickling.py`, for descriptions that earlier versions left in checkpoints."""

from penstock.host.packing.pickling import _fill, _with_cache

__all__ = ["_fill", "_with_cache"]
