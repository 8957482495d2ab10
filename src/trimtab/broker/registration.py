"""Telling the name servers what topics there are: at the start, every 30 s, and when they change."""

import asyncio
import logging
import ssl
from collections.abc import Callable, Collection, Iterable

from trimtab.errors import TrimtabError
from trimtab.io.connection import PeerConnection
from trimtab.wire.bodies import (
    RegisterBrokerBody,
    TopicConfigAndMappingSerializeWrapper,
    TopicConfigSerializeWrapper,
    encode_register_body,
)
from trimtab.wire.codes import SPOKEN_VERSION, RequestCode, ResponseCode
from trimtab.wire.commands import Command
from trimtab.wire.headers.base import Header, encode_ext
from trimtab.wire.headers.names import BrokerIdentity, RegisterBroker
from trimtab.wire.signing import Credentials

_log = logging.getLogger(__name__)

EVERY_S = 30.0
ANSWER_S_MAX = 6.0
TOLD_S_MAX = 3.0
"""So long somebody waits to hear that the name servers know."""


class Registrar:
    """Keeps one broker registered with all of its name servers. None of them can hold up the others."""

    def __init__(
        self,
        nameservers: tuple[str, ...],
        identity: RegisterBroker,
        topics: Callable[[], TopicConfigSerializeWrapper],
        *,
        every_s: float = EVERY_S,
        tls: ssl.SSLContext | None = None,
        credentials: Callable[[], Credentials | None] = lambda: None,
    ) -> None:
        """`credentials` is asked for each request: accounts may change meanwhile."""
        self._credentials = credentials
        self._accepted: dict[str, Credentials] = {}
        """What each name server took last."""
        self._identity = identity
        self._topics = topics
        self._every_s = every_s
        self._tls = tls
        self._connections: dict[str, PeerConnection | None] = dict.fromkeys(nameservers)
        self._behind = set(nameservers)
        """Those that missed something: they are told of all topics."""
        self._wanted = asyncio.Event()
        self._is_all_wanted = False
        self._wanted_topics: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        self._waiting: list[asyncio.Future[None]] = []

    async def start(self) -> None:
        """Registers once, then keeps on by itself."""
        await self._register_everywhere()
        self._task = asyncio.create_task(self._keep_on(), name="trimtab-registrar")

    async def now(self) -> None:
        """Registers once more, without waiting for the next time."""
        await self._register_everywhere()

    def soon(self, topics: Iterable[str] | None = None) -> None:
        """These topics changed, or all may have."""
        if topics is None:
            self._is_all_wanted = True
        else:
            self._wanted_topics.update(topics)
        self._wanted.set()

    def when_told(self, then: Callable[[], None]) -> None:
        """Calls back when the name servers know the present topics; after a while even if one of them is silent."""
        loop = asyncio.get_running_loop()
        told: asyncio.Future[None] = loop.create_future()
        told.add_done_callback(lambda _: then())
        loop.call_later(TOLD_S_MAX, _settle, told)
        self._waiting.append(told)
        self.soon(())

    async def stop(self, *, says_goodbye: bool = True) -> None:
        """Says goodbye to the name servers that can be reached."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._let_go(self._waiting)
        if says_goodbye:
            await asyncio.gather(*(self._unregister(address) for address in self._connections))
        for connection in self._connections.values():
            if connection is not None:
                connection.close()

    async def _keep_on(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._every_s):
                    await self._wanted.wait()
            except TimeoutError:
                self._is_all_wanted = True
            self._wanted.clear()
            waiting, self._waiting = self._waiting, []
            news = None if self._is_all_wanted else self._wanted_topics
            self._is_all_wanted, self._wanted_topics = False, set()
            try:
                await self._register_everywhere(news)
            finally:
                self._let_go(waiting)

    @staticmethod
    def _let_go(waiting: list[asyncio.Future[None]]) -> None:
        for told in waiting:
            _settle(told)

    async def _register_everywhere(self, news: Collection[str] | None = None) -> None:
        """Of all topics, or only of these where nothing else is missing."""
        behind = [address for address in self._connections if news is None or self._is_behind(address)]
        up_to_date = [address for address in self._connections if address not in behind]
        # Encoded before anybody waits, so that both are of one moment.
        tables = [(behind, self._table(None)), (up_to_date, self._table(news or ()))]
        await asyncio.gather(
            *(self._register(address, table) for some, table in tables for address in some if table)
        )

    def _is_behind(self, address: str) -> bool:
        connection = self._connections[address]
        return address in self._behind or connection is None or not connection.is_open

    def _table(self, names: Collection[str] | None) -> bytes:
        """What is registered of these topics, or of all; nothing if none of them exists."""
        topics = self._topics()
        table = dict(topics.topic_config_table)
        if names is not None:
            table = {name: table[name] for name in names if name in table}
            if not table:
                return b""
        wrapper = TopicConfigAndMappingSerializeWrapper(
            topic_config_table=table, data_version=topics.data_version
        )
        body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper)
        return encode_register_body(body, compressed=False, version=SPOKEN_VERSION)

    async def _register(self, address: str, body: bytes) -> None:
        self._behind.add(address)  # until it says otherwise
        try:
            answer = await self._ask(address, RequestCode.REGISTER_BROKER, self._identity, body)
        except TrimtabError as error:
            _log.warning("not registered with name server %s: %s", address, error)
            return
        if answer.code == ResponseCode.SUCCESS:
            self._behind.discard(address)
        else:
            _log.warning("name server %s refused the registration: %s", address, answer.remark)

    async def _unregister(self, address: str) -> None:
        identity = self._identity
        goodbye = BrokerIdentity(
            broker_name=identity.broker_name,
            broker_addr=identity.broker_addr,
            cluster_name=identity.cluster_name,
            broker_id=identity.broker_id,
        )
        connection = self._connections[address]
        if connection is None or not connection.is_open:
            return
        try:
            await self._ask(address, RequestCode.UNREGISTER_BROKER, goodbye, b"")
        except TrimtabError as error:
            _log.info("name server %s was not told that this broker stops: %s", address, error)

    async def _ask(self, address: str, code: RequestCode, header: Header, body: bytes) -> Command:
        """Signed by the account as it is now. A name server with accounts of its own may know of no change yet: then as before."""
        present, former = self._credentials(), self._accepted.get(address)
        answer = await self._ask_as(present, address, code, header, body)
        if answer.code == ResponseCode.SUCCESS:
            if present is not None:
                self._accepted[address] = present
        elif former is not None and former != present:
            answer = await self._ask_as(former, address, code, header, body)
        return answer

    async def _ask_as(
        self, credentials: Credentials | None, address: str, code: RequestCode, header: Header, body: bytes
    ) -> Command:
        connection = self._connections[address]
        if connection is None or not connection.is_open:
            connection = self._connections[address] = await PeerConnection.open(address, tls=self._tls)
        ext = encode_ext(header)
        if credentials is not None:
            ext = credentials.signed(ext, body)
        command = Command(code=code, opaque=connection.next_opaque(), ext=ext, body=body)
        return await connection.ask(command, timeout_s=ANSWER_S_MAX)


def _settle(told: asyncio.Future[None]) -> None:
    if not told.done():
        told.set_result(None)
