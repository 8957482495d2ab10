"""From what a user sends to what leaves: checked, with its id, its properties laid out, its body compressed if large."""

from collections.abc import Sequence

from trimtab.client.checks import check_batch, check_body, check_flag, check_message
from trimtab.client.lanes import Parcel
from trimtab.client.namespaces import with_namespace
from trimtab.client.producer_properties import BEGIN, properties_of, properties_of_each
from trimtab.errors import InvalidMessageError
from trimtab.io.clock import Clock
from trimtab.model import Message
from trimtab.settings import Sending
from trimtab.wire import properties as names
from trimtab.wire.batch import (
    BATCHED_PROPERTIES_BYTES_MAX,
    ENTRY_BYTES_MIN,
    PIECES_EACH,
    BatchColumns,
    batch_pieces,
)
from trimtab.wire.codes import RequestCode
from trimtab.wire.compression import Compression, compress
from trimtab.wire.frames import BODY_BYTES_MAX
from trimtab.wire.ids import UniqueIds
from trimtab.wire.messages import TRANSACTION_PREPARED
from trimtab.wire.resources import RETRY_PREFIX

_BATCH_PROPERTIES = b"WAIT\x01true"
IDS_TOGETHER_MAX = 1_000
"""Of ids that are given at one moment no two are equal as long as they are fewer than 65,536."""

STORED_MORE_BYTES = 91 - ENTRY_BYTES_MIN + 128
"""How much more a message of a batch takes where it is stored, beside its topic: a broker's own fields and properties."""

KINDS_MAX = 1_000
KIND_CHARACTERS_MAX = 500


class Packer:
    """Makes parcels. Whatever is wrong with a message is found here, before anything is sent.

    Most messages are plain: nothing but a topic, a tag and a body. What those of one topic and tag have in common is laid out once.
    """

    def __init__(self, sending: Sending, namespace: str | None, clock: Clock, ids: UniqueIds) -> None:
        self._bytes_max = sending.message_bytes_max
        self._compress_from_bytes = sending.compress_from_bytes
        self._odd_from_bytes = min(sending.compress_from_bytes, BODY_BYTES_MAX + 1)
        self._batching = sending.batching
        self._namespace = namespace
        self._wall_ms = clock.wall_ms
        self._ids = ids
        self._next_id = ids.next
        self._compression = (
            None if sending.compression == "none" else Compression[sending.compression.upper()]
        )
        self._kinds: dict[tuple[str, str | None], tuple[str, str, bool]] = {}
        # What every message of a namespace carries.
        self._extra = "" if namespace is None else f"\x02{names.INSTANCE_ID}\x01{namespace}"

    def topic(self, message: Message) -> str:
        """The topic as it goes on the wire."""
        return with_namespace(self._namespace, message.topic) if self._namespace else message.topic

    def pack(self, message: Message, *, extra: str = "") -> Parcel:
        """A parcel of one message; `extra` are further properties, each with its separator in front."""
        if type(message) is not Message:
            check_message(message)
        body, flag = message.body, message.flag
        if type(body) is not bytes or not 0 < len(body) <= self._bytes_max:
            check_body(message, self._bytes_max)
        if flag or type(flag) is not int:
            check_flag(flag)
        if (
            extra or message.keys or message.properties or message.delay_level
            or message.deliver_at_ms is not None or len(body) >= self._odd_from_bytes
        ):  # fmt: skip
            return self._pack_odd(message, extra)
        try:
            topic, tail, is_batchable = self._kinds[message.topic, message.tag]
        except (KeyError, TypeError):
            return self._pack_first(message)
        born_ms = self._wall_ms()
        unique_id = self._next_id(born_ms)
        properties = f"{BEGIN}{unique_id}{tail}".encode()
        return Parcel(topic, body, properties, flag, message, unique_id, born_ms, 0, is_batchable)

    def _pack_first(self, message: Message) -> Parcel:
        """The first plain message with this topic and tag; those that follow have all but body and id in common with it."""
        parcel = self._pack_odd(message, "")
        tail = parcel.properties.decode()[len(BEGIN) + len(parcel.unique_id) :]
        if len(message.topic) + len(tail) <= KIND_CHARACTERS_MAX:
            if len(self._kinds) >= KINDS_MAX:
                self._kinds.clear()
            self._kinds[message.topic, message.tag] = parcel.topic, tail, parcel.is_batchable
        return parcel

    def _pack_odd(self, message: Message, extra: str) -> Parcel:
        check_message(message)
        body, topic = message.body, message.topic
        born_ms = self._wall_ms()
        unique_id = self._next_id(born_ms)
        properties = properties_of(message, unique_id, self._extra + extra)
        sys_flag = 0
        if len(body) >= self._compress_from_bytes and self._compression is not None:
            body = compress(body, self._compression)
            sys_flag = self._compression.sys_flag
        check_travelling(len(body))
        is_batchable = (
            self._batching
            and not sys_flag
            and len(properties) <= BATCHED_PROPERTIES_BYTES_MAX
            and not message.delay_level
            and message.deliver_at_ms is None
            and not topic.startswith(RETRY_PREFIX)
        )
        if self._namespace is not None:
            topic = with_namespace(self._namespace, topic)
        return Parcel(
            topic, body, properties, message.flag, message, unique_id, born_ms, sys_flag, is_batchable
        )

    def pack_half(self, message: Message, group: str) -> Parcel:
        """The half of a transaction that brokers keep to themselves until it is committed."""
        check_message(message)
        if message.delay_level or message.deliver_at_ms is not None:
            raise InvalidMessageError(
                "a message of a transaction cannot be delayed: brokers would forget the delay"
            )
        extra = f"\x02{names.TRANSACTION_PREPARED}\x01true\x02{names.PRODUCER_GROUP}\x01{group}"
        parcel = self.pack(message, extra=extra)
        parcel.sys_flag |= TRANSACTION_PREPARED
        parcel.is_batchable = False
        return parcel

    def pack_reply(self, message: Message, extra: str) -> Parcel:
        """The answer to a request, which a broker hands on to the one who asked."""
        parcel = self.pack(message, extra=f"\x02{names.MESSAGE_TYPE}\x01reply{extra}")
        parcel.topic = message.topic  # the cluster's, whatever the namespace
        parcel.code = RequestCode.SEND_REPLY_MESSAGE_V2
        parcel.is_batchable = False
        return parcel

    def pack_batch(self, messages: Sequence[Message], *, split: bool) -> list[Parcel]:
        """Parcels of explicit batches: one, or with `split` as many as the limit of a message asks for."""
        check_batch(messages)
        bytes_max = min(self._bytes_max, BODY_BYTES_MAX)
        bodies = self._bodies(messages, bytes_max - ENTRY_BYTES_MIN)
        flags = _flags(messages)
        unique_ids = self._unique_ids(len(messages))
        properties = properties_of_each(messages, unique_ids, self._extra)
        check_batched_properties(properties)
        columns = BatchColumns(bodies, properties, flags)
        pieces, total = batch_pieces(columns)
        # Brokers of 4.9 judge a batch by what it takes where it is stored: parts are small enough for that.
        more = STORED_MORE_BYTES + len(self.topic(messages[0]))
        if total + (len(messages) * more if split else 0) <= bytes_max:
            return [self._parcel(messages, unique_ids, pieces, total)]
        if not split:
            raise InvalidMessageError(
                f"the batch of {len(messages)} messages takes {total} bytes, at most {bytes_max} are allowed; send fewer at"
                " once, or let split=True make several batches of them"
            )
        sizes = [sum(map(len, pieces[at : at + PIECES_EACH])) for at in range(0, len(pieces), PIECES_EACH)]
        if max(sizes) > bytes_max:
            raise InvalidMessageError(
                f"message {sizes.index(max(sizes))} of the batch takes {max(sizes)} bytes with its properties, at most {bytes_max}"
                " are allowed; make it smaller"
            )
        return [
            self._parcel(
                messages[begin:end],
                unique_ids[begin:end],
                pieces[begin * PIECES_EACH : end * PIECES_EACH],
                sum(sizes[begin:end]),
            )
            for begin, end in cuts([size + more for size in sizes], bytes_max)
        ]

    def _parcel(
        self, messages: Sequence[Message], unique_ids: Sequence[str], pieces: list[bytes], pieces_bytes: int
    ) -> Parcel:
        return Parcel(
            self.topic(messages[0]),
            b"",
            _BATCH_PROPERTIES,
            0,
            messages[0],
            unique_ids[0],
            self._wall_ms(),
            is_batchable=False,
            code=RequestCode.SEND_BATCH_MESSAGE,
            batch_ids=tuple(unique_ids),
            pieces=pieces,
            pieces_bytes=pieces_bytes,
            batch=tuple(messages),
        )

    def _bodies(self, messages: Sequence[Message], bytes_max: int) -> list[bytes]:
        bodies = [message.body for message in messages]
        if [body for body in bodies if type(body) is not bytes or not 0 < len(body) <= bytes_max]:
            for message in messages:
                check_body(message, bytes_max)
        return bodies

    def _unique_ids(self, number: int) -> list[str]:
        given: list[str] = []
        while len(given) < number:
            given += self._ids.several(min(number - len(given), IDS_TOGETHER_MAX), self._wall_ms())
        return given


def check_travelling(body_bytes: int) -> None:
    """The body of a request fits a frame. PURE."""
    if body_bytes > BODY_BYTES_MAX:
        raise InvalidMessageError(
            f"the body takes {body_bytes} bytes on the wire, at most {BODY_BYTES_MAX} fit a frame, whatever message_bytes_max says"
        )


def check_batched_properties(properties: Sequence[bytes]) -> None:
    """The properties of each message leave room for those that brokers add in a batch. PURE."""
    longest = max(map(len, properties))
    if longest > BATCHED_PROPERTIES_BYTES_MAX:
        raise InvalidMessageError(
            f"the properties of a message take {longest} bytes, in a batch at most {BATCHED_PROPERTIES_BYTES_MAX} are allowed,"
            " because brokers add theirs; send it alone"
        )


def _flags(messages: Sequence[Message]) -> list[int]:
    flags = [message.flag for message in messages]
    for flag in [flag for flag in flags if flag or type(flag) is not int]:
        check_flag(flag)
    return flags


def cuts(sizes: Sequence[int], bytes_max: int) -> list[tuple[int, int]]:
    """Where to cut a row of sizes so that no piece is larger than allowed, unless a single one is. PURE."""
    pieces = []
    begin = 0
    taken = 0
    for number, size in enumerate(sizes):
        if number > begin and taken + size > bytes_max:
            pieces.append((begin, number))
            begin, taken = number, 0
        taken += size
    if begin < len(sizes):
        pieces.append((begin, len(sizes)))
    return pieces
