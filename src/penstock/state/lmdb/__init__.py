"""The base on disk: one LMDB environment per task.

Several processes of a machine may open it; one writes at a time. Only this package imports lmdb.

Rules:
- One database holds the entries of all stores, each key with a prefix of two bytes for its store; another holds the
  stamp, the numbers of the stores and their entry counts. A commit is one transaction, including the stamp.
- LMDB limits keys to 511 bytes. A key of more than 500 is stored as its first 480 bytes and a digest, with the complete
  key before the value; a range sorts entries with the same 480 bytes by their complete keys, so the order is always
  bytewise.
- All reads share one read transaction, which begins with the first read and ends with `apply` and `clear`: they see the
  state of `stamp`. `apply` fails if another process has changed the base since.
- The map starts with 1 GiB of address space (not of disk) and doubles when it is full. That remaps it, so the snapshots
  of this process end; those of other processes (`snapshot_of`) do not.
- Writes are not synced: a base is a copy, segments are the source of truth. `base_directory` decides before a base is
  opened whether the file can be trusted: LMDB has no checksums, and a damaged file may return wrong entries or end the
  process. Damage that LMDB itself detects is a CorruptedBaseError; a file that it cannot open at all is replaced by an
  empty one.
- Open it after a fork, never before.
"""

from __future__ import annotations

from penstock.state.lmdb.base import LmdbBase
from penstock.state.lmdb.entries import LmdbEntries
from penstock.state.lmdb.environment import DATA_FILE, FIRST_MAP_BYTES
from penstock.state.lmdb.shared import SharedLmdb
from penstock.state.lmdb.snapshot import LmdbSnapshot, snapshot_of

__all__ = [
    "DATA_FILE",
    "FIRST_MAP_BYTES",
    "LmdbBase",
    "LmdbEntries",
    "LmdbSnapshot",
    "SharedLmdb",
    "snapshot_of",
]
