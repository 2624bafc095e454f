"""The options of a deduplication. Immutable: `with_...` returns a changed copy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, overload

from penstock.dsl.arguments import by_position, check_serdes
from penstock.plan.names import check_name
from penstock.serdes import Serde


@dataclass(frozen=True, kw_only=True)
class Deduplicated:
    """Options of a deduplication (KIP-655; Kafka class: Deduplicated).

    Args:
        key_serde: of the keys in the store and in the repartition topic, if required; None for the stream's.
        id_serde: of the ids in the store; None for the one that the return annotation of the mapper selects.
        value_serde: of the repartition topic, if required; None for the stream's.
        name: of the node, the repartition topic and, without `store_name`, the store.
        store_name: the name of the store.
    """

    key_serde: Serde | None = None
    id_serde: Serde | None = None
    value_serde: Serde | None = None
    name: str | None = None
    store_name: str | None = None

    def __post_init__(self) -> None:
        check_serdes(self, "key_serde", "id_serde", "value_serde")
        for name in (self.name, self.store_name):
            if name is not None:
                check_name(name)

    @staticmethod
    def as_(name: str) -> Deduplicated:
        """Return options with the name of the node and the store."""
        return Deduplicated(name=name)

    @overload
    @staticmethod
    def with_(key_serde: Serde | None = None, value_serde: Serde | None = None) -> Deduplicated: ...
    @overload
    @staticmethod
    def with_(key_serde: Serde | None, id_serde: Serde | None, value_serde: Serde | None) -> Deduplicated: ...
    @overload
    @staticmethod
    def with_(
        *, key_serde: Serde | None = None, id_serde: Serde | None = None, value_serde: Serde | None = None
    ) -> Deduplicated: ...
    @staticmethod
    def with_(*given: Any, **options: Any) -> Deduplicated:
        """Return options with serdes of keys and values, or of keys, ids and values."""
        names = ("key_serde", "id_serde", "value_serde")
        return Deduplicated(**by_position(names if len(given) == len(names) else names[::2], given, options))

    def with_name(self, name: str) -> Deduplicated:
        """Return a copy with the name of the node and, without a store name, the store."""
        return replace(self, name=name)

    def with_store_name(self, store_name: str) -> Deduplicated:
        """Return a copy with the name of the store."""
        return replace(self, store_name=store_name)

    def with_key_serde(self, key_serde: Serde | None) -> Deduplicated:
        """Return a copy with this key serde."""
        return replace(self, key_serde=key_serde)

    def with_id_serde(self, id_serde: Serde | None) -> Deduplicated:
        """Return a copy with this serde of the ids."""
        return replace(self, id_serde=id_serde)

    def with_value_serde(self, value_serde: Serde | None) -> Deduplicated:
        """Return a copy with this value serde."""
        return replace(self, value_serde=value_serde)
