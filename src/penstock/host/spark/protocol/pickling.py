"""What descriptions that earlier versions left in checkpoints find by this name; it is in `host/pickling`."""

from penstock.host.packing.pickling import _fill, _with_cache

__all__ = ["_fill", "_with_cache"]
