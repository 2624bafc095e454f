"""The endpoints of the REST API, with their parameters and responses.

Rules: only a page in a browser sends types other than JSON without a preflight request. The API serves programs only,
so bodies of other types are rejected. Names in paths may contain a slash (`%2F`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import unquote

import msgspec
import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.tools.registry.operations import LEVEL, MODE, Registry, Setting
from penstock.tools.registry.schemas import (
    TYPES,
    RefusedRequestError,
    Schema,
    Version,
    requested_schema,
    version_number,
)
from penstock.tools.ui.guard import Guard, bounded_body, is_from_other_site

T = TypeVar("T")

MOST_BYTES: Final = 1024 * 1024
"""The maximum size of a request body in bytes."""

_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_REMEDY: Final = "Ask by its address, such as 127.0.0.1."

Handler = Callable[[Registry, Request], Awaitable[Any]]


def application(registry: Registry) -> ASGIApp:
    """Return the ASGI application."""
    routes = [_route(registry, method, path, handler) for (method, path), handler in _HANDLERS.items()]
    middleware = [Middleware(Guard, allowed=(), remedy=_REMEDY)]
    handlers: dict[Any, Any] = {RefusedRequestError: _refused, HTTPException: _failed, Exception: _broken}
    return _RawPaths(Starlette(routes=routes, middleware=middleware, exception_handlers=handlers))


class _RawPaths:
    """Passes paths on undecoded, so a slash in a name is not a separator."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request (ASGI)."""
        await self._app({**scope, "path": scope["raw_path"].decode("latin-1")}, receive, send)


def _route(registry: Registry, method: str, path: str, handler: Handler) -> Route:
    async def answer(request: Request) -> Response:
        if is_from_other_site(request.headers):
            raise HTTPException(403, "The request came from a page of another site.")
        return _in_json(await handler(registry, request))

    return Route(path, answer, methods=[method])


def _in_json(content: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type=_CONTENT_TYPE)


def _refused(_: Request, error: RefusedRequestError) -> Response:
    return _in_json({"error_code": error.code, "message": str(error)}, error.status)


def _failed(request: Request, error: HTTPException) -> Response:
    message = f"HTTP {error.status_code} {error.detail}: {request.method} {request.url.path:.200}"
    return _in_json({"error_code": error.status_code, "message": message}, error.status_code)


def _broken(_: Request, error: Exception) -> Response:
    return _in_json({"error_code": 50001, "message": f"Error in the registry: {error!r:.400}"}, 500)


async def _body(request: Request) -> bytes:
    type_ = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not type_.startswith("application/") or not type_.endswith("json"):
        raise HTTPException(415, f"the type of the body is {type_!r}, expected {_CONTENT_TYPE}")
    return await bounded_body(request, MOST_BYTES, f"the body has more than {MOST_BYTES} bytes")


async def _schema(request: Request) -> Schema:
    return requested_schema(await _body(request))


async def _value(request: Request, name: str, code: int) -> str:
    """Return the single field of a body."""
    try:
        fields = msgspec.json.decode(await _body(request), type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise RefusedRequestError(422, code, f"The body of the request is not an object in JSON: {error}.") from error
    given = {key: value for key, value in fields.items() if value is not None}
    if list(given) != [name] or not isinstance(given[name], str):
        raise RefusedRequestError(422, code, f'Expected {{"{name}": VALUE}} and no other field, got {sorted(given)}.')
    return str(given[name]).upper()


def _name(request: Request) -> str:
    return unquote(request.path_params["subject"])


def _optional_name(request: Request) -> str | None:
    return _name(request) if "subject" in request.path_params else None


def _number(request: Request) -> int | None:
    return version_number(request.path_params["version"])


def _is_set(request: Request, *names: str) -> bool:
    return any(request.query_params.get(name, "").lower() == "true" for name in names)


def _page(request: Request, items: Sequence[T]) -> Sequence[T]:
    def number(name: str, default: int) -> int:
        text = request.query_params.get(name, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else default

    start = number("offset", 0)
    return items[start : start + number("limit", len(items))]


def _shown(request: Request, versions: Sequence[Version]) -> list[Version]:
    """Return the versions to include in a list."""
    only_deleted = _is_set(request, "deletedOnly", "deleted_only")
    return [version for version in versions if version.deleted or not only_deleted]


def _sees_deleted(request: Request) -> bool:
    return _is_set(request, "deleted", "deletedOnly", "deleted_only")


async def _subjects(registry: Registry, request: Request) -> Any:
    prefix = request.query_params.get("subjectPrefix", "")
    prefix = "" if prefix == ":*:" else prefix
    state, deleted = registry.state(), _sees_deleted(request)
    named = [name for name in state.names(deleted) if name.startswith(prefix)]
    return _page(request, [name for name in named if _shown(request, state.versions(name, deleted))])


async def _lookup(registry: Registry, request: Request) -> Any:
    schema = await _schema(request)
    return registry.lookup(_name(request), schema, _is_set(request, "deleted")).described()


async def _delete_subject(registry: Registry, request: Request) -> Any:
    return await registry.delete_subject(_name(request), _is_set(request, "permanent"))


async def _versions(registry: Registry, request: Request) -> Any:
    versions = registry.versions(_name(request), _sees_deleted(request))
    return _page(request, [version.version for version in _shown(request, versions)])


async def _register(registry: Registry, request: Request) -> Any:
    return (await registry.register(_name(request), await _schema(request))).described()


async def _version(registry: Registry, request: Request) -> Any:
    return registry.version(_name(request), _number(request), _is_set(request, "deleted")).described()


async def _text_of_version(registry: Registry, request: Request) -> Any:
    return _text(registry.version(_name(request), _number(request), _is_set(request, "deleted")))


async def _delete_version(registry: Registry, request: Request) -> Any:
    return await registry.delete_version(_name(request), _number(request), _is_set(request, "permanent"))


async def _referenced_by(registry: Registry, request: Request) -> Any:
    version = registry.version(_name(request), _number(request), deleted=True)
    users = registry.state().users({(version.subject, version.version)})
    return _page(request, sorted({user.id for user in users}))


def _with_id(registry: Registry, request: Request) -> list[Version]:
    text = request.path_params["id"]
    found = registry.state().with_id(int(text)) if text.isascii() and text.isdigit() and len(text) < 11 else []
    if not found:
        raise RefusedRequestError(404, 40403, f"Schema {text:.40} not found.")
    return found


def _shown_with_id(registry: Registry, request: Request) -> list[Version]:
    subject = request.query_params.get("subject")
    shown = [version for version in _with_id(registry, request) if subject in (None, version.subject)]
    return [version for version in shown if not version.deleted or _is_set(request, "deleted")]


async def _schema_with_id(registry: Registry, request: Request) -> Any:
    # The parameter `subject` is ignored: an id belongs to one schema here, in all subjects.
    shown = _content(_with_id(registry, request)[0])
    return {**shown, "maxId": registry.state().last_id} if _is_set(request, "fetchMaxId") else shown


async def _text_with_id(registry: Registry, request: Request) -> Any:
    return _text(_with_id(registry, request)[0])


async def _subjects_with_id(registry: Registry, request: Request) -> Any:
    return _page(request, sorted({version.subject for version in _shown_with_id(registry, request)}))


async def _versions_with_id(registry: Registry, request: Request) -> Any:
    found = _shown_with_id(registry, request)
    return _page(request, [{"subject": version.subject, "version": version.version} for version in found])


async def _schema_with_guid(registry: Registry, request: Request) -> Any:
    found = registry.state().with_guid(request.path_params["guid"])
    if not found:
        raise RefusedRequestError(404, 40403, "Schema not found.")
    return _content(found[0])


def _content(version: Version) -> dict[str, Any]:
    of_subject = ("subject", "version", "id", "deleted")
    return {name: value for name, value in version.described().items() if name not in of_subject}


def _text(version: Version) -> Any:
    try:
        return orjson.loads(version.schema)
    except orjson.JSONDecodeError:
        return version.schema


async def _types(_: Registry, __: Request) -> Any:
    return sorted(TYPES)


async def _contexts(_: Registry, __: Request) -> Any:
    return ["."]


async def _nothing(_: Registry, __: Request) -> Any:
    return {}


async def _compatibility(registry: Registry, request: Request) -> Any:
    is_one = "version" in request.path_params
    number = _number(request) if is_one else None
    found = await registry.incompatibilities(_name(request), await _schema(request), number, is_one)
    answer: dict[str, Any] = {"is_compatible": not found}
    return {**answer, "messages": found} if _is_set(request, "verbose") else answer


def _settings(path: str, setting: Setting, sent: str, shown: str) -> dict[tuple[str, str], Handler]:
    """Return the handlers of a kind of setting.

    Args:
        path: of the endpoint.
        setting: the kind of setting.
        sent: the name of its value in requests.
        shown: the name of its value in responses.
    """

    async def get(registry: Registry, request: Request) -> Any:
        get_value = registry.setting if _is_set(request, "defaultToGlobal") else registry.own_setting
        return {shown: get_value(setting, _optional_name(request))}

    async def put(registry: Registry, request: Request) -> Any:
        value = await _value(request, sent, setting.wrong_code)
        await registry.set(setting, _optional_name(request), value)
        return {sent: value}

    async def delete(registry: Registry, request: Request) -> Any:
        return {shown: await registry.unset(setting, _optional_name(request))}

    methods: dict[str, Handler] = {"GET": get, "PUT": put, "DELETE": delete}
    places = (path, f"{path}/{{subject}}")
    return {(method, place): handler for method, handler in methods.items() for place in places}


_HANDLERS: Final[dict[tuple[str, str], Handler]] = {
    ("GET", "/"): _nothing,
    ("GET", "/subjects"): _subjects,
    ("POST", "/subjects/{subject}"): _lookup,
    ("DELETE", "/subjects/{subject}"): _delete_subject,
    ("GET", "/subjects/{subject}/versions"): _versions,
    ("POST", "/subjects/{subject}/versions"): _register,
    ("GET", "/subjects/{subject}/versions/{version}"): _version,
    ("DELETE", "/subjects/{subject}/versions/{version}"): _delete_version,
    ("GET", "/subjects/{subject}/versions/{version}/schema"): _text_of_version,
    ("GET", "/subjects/{subject}/versions/{version}/referencedby"): _referenced_by,
    ("GET", "/schemas/types"): _types,
    ("GET", "/schemas/ids/{id}"): _schema_with_id,
    ("GET", "/schemas/ids/{id}/schema"): _text_with_id,
    ("GET", "/schemas/ids/{id}/subjects"): _subjects_with_id,
    ("GET", "/schemas/ids/{id}/versions"): _versions_with_id,
    ("GET", "/schemas/guids/{guid}"): _schema_with_guid,
    ("GET", "/contexts"): _contexts,
    ("POST", "/compatibility/subjects/{subject}/versions"): _compatibility,
    ("POST", "/compatibility/subjects/{subject}/versions/{version}"): _compatibility,
    **_settings("/config", LEVEL, sent="compatibility", shown="compatibilityLevel"),
    **_settings("/mode", MODE, sent="mode", shown="mode"),
}
