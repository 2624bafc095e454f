"""Where the source of both distributions is, for processes that tests start."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]

SOURCES: Final = os.pathsep.join(str(project / "src") for project in (ROOT, ROOT / "packages" / "penstock-broker"))
"""The part of PYTHONPATH that has `penstock` and `penstock_broker`."""
