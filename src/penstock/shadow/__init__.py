"""Compares two versions of a program: both process the same input, and their outputs are kept apart.

The Python functions of the command `penstock shadow`. Each version runs as an application of its own, up to the same
end offsets; its outputs go to topics of its own, which are deleted afterwards. `compare` does not touch the running
application; `switch` hands it over to the changed version.
"""

from penstock.shadow.comparing import compare
from penstock.shadow.comparison import (
    Counts,
    Difference,
    ProgramPlace,
    Recorded,
    StoreComparison,
    TopicComparison,
    VersionComparison,
)
from penstock.shadow.pair import BEGINNING, NOW, ShadowOptions
from penstock.shadow.switching import SwitchCondition, SwitchOptions, SwitchResult, abort, switch

__all__ = [
    "BEGINNING",
    "NOW",
    "Counts",
    "Difference",
    "ProgramPlace",
    "Recorded",
    "ShadowOptions",
    "StoreComparison",
    "SwitchCondition",
    "SwitchOptions",
    "SwitchResult",
    "TopicComparison",
    "VersionComparison",
    "abort",
    "compare",
    "switch",
]
