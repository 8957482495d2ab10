"""The four exchanges that make up nearly all traffic: send, batch, pull and their answers, without a dictionary between.

Reading: a tagged union lets msgspec look at the code and fill the right typed header in one pass. Whatever does not fit
that fast form (another code, a binary header, an odd spelling) goes the general way, so nothing depends on who wrote it.
Writing: a template with the holes filled in.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from struct import Struct
from typing import TypeAlias

import msgspec

from trimtab.errors import ProtocolError
from trimtab.wire.codes import RequestCode
from trimtab.wire.commands import Command, decode_command
from trimtab.wire.frames import JSON_HEADER, Frame, encode_frame
from trimtab.wire.headers.consume import PullMessage, PullMessageResponse
from trimtab.wire.headers.send import SendMessageResponse, SendMessageV2
from trimtab.wire.scalars import I32


class _Hot(msgspec.Struct, frozen=True, tag_field="code", rename={"header": "extFields"}):
    opaque: I32
    flag: I32 = 0
    version: I32 = 0
    language: str | int = "JAVA"


class SendRequest(_Hot, frozen=True, kw_only=True, tag=int(RequestCode.SEND_MESSAGE_V2)):
    """A SEND_MESSAGE_V2 as it came; its body is the frame's."""

    header: SendMessageV2


class BatchRequest(_Hot, frozen=True, kw_only=True, tag=int(RequestCode.SEND_BATCH_MESSAGE)):
    """A SEND_BATCH_MESSAGE as it came; its body is the frame's."""

    header: SendMessageV2


class PullRequest(_Hot, frozen=True, kw_only=True, tag=int(RequestCode.PULL_MESSAGE)):
    """A PULL_MESSAGE as it came."""

    header: PullMessage


HotRequest: TypeAlias = SendRequest | BatchRequest | PullRequest

_hot_decoder: msgspec.json.Decoder[HotRequest] = msgspec.json.Decoder(HotRequest, strict=False)
_text = msgspec.json.encode
_pack_lengths = Struct(">II").pack


def decode_request(frame: Frame) -> HotRequest | Command:
    """A typed hot request where the frame is one, else the general command."""
    if frame.serializer == JSON_HEADER:
        try:
            return _hot_decoder.decode(frame.header)
        except msgspec.ValidationError:
            pass
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as exc:
            raise ProtocolError(f"unreadable JSON header: {exc}") from exc
    return decode_command(frame)


def encode_send_request(
    code: int, header: SendMessageV2, *, opaque: int, flag: int = 0, body: bytes
) -> bytes:
    """The frame of a SEND_MESSAGE_V2, SEND_BATCH_MESSAGE or SEND_REPLY_MESSAGE_V2."""
    optional = b""
    if header.properties is not None:
        optional = b',"i":%b' % _text(header.properties)
    if header.max_reconsume_times is not None:
        optional += b',"l":"%d"' % header.max_reconsume_times
    if header.broker_name is not None:
        optional += b',"n":%b' % _text(header.broker_name)
    text = (
        b'{"code":%d,"extFields":{"a":%b,"b":%b,"c":%b,"d":"%d","e":"%d","f":"%d","g":"%d","h":"%d"%b,"j":"%d","k":"%b","m":"%b"}'
        b',"flag":%d,"language":"PYTHON","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":399}'
        % (
            code,
            _text(header.producer_group),
            _text(header.topic),
            _text(header.default_topic),
            header.default_topic_queue_nums,
            header.queue_id,
            header.sys_flag,
            header.born_timestamp,
            header.flag,
            optional,
            header.reconsume_times or 0,
            b"true" if header.unit_mode else b"false",
            b"true" if header.batch else b"false",
            flag,
            opaque,
        )
    )
    return encode_frame(text, body)


def encode_send_response(header: SendMessageResponse, *, opaque: int, code: int = 0) -> bytes:
    """The frame that answers a send: stored, and where."""
    optional = b""
    if header.transaction_id is not None:
        optional = b',"transactionId":%b' % _text(header.transaction_id)
    if header.region is not None:
        optional += b',"MSG_REGION":%b' % _text(header.region)
    if header.trace_on is not None:
        optional += b',"TRACE_ON":%b' % _text(header.trace_on)
    if header.batch_uniq_id is not None:
        optional += b',"batchUniqId":%b' % _text(header.batch_uniq_id)
    if header.recall_handle is not None:
        optional += b',"recallHandle":%b' % _text(header.recall_handle)
    text = (
        b'{"code":%d,"extFields":{"queueId":"%d","msgId":%b,"queueOffset":"%d"%b}'
        b',"flag":1,"language":"PYTHON","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":399}'
        % (code, header.queue_id, _text(header.msg_id), header.queue_offset, optional, opaque)
    )
    return encode_frame(text)


class SendAnswers:
    """Answers of one broker to sends: what never changes is laid out once. `id_prefix` begins all its message ids."""

    __slots__ = ("_id", "_of_one", "_of_several")

    def __init__(self, id_prefix: str, region: str, *, trace_on: bool) -> None:
        fixed = b'"MSG_REGION":%b,"TRACE_ON":"%b"' % (_text(region), b"true" if trace_on else b"false")
        begin = b'{"code":0,"extFields":{"queueId":"%d","msgId":"'
        end = (
            b'","queueOffset":"%d",'
            + fixed.replace(b"%", b"%%")
            + b'},"flag":1,"language":"PYTHON","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":399}'
        )
        self._id = id_prefix.encode() + b"%016X"
        self._of_one = begin + self._id + end
        self._of_several = begin + b"%b" + end

    def encode(self, opaque: int, physical_offset: int, queue_id: int, queue_offset: int) -> bytes:
        """The frame that says: stored, and where."""
        text = self._of_one % (queue_id, physical_offset, queue_offset, opaque)
        return _pack_lengths(4 + len(text), len(text)) + text

    def encode_each(self, answers: Iterable[tuple[int, int, int, int]]) -> bytes:
        """The frames of several answers: of each the queue id, the physical offset, the offset in the queue, the opaque."""
        texts = list(map(self._of_one.__mod__, answers))
        sizes = list(map(len, texts))
        lengths = map(_pack_lengths, map((4).__add__, sizes), sizes)
        return b"".join(chain.from_iterable(zip(lengths, texts, strict=True)))

    def encode_several(
        self, opaque: int, physical_offsets: Sequence[int], queue_id: int, queue_offset: int
    ) -> bytes:
        """The same for a batch: the ids of all, the offset of the first."""
        ids = b",".join([self._id] * len(physical_offsets)) % tuple(physical_offsets)
        return encode_frame(self._of_several % (queue_id, ids, queue_offset, opaque))


def encode_pull_request(header: PullMessage, *, opaque: int, code: int = RequestCode.PULL_MESSAGE) -> bytes:
    """The frame of a PULL_MESSAGE or LITE_PULL_MESSAGE."""
    text = (
        b'{"code":%d,"extFields":{"consumerGroup":%b,"topic":%b,"queueId":"%d","queueOffset":"%d","maxMsgNums":"%d","sysFlag":"%d"'
        b',"commitOffset":"%d","suspendTimeoutMillis":"%d","subVersion":"%d"%b}'
        b',"flag":0,"language":"PYTHON","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":399}'
        % (
            code,
            _text(header.consumer_group),
            _text(header.topic),
            header.queue_id,
            header.queue_offset,
            header.max_msg_nums,
            header.sys_flag,
            header.commit_offset,
            header.suspend_timeout_millis,
            header.sub_version,
            _optional_of_pull(header),
            opaque,
        )
    )
    return encode_frame(text)


def _optional_of_pull(header: PullMessage) -> bytes:
    optional = b""
    if header.subscription is not None:
        optional = b',"subscription":%b' % _text(header.subscription)
    if header.expression_type is not None:
        optional += b',"expressionType":%b' % _text(header.expression_type)
    if header.max_msg_bytes is not None:
        optional += b',"maxMsgBytes":"%d"' % header.max_msg_bytes
    if header.request_source is not None:
        optional += b',"requestSource":"%d"' % header.request_source
    if header.proxy_froward_client_id is not None:
        optional += b',"proxyFrowardClientId":%b' % _text(header.proxy_froward_client_id)
    if header.lease_epoch is not None:
        optional += b',"leaseEpoch":"%d"' % header.lease_epoch
    return optional


class PullFrames:
    """Pulls of one queue by one subscription: what is the same in all of them is laid out once, from a header like theirs."""

    __slots__ = ("_text",)

    def __init__(self, like: PullMessage) -> None:
        begin = b'{"code":%d,"extFields":{"consumerGroup":%b,"topic":%b,"queueId":"%d"' % (
            RequestCode.PULL_MESSAGE,
            _text(like.consumer_group),
            _text(like.topic),
            like.queue_id,
        )
        end = b',"subVersion":"%d"%b}' % (like.sub_version, _optional_of_pull(like))
        self._text = (
            begin.replace(b"%", b"%%")
            + b',"queueOffset":"%d","maxMsgNums":"%d","sysFlag":"%d","commitOffset":"%d","suspendTimeoutMillis":"%d"'
            + end.replace(b"%", b"%%")
            + b',"flag":0,"language":"PYTHON","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":399}'
        )

    def encode(self, header: PullMessage, *, opaque: int) -> bytes:
        """The frame of one of them."""
        if header.lease_epoch is not None:
            return encode_pull_request(header, opaque=opaque)
        return encode_frame(
            self._text
            % (
                header.queue_offset,
                header.max_msg_nums,
                header.sys_flag,
                header.commit_offset,
                header.suspend_timeout_millis,
                opaque,
            )
        )


def encode_pull_response(
    header: PullMessageResponse, *, opaque: int, code: int, remark: str, body: bytes = b""
) -> bytes:
    """The frame that answers a pull, found or not. The 5.x extras are not ours to send."""
    text = (
        b'{"code":%d,"extFields":{"suggestWhichBrokerId":"%d","nextBeginOffset":"%d","minOffset":"%d","maxOffset":"%d"}'
        b',"flag":1,"language":"PYTHON","opaque":%d,"remark":%b,"serializeTypeCurrentRPC":"JSON","version":399}'
        % (
            code,
            header.suggest_which_broker_id,
            header.next_begin_offset,
            header.min_offset,
            header.max_offset,
            opaque,
            _text(remark),
        )
    )
    return encode_frame(text, body)
