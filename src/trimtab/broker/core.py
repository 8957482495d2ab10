"""The broker: one single-threaded object. Events and the time come in; frames for connections go out.

What happens in one wake-up of a connection (all frames that one read brought) is one batch: every request is decided, then
`finish` makes one write to the log, and the answers of sends are let go, at once or when the write is durable, as the
flush mode says. Nothing here waits, reads a clock or touches a socket; the shell in `server` does.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from trimtab.balance.locks import LeaseTable
from trimtab.balance.members import Changed, ConsumerGroups, ProducerGroups
from trimtab.broker import delivery, timers
from trimtab.broker.acl import Acl, authorize
from trimtab.broker.conversations import Conversations, WhenAnswered
from trimtab.broker.delays import DelayLevels
from trimtab.broker.delivery import DelayCursors, DelayedDelivery
from trimtab.broker.filters import FilterTable
from trimtab.broker.groups import GroupTable
from trimtab.broker.names import topic_complaint
from trimtab.broker.offsets import OffsetTable
from trimtab.broker.polls import HeldPulls
from trimtab.broker.prepared import Preparer
from trimtab.broker.requests import (
    HANDLERS,
    HOT_HANDLERS,
    TOGETHER_HANDLERS,
    Answer,
    Gathered,
    Later,
    Peer,
    Refused,
    Request,
)
from trimtab.broker.settings import BrokerSettings
from trimtab.broker.states import States
from trimtab.broker.stats import Stats
from trimtab.broker.store.errors import StoreBusyError
from trimtab.broker.timers import TimerCursors, Timers
from trimtab.broker.topics import TopicTable
from trimtab.broker.transactions import Transactions
from trimtab.broker.writes import Writes
from trimtab.errors import ProtocolError
from trimtab.model import Now
from trimtab.wire.bodies import DataVersion, SubscriptionData, SubscriptionGroupConfig, TopicConfig
from trimtab.wire.codes import ONEWAY_FLAG, RESPONSE_FLAG, RequestCode, ResponseCode
from trimtab.wire.commands import Command, decode_command, encode_command
from trimtab.wire.frames import Frame
from trimtab.wire.headers.base import Header, decode_ext, encode_ext
from trimtab.wire.headers.consume import GroupOnly
from trimtab.wire.hosts import host_bytes
from trimtab.wire.hot import HotRequest, SendAnswers, decode_request
from trimtab.wire.properties import CLUSTER

if TYPE_CHECKING:
    from trimtab.broker.store import Store
    from trimtab.broker.store.flusher import Waiter
    from trimtab.io.chance import Chance

QUESTION_MS_MAX = 10_000
INCIDENTS_MAX = 100
OUTBOX_BYTES_MAX = 32 << 10
OFFSETS_SAVED_EVERY_MS = 5_000
SWEPT_EVERY_MS = 1_000

Chore = Callable[["BrokerCore", Now], None]
GrowthWatcher = Callable[["BrokerCore", str, int, Now], None]


class BrokerCore:
    """See the module's own words. Handlers are functions over this state."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: "Store",
        chance: "Chance",
        address: str,
        now: Now,
        *,
        acl: Acl | None = None,
    ) -> None:
        self.settings = settings
        self.acl = acl
        self.store = store
        self.chance = chance
        self.address = address
        self.store_host = host_bytes(address)
        self.started = now
        self.states = States(store)
        self.topics = TopicTable(settings, self.states.load_topics(), now)
        self.groups = GroupTable(settings, self.states.load_groups(), now)
        self.offsets = OffsetTable(self.states.load_offsets())
        self.consumers: ConsumerGroups[SubscriptionData] = ConsumerGroups(settings.consumer_silence_ms_max)
        self.producers = ProducerGroups(settings.consumer_silence_ms_max)
        self.leases = LeaseTable(
            lease_ms=settings.lease_ms,
            closed_grace_ms=settings.closed_lease_grace_ms,
            epoch=now.wall_ms,  # above all epochs of an earlier run
        )
        self.filters = FilterTable()
        self.delay_levels = DelayLevels(settings.delay_levels)
        self.delays = DelayedDelivery(
            self.states.load(delivery.STATE, DelayCursors), self.delay_levels, store
        )
        self.timers = Timers(self.states.load(timers.STATE, TimerCursors), store)
        self.transactions = Transactions()
        self.stats = Stats(settings.cluster_name)
        self.id_prefix = self.store_host.hex().upper()
        """Of every offset message id that this broker gives out."""
        self.send_answers = SendAnswers(self.id_prefix, settings.region, trace_on=True)
        self.cluster_property = f"\x02{CLUSTER}\x01{settings.cluster_name}".encode()
        self.preparer = Preparer()
        self.polls = HeldPulls(settings.held_pulls_max)
        self.writes = Writes(self)
        self._gathered: Gathered = []
        """Requests that wait for more of their kind, until another one comes or the wake-up ends."""
        self._gathered_kind: type = Command
        self._gathered_of: Peer | None = None
        self.conversations = Conversations(settings.unanswered_requests_max)
        self.peers: dict[int, Peer] = {}
        self.outbox: dict[int, list[bytes]] = {}
        self.outbox_bytes = 0
        self.when_outbox_full: Callable[[], None] = lambda: None
        """Called in the midst of an event that has much to say, so that not all of it waits here. The shell empties the outbox."""
        self.to_close: list[int] = []
        self.incidents: deque[tuple[int, Exception]] = deque(maxlen=INCIDENTS_MAX)
        """Defects of ours that requests brought to light, for the shell to log."""
        self.changed_routes: set[str] | None = None
        """The topics that the name servers must be told of; None for all of them."""
        self.when_registered: Callable[[Callable[[], None]], None] = lambda told: told()
        """Calls back when the name servers know the present topics, or cannot be told. The shell sets it."""
        self.settings_version = DataVersion(timestamp=now.wall_ms)
        self.retained_ms = now.monotonic_ms
        """When old messages were last let go."""
        self.swept_ms = now.monotonic_ms
        """When members and leases were last looked through."""
        self._restore_topics(now)

    def _restore_topics(self, now: Now) -> None:
        """A crash may come between a message that made its topic and the saving of that topic; the log still knows."""
        for topic in self.store.topics():
            if topic not in self.topics:
                self.ensure_topic(topic, 1 + max(self.store.queue_ids(topic), default=0), now)

    # --- events -----------------------------------------------------------------------------------------------

    def on_connect(self, peer: Peer) -> None:
        """Somebody connected."""
        self.peers[peer.connection] = peer

    def on_frame(self, connection: int, frame: Frame, now: Now) -> None:
        """A frame came; a `ProtocolError` means that the connection is to be closed."""
        peer = self.peers[connection]
        request = decode_request(frame) if self.acl is None else decode_command(frame)
        kind = type(request)
        if kind is self._gathered_kind and peer is self._gathered_of:
            self._gathered.append((request, frame.body))
            return
        if self._gathered:
            self._take_gathered(now)
        if kind in TOGETHER_HANDLERS:
            self._gathered_kind, self._gathered_of = kind, peer
            self._gathered.append((request, frame.body))
        elif not isinstance(request, Command):
            self._answer_hot(peer, request, frame.body, now)
        elif request.is_response:
            self.conversations.answered(connection, request)
        else:
            self._answer(peer, request, now)

    def answer_all_held(self, now: Now) -> None:
        """The broker stops: nobody is left waiting."""
        for finish in AT_STOP:
            finish(self, now)
        self.finish(now)

    def on_close(self, connection: int, now: Now, *, is_known_to_peer: bool = True) -> None:
        """A connection is gone, with all that hung on it."""
        self.peers.pop(connection, None)
        self.outbox.pop(connection, None)
        self.polls.close(connection)
        self.conversations.close(connection)
        self.producers.close(connection)
        self.leases.close(connection, now.monotonic_ms, is_known_to_peer=is_known_to_peer)
        for change in self.consumers.close(connection):
            self.tell_members(change)

    def finish(self, now: Now) -> None:
        """The end of a wake-up: what was decided in it goes to the log, in one write."""
        if self._gathered:
            self._take_gathered(now)
        self.writes.finish(now)

    def tick(self, now: Now) -> None:
        """Time went by; call it every 100 ms or so."""
        for chore in CHORES:
            try:
                chore(self, now)
            except Exception as error:  # noqa: BLE001 - a defect of one must not stop the others, nor the ticking
                self.incidents.append((0, error))
        self.finish(now)

    # --- what handlers use ------------------------------------------------------------------------------------

    def send(self, connection: int, frame: bytes) -> None:
        """Puts a frame out for a connection; nobody hears it if that is gone."""
        if connection in self.peers:
            self.outbox.setdefault(connection, []).append(frame)
            self.outbox_bytes += len(frame)
            if self.outbox_bytes > OUTBOX_BYTES_MAX:
                self.when_outbox_full()

    def reply(self, connection: int, opaque: int, answer: Answer) -> None:
        """Answers a request."""
        ext = {} if answer.header is None else encode_ext(answer.header)
        command = Command(
            code=answer.code,
            opaque=opaque,
            flag=RESPONSE_FLAG,
            ext=ext,
            body=answer.body,
            remark=answer.remark,
        )
        self.send(connection, encode_command(command))

    def tell(self, connection: int, code: RequestCode, header: Header, body: bytes = b"") -> None:
        """A one-way request to a client."""
        opaque = self.conversations.next_opaque()
        self.send(
            connection,
            encode_command(
                Command(code=code, opaque=opaque, flag=ONEWAY_FLAG, ext=encode_ext(header), body=body)
            ),
        )

    def ask(
        self,
        connection: int,
        code: RequestCode,
        header: Header,
        body: bytes,
        now: Now,
        when_answered: WhenAnswered,
        within_ms: int = QUESTION_MS_MAX,
    ) -> None:
        """A request to a client; `when_answered` is called once, with None if no answer came in time."""
        if self.conversations.is_full() or connection not in self.peers:
            when_answered(None)
            return
        opaque = self.conversations.next_opaque()
        self.send(
            connection, encode_command(Command(code=code, opaque=opaque, ext=encode_ext(header), body=body))
        )
        self.conversations.wait_for(opaque, connection, now.monotonic_ms + within_ms, when_answered)

    def tell_members(self, change: Changed) -> None:
        """Tells every member of a group that it changed."""
        if change.is_gone:
            self.filters.drop_group(change.group)
        for connection in change.connections:
            self.tell(
                connection, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, GroupOnly(consumer_group=change.group)
            )

    def find_or_create_group(self, group: str, now: Now) -> SubscriptionGroupConfig | None:
        """The group's configuration, made and saved if that is allowed."""
        found, is_new = self.groups.find_or_create(group, now)
        if is_new:
            self.states.save_groups(self.groups.snapshot())
        return found

    def ensure_topic(self, topic: str, queues: int, now: Now) -> TopicConfig:
        """A topic that the broker itself needs."""
        found, is_new = self.topics.ensure(topic, queues, now)
        if is_new:
            self.topics_changed()
        return found

    def topics_changed(self, saved: "Waiter | None" = None) -> None:
        """Topics are saved at once, and the name servers hear of all that there are."""
        self.save_topics(saved)
        self.changed_routes = None

    def topic_changed(self, topic: str, saved: "Waiter | None" = None) -> None:
        """The same, but the name servers hear of this one alone: what they were told of others, not to write to them say, stays."""
        self.save_topics(saved)
        if self.changed_routes is not None:
            self.changed_routes.add(topic)

    def save_topics(self, saved: "Waiter | None" = None) -> None:
        """Topics are saved at once."""
        self.states.save_topics(self.topics.saved(), saved)

    def change_settings(self, settings: BrokerSettings, now: Now) -> None:
        """Goes on with other settings; only those that are read anew each time make sense here."""
        self.settings = settings
        self.settings_version = self.settings_version.next(now.wall_ms)
        self.groups.settings_changed(settings)
        version = self.topics.version
        self.topics.settings_changed(settings, now)
        if self.topics.version != version:
            self.topics_changed()

    def require_topic(self, topic: str) -> TopicConfig:
        """The topic, or the answer that there is none."""
        found = self.topics.get(topic)
        if found is None:
            complaint = topic_complaint(topic)
            text = complaint or f"topic[{topic}] not exist, apply first please! See the topic's route."
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, text)
        return found

    def permit(
        self,
        request: Request[Any],
        *,
        publish: Iterable[str] = (),
        consume: Iterable[str] = (),
        groups: Iterable[str] = (),
    ) -> None:
        """For handlers that judge themselves: refuses unless the asker may publish to, consume from and join all of these."""
        if self.acl is not None:
            self.acl.permit(request.command, publish=publish, consume=consume, groups=groups)

    def queue_grew(self, topic: str, queue_id: int, now: Now) -> None:
        """Messages of this queue became visible."""
        for watch in GROWTH_WATCHERS:
            watch(self, topic, queue_id, now)

    # --- dispatch ---------------------------------------------------------------------------------------------

    def _answer_hot(self, peer: Peer, request: HotRequest, body: bytes, now: Now) -> None:
        answer = None
        try:
            HOT_HANDLERS[type(request)](self, peer, request, body, now)
        except Refused as refused:
            answer = Answer(refused.code, remark=refused.remark)
        except StoreBusyError as busy:
            answer = Answer(ResponseCode.SYSTEM_BUSY, remark=str(busy))
        except ProtocolError as error:
            answer = Answer(ResponseCode.MESSAGE_ILLEGAL, remark=str(error))
        except Exception as error:  # noqa: BLE001 - as in _decide
            answer = self._failed(int(type(request).__struct_config__.tag or 0), error)
        if answer is not None and not request.flag & ONEWAY_FLAG:
            self.reply(peer.connection, request.opaque, answer)

    def _take_gathered(self, now: Now) -> None:
        peer, gathered, self._gathered = self._gathered_of, self._gathered, []
        assert peer is not None, "what was gathered came from somebody"
        if len(gathered) == 1:
            self._answer_each(peer, gathered, now)
            return
        together = TOGETHER_HANDLERS[self._gathered_kind]
        for group in together.split(gathered):
            try:
                is_taken = together.take(self, peer, group, now)
            except Exception as error:  # noqa: BLE001 - as in _decide
                self._answer_failed(peer, group, error)
                continue
            if not is_taken:
                self._answer_each(peer, group, now)

    def _answer_each(self, peer: Peer, gathered: Gathered, now: Now) -> None:
        for request, body in gathered:
            self._answer_hot(peer, request, body, now)

    def _answer_failed(self, peer: Peer, gathered: Gathered, error: Exception) -> None:
        answer = self._failed(int(type(gathered[0][0]).__struct_config__.tag or 0), error)
        for request, _ in gathered:
            if not request.flag & ONEWAY_FLAG:
                self.reply(peer.connection, request.opaque, answer)

    def _answer(self, peer: Peer, command: Command, now: Now) -> None:
        answer = self._decide(peer, command, now)
        if isinstance(answer, Answer) and not command.is_oneway:
            self.reply(peer.connection, command.opaque, answer)

    def _decide(self, peer: Peer, command: Command, now: Now) -> Answer | Later:
        try:
            account = None if self.acl is None else self.acl.authenticate(command, peer)
            handler = HANDLERS.get(command.code)
            if handler is None:
                return Answer(
                    ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                    remark=f" request type {command.code} not supported",
                )
            header = decode_ext(handler.header_type, command.ext)
            if account is not None:
                authorize(account, command, handler.access, header)
            return handler.run(self, Request(peer, command, header, now))
        except Refused as refused:
            return Answer(refused.code, remark=refused.remark)
        except StoreBusyError as busy:
            return Answer(ResponseCode.SYSTEM_BUSY, remark=str(busy))
        except ProtocolError as error:  # the frame was whole, so the peer's other requests need not suffer
            return Answer(ResponseCode.SYSTEM_ERROR, remark=str(error))
        except Exception as error:  # noqa: BLE001 - a defect of ours must not take the peer's other requests with it
            return self._failed(command.code, error)

    def _failed(self, code: int, error: Exception) -> Answer:
        self.incidents.append((code, error))
        return Answer(ResponseCode.SYSTEM_ERROR, remark=f"the broker failed: {type(error).__name__}: {error}")


CHORES: list[Chore] = []
"""What is done as time goes by, in this order. Modules that keep state over time add theirs."""

AT_STOP: list[Chore] = []
"""What is done when the broker stops."""

GROWTH_WATCHERS: list[GrowthWatcher] = []
"""Who looks at a queue that has new messages."""


def chore(run: Chore) -> Chore:
    """Declares a function of (core, now) that every tick calls."""
    CHORES.append(run)
    return run


def at_stop(run: Chore) -> Chore:
    """Declares a function of (core, now) that is called when the broker stops."""
    AT_STOP.append(run)
    return run


def on_growth(watch: GrowthWatcher) -> GrowthWatcher:
    """Declares a function of (core, topic, queue id, now) that is called when messages of a queue became visible."""
    GROWTH_WATCHERS.append(watch)
    return watch


@chore
def end_what_is_overdue(core: BrokerCore, now: Now) -> None:
    """Questions without an answer, leases that ended, members that fell silent."""
    core.conversations.expire(now.monotonic_ms)
    if now.monotonic_ms - core.swept_ms < SWEPT_EVERY_MS:
        return
    core.swept_ms = now.monotonic_ms
    core.leases.expire(now.monotonic_ms)
    core.to_close += core.consumers.silent(now.monotonic_ms)
    core.to_close += core.producers.silent(now.monotonic_ms)


@chore
def save_offsets(core: BrokerCore, now: Now) -> None:
    """Offsets are saved every few seconds, if they changed."""
    core.states.save_offsets_if_due(core.offsets, now.monotonic_ms, OFFSETS_SAVED_EVERY_MS)
