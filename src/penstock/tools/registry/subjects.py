"""The state of the topic `_schemas`: subjects with their versions, ids of schemas, levels and modes.

Rules: state changes only through records of the topic. An id belongs to one schema forever: when a version is
permanently deleted, a record keeps the largest id so far.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Any, Final

import msgspec

from penstock.tools.registry.schemas import RefusedRequestError, Schema, Version
from penstock.tools.registry.topic import Change, Key, unreadable

_MOST_REFERENCES: Final = 1_000
"""The maximum number of schemas used by a schema, directly or indirectly."""


class Subjects:
    """The state of the registry."""

    def __init__(self) -> None:
        self._versions: dict[str, dict[int, Version]] = {}
        self._by_id: dict[int, dict[tuple[str, int], Version]] = {}
        self._ids: dict[str, int] = {}
        self._last_id = 0
        self.settings: dict[tuple[str, str | None], str] = {}
        """Level (CONFIG) and mode (MODE) by subject; None for all subjects without their own."""

    def apply(self, key: Key, value: bytes | None) -> None:
        """Apply a record of the topic; an unreadable record is skipped and logged."""
        try:
            self._apply(key, value)
        except (msgspec.MsgspecError, RecursionError) as error:
            unreadable(key, error)

    def _apply(self, key: Key, value: bytes | None) -> None:
        subject = key.subject or ""
        match key.keytype:
            case "SCHEMA" if value is None:
                self._remove(subject, key.version)
            case "SCHEMA":
                self._put(msgspec.json.decode(value or b"", type=Version))
            case "CONFIG" | "MODE" if value is None:
                self.settings.pop((key.keytype, key.subject), None)
            case "CONFIG" | "MODE":
                setting = msgspec.json.decode(value or b"", type=dict[str, Any])
                text = setting.get("compatibilityLevel" if key.keytype == "CONFIG" else "mode")
                if isinstance(text, str):
                    self.settings[key.keytype, key.subject] = text
            case "DELETE_SUBJECT" if value is not None:  # from Confluent's registry
                until = msgspec.json.decode(value, type=_Until)
                for version in self.versions(subject):
                    if version.version <= until.version:
                        self._put(msgspec.structs.replace(version, deleted=True))
            case "CLEAR_SUBJECT" if value is not None:  # likewise
                for version in self.versions(subject, deleted=True):
                    self._remove(subject, version.version)
            case "NOOP" if value is not None:
                self._last_id = max(self._last_id, msgspec.json.decode(value, type=_LastId).id)

    def _put(self, version: Version) -> None:
        self._remove(version.subject, version.version)
        self._versions.setdefault(version.subject, {})[version.version] = version
        self._by_id.setdefault(version.id, {})[version.subject, version.version] = version
        self._ids.setdefault(version.guid, version.id)
        self._last_id = max(self._last_id, version.id)

    def _remove(self, subject: str, number: int) -> None:
        versions = self._versions.get(subject, {})
        version = versions.pop(number, None)
        if version is None:
            return
        if not versions:
            del self._versions[subject]
        others = self._by_id[version.id]
        del others[subject, number]
        if not others:
            del self._by_id[version.id]
            if self._ids.get(guid := version.guid) == version.id:
                del self._ids[guid]

    @property
    def last_id(self) -> int:
        """The largest id of any schema so far."""
        return self._last_id

    @property
    def count(self) -> int:
        """The number of versions, deleted ones included."""
        return sum(map(len, self._versions.values()))

    def names(self, deleted: bool = False) -> list[str]:
        """Return the subjects with versions; `deleted` includes subjects with deleted versions only."""
        return sorted(name for name in self._versions if self.versions(name, deleted))

    def versions(self, subject: str, deleted: bool = False) -> list[Version]:
        """Return the versions of a subject, by number; `deleted` includes deleted versions."""
        found = self._versions.get(subject, {})
        return [found[number] for number in sorted(found) if deleted or not found[number].deleted]

    def with_id(self, id: int) -> list[Version]:
        """Return the versions with an id, deleted ones included."""
        return list(self._by_id.get(id, {}).values())

    def with_guid(self, guid: str) -> list[Version]:
        """Return the versions of a schema, deleted ones included."""
        return self.with_id(self._ids.get(guid, 0))

    def id_for(self, schema: Schema) -> int:
        """Return the id of a schema; the next one if it is new."""
        return self._ids.get(schema.guid, self._last_id + 1)

    def same(self, subject: str, schema: Schema, deleted: bool = False) -> Version | None:
        """Return the latest version of a subject with this schema, None if absent."""
        id = self._ids.get(schema.guid)
        found = [version for version in self.versions(subject, deleted) if version.id == id]
        return found[-1] if found else None

    def users(self, places: Set[tuple[str, int]]) -> Iterator[Version]:
        """Yield the versions that refer to one of `places` (subject, number), without deleted ones."""
        for versions in self._versions.values():
            for version in versions.values():
                used = ((one.subject, one.version) for one in version.references or ())
                if not version.deleted and not places.isdisjoint(used):
                    yield version

    def definitions(self, schema: Schema) -> tuple[str, ...]:
        """Return the texts of the referenced schemas, each after its own references.

        Raises:
            RefusedRequestError: a referenced schema does not exist, or they are too many.
        """
        found: dict[tuple[str, int], str] = {}
        self._collect(schema, found, ())
        return tuple(found.values())

    def _collect(self, schema: Schema, found: dict[tuple[str, int], str], way: Sequence[tuple[str, int]]) -> None:
        for reference in schema.references or ():
            place = (reference.subject, reference.version)
            version = self._versions.get(reference.subject, {}).get(reference.version)
            if version is None or place in way or len(found) + len(way) >= _MOST_REFERENCES:
                raise RefusedRequestError(
                    422,
                    42201,
                    f"Invalid schema: its reference {reference.name!r} needs version {reference.version} of subject "
                    f"{reference.subject!r}, which does not exist or refers to too much; register that one first.",
                )
            if place not in found:
                self._collect(version, found, (*way, place))
                found[place] = version.schema


class _Until(msgspec.Struct, frozen=True):
    version: int


class _LastId(msgspec.Struct, frozen=True):
    id: int


def schema_change(version: Version, *, removed: bool = False) -> Change:
    """Return the record of a version; `removed` deletes it permanently."""
    key = {"keytype": "SCHEMA", "subject": version.subject, "version": version.version, "magic": 1}
    return key, None if removed else {**msgspec.to_builtins(version), "deleted": version.deleted}


def last_id_change(last_id: int) -> Change:
    """Return the record of the largest id; Confluent's registry skips records with this key."""
    return {"keytype": "NOOP", "magic": 0}, {"id": last_id}


def setting_change(kind: str, subject: str | None, value: str | None) -> Change:
    """Return the record of a level (CONFIG) or a mode (MODE); None removes it."""
    name = "compatibilityLevel" if kind == "CONFIG" else "mode"
    said = None if value is None else {"subject": subject, name: value}
    return {"keytype": kind, "subject": subject, "magic": 0}, said
