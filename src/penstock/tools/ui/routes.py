"""The addresses and their answers.

Calls that may take longer than a moment run in a thread of their own, few at a time: neither a slow store nor an
abandoned request stops the others, or keeps the program alive.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from penstock.application.prometheus import exposition
from penstock.background import in_background
from penstock.errors import (
    InvalidStateStorePartitionError,
    SerializationError,
    StreamsError,
    UnknownStateStoreError,
    UnknownTopologyError,
    UnsupportedOperationError,
)
from penstock.tools.ui import openapi
from penstock.tools.ui.answers import Answers
from penstock.tools.ui.control import Control, Outcome, RefusedActionError, Target
from penstock.tools.ui.guard import HEADERS, Guard, bounded_body, is_from_other_site
from penstock.tools.ui.observer import INTERVAL_MS
from penstock.tools.ui.pages.all_pages import Pages
from penstock.tools.ui.pages.control import outcome_of
from penstock.tools.ui.pages.layout import Page, static_file
from penstock.tools.ui.pages.topology import picture
from penstock.tools.ui.parameters import Parameters, WrongParameterError, number, selection
from penstock_broker.common.clock import elapsed_milliseconds
from penstock_broker.common.log_limits import limit_rate

T = TypeVar("T")

_errors = logging.getLogger(f"{__name__}.errors")
limit_rate(_errors, up_to=logging.ERROR)  # an open page asks every few seconds

_MOST_CALLS: Final = 8
_MOST_LIVE_PAGES: Final = 32
_MOST_FORM_BYTES: Final = 4_096
_REMEDY: Final = "Ask by its address, or add the name to penstock.ui.allowed.hosts."
_STATIC: Final = {
    "curves.js": "text/javascript",
    "ui.css": "text/css",
    "ui.js": "text/javascript",
    "ui.svg": "image/svg+xml",
    "uplot-1.6.32.min.css": "text/css",
    "uplot-1.6.32.min.js": "text/javascript",
}
"""The files that pages load, and their media types."""

_STEP_MS: Final = 200
EVENTS_MS = INTERVAL_MS
"""The least time between two updates of an open page."""
_MOST_SHARE: Final = 0.005
"""Largest share of its time that an open page spends on its sections: a page that takes longer updates less often. With
the other costs of a reader, an open page takes less than 1 % of a core.
"""


def application(answers: Answers, control: Control | None = None) -> Starlette:
    """Return the ASGI application that answers requests about one application.

    Args:
        answers: of the application.
        control: performs the requested actions; None for no actions.
    """
    return Starlette(
        routes=_Routes(answers, control).routes(),
        middleware=[Middleware(Guard, allowed=_names(answers.config["penstock.ui.allowed.hosts"]), remedy=_REMEDY)],
        exception_handlers={HTTPException: _refused, StreamsError: _failed, Exception: _broken},
    )


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


class _Routes:
    """Answers the requests about one application."""

    def __init__(self, answers: Answers, control: Control | None) -> None:
        self._answers = answers
        self._control = control
        self._pages = Pages(answers, () if control is None else control.actions)
        self._calls = asyncio.Semaphore(_MOST_CALLS)
        self._live_pages = 0

    def routes(self) -> list[Route]:
        """Return all addresses."""
        answers = self._answers
        pages = [
            route
            for page in self._pages.all
            for route in (
                Route(page.path, self._page(page)),
                Route(f"/events{page.path.rstrip('/')}", self._events(page)),
            )
        ]
        control = [
            Route("/control", self._act_for_form, methods=["POST"]),
            Route("/api/v1/control/{action}", self._act, methods=["POST"]),
        ]
        return [
            *pages,
            *(control if self._control is not None else ()),
            *(Route(f"/static/{name}", _static(name, media_type)) for name, media_type in _STATIC.items()),
            Route("/api/v1/schema.json", self._json(lambda request: openapi.document())),
            Route("/api/v1/overview", self._json(lambda request: answers.overview())),
            Route("/api/v1/history", self._json(lambda request: answers.history(request.query_params))),
            Route("/api/v1/topology", self._json(lambda request: {"topologies": answers.topologies.all()})),
            Route("/api/v1/tasks", self._json(lambda request: answers.tasks())),
            Route("/api/v1/commits", self._json(lambda request: answers.commits())),
            Route("/api/v1/stores", self._json(lambda request: answers.stores())),
            Route("/api/v1/stores/{store}", self._json(self._entries)),
            Route("/api/v1/waiting", self._json(lambda request: answers.waiting.operators())),
            Route("/api/v1/parked/{store}", self._json(self._parked_keys)),
            Route("/api/v1/dead-letters", self._json(lambda request: answers.dead_letters())),
            Route("/api/v1/errors", self._json(lambda request: answers.errors())),
            Route("/api/v1/changes", self._json(lambda request: answers.changes())),
            Route("/health/live", self._health(lambda request: answers.is_live())),
            Route("/health/ready", self._health(self._is_ready)),
            Route("/metrics", self._metrics),
            Route("/topology.json", self._json(lambda request: {"topologies": answers.topologies.all()})),
            Route("/topology.svg", self._text("image/svg+xml", lambda parameters: picture(answers, parameters))),
            Route("/topology.mmd", self._text("text/plain", self._flowchart)),
        ]

    async def _call(self, call: Callable[[], T]) -> T:
        """Return the result of `call`, executed in a thread of its own.

        The thread counts until it ends, even after the reader has disconnected.
        """
        await self._calls.acquire()
        running = asyncio.wrap_future(in_background("penstock-ui-request", call))
        try:
            return await asyncio.shield(running)
        finally:
            running.add_done_callback(lambda _: self._calls.release())
            if self._answers.observer.is_closed:
                running.cancel()  # otherwise, it would report its end to a closed loop

    def _json(self, answer: Callable[[Request], Any]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            return json_response(await self._call(lambda: answer(request)))

        return endpoint

    def _health(self, check: Callable[[Request], tuple[bool, Any]]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            is_well, answer = check(request)
            return json_response(answer, 200 if is_well else 503)

        return endpoint

    def _is_ready(self, request: Request) -> tuple[bool, Any]:
        parameters = request.query_params
        return self._answers.is_ready(number(parameters, "max_lag"), number(parameters, "max_commit_age"))

    def _entries(self, request: Request) -> Any:
        topology, chosen, limit = selection(request.query_params)
        return self._answers.entries(request.path_params["store"], topology, chosen, limit)

    def _parked_keys(self, request: Request) -> Any:
        topology = request.query_params.get("topology") or None
        return self._answers.waiting.parked_keys(request.path_params["store"], topology)

    async def _act(self, request: Request) -> Response:
        """Perform an action for a program, whose token is in the header Authorization."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        outcome = await self._do(
            request,
            request.path_params["action"],
            token if scheme.lower() == "bearer" else "",
            _target(request.query_params),
        )
        application = self._answers.observer.application
        return json_response({"state": application.state().value, "paused": application.is_paused(), **outcome}, 202)

    async def _act_for_form(self, request: Request) -> Response:
        """Perform an action for the control page, whose token is a field of its form."""
        fields = dict(parse_qsl((await _body(request)).decode(errors="replace")))
        try:
            if fields.get("confirmed") != "yes":
                raise RefusedActionError(400, "Nothing was done: tick the box to confirm.")
            done = await self._do(request, fields.get("action", ""), fields.get("token", ""), _target(fields))
        except RefusedActionError as error:
            outcome, status = outcome_of(problem=str(error)), error.status
        else:
            outcome, status = outcome_of(fields["action"], done), 200
        return HTMLResponse(await self._call(lambda: self._pages.after_action(outcome, fields)), status)

    async def _do(self, request: Request, action: str, token: str, target: Target) -> Outcome:
        """Perform an action and return its result; raises RefusedActionError."""
        assert self._control is not None
        control, asked_by = self._control, "an unknown address" if request.client is None else request.client.host
        if is_from_other_site(request.headers):
            raise RefusedActionError(403, "The request came from a page of another site.")
        return await self._call(lambda: control.act(action, token, asked_by, target))

    async def _metrics(self, request: Request) -> Response:
        text, content_type = await self._call(lambda: exposition(self._answers.metrics))
        return Response(text, headers={"Content-Type": content_type})

    def _text(self, media_type: str, make: Callable[[Parameters], str]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            return Response(await self._call(lambda: make(request.query_params)), media_type=media_type)

        return endpoint

    def _flowchart(self, parameters: Parameters) -> str:
        _, topology = self._answers.topologies.named(parameters.get("topology"))
        return topology.describe().to_mermaid()

    def _page(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            return HTMLResponse(await self._call(lambda: self._pages.html(page, request.query_params)))

        return endpoint

    def _events(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            if self._live_pages >= _MOST_LIVE_PAGES:
                raise HTTPException(503, f"{_MOST_LIVE_PAGES} pages are open: close one.")
            return StreamingResponse(self._sections(page, request), media_type="text/event-stream")

        return endpoint

    async def _sections(self, page: Page, request: Request) -> AsyncIterator[bytes]:
        """Yield changed sections of a page as events, until reader or server ends."""
        self._live_pages += 1
        try:
            shown: dict[str, str] = {}
            while not self._answers.observer.is_closed:
                began = elapsed_milliseconds()
                for id, html in (await self._call(lambda: page.live(request.query_params))).items():
                    if shown.get(id) != html:
                        shown[id] = html
                        yield b"event: section\ndata: %b\n\n" % orjson.dumps({"id": id, "html": html})
                yield b": \n\n"  # fails if the reader has disconnected silently
                await self._pause(elapsed_milliseconds() - began)
        finally:
            self._live_pages -= 1

    async def _pause(self, took_ms: int) -> None:
        """Wait until the next update, or the end of the server.

        The server does not wait for open pages.

        Args:
            took_ms: duration of the last update.
        """
        until = elapsed_milliseconds() + max(EVENTS_MS, took_ms / _MOST_SHARE)
        while not self._answers.observer.is_closed and (left := until - elapsed_milliseconds()) > 0:
            await asyncio.sleep(min(left, _STEP_MS) / 1000)


def _target(parameters: Parameters) -> Target:
    """Return the target of an action."""
    return Target(parameters.get("node", ""), parameters.get("topology") or None)


async def _body(request: Request) -> bytes:
    """Return the body of a form.

    Raises HTTPException if it is larger than a form of these pages.
    """
    refusal = f"The form is too large: expected up to {_MOST_FORM_BYTES} bytes."
    return await bounded_body(request, _MOST_FORM_BYTES, refusal)


def _static(name: str, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    content = static_file(name)

    async def endpoint(request: Request) -> Response:
        # Its address changes with its content. A page whose application ends meanwhile still has its scripts.
        return Response(content, headers={"Cache-Control": "max-age=86400"}, media_type=media_type)

    return endpoint


def json_response(answer: Any, status: int = 200) -> Response:
    """Return an answer as JSON."""
    return Response(orjson.dumps(answer), status, media_type="application/json")


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return json_response({"error": error.detail}, error.status_code)


async def _failed(request: Request, error: Exception) -> Response:
    match error:
        case RefusedActionError():
            status = error.status
        case UnknownStateStoreError() | UnknownTopologyError() | InvalidStateStorePartitionError():
            status = 404
        case SerializationError() | UnsupportedOperationError() | WrongParameterError():
            status = 400
        case _:
            status = 503
    return json_response({"error": str(error)}, status)


async def _broken(request: Request, error: Exception) -> Response:
    """Answer a request that met an error of Penstock itself.

    The answer does not pass the Guard, so this handler adds its headers.
    """
    _errors.error("The request for %.200s failed.", request.url.path, exc_info=error)
    text = f"This error is unexpected; the log of the application has its traceback: {type(error).__name__}: {error}"
    if request.url.path.startswith("/api/"):
        response = json_response({"error": text}, 500)
    else:
        response = PlainTextResponse(f"{text}\n", 500)
    response.headers.update(HEADERS)
    return response
