"""Park: records on which a function fails wait for another attempt, and with them later ones of their keys.

Immutable: `with_...` returns a changed copy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.dsl.arguments import check_number, check_serdes, inherited
from penstock.plan import nodes
from penstock.plan.internal_topics import check_topic_name
from penstock.plan.names import check_name
from penstock.processor.backoff import Backoff
from penstock.processor.park import ParkRules
from penstock.serdes import Serde
from penstock.serdes.sequenced_key import SequencedKeySerde
from penstock.serdes.waiting_value import WaitingValueSerde
from penstock.state.api import StoreBuilder
from penstock.state.suppliers import KeyValueBytesStoreSupplier

STORE_SUFFIX = "-parked"
"""The end of the name of a store that is named after its operator."""


@dataclass(frozen=True, kw_only=True)
class Park:
    """Parks the records on which the function of an operator raises, for `on_error` (no Kafka class).

    Such a record waits in a store of the operator, and so do all later records of its key, in order; records of other
    keys go on. After the backoff, the function is called again. If it returns, its results have the timestamp, headers
    and context of the record, and the next record of the key has its turn at once.

    Args:
        backoff: the waits between the attempts.
        attempts: maximum number of attempts for a record, including the first.
        then: an existing topic for the records that fail each time, as dead letters; None leaves them to
            `processing.exception.handler`.
        max_records: maximum number of records in the store of a task. Beyond, errors go to
            `processing.exception.handler`.
        max_bytes: size in bytes from which on the store of a task takes no more records.
        key_serde: of the records' keys in the store; None for the stream's.
        value_serde: of the records' values in the store; None for the stream's.
        store_name: the name of the store; None for that of the operator with the suffix "-parked".

    Raises:
        TypeError: an argument has another type.
        ValueError: a number is below 1.
        TopologyError: a name is illegal.
    """

    backoff: Backoff
    attempts: int
    then: str | None = None
    max_records: int = 10_000
    max_bytes: int = 67_108_864
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    store_name: str | None = None

    def __post_init__(self) -> None:
        check_serdes(self, "key_serde", "value_serde", made_by="")
        if not isinstance(self.backoff, Backoff):
            raise TypeError(
                f"Expected a Backoff for Park, got {self.backoff!r}: write Backoff(timedelta(seconds=1)), for example."
            )
        for name in ("attempts", "max_records", "max_bytes"):
            check_number(f"{name} of Park", getattr(self, name))
        if self.then is not None:
            if not isinstance(self.then, str):
                raise TypeError(f"Expected the name of a topic for then of Park, got {self.then!r}.")
            check_topic_name(self.then)
        if self.store_name is not None:
            check_name(self.store_name)

    def with_key_serde(self, key_serde: Serde | None) -> Park:
        """Return a copy with this key serde."""
        return replace(self, key_serde=key_serde)

    def with_value_serde(self, value_serde: Serde | None) -> Park:
        """Return a copy with this value serde."""
        return replace(self, value_serde=value_serde)

    def with_store_name(self, store_name: str) -> Park:
        """Return a copy with the name of the store; raises TopologyError if it is illegal."""
        return replace(self, store_name=store_name)


def parking(
    given: Park | None, operator: str, key_serde: Serde | None, value_serde: Serde | None
) -> nodes.Parking | None:
    """Return the parking of an operator's node, None without one.

    Args:
        given: what the user gave as `on_error`.
        operator: the name of the operator.
        key_serde, value_serde: of its stream.

    Raises:
        TypeError: `given` is no Park, or one of its serdes does not fit the stream.
        TopologyError: the name of the store would be illegal.
    """
    if given is None:
        return None
    if not isinstance(given, Park):
        raise TypeError(
            f"Expected a Park as on_error of {operator}, got {given!r}: write "
            "Park(backoff=Backoff(timedelta(seconds=1)), attempts=6), for example."
        )
    options = inherited(operator, given, key_serde, value_serde)
    name = options.store_name or check_name(operator + STORE_SUFFIX)
    return nodes.Parking(
        store=StoreBuilder(
            KeyValueBytesStoreSupplier(name, in_memory=None),
            SequencedKeySerde(options.key_serde),
            WaitingValueSerde(options.value_serde),
        ),
        rules=ParkRules(
            options.backoff, options.attempts, options.then is not None, options.max_records, options.max_bytes
        ),
        dead_letters=options.then,
        key_serde=options.key_serde,
        value_serde=options.value_serde,
    )
