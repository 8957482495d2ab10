"""Who may ask what. Every request passes here first, every answer gets its headers here.

Refused are: a Host that is not ours (a foreign name that points at this machine), an Origin that is not ours, a body that is too large,
whoever is not signed in, a change without the page's own secret, a change by a viewer.
"""

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

from trimtab.dashboard.sessions import Session, Sessions, Tries
from trimtab.dashboard.tokens import Keyring, Role, fingerprint
from trimtab.io.clock import Clock

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = logging.getLogger(__name__)

COOKIE = "trimtab_session"
BODY_BYTES_MAX = 256 * 1024
VERIFIED_MAX = 100
SAFE_METHODS = {"GET", "HEAD"}
OPEN_PATHS = {"/sign-in", "/static/app.css", "/static/app.js", "/static/icon.svg"}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
        " form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    # Not no-referrer: with that a form of our own page would come with the Origin "null".
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Door:
    """What the guard knows: names we go by, tokens, who is in."""

    hosts: frozenset[str]
    keyring: Keyring
    sessions: Sessions
    clock: Clock
    is_tls: bool = False
    tries: Tries = field(default_factory=Tries)
    verified: dict[str, Role] = field(default_factory=dict)
    """Fingerprints of tokens that were right, so that a program need not wait for the slow hash each time."""

    @property
    def origins(self) -> frozenset[str]:
        """Where our own pages come from."""
        scheme = "https" if self.is_tls else "http"
        return frozenset(f"{scheme}://{host}" for host in self.hosts)

    def session_of(self, request: Request) -> Session | None:
        """Who this is, by the cookie."""
        return self.sessions.find(request.cookies.get(COOKIE, ""), self.clock.wall_ms())

    async def role_of_token(self, token: str, peer: str) -> Role | None:
        """Whose token it is; None also for who tried too often."""
        name = fingerprint(token)
        if name in self.verified:
            return self.verified[name]
        if not self.tries.take(peer, self.clock.wall_ms()):
            logger.warning("sign-in refused: too many wrong tokens from %s", peer)
            return None
        role = await asyncio.to_thread(self.keyring.role_of, token)
        if role is None:
            logger.warning("sign-in refused: wrong token from %s", peer)
            return None
        self.tries.forgive(peer)
        if len(self.verified) < VERIFIED_MAX:
            self.verified[name] = role
        return role


class Guard:
    """The outermost layer of the application."""

    def __init__(self, app: "ASGIApp", door: Door) -> None:
        self._app = app
        self._door = door

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Lets in, or answers itself."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
                return
            await self._app(scope, receive, send)
            return
        sending = _with_headers(send)
        request = Request(scope)
        refusal = self._stranger(request) or await self._not_allowed(request, scope)
        if refusal is not None:
            await refusal(scope, receive, sending)
            return
        await self._app(scope, _limited(receive), sending)

    def _stranger(self, request: Request) -> Response | None:
        headers = request.headers
        if headers.get("host", "").lower() not in self._door.hosts:
            return _refused(request, 421, "this dashboard does not go by that name; --allow-host adds one")
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in self._door.origins:
            return _refused(request, 403, "the request comes from a page of somebody else")
        if not _is_short(headers):
            return _refused(request, 413, f"a request may have {BODY_BYTES_MAX} bytes at most")
        return None

    async def _not_allowed(self, request: Request, scope: "Scope") -> Response | None:
        if request.url.path in OPEN_PATHS:
            return None
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and token:
            peer = request.client.host if request.client else ""
            role = await self._door.role_of_token(token.strip(), peer)
            session = None
        else:
            session = self._door.session_of(request)
            role = None if session is None else session.role
        if role is None:
            if _wants_page(request):
                return RedirectResponse("/sign-in", 303)
            return _refused(request, 401, "sign in, or send `Authorization: Bearer TOKEN`")
        scope.setdefault("state", {})
        scope["state"]["role"] = role
        scope["state"]["session"] = session
        if request.method not in SAFE_METHODS and request.url.path != "/sign-out":
            if role != Role.OPERATOR:
                return _refused(
                    request, 403, "a viewer may look and not change; sign in with the operator's token"
                )
            # Pages put it into their forms, where it is looked for; programs in the browser send it as a header.
            given = request.headers.get("x-csrf-token", "")
            is_program = request.url.path.startswith("/api/")
            if session is not None and is_program and not session.has_csrf(given):
                return _refused(request, 403, "the page's own secret is missing: send it as X-CSRF-Token")
        return None


def _wants_page(request: Request) -> bool:
    return request.method == "GET" and not request.url.path.startswith(("/api/", "/events", "/openapi"))


def _is_short(headers: Headers) -> bool:
    length = headers.get("content-length", "0")
    return length.isascii() and length.isdecimal() and int(length) <= BODY_BYTES_MAX


def _refused(request: Request, status: int, text: str) -> Response:
    if request.url.path.startswith(("/api/", "/openapi")):
        return JSONResponse({"error": text}, status)
    return PlainTextResponse(text, status)


def _with_headers(send: "Send") -> "Send":
    async def sending(message: "Message") -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                if name != "Cache-Control" or name not in headers:
                    headers[name] = value
        await send(message)

    return sending


def _limited(receive: "Receive") -> "Receive":
    """Bodies without a length are counted while they come."""
    size = 0

    async def receiving() -> "Message":
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > BODY_BYTES_MAX:
            return {"type": "http.disconnect"}
        return message

    return receiving
