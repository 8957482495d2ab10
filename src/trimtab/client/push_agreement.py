"""Whether the members of a group want the same: a broker keeps one set of subscriptions per group, the last told.

Our pulls carry their own filter, so a member gets from its queues what it asked for, whatever others say. But queues move between
members, and then another filter decides about the messages in them: that is nearly always a mistake, so it is told once.
"""

import logging

from trimtab.client.session import Session
from trimtab.client.subscriptions import Subscriptions
from trimtab.errors import TrimtabError
from trimtab.wire.bodies import ConsumerConnection, SubscriptionData
from trimtab.wire.codes import RequestCode
from trimtab.wire.fastjson import decode_body
from trimtab.wire.headers.consume import GroupOnly

_log = logging.getLogger(__name__)


def disagreements(mine: tuple[SubscriptionData, ...], told: dict[str, SubscriptionData]) -> dict[str, str]:
    """By topic, what another member wants instead. PURE."""
    differing: dict[str, str] = {}
    for data in mine:
        other = told.get(data.topic)
        if other is None:
            differing[data.topic] = "does not subscribe to it"
        elif (other.sub_string, other.expression_type) != (data.sub_string, data.expression_type):
            differing[data.topic] = f"wants {other.expression_type} {other.sub_string!r} of it"
    return differing


class Agreement:
    """Compares now and then what a broker was told with what this member wants."""

    def __init__(self, session: Session, group: str, subscriptions: Subscriptions) -> None:
        self._session = session
        self._group = group
        self._subscriptions = subscriptions
        self._told: set[tuple[str, str]] = set()

    async def look(self) -> None:
        """One comparison, at one broker."""
        mine = self._subscriptions.all
        address = next(iter(self._session.broker_addresses()), None)
        if address is None:
            return
        try:
            answer = await self._session.ask(
                address, RequestCode.GET_CONSUMER_CONNECTION_LIST, GroupOnly(consumer_group=self._group),
                asked=f"connections of group {self._group!r}",
            )  # fmt: skip
        except TrimtabError:
            return  # nobody is registered there yet, or we may not ask; nothing follows from that
        table = decode_body(ConsumerConnection, answer.body).subscription_table
        for topic, what in disagreements(mine, table).items():
            if (topic, what) in self._told:
                continue
            self._told.add((topic, what))
            own = self._subscriptions.get(topic)
            _log.warning(
                "the members of group %s do not want the same of topic %s: this one wants %r, another one %s; give all"
                " members of a group the same subscriptions",
                self._group, topic, None if own is None else own.sub_string, what,
            )  # fmt: skip
