"""The pages: the answers of the JSON API, drawn. A page that is open shows what changes; a form that changes something shows what it would do first."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from trimtab.dashboard import wishes
from trimtab.dashboard.answers import Overview, Scrubbed, Topic
from trimtab.dashboard.api import query_of, status_of
from trimtab.dashboard.desk import Desk
from trimtab.dashboard.drawing import render
from trimtab.dashboard.group_watch import GroupSight
from trimtab.dashboard.openapi import openapi
from trimtab.dashboard.tokens import Role
from trimtab.dashboard.what_if import STRATEGIES
from trimtab.errors import SettingsError, TrimtabError

FIELDS_MAX = 2_000
TOPICS_MAX = 200
"""Topics that a form suggests."""
View = Callable[[Request], Awaitable[Response]]


def page_routes(desk: Desk) -> list[Route]:
    """A route for each page and each form."""
    pages = Pages(desk)
    gets = {
        "/": pages.overview,
        "/group": pages.group,
        "/topics": pages.topics,
        "/topic": pages.topic,
        "/message": pages.message,
        "/producers": pages.producers,
        "/dead-letters": pages.dead_letters,
        "/simulation": pages.simulation,
        "/api": pages.api,
    }
    posts = {
        "/group/reset": pages.reset,
        "/message/resend": pages.resend,
        "/dead-letters/replay": pages.replay,
        "/simulation": pages.simulate,
    }
    routes = [Route(path, _shown(view), methods=["GET"]) for path, view in gets.items()]
    return routes + [Route(path, _shown(view), methods=["POST"]) for path, view in posts.items()]


def _shown(view: View) -> View:
    """Errors become pages that say what was wrong."""

    async def shown(request: Request) -> Response:
        try:
            return await view(request)
        except msgspec.ValidationError as error:
            return page(request, "problem.html", status=400, problem=str(error))
        except TrimtabError as error:
            return page(request, "problem.html", status=status_of(error), problem=str(error))

    return shown


def page(request: Request, template: str, *, status: int = 200, **values: Any) -> Response:
    """A page, for whoever asks."""
    session = getattr(request.state, "session", None)
    text = render(
        template,
        path=request.url.path,
        role=getattr(request.state, "role", None),
        is_operator=getattr(request.state, "role", None) == Role.OPERATOR,
        csrf="" if session is None else session.csrf,
        **values,
    )
    return HTMLResponse(text, status)


async def form_of(request: Request) -> dict[str, list[str]]:
    """The fields of a form; one without the page's own secret is refused."""
    try:
        text = (await request.body()).decode(errors="replace")
    except ClientDisconnect:
        raise HTTPException(413, "the request is too large") from None
    found: dict[str, list[str]] = {}
    try:
        fields = parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS_MAX)
    except ValueError:
        raise HTTPException(400, "the form has too many fields") from None
    for name, value in fields:
        found.setdefault(name, []).append(value)
    return found


def _checked(request: Request, form: Mapping[str, list[str]]) -> None:
    session = getattr(request.state, "session", None)
    if session is not None and not session.has_csrf(form.get("csrf", [""])[0]):
        raise HTTPException(403, "the form does not come from a page of this dashboard; open the page anew")


def _first(form: Mapping[str, list[str]], name: str) -> str:
    return form.get(name, [""])[0]


def _part(request: Request) -> str | None:
    """Which part of a page is wanted alone."""
    return request.query_params.get("part")


def _live(request: Request) -> bool:
    """Whether only the part is wanted that changes while a page is open."""
    return _part(request) == "live"


def _overview_part(overview: Overview, error: TrimtabError | None) -> str:
    return render("overview_live.html", overview=overview, error=error)


def _group_part(sight: GroupSight, error: TrimtabError | None) -> str:
    return render("group_live.html", group=sight.group, timeline=sight.timeline, error=error)


def _topic_part(topic: Topic, error: TrimtabError | None) -> str:
    return render("topic_live.html", topic=topic, error=error)


class Pages:
    """See the module's own words. The part that changes is the same for everybody, so it is drawn once a look."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def overview(self, request: Request) -> Response:
        """The cluster at a glance."""
        part = await self._desk.poller.overview.drawn(_overview_part)
        return HTMLResponse(part) if _live(request) else page(request, "overview.html", part=Markup(part))  # noqa: S704 - drawn by us

    async def topics(self, request: Request) -> Response:
        """All topics."""
        found = await self._desk.overview()
        return page(request, "topics.html", topics=found.topics)

    async def group(self, request: Request) -> Response:
        """Who holds what, what moved, what if."""
        asked = query_of(request)
        name = msgspec.convert(asked.get("name"), wishes.Name)
        sight = await self._desk.sight(name)
        if _part(request) == "held":
            return HTMLResponse(render("held_then.html", scrubbed=await self._scrubbed(asked)))
        part = await self._desk.poller.group(name).drawn(_group_part)
        if _live(request):
            return HTMLResponse(part)
        values: dict[str, Any] = {
            "group": sight.group,
            "timeline": sight.timeline,
            "part": Markup(part),  # noqa: S704 - drawn by us, and everything in it is escaped
            "topics": list(dict.fromkeys(line.topic for line in sight.lines))[:TOPICS_MAX],
            "strategies": STRATEGIES,
            "what_if": None,
            "scrubbed": None,
            "asked": asked,
        }
        if "strategy" in asked:
            keys = ("name", "join", "leave", "strategy")
            given = {key: asked[key] for key in keys if asked.get(key)}
            values["what_if"] = await self._desk.what_if(
                msgspec.convert(given, wishes.WhatIfWish, strict=False)
            )
        if asked.get("at_ms"):
            values["scrubbed"] = await self._scrubbed(asked)
        return page(request, "group.html", **values)

    async def _scrubbed(self, asked: Mapping[str, str]) -> Scrubbed:
        given = {key: asked[key] for key in ("name", "at_ms") if key in asked}
        wish = msgspec.convert(given, wishes.AtTime, strict=False)
        return await self._desk.scrub(wish.name, wish.at_ms)

    async def reset(self, request: Request) -> Response:
        """Before and after, then the change."""
        form = await form_of(request)
        _checked(request, form)
        wish = msgspec.convert(
            {name: _first(form, name) for name in ("name", "topic", "to")}
            | {"preview": _first(form, "apply") != "yes"},
            wishes.ResetWish,
        )
        return page(request, "reset.html", wish=wish, reset=await self._desk.actions.reset(wish))

    async def topic(self, request: Request) -> Response:
        """Route, queues, groups, and messages that are searched for."""
        asked = query_of(request)
        name = msgspec.convert(asked.get("name"), wishes.Name)
        topic = await self._desk.topic(name)
        part = await self._desk.poller.topic(name).drawn(_topic_part)
        if _live(request):
            return HTMLResponse(part)
        found = None
        if any(asked.get(key) for key in ("key", "id", "since")):
            given = {key: asked[key] for key in ("name", "key", "id", "since", "count") if asked.get(key)}
            wish = msgspec.convert(given, wishes.SearchWish, strict=False)
            found = await self._desk.actions.search(wish)
        part = Markup(part)  # noqa: S704 - drawn by us, and everything in it is escaped
        return page(request, "topic.html", topic=topic, found=found, asked=asked, part=part)

    async def message(self, request: Request) -> Response:
        """Its body, its properties, its trace."""
        wish = msgspec.convert(query_of(request), wishes.MessageWish)
        message = await self._desk.actions.message(wish)
        trace = await self._desk.actions.trace(wishes.TraceWish(id=message.line.message_id))
        return page(request, "message.html", message=message, trace=trace)

    async def resend(self, request: Request) -> Response:
        """Where to, then the copy."""
        form = await form_of(request)
        _checked(request, form)
        wish = msgspec.convert(
            {name: _first(form, name) for name in ("topic", "id", "to")}
            | {"preview": _first(form, "apply") != "yes"},
            wishes.ResendWish,
        )
        resent = await self._desk.actions.resend(wish)
        fields = {"topic": [wish.topic], "id": [wish.id], "to": [wish.to]}
        return page(request, "resent.html", resent=resent, action="/message/resend", fields=fields)

    async def producers(self, request: Request) -> Response:
        """Who is connected in a group of producers."""
        name = query_of(request).get("name", "")
        groups = await self._desk.producer_groups()
        found = None
        if name:
            found = await self._desk.actions.producers(msgspec.convert(name, wishes.Name))
        return page(request, "producers.html", name=name, groups=groups, producers=found)

    async def dead_letters(self, request: Request) -> Response:
        """By group, and the letters of one."""
        asked = query_of(request)
        groups = await self._desk.dead_groups()
        letters = None
        if asked.get("name"):
            given = {key: asked[key] for key in ("name", "skip") if asked.get(key)}
            letters = await self._desk.actions.dead_letters(
                msgspec.convert(given, wishes.DeadWish, strict=False)
            )
        return page(request, "dead_letters.html", groups=groups, letters=letters)

    async def replay(self, request: Request) -> Response:
        """Which ones, then sending."""
        form = await form_of(request)
        _checked(request, form)
        if not form.get("ids"):  # for the API that means all; here somebody took all the marks away
            raise SettingsError("no letter is chosen: go back and mark those that shall be sent")
        wish = msgspec.convert(
            {
                "name": _first(form, "name"),
                "ids": form.get("ids", []),
                "to_origin": _first(form, "to_origin") == "yes",
                "preview": _first(form, "apply") != "yes",
            },
            wishes.ReplayWish,
        )
        resent = await self._desk.actions.replay(wish)
        fields = {
            "name": [wish.name],
            "ids": [letter.offset_message_id for letter in resent.letters],
            "to_origin": ["yes" if wish.to_origin else "no"],
        }
        return page(request, "resent.html", resent=resent, action="/dead-letters/replay", fields=fields)

    async def api(self, request: Request) -> Response:
        """The same answers for programs."""
        return page(request, "api.html", document=openapi())

    async def simulation(self, request: Request) -> Response:
        """What can be simulated."""
        scenarios = await self._desk.scenarios()
        return page(request, "simulation.html", scenarios=scenarios.scenarios, simulated=None, wish={})

    async def simulate(self, request: Request) -> Response:
        """The scenario played."""
        form = await form_of(request)
        _checked(request, form)
        names = ("scenario", "mode", "members", "queues", "brokers", "broker_kind", "seed")
        given = {name: _first(form, name) for name in names if _first(form, name)}
        wish = msgspec.convert(given, wishes.SimulationWish, strict=False)
        simulated = await self._desk.simulate(wish)
        scenarios = await self._desk.scenarios()
        return page(
            request, "simulation.html", scenarios=scenarios.scenarios, simulated=simulated, wish=given
        )
