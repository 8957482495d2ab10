"""What a push consumer does around consuming: look for routes, have filters checked, do chores again and again."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from trimtab.client.session import Session
from trimtab.errors import TrimtabError
from trimtab.wire.bodies import CheckClientRequestBody, SubscriptionData
from trimtab.wire.codes import RequestCode
from trimtab.wire.fastjson_writer import encode_body
from trimtab.wire.resources import RETRY_PREFIX

_log = logging.getLogger(__name__)


async def each(
    every_s: float, work: Callable[[], Coroutine[Any, Any, None]], *, first_s: float | None = None
) -> None:
    """Again and again; what goes wrong once is told, and does not end it."""
    await asyncio.sleep(every_s if first_s is None else first_s)
    while True:
        try:
            await work()
        except TrimtabError as error:
            _log.warning("%s: %s", work.__name__, error)
        except Exception:  # noqa: BLE001 - a chore that fails must not be the last one
            _log.exception("%s failed; it is done again after %g s", work.__name__, every_s)
        await asyncio.sleep(every_s)


async def find_routes(session: Session, group: str, topics: Iterable[str]) -> None:
    """So that the first heartbeat reaches every broker; a topic that is not there yet may come later."""
    own = [topic for topic in topics if not topic.startswith(RETRY_PREFIX)]
    for outcome in await asyncio.gather(*map(session.route, own), return_exceptions=True):
        if isinstance(outcome, TrimtabError):
            _log.warning("%s begins without a topic: %s", group, outcome)
        elif isinstance(outcome, BaseException):
            raise outcome


async def check_filters(session: Session, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
    """SQL92 can only be judged by a broker: an expression that it does not take is an error now and not silence later."""
    for data in subscriptions:
        route = session.route_now(data.topic)
        masters = [] if route is None else list(filter(None, map(route.master_of, route.addresses)))
        body = CheckClientRequestBody(client_id=session.client_id, group=group, subscription_data=data)
        for address in masters[:1]:
            await session.ask(
                address, RequestCode.CHECK_CLIENT_CONFIG, body=encode_body(body), asked=f"filter for topic {data.topic!r}"
            )  # fmt: skip
