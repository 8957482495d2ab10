"""Sending: choose a queue, survive bad brokers, and give a receipt for every message.

A send goes: check, choose a queue by the policy, join the queue's lane, wait for the receipt. A failed attempt is told to the
policy and, if the failure is of a kind that may be tried again and time is left, the message goes to another broker, with the same
id. What was sent and not answered may have been stored: such an error says `indeterminate`. A message with a key, or for
a given queue, has one place to go to and one try.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from trimtab.balance.pick import BrokerStanding
from trimtab.client.checks import check_group, check_message, check_seconds
from trimtab.client.identity import unique_ids
from trimtab.client.namespaces import with_namespace
from trimtab.client.producer_delivery import Delivery, make_policy
from trimtab.client.producer_lanes import Lanes
from trimtab.client.producer_many import outcomes_after, outcomes_of
from trimtab.client.producer_packing import Packer
from trimtab.client.producer_places import Place, key_property, on_wire, same_broker
from trimtab.client.producer_standings import PROPERTY, choices_text
from trimtab.client.requests import Reply, Requests
from trimtab.client.selectors import Selector
from trimtab.client.session_roles import guarded
from trimtab.client.sessions import acquire_session, connection_options, release_session
from trimtab.client.tracing import Tracer
from trimtab.client.transactions import Check, Execute, TransactionReceipt, Transactions
from trimtab.errors import ClosedError, NotSentError, PartlySentError, TrimtabError
from trimtab.io.chance import Chance, seeded_chance
from trimtab.io.clock import Clock, SystemClock
from trimtab.io.connection import PeerConnection
from trimtab.model import Message, MessageQueue, Receipt
from trimtab.settings import Sending, Timeouts, Tls
from trimtab.wire.bodies import ConsumerRunningInfo
from trimtab.wire.codes import ONEWAY_FLAG, RequestCode
from trimtab.wire.commands import Command
from trimtab.wire.fastjson_writer import encode_body
from trimtab.wire.headers.base import decode_ext
from trimtab.wire.headers.callbacks import GetInfoOfOurs
from trimtab.wire.signing import Credentials

if TYPE_CHECKING:
    from trimtab.client.received import Received
    from trimtab.client.session import Session

_log = logging.getLogger(__name__)


class Producer:
    """Sends messages. Use it as `async with Producer("group", nameserver="host:port") as producer`."""

    def __init__(
        self,
        group: str,
        *,
        nameserver: str | None = None,
        client_id: str | None = None,
        credentials: Credentials | None = None,
        tls: Tls = None,
        namespace: str | None = None,
        unit_name: str | None = None,
        sending: Sending | None = None,
        timeouts: Timeouts | None = None,
        check: Check | None = None,
        clock: Clock | None = None,
        chance: Chance | None = None,
    ) -> None:
        """`check` is asked by brokers for the fate of transactions that this group left open."""
        check_group(with_namespace(namespace, group))
        self.group = group
        self.sending = sending or Sending()
        self.timeouts = timeouts or Timeouts()
        self._options = connection_options(
            nameserver, credentials=credentials, tls=tls, namespace=namespace, unit_name=unit_name
        )
        self._given_client_id = client_id
        self._clock = clock or SystemClock()
        self._chance = chance or seeded_chance()
        self._wire_group = with_namespace(namespace, group)
        self._policy = make_policy(self.sending.policy, self._chance)
        self._check = check
        self._is_open = False
        self._tracer: Tracer | None = None
        self._packer: Packer
        self._session: Session
        self._lanes: Lanes
        self._delivery: Delivery
        self._trace_delivery: Delivery
        self._closing: asyncio.Task[None] | None = None
        self._transactions: Transactions
        self._requests: Requests
        self._loop: asyncio.AbstractEventLoop
        self._end_listening: Callable[[], None]

    def __repr__(self) -> str:
        return (
            f"<Producer group={self.group!r} policy={self._policy.name}{'' if self._is_open else ' closed'}>"
        )

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def client_id(self) -> str:
        """How brokers list this producer, once it has started."""
        return self._session.client_id

    def brokers(self) -> list[BrokerStanding]:
        """How the policy sees the brokers now, best first."""
        return self._policy.brokers(self._clock.monotonic_ms())

    async def start(self) -> None:
        """Begins; `async with` does it."""
        if self._is_open:
            return
        await self.close()  # to its end, if that was not waited for
        self._loop = asyncio.get_running_loop()
        # Not when it is made: a process may have been forked since, and ids say whose they are.
        ids = unique_ids(self._clock, self._chance)
        self._packer = Packer(self.sending, self._options.namespace, self._clock, ids)
        session = self._session = acquire_session(
            self._options, self._given_client_id, self._clock, self._chance, self.timeouts
        )
        session.roles.add_producer(self._wire_group)
        if self.sending.trace:
            self._tracer = Tracer(self._send_trace, self._clock, self.group, session.client_id)
        self._lanes = Lanes(
            session,
            self._policy,
            self.sending,
            group=self._wire_group,
            namespace=self._options.namespace,
            on_stored=None if self._tracer is None else self._tracer.stored,
        )
        self._delivery = self._new_delivery()
        # Traces have a room of their own: they are told until the end, when nothing else is sent any more.
        self._trace_delivery = self._new_delivery()
        self._transactions = Transactions(
            session, self._wire_group, self._check, self._options.namespace, self._tracer
        )
        self._requests = Requests(session, self._chance)
        await session.start()
        self._end_listening = session.listen(
            RequestCode.GET_CONSUMER_RUNNING_INFO, guarded(self._tell_choices)
        )
        # Brokers that the session knows already would hear of this group with the next heartbeat only, and ask nobody until then.
        session.introduce_producers_soon()
        self._is_open = True

    async def close(self) -> None:
        """Waits for what is on its way, as long as a send may take, and closes.

        Whoever stops waiting for it does not stop it; a second call waits for its end.
        """
        if self._is_open:
            self._is_open = False
            self._end_listening()
            self._closing = asyncio.create_task(self._close())
        if self._closing is not None and not self._closing.done():
            await asyncio.shield(self._closing)

    async def _close(self) -> None:
        # From the last line to the first, each whatever became of those before it.
        async with AsyncExitStack() as rest:
            rest.push_async_callback(release_session, self._session, producer_group=self._wire_group)
            rest.push_async_callback(self._lanes.close)
            rest.push_async_callback(self._requests.close)
            if self._tracer is not None:
                rest.push_async_callback(self._tracer.close)
            rest.push_async_callback(self._transactions.close)
            try:
                async with asyncio.timeout(self.timeouts.send_s):
                    await self._delivery.close()
            except TimeoutError:
                _log.warning("%s closes with sends unanswered", self)

    # --- sending ----------------------------------------------------------------------------------------------

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        key: str | None = None,
        selector: str | Selector | None = None,
        arg: object = None,
    ) -> Receipt:
        """Sends a message.

        With a `queue` it goes there. With a `key` it goes where all messages of the key go, by the hash that `selector` or
        the settings name. With a function as `selector` it goes where that says: it gets the queues, the message and
        `arg` (the key, if there is no `arg`). In these three cases there is one try.
        """
        if not self._is_open:
            raise _not_open()
        if queue is None and key is None and selector is None:
            outcome = await self._delivery.of(self._packer.pack(message), None)
        else:
            extra = "" if key is None else key_property(key)
            parcel = self._packer.pack(message, extra=extra)
            outcome = await self._delivery.of(parcel, Place(message, queue, key, selector, arg))
        assert isinstance(outcome, Receipt), "one message has one receipt"
        return outcome

    async def send_many(self, messages: Iterable[Message]) -> list[Receipt]:
        """Sends all of them, some thousand at once; the receipts are in their order.

        However many they are, they are taken as the brokers answer, and the time of each begins when its turn comes. All are sent even if some
        fail; then `PartlySentError` has every receipt and every error. A producer that is closed meanwhile takes no more of them.
        """
        if not self._is_open:
            raise _not_open()
        outcomes = await outcomes_of(self._send_when_there_is_room, messages)
        receipts = [outcome for outcome in outcomes if isinstance(outcome, Receipt)]
        if len(receipts) < len(outcomes):
            raise PartlySentError(outcomes)
        return receipts

    async def send_batch(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | None = None,
        key: str | None = None,
        split: bool = False,
    ) -> list[Receipt]:
        """Sends messages of one topic as one request: they are stored together, in one queue, or not at all.

        More than fits one request is an error, or with `split` as many requests as it takes, one after the other,
        each stored or not by itself. After the first that fails no more are sent; if others were stored, `PartlySentError`
        has their receipts and the errors of the rest.
        """
        if not self._is_open:
            raise _not_open()
        messages = tuple(messages)
        parcels = self._packer.pack_batch(messages, split=split)
        place = None if queue is None and key is None else Place(messages[0], queue, key)
        receipts: list[Receipt] = []
        for number, parcel in enumerate(parcels):
            try:
                outcome = await self._delivery.of(parcel, place)
            except TrimtabError as error:
                if not receipts:
                    raise
                raise PartlySentError(outcomes_after(receipts, parcels[number:], error)) from error
            assert isinstance(outcome, list), "a batch has a receipt for each message"
            receipts += outcome
        return receipts

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        key: str | None = None,
        selector: str | Selector | None = None,
        arg: object = None,
    ) -> None:
        """Sends a message that nobody answers for: it may be lost without a word. Waits while the connection takes no more.

        Where it goes is said as for `send`.
        """
        if not self._is_open:
            raise _not_open()
        parcel = self._packer.pack(message, extra="" if key is None else key_property(key))
        is_free = queue is None and key is None and selector is None
        place = None if is_free else Place(message, queue, key, selector, arg)
        deadline = self._loop.time() + self.timeouts.send_s
        try:
            async with asyncio.timeout_at(deadline):
                route = await self._delivery.route(self._packer.topic(message))
                if place is None:
                    now_ms = self._clock.monotonic_ms()
                    choice = self._policy.choose(route.writable, None, now_ms)
                else:
                    choice = place.choice(
                        route.writable.queues, self._options.namespace, self.sending.selector
                    )
                lane = self._lanes.lane(route, choice.queue)
                connection = await self._session.connection(lane.address)
                await connection.room()
        except TimeoutError:
            raise NotSentError(f"one-way send to {message.topic!r}: no connection took it in time") from None
        connection.send(self._lanes.oneway_frame(lane, parcel, connection.next_opaque(), ONEWAY_FLAG))

    async def send_in_transaction(self, message: Message, execute: Execute) -> TransactionReceipt:
        """Sends a message that others see only if the local transaction `execute` commits.

        `execute(message, transaction_id)` may be a function (run in a thread) or a coroutine function; it says what became of it. If it raises, takes more than a minute, or
        this process dies, the brokers ask the `check` of a producer of this group later on.
        """
        if not self._is_open:
            raise _not_open()
        parcel = self._packer.pack_half(message, self._wire_group)
        receipt = await self._delivery.of(parcel, None)
        assert isinstance(receipt, Receipt), "one message has one receipt"
        lane = self._lanes.lane(
            await self._delivery.route(parcel.topic), on_wire(self._options.namespace, receipt.queue)
        )
        return await self._transactions.finish(message, receipt, parcel.topic, lane.address, execute)

    async def request(
        self, message: Message, *, timeout_s: float | None = None, key: str | None = None
    ) -> Reply:
        """Sends a message and waits for the reply that a consumer gives to it with `reply`."""
        if not self._is_open:
            raise _not_open()
        timeout_s = self.timeouts.request_s if timeout_s is None else timeout_s
        check_seconds("timeout_s", timeout_s)
        check_message(message)

        async def ask(extra: str) -> None:
            await self._delivery.route(self._packer.topic(message))
            # Brokers push the reply to the producer they know by its client id: they must know us first. One that hangs is not waited for.
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s / 3):
                    await self._session.introduce_producers()
            await self._delivery.of(
                self._packer.pack(message, extra=extra),
                None if key is None else Place(message, key=key),
            )

        return await self._requests.ask(message.topic, ask, timeout_s)

    async def reply(self, to: "Received", body: bytes) -> Receipt:
        """Answers a message that was sent with `request`."""
        topic, extra = Requests.reply_to(to)
        message = Message(topic, body)
        if not self._is_open:
            raise _not_open()
        parcel = self._packer.pack_reply(message, extra)
        outcome = await self._delivery.of(parcel, Place(message, selector=same_broker, arg=to.broker_name))
        assert isinstance(outcome, Receipt), "one message has one receipt"
        return outcome

    def _tell_choices(self, connection: PeerConnection, command: Command) -> bool:
        header = decode_ext(GetInfoOfOurs, command.ext)
        if not header.of_producer or header.consumer_group != self._wire_group:
            return False
        text = choices_text(self._policy.name, self.brokers(), self._clock.monotonic_ms())
        info = ConsumerRunningInfo(properties={PROPERTY: text})
        self._session.answer(connection, command, body=encode_body(info))
        return True

    async def _send_when_there_is_room(self, message: Message) -> Receipt:
        outcome = await self._delivery.of(self._packer.pack(message), None, is_patient=True)
        assert isinstance(outcome, Receipt), "one message has one receipt"
        return outcome

    async def _send_trace(self, message: Message) -> None:
        await self._trace_delivery.of(self._packer.pack(message), None)

    def _new_delivery(self) -> Delivery:
        return Delivery(
            self._session, self._lanes, self._policy, self.sending, self.timeouts, self._options.namespace
        )


def _not_open() -> ClosedError:
    return ClosedError("the producer is not open: use `async with Producer(...)`")
