"""How a pull is put, and to whom."""

from trimtab.balance.pipeline import Pull
from trimtab.client.pulls_values import Riding, Wanted
from trimtab.client.routes import MASTER, Route
from trimtab.client.session import Session
from trimtab.errors import NoRouteError
from trimtab.io.connection import PeerConnection
from trimtab.model import MessageQueue
from trimtab.settings import Pulling
from trimtab.wire.codes import RequestCode
from trimtab.wire.headers.consume import PullMessage
from trimtab.wire.hot import PullFrames

COMMIT_FLAG = 1
SUSPEND_FLAG = 2
SUBSCRIPTION_FLAG = 4


class Asking:
    """The pulls of one queue as frames, and the broker that they go to."""

    def __init__(
        self, session: Session, group: str, queue: MessageQueue, wanted: Wanted, pulling: Pulling
    ) -> None:
        self._session = session
        self._group = group
        self._queue = queue
        self._pulling = pulling
        self.broker_id = MASTER
        """Which of the brokers with the queue's broker name the last answer suggested: the master, or a slave."""
        self.want(wanted)

    def want(self, wanted: Wanted) -> None:
        """Which messages are asked for from now on."""
        self.wanted = wanted
        self._frames = PullFrames(self._header(Pull(0, 0, 0, may_wait=False), None))

    def connection_now(self) -> PeerConnection | None:
        """The connection to pull over, if it stands."""
        route = self._session.route_now(self._queue.topic)
        address = None if route is None else self._address(route)
        return None if address is None else self._session.connection_now(address)

    async def connect(self, *, anew: bool) -> None:
        """Makes sure of a connection; `anew` after a failure, when the route may have changed."""
        topic = self._queue.topic
        route = await self._session.route(topic)
        if anew and self.connection_now() is None:
            route = await self._session.refresh_route(topic)
        address = self._address(route)
        if address is None:
            await self._session.refresh_route(topic)
            name = self._queue.broker_name
            raise NoRouteError(f"pull of {self._queue}: the route has no broker {name!r}; is it running?")
        await self._session.connection(address)

    def _address(self, route: Route) -> str | None:
        """The suggested broker; where there is none with that id, the master, else any of that name."""
        by_id = route.addresses.get(self._queue.broker_name, {})
        return by_id.get(self.broker_id) or by_id.get(MASTER) or next(iter(by_id.values()), None)

    def frame(self, pull: Pull, opaque: int, riding: Riding | None) -> bytes:
        """The request as it goes on the wire."""
        header = self._header(pull, riding if self.broker_id == MASTER else None)
        if self._session.credentials is not None:
            return self._session.frame(RequestCode.PULL_MESSAGE, header, opaque=opaque)
        return self._frames.encode(header, opaque=opaque)

    def _header(self, pull: Pull, riding: Riding | None) -> PullMessage:
        wanted = self.wanted
        sys_flag = (
            (COMMIT_FLAG if riding is not None else 0)
            | (SUSPEND_FLAG if pull.may_wait else 0)
            | (SUBSCRIPTION_FLAG if wanted.is_posted else 0)
        )
        return PullMessage(
            consumer_group=self._group,
            topic=self._queue.topic,
            queue_id=self._queue.queue_id,
            queue_offset=pull.offset,
            max_msg_nums=pull.messages_max,
            sys_flag=sys_flag,
            commit_offset=0 if riding is None else riding.offset,
            suspend_timeout_millis=self._pulling.suspend_ms if pull.may_wait else 0,
            sub_version=wanted.version,
            subscription=wanted.expression if wanted.is_posted else None,
            expression_type=wanted.kind,
            max_msg_bytes=self._pulling.pull_bytes_max,
            lease_epoch=None if riding is None else riding.lease_epoch,
        )
