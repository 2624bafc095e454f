"""The configuration keys for checks of the user's program."""

from __future__ import annotations

from typing import Final

from penstock.config.definition import ConfigKey, boolean, whole

CHECK_KEYS: Final = (
    ConfigKey(
        "ensure.explicit.internal.resource.naming",
        boolean,
        False,
        "high",
        "Refuse generated names of stores and internal topics; allowed in a TopologyConfig.",
    ),
    ConfigKey(
        "penstock.determinism.check.epochs",
        whole(0),
        0,
        "low",
        "Interval in epochs at which each task runs twice, to find functions that are not deterministic; 0: never.",
    ),
    ConfigKey(
        "penstock.read.dead.letters",
        boolean,
        False,
        "low",
        "Whether sources may read the topic of errors.dead.letter.queue.topic.name, to which this application writes.",
    ),
    ConfigKey(
        "penstock.warn.none.results",
        boolean,
        True,
        "low",
        "Whether the log names, once for each node, a function that returns None and has returned no value before, an "
        "initializer that returns one object for all keys, or a process() that returns something.",
    ),
)
"""The checks of the program beyond errors that are always detected."""
