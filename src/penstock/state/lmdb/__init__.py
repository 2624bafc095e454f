"""The base on disk: one LMDB environment a task; several processes of a machine may have it open, one writes at a time.
Only this package imports lmdb.

Rules:
- One database holds the entries of all stores, each key behind two bytes for its store; another holds the stamp, the
  numbers of the stores and how many entries each has. All of a commit is written in one transaction, the stamp with it.
- LMDB takes keys of 511 bytes. A key of more than 500 is kept as its first 480 bytes and a digest, with the whole key
  before the value; a range sorts entries that share those 480 bytes by their whole keys, so that order is always that
  of the bytes.
- All reads go through one read transaction, taken when first needed and given up by `apply` and `clear`: what was read
  is the state that `stamp` named. `apply` fails if another process has moved the base since.
- The map begins at 1 GiB of address space (not of disk) and doubles when it is full. It moves then, so snapshots that
  this process has taken of it end; those of other processes (`snapshot_of`) do not.
- Nothing is synced: a base is a copy, segments are the truth. Whether what is on the disk can be trusted is decided
  before it is opened (`base_directory`): LMDB has no checksums, and a damaged file may give wrong entries or end the
  process. What LMDB notices itself is a CorruptedBaseError; a file that it cannot open at all is replaced by an empty
  one.
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
