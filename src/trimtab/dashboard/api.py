"""The JSON API: one table of endpoints, from which routes, checks and the OpenAPI document are made."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from trimtab.client.admin.reach import NoSuchGroupError, NoSuchTopicError, is_unreachable
from trimtab.dashboard import answers, wishes
from trimtab.dashboard.desk import Desk
from trimtab.dashboard.subject import BusyError
from trimtab.errors import NoMessageError, SettingsError, TopicNotFoundError, TrimtabError

PREFIX = "/api/v1"
Handler = Callable[[Desk, Any], Awaitable[answers.Answer]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One question or change. A GET takes its wish from the query, a POST from a JSON body, and only operators may POST."""

    method: Literal["GET", "POST"]
    path: str
    says: str
    wish: type[wishes.Wish]
    answer: type[answers.Answer]
    handler: Handler


def _get(
    path: str, says: str, wish: type[wishes.Wish], answer: type[answers.Answer], handler: Handler
) -> Endpoint:
    return Endpoint(method="GET", path=path, says=says, wish=wish, answer=answer, handler=handler)


def _post(
    path: str, says: str, wish: type[wishes.Wish], answer: type[answers.Answer], handler: Handler
) -> Endpoint:
    return Endpoint(method="POST", path=path, says=says, wish=wish, answer=answer, handler=handler)


ENDPOINTS = (
    _get(
        "/overview",
        "The cluster at a glance.",
        wishes.Nothing,
        answers.Overview,
        lambda desk, _: desk.overview(),
    ),
    _get(
        "/group",
        "A group: who holds what.",
        wishes.Named,
        answers.Group,
        lambda desk, wish: desk.group(wish.name),
    ),
    _get(
        "/group/timeline",
        "What was recorded of a group.",
        wishes.Named,
        answers.Timeline,
        lambda desk, wish: desk.timeline(wish.name),
    ),
    _get(
        "/group/at",
        "Who held what at some time, by what was recorded.",
        wishes.AtTime,
        answers.Scrubbed,
        lambda desk, wish: desk.scrub(wish.name, wish.at_ms),
    ),
    _get(
        "/group/what-if",
        "How queues would be shared.",
        wishes.WhatIfWish,
        answers.WhatIf,
        lambda desk, wish: desk.what_if(wish),
    ),
    _post(
        "/group/reset",
        "Moves a group in a topic; by default only says what that would do.",
        wishes.ResetWish,
        answers.Reset,
        lambda desk, wish: desk.actions.reset(wish),
    ),
    _get("/topic", "A topic.", wishes.Named, answers.Topic, lambda desk, wish: desk.topic(wish.name)),
    _get(
        "/topic/messages",
        "Messages by key, by id, or from a time on.",
        wishes.SearchWish,
        answers.MessageLines,
        lambda desk, wish: desk.actions.search(wish),
    ),
    _get(
        "/message",
        "A message with its body.",
        wishes.MessageWish,
        answers.Message,
        lambda desk, wish: desk.actions.message(wish),
    ),
    _get(
        "/message/trace",
        "What clients recorded of a message.",
        wishes.TraceWish,
        answers.Trace,
        lambda desk, wish: desk.actions.trace(wish),
    ),
    _post(
        "/message/resend",
        "Sends a copy of a message; by default only says where to.",
        wishes.ResendWish,
        answers.Resent,
        lambda desk, wish: desk.actions.resend(wish),
    ),
    _get(
        "/producers/groups",
        "Groups of producers that are connected, from brokers that keep a list of them.",
        wishes.Nothing,
        answers.ProducerNames,
        lambda desk, _: desk.producer_groups(),
    ),
    _get(
        "/producers",
        "Producers of a group that are connected.",
        wishes.Named,
        answers.Producers,
        lambda desk, wish: desk.actions.producers(wish.name),
    ),
    _get(
        "/dead-letters",
        "Groups with dead letters.",
        wishes.Nothing,
        answers.DeadGroups,
        lambda desk, _: desk.dead_groups(),
    ),
    _get(
        "/dead-letters/group",
        "Dead letters of a group.",
        wishes.DeadWish,
        answers.DeadLetters,
        lambda desk, wish: desk.actions.dead_letters(wish),
    ),
    _post(
        "/dead-letters/replay",
        "Lets a group try its dead letters again; by default only says which.",
        wishes.ReplayWish,
        answers.Resent,
        lambda desk, wish: desk.actions.replay(wish),
    ),
    _get(
        "/simulation",
        "Scenarios that can be simulated.",
        wishes.Nothing,
        answers.Scenarios,
        lambda desk, _: desk.scenarios(),
    ),
    _post(
        "/simulation",
        "Plays a scenario on virtual time.",
        wishes.SimulationWish,
        answers.Simulated,
        lambda desk, wish: desk.simulate(wish),
    ),
)


def api_routes(desk: Desk) -> list[Route]:
    """A route for each endpoint."""
    return [
        Route(PREFIX + one.path, _endpoint(one, desk), methods=[one.method], name=f"{one.method} {one.path}")
        for one in ENDPOINTS
    ]


def _endpoint(one: Endpoint, desk: Desk) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            wish = await wish_of(one, request)
            return json_response(await one.handler(desk, wish))
        except msgspec.DecodeError as error:  # also what has the wrong shape
            return json_response(answers.Refusal(error=str(error)), 400)
        except TrimtabError as error:
            return json_response(answers.Refusal(error=str(error)), status_of(error))

    return answer


async def wish_of(one: Endpoint, request: Request) -> wishes.Wish:
    """What is asked for, checked."""
    if one.method == "GET":
        return msgspec.convert(query_of(request), one.wish, strict=False)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise msgspec.ValidationError("send JSON, with the header Content-Type: application/json")
    try:
        body = await request.body()
    except ClientDisconnect:
        raise HTTPException(413, "the request is too large") from None
    return msgspec.json.decode(body, type=one.wish)


def query_of(request: Request) -> dict[str, str]:
    """The query's parameters; the same one twice is refused."""
    found: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in found:
            raise msgspec.ValidationError(f"{name} is given twice")
        found[name] = value
    return found


def json_response(answer: answers.Answer, status: int = 200) -> Response:
    """As JSON."""
    return Response(msgspec.json.encode(answer), status, media_type="application/json")


def status_of(error: TrimtabError) -> int:
    """An error as HTTP says it."""
    match error:
        case NoSuchTopicError() | NoSuchGroupError() | NoMessageError() | TopicNotFoundError():
            return 404
        case SettingsError():
            return 400
        case BusyError():
            return 503
        case _:
            return 504 if is_unreachable(error) else 502
