"""Checks of hosts and sites before each answer, and headers that restrict browsers."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send


def is_from_other_site(headers: Headers) -> bool:
    """Return whether a browser asks for a page of another site."""
    site: str | None = headers.get("sec-fetch-site")
    if site is not None:
        return site not in ("same-origin", "none")
    origin: str = headers.get("origin", "null")  # sent by browsers for pages without a referrer, such as these
    return origin != "null" and origin.partition("://")[2] != headers.get("host")


async def bounded_body(request: Request, most_bytes: int, refusal: str) -> bytes:
    """Return the body of a request.

    Raises HTTPException with the text `refusal` if it has more bytes.
    """
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > most_bytes:
            raise HTTPException(413, refusal)
    return body


HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Default headers of answers: a page loads nothing from other places, and no other page may embed it."""


class Guard:
    """Refuses foreign host names and loads by pages of other sites.

    It adds HEADERS to each answer. A page of another site may ask by its own name that leads here (DNS rebinding), so
    only addresses, localhost and names in the configuration are answered.

    Args:
        app: the guarded application.
        allowed: allowed names besides addresses and localhost.
        remedy: the remedy in the answer to a request by another name.
    """

    def __init__(self, app: ASGIApp, allowed: Collection[str], remedy: str) -> None:
        self._app = app
        self._remedy = remedy
        self._allowed = {"localhost", *(name.lower() for name in allowed)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request (ASGI)."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers_of_answer = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers_of_answer.setdefault(name, value)
            await send(message)

        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._is_allowed(host):
            await self._refusal_of(host)(scope, receive, send_with_headers)
        elif scope["method"] != "POST" and is_from_other_site(headers) and headers.get("sec-fetch-mode") != "navigate":
            # A page cannot read these answers, but could trigger slow ones; a link to a page is followed.
            refusal = JSONResponse({"error": "The request came from a page of another site."}, 403)
            await refusal(scope, receive, send_with_headers)
        else:
            await self._app(scope, receive, send_with_headers)

    def _refusal_of(self, host: str) -> PlainTextResponse:
        return PlainTextResponse(f"Not a name of this application: {host!r}. {self._remedy}\n", 421)

    def _is_allowed(self, host: str) -> bool:
        name = host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
        if name.lower() in self._allowed:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True
