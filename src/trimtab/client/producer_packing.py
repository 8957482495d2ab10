"""From what a user sends to what leaves: checked, with its id, its properties laid out, its body compressed if large."""

from collections.abc import Iterable, Sequence

from trimtab.client.checks import check_batch, check_body, properties_of
from trimtab.client.lanes import Parcel
from trimtab.client.namespaces import with_namespace
from trimtab.errors import InvalidMessageError
from trimtab.io.clock import Clock
from trimtab.model import Message
from trimtab.settings import Sending
from trimtab.wire import properties as names
from trimtab.wire.batch import ENTRY_BYTES_MIN, BatchEntry, encode_batch
from trimtab.wire.codes import RequestCode
from trimtab.wire.compression import Compression, compress
from trimtab.wire.ids import UniqueIds
from trimtab.wire.messages import TRANSACTION_PREPARED
from trimtab.wire.resources import RETRY_PREFIX

_BATCH_PROPERTIES = b"WAIT\x01true"
IDS_TOGETHER_MAX = 1_000
"""Of ids that are given at one moment no two are equal as long as they are fewer than 65,536."""


class Packer:
    """Makes parcels. Whatever is wrong with a message is found here, before anything is sent."""

    def __init__(self, sending: Sending, namespace: str | None, clock: Clock, ids: UniqueIds) -> None:
        self._bytes_max = sending.message_bytes_max
        self._compress_from_bytes = sending.compress_from_bytes
        self._batching = sending.batching
        self._namespace = namespace
        self._wall_ms = clock.wall_ms
        self._ids = ids
        self._next_id = ids.next
        self._compression = (
            None if sending.compression == "none" else Compression[sending.compression.upper()]
        )
        # What every message of a namespace carries.
        self._extra = "" if namespace is None else f"\x02{names.INSTANCE_ID}\x01{namespace}"

    def topic(self, message: Message) -> str:
        """The topic as it goes on the wire."""
        return with_namespace(self._namespace, message.topic) if self._namespace else message.topic

    def pack(self, message: Message, *, extra: str = "") -> Parcel:
        """A parcel of one message; `extra` are further properties, each with its separator in front."""
        body, topic = message.body, message.topic
        if type(body) is not bytes or not 0 < len(body) <= self._bytes_max:
            check_body(message, self._bytes_max)
        born_ms = self._wall_ms()
        unique_id = self._next_id(born_ms)
        properties = properties_of(message, unique_id, self._extra + extra)
        sys_flag = 0
        if len(body) >= self._compress_from_bytes and self._compression is not None:
            body = compress(body, self._compression)
            sys_flag = self._compression.sys_flag
        is_batchable = (
            self._batching
            and not sys_flag
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
        bytes_max = self._bytes_max
        unique_ids = self._unique_ids(len(messages))
        entries = self._entries(messages, unique_ids, bytes_max - ENTRY_BYTES_MIN)
        sizes = [ENTRY_BYTES_MIN + len(entry.body) + len(entry.properties) for entry in entries]
        if not split and sum(sizes) > bytes_max:
            raise InvalidMessageError(
                f"the batch of {len(messages)} messages takes {sum(sizes)} bytes, at most {bytes_max} are allowed; send fewer at"
                " once, or let split=True make several batches of them"
            )
        born_ms = self._wall_ms()
        parcels = []
        for begin, end in cuts(sizes, bytes_max):
            parcels.append(
                Parcel(
                    self.topic(messages[begin]),
                    encode_batch(entries[begin:end], batch_bytes_max=bytes_max),
                    _BATCH_PROPERTIES,
                    0,
                    messages[begin],
                    unique_ids[begin],
                    born_ms,
                    is_batchable=False,
                    code=RequestCode.SEND_BATCH_MESSAGE,
                    batch_ids=tuple(unique_ids[begin:end]),
                    batch=tuple(messages[begin:end]),
                )
            )
        return parcels

    def _unique_ids(self, number: int) -> list[str]:
        given: list[str] = []
        while len(given) < number:
            given += self._ids.several(min(number - len(given), IDS_TOGETHER_MAX), self._wall_ms())
        return given

    def _entries(
        self, messages: Sequence[Message], unique_ids: Iterable[str], body_bytes_max: int
    ) -> list[BatchEntry]:
        extra = self._extra
        entries: list[BatchEntry] = []
        for message, unique_id in zip(messages, unique_ids, strict=True):
            body = message.body
            if type(body) is not bytes or not 0 < len(body) <= body_bytes_max:
                check_body(message, body_bytes_max)
            properties = properties_of(message, unique_id, extra)
            entries.append(BatchEntry(body, properties, message.flag))
        return entries


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
