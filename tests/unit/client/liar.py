"""A server on loopback that says what a test tells it to say: name server and broker in one, honest only about its route."""

import asyncio
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self, cast

from trimtab.wire.bodies import BrokerData, QueueData, TopicRouteData
from trimtab.wire.codes import RESPONSE_FLAG, RequestCode, ResponseCode
from trimtab.wire.commands import Command, decode_command, encode_command
from trimtab.wire.fastjson_writer import encode_body
from trimtab.wire.frames import FrameDecoder

BROKER = "liar"
HONEST = (RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT)

Say = Callable[["Talk", Command], None]


class Talk(asyncio.Protocol):
    """One connection to the liar."""

    def __init__(self, liar: "Liar") -> None:
        self._liar = liar
        self._decoder = FrameDecoder()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._liar.talks.append(self)
        if not self._liar.listens:
            self.transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        for frame in self._decoder.feed(data):
            command = decode_command(frame)
            if command.is_response:
                self._liar.answers.append(command)
            else:
                self._liar.asked(self, command)

    def say(self, data: bytes) -> None:
        """Any bytes at all."""
        self.transport.write(data)

    def answer(
        self,
        request: Command,
        code: int = ResponseCode.SUCCESS,
        *,
        ext: dict[str, str] | None = None,
        body: bytes = b"",
        remark: str | None = None,
    ) -> None:
        """An answer in good form."""
        self.say(
            encode_command(
                Command(
                    code=code,
                    opaque=request.opaque,
                    flag=RESPONSE_FLAG,
                    ext=ext or {},
                    body=body,
                    remark=remark,
                )
            )
        )

    def stored(self, request: Command, offset: int = 0) -> None:
        """The answer that a send wants."""
        self.answer(request, ext={"msgId": "0" * 32, "queueId": "0", "queueOffset": str(offset)})


class Liar:
    """`async with Liar(say) as liar`; `say` gets every request that is not about routes, heartbeats and goodbyes."""

    def __init__(
        self, say: Say = lambda _talk, _command: None, *, queues: int = 1, listens: bool = True
    ) -> None:
        self._say = say
        self._queues = queues
        self.listens = listens
        self.talks: list[Talk] = []
        self.answers: list[Command] = []
        self.requests: list[Command] = []
        self.brokers: dict[str, str] = {}
        """The brokers of every topic, name to address; itself alone, if there are none."""
        self.address = ""

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Talk(self), "127.0.0.1", 0)
        self.address = "{}:{}".format(*self._server.sockets[0].getsockname())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for talk in self.talks:
            talk.transport.abort()
        await self._server.wait_closed()
        await asyncio.sleep(0)

    def asked(self, talk: Talk, command: Command) -> None:
        if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            talk.answer(command, body=encode_body(self._route(self.brokers or {BROKER: self.address})))
        elif command.code in HONEST:
            talk.answer(command)
        else:
            self.requests.append(command)
            self._say(talk, command)

    def _route(self, brokers: dict[str, str]) -> TopicRouteData:
        return TopicRouteData(
            queue_datas=tuple(_queues(brokers, self._queues)),
            broker_datas=tuple(
                BrokerData(cluster="c", broker_name=name, broker_addrs={0: address})
                for name, address in brokers.items()
            ),
        )


def _queues(brokers: Iterable[str], count: int) -> Iterable[QueueData]:
    for name in brokers:
        yield QueueData(
            broker_name=name, read_queue_nums=count, write_queue_nums=count, perm=6, topic_sys_flag=0
        )
