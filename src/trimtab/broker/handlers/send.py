"""Sends: single messages, batches, replies; with the checks of Apache's broker, in its order."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from itertools import chain, compress
from typing import Any

import msgspec

from trimtab.broker import names
from trimtab.broker.core import BrokerCore
from trimtab.broker.placing import TIMER_WISHES, Incoming, Placed, delay_level, place
from trimtab.broker.recalls import recall_handle_of
from trimtab.broker.requests import (
    LATER,
    Access,
    Answer,
    Gathered,
    Later,
    Peer,
    Refused,
    Request,
    Together,
    handles,
    handles_hot,
    handles_together,
)
from trimtab.broker.store import Appended
from trimtab.broker.store.errors import StoreBusyError, StoreError
from trimtab.errors import InvalidMessageError
from trimtab.model import Now
from trimtab.wire import properties as keys
from trimtab.wire.batch import BatchColumns, split_batch
from trimtab.wire.bodies import TopicConfig
from trimtab.wire.codes import ONEWAY_FLAG, RequestCode, ResponseCode
from trimtab.wire.headers.send import SendMessage, SendMessageResponse, SendMessageV2
from trimtab.wire.hot import BatchRequest, SendRequest, encode_send_response
from trimtab.wire.messages import TRANSACTION_MASK, Storable, StorableTogether
from trimtab.wire.properties import decode_properties, encode_properties

DLQ_QUEUES = 1
BATCH_STORED_BYTES_MAX = 16 << 20
"""Of one batch, with the properties that it gives to each of its messages."""
NOT_OF_HALF_MESSAGES = (
    keys.DELAY,
    *TIMER_WISHES,
    keys.TRANSACTION_PREPARED_QUEUE_OFFSET,
    keys.TRANSACTION_CHECK_TIMES,
)
"""A transaction is not delayed, and what the broker notes on its half messages is the broker's alone."""

_HOLDS = ("DELAY\x01", "TIMER_", "TRAN_MSG\x01")
"""Traces of properties that may keep a message from going where it is sent, at once."""


@handles_hot(SendRequest)
def send_hot(core: BrokerCore, peer: Peer, request: SendRequest, body: bytes, now: Now) -> None:
    """One message, as nearly all come, or a batch that says so."""
    send = _send_batch if request.header.batch else _send_one
    send(core, peer, None if request.flag & ONEWAY_FLAG else request.opaque, request.header, body, now)


@handles_hot(BatchRequest)
def send_batch_hot(core: BrokerCore, peer: Peer, request: BatchRequest, body: bytes, now: Now) -> None:
    """Several messages for one queue."""
    _send_batch(core, peer, None if request.flag & ONEWAY_FLAG else request.opaque, request.header, body, now)


@handles(RequestCode.SEND_MESSAGE_V2, header=SendMessageV2, access=Access(publish_topic="topic"))
def send_message_v2(core: BrokerCore, request: Request[SendMessageV2]) -> Answer | Later:
    """One message or a batch, with the short names."""
    send = _send_batch if request.header.batch else _send_one
    send(core, request.peer, _opaque(request), request.header, request.command.body, request.now)
    return LATER


@handles(RequestCode.SEND_MESSAGE, header=SendMessage, access=Access(publish_topic="topic"))
def send_message(core: BrokerCore, request: Request[SendMessage]) -> Answer | Later:
    """One message or a batch, with the long names."""
    header = SendMessageV2(**msgspec.structs.asdict(request.header))
    send = _send_batch if header.batch else _send_one
    send(core, request.peer, _opaque(request), header, request.command.body, request.now)
    return LATER


@handles(RequestCode.SEND_BATCH_MESSAGE, header=SendMessageV2, access=Access(publish_topic="topic"))
def send_batch_message(core: BrokerCore, request: Request[SendMessageV2]) -> Answer | Later:
    """Several messages for one queue."""
    _send_batch(core, request.peer, _opaque(request), request.header, request.command.body, request.now)
    return LATER


def _opaque(request: Request[Any]) -> int | None:
    """Whom to answer; nobody waits for the answer to a one-way request."""
    return None if request.command.is_oneway else request.command.opaque


def _send_one(
    core: BrokerCore, peer: Peer, opaque: int | None, header: SendMessageV2, body: bytes, now: Now
) -> None:
    queue_id = queue_for_sending(core, header, now)
    text = header.properties or ""
    if _HOLDS[0] in text or _HOLDS[1] in text or _HOLDS[2] in text or header.topic[0] == "%":
        incoming = _special(core, peer, header, queue_id, decode_properties(text.encode()), body, now)
        _send_special(core, peer, opaque, queue_id, place_incoming(core, incoming, now), now)
        return
    if len(body) > core.settings.message_bytes_max:
        raise _too_long(core, body)
    prepared = core.preparer.prepare(text.encode(), core.cluster_property)
    message = Storable(
        header.topic.encode(),
        body,
        prepared.properties,
        queue_id,
        header.born_timestamp,
        peer.host,
        header.flag,
        header.sys_flag,
        header.reconsume_times or 0,
    )
    try:
        appended = core.writes.append(message, now, prepared.tags_code, prepared.keys)
    except (InvalidMessageError, StoreError) as error:
        raise _refused(error) from error
    if opaque is not None:
        frame = core.send_answers.encode(opaque, appended.physical_offset, queue_id, appended.queue_offset)
        core.writes.promise(appended.end, peer.connection, (opaque,), frame)


def split_by_topic(sends: Gathered) -> list[Gathered]:
    """Between topics there is no order to keep."""
    topics: defaultdict[str, Gathered] = defaultdict(list)
    for send in sends:
        topics[send[0].header.topic].append(send)
    return list(topics.values())


def send_together(core: BrokerCore, peer: Peer, sends: Gathered, now: Now) -> bool:
    """The ordinary messages of a wake-up for one topic, queue by queue: so they lie side by side in the log, and a pull reads them
    as one piece. Between queues there is no order to keep.

    False, and nothing was done, if one of them may be special or cannot be stored: then all are handled in the order they came.
    """
    headers = [request.header for request, _ in sends]
    text = "\x02".join([header.properties or "" for header in headers])
    if any(hold in text for hold in _HOLDS) or any(header.batch for header in headers):
        return False
    queues: defaultdict[int, Gathered] = defaultdict(list)
    for header, send in zip(headers, sends, strict=True):
        queues[header.queue_id].append(send)
    topic = headers[0].topic
    return _is_open(core, topic, queues) and _store_together(core, peer, topic, queues, now)


handles_together(SendRequest, Together(split_by_topic, send_together))


def _is_open(core: BrokerCore, topic: str, queue_ids: Collection[int]) -> bool:
    """Whether there is nothing to decide about messages for these queues."""
    config = core.topics.get(topic)
    return (
        config is not None
        and min(queue_ids) >= 0
        and max(queue_ids) < config.write_queue_nums
        and topic[0] != "%"
        and topic not in names.NO_CLIENT_SENDS_TO
    )


def _store_together(
    core: BrokerCore, peer: Peer, topic: str, queues: Mapping[int, Gathered], now: Now
) -> bool:
    """Appends messages of one topic; False if one of them cannot be, and then none was."""
    sends = list(chain.from_iterable(queues.values()))
    headers = [request.header for request, _ in sends]
    bodies = [body for _, body in sends]
    if max(map(len, bodies)) > core.settings.message_bytes_max:
        return False
    prepared = core.preparer.prepare_together(
        [(header.properties or "").encode() for header in headers], core.cluster_property
    )
    messages = StorableTogether(
        topic.encode(),
        [(queue_id, len(group)) for queue_id, group in queues.items()],
        peer.host,
        bodies,
        prepared.properties,
        [header.flag for header in headers],
        [header.sys_flag for header in headers],
        [header.born_timestamp for header in headers],
        [header.reconsume_times or 0 for header in headers],
    )
    try:
        appended = core.writes.append_together(messages, now, prepared.tags_codes, prepared.keys)
    except (InvalidMessageError, StoreError):
        return False  # asked one by one, each gets its own answer
    opaques = [request.opaque for request, _ in sends]
    places = zip(messages.queue_ids, appended.physical_offsets, appended.queue_offsets, opaques, strict=True)
    answers = list(compress(places, [not request.flag & ONEWAY_FLAG for request, _ in sends]))
    frames = core.send_answers.encode_each(answers)
    core.writes.promise(appended.end, peer.connection, [answer[3] for answer in answers], frames)
    return True


def _send_special(
    core: BrokerCore, peer: Peer, opaque: int | None, queue_id: int, placed: Placed, now: Now
) -> None:
    appended = append(core, placed, now)
    if opaque is None:
        return
    if placed.topic == names.TIMER_TOPIC:
        frame = _timer_answer(core, placed, opaque, queue_id, appended)
    else:
        frame = core.send_answers.encode(opaque, appended.physical_offset, queue_id, appended.queue_offset)
    core.writes.promise(appended.end, peer.connection, (opaque,), frame)


def _timer_answer(core: BrokerCore, placed: Placed, opaque: int, queue_id: int, appended: Appended) -> bytes:
    """A message for later can be taken back: the answer says how."""
    answer = SendMessageResponse(
        msg_id=f"{core.id_prefix}{appended.physical_offset:016X}",
        queue_id=queue_id,
        queue_offset=appended.queue_offset,
        region=core.settings.region,
        trace_on="true",
        recall_handle=recall_handle_of(placed, core.settings.broker_name),
    )
    return encode_send_response(answer, opaque=opaque)


def _special(
    core: BrokerCore,
    peer: Peer,
    header: SendMessageV2,
    queue_id: int,
    properties: dict[str, str],
    body: bytes,
    now: Now,
) -> Incoming:
    """A message for a retry topic, of a transaction, or for later."""
    properties.pop(keys.WAIT, None)
    properties[keys.CLUSTER] = core.settings.cluster_name
    incoming = Incoming(
        topic=header.topic,
        queue_id=queue_id,
        body=body,
        properties=properties,
        born_timestamp=header.born_timestamp,
        born_host=peer.host,
        flag=header.flag,
        sys_flag=header.sys_flag,
        reconsume_times=header.reconsume_times or 0,
    )
    is_retry = header.topic.startswith(names.RETRY_PREFIX)
    if is_retry:
        incoming = retried_or_dead(core, header, incoming, now)
    # Clients before 4.6.1 leave the mark of a transaction on what they give back; that has ended long before.
    is_given_back = is_retry and incoming.reconsume_times > 0
    if properties.get(keys.TRANSACTION_PREPARED) == "true" and not is_given_back:
        incoming = half_message(core, incoming)
    return incoming


def _send_batch(
    core: BrokerCore, peer: Peer, opaque: int | None, header: SendMessageV2, body: bytes, now: Now
) -> None:
    queue_id = queue_for_sending(core, header, now)
    if header.topic.startswith(names.RETRY_PREFIX):
        raise Refused(
            ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {header.topic}"
        )
    suffix = _common_properties(core, header)
    batch = _split(core, body, suffix)
    size = len(batch.bodies)
    prepared = core.preparer.prepare_together(batch.properties, suffix)
    messages = StorableTogether(
        header.topic.encode(),
        [(queue_id, size)],
        peer.host,
        batch.bodies,
        prepared.properties,
        batch.flags,
        [header.sys_flag] * size,
        [header.born_timestamp] * size,
        [header.reconsume_times or 0] * size,
    )
    try:
        appended = core.writes.append_together(messages, now, prepared.tags_codes, prepared.keys)
    except (InvalidMessageError, StoreError) as error:
        raise _refused(error) from error
    if opaque is not None:
        frame = core.send_answers.encode_several(
            opaque, appended.physical_offsets, queue_id, appended.queue_offsets[0]
        )
        core.writes.promise(appended.end, peer.connection, (opaque,), frame)


def _split(core: BrokerCore, body: bytes, suffix: bytes) -> BatchColumns:
    """The messages of a batch, if it is not empty and neither it nor one of them is too long."""
    batch = split_batch(body)
    if not batch.bodies:
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, "the batch holds no message")
    batch_bytes = len(body) + len(batch.bodies) * len(suffix)
    if batch_bytes > BATCH_STORED_BYTES_MAX:
        raise Refused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the batch takes {batch_bytes} bytes with the properties of each, at most {BATCH_STORED_BYTES_MAX} fit",
        )
    longest = max(batch.bodies, key=len)
    if len(longest) > core.settings.message_bytes_max:
        raise _too_long(core, longest)
    return batch


def _common_properties(core: BrokerCore, header: SendMessageV2) -> bytes:
    """What a batch says of all its messages, to be put behind the properties of each."""
    common = decode_properties((header.properties or "").encode())
    common.pop(keys.WAIT, None)
    if delay_level(common) > 0 or any(wish in common for wish in TIMER_WISHES):
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot be delayed; send its messages one by one")
    return (
        b"\x02%b%b" % (encode_properties(common), core.cluster_property) if common else core.cluster_property
    )


def queue_for_sending(core: BrokerCore, header: SendMessageV2, now: Now) -> int:
    """The queue that was asked for, or one by chance if it is left to the broker; the topic is made if that is allowed."""
    topic = core.topics.get(header.topic)
    if header.topic in names.NO_CLIENT_SENDS_TO:
        raise Refused(ResponseCode.NO_PERMISSION, f"Sending message to topic[{header.topic}] is forbidden.")
    if topic is None:
        topic = _new_topic(core, header, now)
    queue_id = header.queue_id
    if 0 <= queue_id < topic.write_queue_nums:
        return queue_id
    if queue_id < 0:
        if not topic.write_queue_nums:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the topic[{header.topic}] has no queue to write")
        return core.chance.randrange(topic.write_queue_nums)
    if queue_id >= topic.read_queue_nums:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"request queueId[{queue_id}] is illegal, topic:[{header.topic}] has {topic.write_queue_nums} queues to write",
        )
    return queue_id


def _new_topic(core: BrokerCore, header: SendMessageV2, now: Now) -> TopicConfig:
    complaint = names.topic_complaint(header.topic)
    if complaint is not None:
        raise Refused(ResponseCode.SYSTEM_ERROR, complaint)
    if header.topic.startswith(names.RETRY_PREFIX):
        return core.ensure_topic(header.topic, 1, now)
    created = core.topics.create_on_send(
        header.topic, header.default_topic, header.default_topic_queue_nums, now
    )
    if created is None:
        raise Refused(
            ResponseCode.TOPIC_NOT_EXIST,
            f"topic[{header.topic}] not exist, apply first please! No topic is made by sending to it here.",
        )
    core.topics_changed()
    return created


def retried_or_dead(core: BrokerCore, header: SendMessageV2, incoming: Incoming, now: Now) -> Incoming:
    """A message that a client itself sends to its retry topic: after too many tries it is a dead letter."""
    group = header.topic.removeprefix(names.RETRY_PREFIX)
    config = core.find_or_create_group(group, now)
    if config is None:
        raise Refused(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"subscription group not exist, {group}: create it first",
        )
    tries_max = config.retry_max_times if header.max_reconsume_times is None else header.max_reconsume_times
    if incoming.reconsume_times < tries_max:
        return incoming
    dead = names.dlq_topic(group)
    core.ensure_topic(dead, DLQ_QUEUES, now)
    properties = {name: value for name, value in incoming.properties.items() if name != keys.DELAY}
    return msgspec.structs.replace(incoming, topic=dead, queue_id=0, properties=properties)


def half_message(core: BrokerCore, incoming: Incoming) -> Incoming:
    """A message of a transaction waits under a topic of its own until the transaction ends."""
    if core.settings.reject_transactions:
        raise Refused(
            ResponseCode.NO_PERMISSION, f"the broker[{core.address}] sending transaction message is forbidden"
        )
    if len(core.transactions) >= core.settings.open_transactions_max:
        raise Refused(
            ResponseCode.SYSTEM_BUSY,
            f"{len(core.transactions)} transactions wait for their end, this broker's limit; end some, or try again later",
        )
    destination = {keys.REAL_TOPIC: incoming.topic, keys.REAL_QUEUE_ID: str(incoming.queue_id)}
    properties = incoming.properties | destination
    for name in NOT_OF_HALF_MESSAGES:
        properties.pop(name, None)
    return msgspec.structs.replace(
        incoming,
        topic=names.HALF_TOPIC,
        queue_id=0,
        properties=properties,
        sys_flag=incoming.sys_flag & ~TRANSACTION_MASK,
    )


def put(core: BrokerCore, incoming: Incoming, now: Now) -> Appended:
    """Appends a message where it belongs."""
    return append(core, place_incoming(core, incoming, now), now)


def place_incoming(core: BrokerCore, incoming: Incoming, now: Now) -> Placed:
    """Where a message belongs now, by this broker's settings."""
    try:
        return place(incoming, core.delay_levels, core.settings.timer_ms_max, now)
    except InvalidMessageError as error:
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error


def append(core: BrokerCore, placed: Placed, now: Now) -> Appended:
    """Gives a message its place in the log, or says why not."""
    if len(placed.message.body) > core.settings.message_bytes_max:
        raise _too_long(core, placed.message.body)
    try:
        return core.writes.append(placed.message, now, placed.tags_code, placed.keys)
    except (InvalidMessageError, StoreError) as error:
        raise _refused(error) from error


def _refused(error: InvalidMessageError | StoreError) -> Refused:
    if isinstance(error, InvalidMessageError):
        return Refused(ResponseCode.MESSAGE_ILLEGAL, str(error))
    is_busy = isinstance(error, StoreBusyError)
    return Refused(ResponseCode.SYSTEM_BUSY if is_busy else ResponseCode.SERVICE_NOT_AVAILABLE, str(error))


def _too_long(core: BrokerCore, body: bytes) -> Refused:
    return Refused(
        ResponseCode.MESSAGE_ILLEGAL,
        f"the message body takes {len(body)} bytes, at most {core.settings.message_bytes_max} fit",
    )
