"""The web application: pages, the JSON API, live updates and signing in, behind the guard."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route
from starlette.types import ASGIApp

from trimtab.dashboard.api import api_routes, query_of, status_of
from trimtab.dashboard.desk import Desk
from trimtab.dashboard.drawing import CHART_LIBRARY, FOLDER
from trimtab.dashboard.guard import COOKIE, Door, Guard
from trimtab.dashboard.openapi import openapi
from trimtab.dashboard.pages import form_of, page, page_routes
from trimtab.dashboard.sessions import SESSION_MS
from trimtab.dashboard.subject import Subject
from trimtab.errors import TrimtabError

QUIET_S = 15.0
"""After so long a stream says that it is still there."""
_STATIC = {
    "app.css": (FOLDER / "static" / "app.css", "text/css"),
    "app.js": (FOLDER / "static" / "app.js", "text/javascript"),
    "charts.js": (FOLDER / "static" / "charts.js", "text/javascript"),
    "watch.js": (FOLDER / "static" / "watch.js", "text/javascript"),
    "icon.svg": (FOLDER / "static" / "icon.svg", "image/svg+xml"),
    "chart-library.js": (CHART_LIBRARY, "text/javascript"),
}


def make_app(desk: Desk, door: Door) -> ASGIApp:
    """The whole application."""
    front = _Front(desk, door)
    routes = [
        Route("/sign-in", front.sign_in_page, methods=["GET"]),
        Route("/sign-in", front.sign_in, methods=["POST"]),
        Route("/sign-out", front.sign_out, methods=["POST"]),
        Route("/events", front.events, methods=["GET"]),
        Route("/openapi.json", front.openapi, methods=["GET"]),
        *(Route(f"/static/{name}", _static(*file), methods=["GET"]) for name, file in _STATIC.items()),
        *api_routes(desk),
        *page_routes(desk),
    ]
    handlers: dict[Any, Any] = {HTTPException: _refused, Exception: _broken}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return Guard(app, door)


def _static(path: Path, kind: str) -> Any:
    async def static(request: Request) -> Response:
        # The library is large and stays the same: pages ask for it with its version, and browsers keep it.
        keep = {"Cache-Control": "private, max-age=31536000, immutable"} if request.url.query else None
        return FileResponse(path, media_type=kind, headers=keep)

    return static


def _wants_json(request: Request) -> bool:
    return request.url.path.startswith(("/api/", "/openapi"))


async def _refused(request: Request, error: HTTPException) -> Response:
    if _wants_json(request):
        return JSONResponse({"error": error.detail}, error.status_code, headers=error.headers)
    return page(request, "problem.html", status=error.status_code, problem=error.detail)


async def _broken(request: Request, _error: Exception) -> Response:
    """The log has the error, with its traceback; whoever asked does not get it."""
    text = "the dashboard made a mistake; its log says more"
    return JSONResponse({"error": text}, 500) if _wants_json(request) else PlainTextResponse(text, 500)


class _Front:
    """Signing in and out, and the stream of changes."""

    def __init__(self, desk: Desk, door: Door) -> None:
        self._desk = desk
        self._door = door

    async def sign_in_page(self, request: Request) -> Response:
        """Asks for the token."""
        return page(request, "sign_in.html", problem="")

    async def sign_in(self, request: Request) -> Response:
        """Checks the token."""
        token = (await form_of(request)).get("token", [""])[0].strip()
        peer = request.client.host if request.client else ""
        role = await self._door.role_of_token(token, peer)
        if role is None:
            problem = "That is not a token of this dashboard, or there were too many tries: wait a minute."
            return page(request, "sign_in.html", status=403, problem=problem)
        secret = self._door.sessions.begin(role, self._door.clock.wall_ms())
        response = RedirectResponse("/", 303)
        response.set_cookie(
            COOKIE,
            secret,
            max_age=SESSION_MS // 1000,
            httponly=True,
            samesite="strict",
            secure=self._door.is_tls,
        )
        return response

    async def sign_out(self, request: Request) -> Response:
        """Ends the session."""
        self._door.sessions.end(request.cookies.get(COOKIE, ""))
        response = RedirectResponse("/sign-in", 303)
        response.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return response

    async def openapi(self, _request: Request) -> Response:
        """The document."""
        return JSONResponse(openapi())

    async def events(self, request: Request) -> Response:
        """Says whenever there is something new: of the group or the topic named, else of the cluster."""
        try:
            asked = query_of(request)
            self._desk.poller.check_listeners()
            subject = await self._subject(asked.get("group", ""), asked.get("topic", ""))
        except msgspec.ValidationError as error:
            return JSONResponse({"error": str(error)}, 400)
        except TrimtabError as error:
            return JSONResponse({"error": str(error)}, status_of(error))
        return StreamingResponse(self._changes(request, subject), media_type="text/event-stream")

    async def _subject(self, group: str, topic: str) -> Subject[Any]:
        """Asked for once, so that what does not exist is said before there is a stream."""
        if group:
            await self._desk.sight(group)
            return self._desk.poller.group(group)
        if topic:
            await self._desk.topic(topic)
            return self._desk.poller.topic(topic)
        return self._desk.poller.overview

    async def _changes(self, request: Request, subject: Subject[Any]) -> AsyncIterator[str]:
        async with aclosing(changes(subject)) as lines:
            async for line in lines:
                if request.state.session is not None and self._door.session_of(request) is None:
                    return  # signed out meanwhile
                yield line


async def changes(subject: Subject[Any]) -> AsyncGenerator[str, None]:
    """Lines of a stream of events."""
    async with subject.listening() as changed:
        yield f"event: changed\ndata: {subject.looks}\n\n"
        while True:
            try:
                async with asyncio.timeout(QUIET_S):
                    await changed.wait()
            except TimeoutError:
                yield ": still here\n\n"
                continue
            changed.clear()
            yield f"event: changed\ndata: {subject.looks}\n\n"
