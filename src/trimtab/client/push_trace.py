"""Message trace of a consumer: that a handler began with a message, and how it ended, told in the trace topic in Java's form."""

import asyncio

from trimtab.client.identity import unique_ids
from trimtab.client.producer import Producer
from trimtab.client.push_outcomes import Call, ConsumeLater
from trimtab.client.received import Received
from trimtab.client.tracing import DEFAULT_REGION, Tracer, sub_after, sub_before
from trimtab.io.chance import Chance
from trimtab.io.clock import Clock
from trimtab.model import Message
from trimtab.settings import ConnectionOptions
from trimtab.wire import properties as names

SUCCESS, TIME_OUT, EXCEPTION, RETURN_NULL, FAILED = range(5)
"""Java's codes; a handler of ours cannot return null."""


class ConsumeTrace:
    """Tells of one consumer's handler."""

    def __init__(
        self, options: ConnectionOptions, group: str, client_id: str, clock: Clock, chance: Chance
    ) -> None:
        self._group = group
        self._clock = clock
        self._ids = unique_ids(clock, chance)
        self._producer = Producer(
            f"_INNER_TRACE_PRODUCER-{group}-CONSUME-1", nameserver=options.nameserver, credentials=options.credentials,
            tls=options.tls, unit_name=options.unit_name,
        )  # fmt: skip
        self._tracer = Tracer(self._send, clock, group, client_id)

    async def start(self) -> None:
        """Begins."""
        await self._producer.start()

    async def close(self) -> None:
        """Tells what is left, within a short time."""
        await self._tracer.close()
        await self._producer.close()

    def traced(self, call: Call) -> Call:
        """The same handler, told of."""

        async def told(received: list[Received]) -> object:
            traced = [m for m in received if m.properties.get(names.TRACE_SWITCH) != "false"]
            request_id = self._ids.next(self._clock.wall_ms())
            began_ms = self._clock.monotonic_ms()
            self._tell_begin(traced, request_id)
            code = SUCCESS
            try:
                return await call(received)
            except ConsumeLater:
                code = FAILED
                raise
            except asyncio.CancelledError:
                code = TIME_OUT
                raise
            except BaseException:
                code = EXCEPTION
                raise
            finally:
                self._tell_end(traced, request_id, self._clock.monotonic_ms() - began_ms, code)

        return told

    def _tell_begin(self, received: list[Received], request_id: str) -> None:
        for message in received:
            self._tracer.tell(
                sub_before(
                    now_ms=self._clock.wall_ms(), region=message.properties.get(names.REGION, DEFAULT_REGION),
                    group=self._group, request_id=request_id, message_id=message.message_id,
                    retry_times=message.reconsume_times, keys=message.keys,
                )
            )  # fmt: skip

    def _tell_end(self, received: list[Received], request_id: str, cost_ms: int, code: int) -> None:
        for message in received:
            self._tracer.tell(
                sub_after(
                    now_ms=self._clock.wall_ms(), group=self._group, request_id=request_id, message_id=message.message_id,
                    cost_ms=cost_ms, is_success=code == SUCCESS, keys=message.keys, context_code=code,
                )
            )  # fmt: skip

    async def _send(self, message: Message) -> None:
        await self._producer.send(message)
