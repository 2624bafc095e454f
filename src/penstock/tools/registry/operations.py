"""The operations of requests: register, look up and delete schemas, and set levels and modes.

Rules: a request sees all records of the topic. Changes run one after another, and are answered after their write to the
topic. Schemas are parsed and compared in a thread, so the broker serves others meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from penstock.tools.registry import compatibility
from penstock.tools.registry.compatibility import DEFAULT_LEVEL, LEVELS
from penstock.tools.registry.schemas import RefusedRequestError, Schema, Version
from penstock.tools.registry.subjects import Subjects, last_id_change, schema_change, setting_change
from penstock.tools.registry.topic import Change, SchemasTopic

_MOST_VERSIONS: Final = 10_000
"""The maximum number of versions of all subjects together."""
_MOST_SETTINGS: Final = 10_000
_MOST_NAME: Final = 512
_RESERVED_NAMES: Final = ("__GLOBAL", "__EMPTY")
_READ_WRITE: Final = "READWRITE"


class Setting(NamedTuple):
    """A kind of setting.

    Args:
        kind: its name in the topic.
        values: the valid values.
        default: the value if not set.
        wrong_code: Confluent's error code of an invalid value.
        missing_code: Confluent's error code of a missing value.
    """

    kind: str
    values: tuple[str, ...]
    default: str
    wrong_code: int
    missing_code: int


LEVEL: Final = Setting("CONFIG", LEVELS, DEFAULT_LEVEL, 42203, 40408)
MODE: Final = Setting("MODE", (_READ_WRITE, "READONLY"), _READ_WRITE, 42204, 40409)


class Registry:
    """Executes requests.

    Args:
        topic: the storage of the registry.
    """

    def __init__(self, topic: SchemasTopic) -> None:
        self._topic = topic
        self._subjects = Subjects()
        self._changing = asyncio.Lock()

    def state(self) -> Subjects:
        """Return the state after all records of the topic; raises RefusedRequestError if it is unreadable."""
        for key, value in self._topic.news():
            self._subjects.apply(key, value)
        return self._subjects

    async def register(self, subject: str, schema: Schema) -> Version:
        """Return the version of a subject with a schema, and create it if missing.

        Raises:
            RefusedRequestError: name or schema is invalid, the schema is incompatible, or the subject is read-only.
        """
        async with self._changing:
            _check_name(subject)
            if (known := self.state().same(subject, schema)) is not None:
                return known
            self._check_writable(subject)
            found = await self._compare(subject, schema, self.state().versions(subject))
            if found:
                raise RefusedRequestError(
                    409,
                    409,
                    f"Schema being registered is incompatible with an earlier schema for subject {subject!r}, details: "
                    f"{found}, compatibility: {self.setting(LEVEL, subject)}",
                )
            if self.state().count >= _MOST_VERSIONS:
                raise RefusedRequestError(
                    422,
                    42205,
                    f"The registry has {_MOST_VERSIONS} versions, as many as it keeps; delete some for good.",
                )
            number = max((one.version for one in self.state().versions(subject, deleted=True)), default=0) + 1
            fields = {name: getattr(schema, name) for name in Schema.__struct_fields__}
            new = Version(subject=subject, version=number, id=self.state().id_for(schema), **fields)
            self._topic.append([schema_change(new)])
            return new

    async def incompatibilities(self, subject: str, schema: Schema, number: int | None, is_one: bool) -> list[str]:
        """Return the incompatibilities of a schema with one or all versions of a subject.

        Raises:
            RefusedRequestError: the schema is invalid, or the version does not exist.
        """
        versions = self.state().versions(subject)
        return await self._compare(subject, schema, [self.version(subject, number)] if is_one else versions)

    async def _compare(self, subject: str, schema: Schema, earlier: list[Version]) -> list[str]:
        subjects, level = self.state(), self.setting(LEVEL, subject)
        definitions = subjects.definitions(schema)
        described = [(version, subjects.definitions(version)) for version in earlier]

        def compare() -> list[str]:
            compatibility.check_valid(schema, definitions)
            return compatibility.incompatibilities(level, schema, definitions, described)

        return await asyncio.to_thread(compare)

    def version(self, subject: str, number: int | None, deleted: bool = False) -> Version:
        """Return a version of a subject, the latest one if `number` is None.

        Raises:
            RefusedRequestError: the subject or the version does not exist.
        """
        versions = self.versions(subject, deleted)
        found = [one for one in versions if number in (None, one.version)]
        if not found:
            raise RefusedRequestError(404, 40402, f"Version {number} of subject {subject!r} not found.")
        return found[-1]

    def versions(self, subject: str, deleted: bool = False) -> list[Version]:
        """Return the versions of a subject, by number.

        Raises:
            RefusedRequestError: the subject does not exist.
        """
        versions = self.state().versions(subject, deleted)
        if not versions:
            raise RefusedRequestError(404, 40401, f"Subject {subject!r} not found.")
        return versions

    def lookup(self, subject: str, schema: Schema, deleted: bool) -> Version:
        """Return the version of a subject with a schema.

        Raises:
            RefusedRequestError: the subject does not exist, or has no version with the schema.
        """
        self.versions(subject, deleted)
        found = self.state().same(subject, schema, deleted)
        if found is None:
            raise RefusedRequestError(404, 40403, f"Schema not found in subject {subject!r}.")
        return found

    async def delete_subject(self, subject: str, permanent: bool) -> list[int]:
        """Delete all versions of a subject and its settings, and return their numbers.

        Raises:
            RefusedRequestError: it does not exist, is already deleted or, for a permanent deletion, not deleted yet, or
                other schemas refer to it.
        """
        async with self._changing:
            self._check_writable(subject)
            every = self.versions(subject, deleted=True)
            current = self.state().versions(subject)
            if not permanent and not current:
                raise RefusedRequestError(
                    404,
                    40404,
                    f"Subject {subject!r} was soft deleted. Set permanent=true to delete it permanently.",
                )
            if permanent and current:
                raise RefusedRequestError(
                    404, 40405, f"Subject {subject!r} was not deleted first before being permanently deleted."
                )
            deleted = every if permanent else current
            own = [setting for setting in (LEVEL, MODE) if (setting.kind, subject) in self.state().settings]
            self._delete(deleted, permanent, [setting_change(setting.kind, subject, None) for setting in own])
            return [one.version for one in deleted]

    async def delete_version(self, subject: str, number: int | None, permanent: bool) -> int:
        """Delete a version of a subject, the latest if `number` is None; returns its number.

        Raises:
            RefusedRequestError: as for delete_subject.
        """
        async with self._changing:
            self._check_writable(subject)
            version = self.version(subject, number, deleted=number is not None)
            name = f"Subject {subject!r} version {version.version}"
            if version.deleted and not permanent:
                raise RefusedRequestError(
                    404, 40406, f"{name} was soft deleted. Set permanent=true to delete it permanently."
                )
            if permanent and not version.deleted:
                raise RefusedRequestError(404, 40407, f"{name} was not deleted first before being permanently deleted.")
            self._delete([version], permanent, [])
            return version.version

    def _delete(self, versions: list[Version], permanent: bool, more: list[Change]) -> None:
        going = {(one.subject, one.version) for one in versions}
        for user in self.state().users(going):
            if (user.subject, user.version) not in going:
                raise RefusedRequestError(
                    422,
                    42206,
                    f"Subject {versions[0].subject!r} cannot be deleted, or this version of it: version {user.version} "
                    f"of subject {user.subject!r} refers to it. Delete that one first.",
                )
        if permanent:
            removed = [schema_change(version, removed=True) for version in versions]
            self._topic.append([last_id_change(self.state().last_id), *removed, *more])
        else:
            deleted = [schema_change(msgspec.structs.replace(one, deleted=True)) for one in versions]
            self._topic.append([*deleted, *more])

    def _check_writable(self, subject: str) -> None:
        if self.setting(MODE, subject) != _READ_WRITE:
            raise RefusedRequestError(422, 42205, f"Subject {subject!r} is in read-only mode.")

    def setting(self, setting: Setting, subject: str | None) -> str:
        """Return the effective value for a subject, or the global value if it is None."""
        settings: Mapping[tuple[str, str | None], str] = self.state().settings
        of_all = settings.get((setting.kind, None), setting.default)
        return settings.get((setting.kind, subject), of_all)

    def own_setting(self, setting: Setting, subject: str | None) -> str:
        """Return the subject's own value, or the global value if it is None.

        Raises:
            RefusedRequestError: the subject has no value.
        """
        if subject is not None and (setting.kind, subject) not in self.state().settings:
            raise RefusedRequestError(
                404, setting.missing_code, f"Subject {subject!r} does not have a {setting.kind.lower()} of its own."
            )
        return self.setting(setting, subject)

    async def set(self, setting: Setting, subject: str | None, value: str) -> None:
        """Set the value of a subject, or the global value if it is None.

        The global value applies to all subjects without their own.

        Raises:
            RefusedRequestError: the value is invalid.
        """
        if value not in setting.values:
            raise RefusedRequestError(
                422, setting.wrong_code, f"Invalid value {value!r:.40}: expected {', '.join(setting.values)}."
            )
        async with self._changing:
            if subject is not None:
                _check_name(subject)
            if len(self.state().settings) >= _MOST_SETTINGS:
                raise RefusedRequestError(422, 42205, f"The registry has {_MOST_SETTINGS} levels and modes already.")
            self._topic.append([setting_change(setting.kind, subject, value)])

    async def unset(self, setting: Setting, subject: str | None) -> str:
        """Remove and return a subject's value, or the global value if it is None.

        Raises:
            RefusedRequestError: no value is set.
        """
        async with self._changing:
            was = self.own_setting(setting, subject)
            self._topic.append([setting_change(setting.kind, subject, None)])
            return was


def _check_name(subject: str) -> None:
    if not subject or len(subject) > _MOST_NAME or not subject.isprintable() or subject in _RESERVED_NAMES:
        raise RefusedRequestError(
            422,
            42208,
            f"Invalid subject {subject!r:.80}: expected 1 to {_MOST_NAME} printable characters, and not "
            f"{' or '.join(_RESERVED_NAMES)}.",
        )
