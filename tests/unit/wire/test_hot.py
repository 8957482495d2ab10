import msgspec
import pytest

from trimtab.errors import ProtocolError
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command, decode_command, encode_command
from trimtab.wire.frames import BINARY_HEADER, Frame, FrameDecoder
from trimtab.wire.headers.base import decode_ext, encode_ext
from trimtab.wire.headers.consume import PullMessage, PullMessageResponse
from trimtab.wire.headers.send import SendMessageResponse, SendMessageV2
from trimtab.wire.hot import (
    BatchRequest,
    PullFrames,
    PullRequest,
    SendRequest,
    decode_request,
    encode_pull_request,
    encode_pull_response,
    encode_send_request,
    encode_send_response,
)

SEND = SendMessageV2(
    producer_group='g"1', topic="Tö", default_topic="TBW102", default_topic_queue_nums=4, queue_id=3, sys_flag=1,
    born_timestamp=1_700_000_000_000, flag=9, properties="K\x01v\x02", reconsume_times=2, unit_mode=True,
    max_reconsume_times=16, batch=True, broker_name="b",
)  # fmt: skip
PULL = PullMessage(
    consumer_group="g", topic="T", queue_id=1, queue_offset=2, max_msg_nums=32, sys_flag=3, commit_offset=4,
    suspend_timeout_millis=15000, sub_version=5, subscription="a || b", expression_type="TAG", max_msg_bytes=1 << 20,
    request_source=1, proxy_froward_client_id="p",
)  # fmt: skip


def frame_of(raw: bytes) -> Frame:
    (frame,) = FrameDecoder().feed(raw)
    return frame


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE])
def test_a_send_says_the_same_as_the_general_way(code: int) -> None:
    frame = frame_of(encode_send_request(code, SEND, opaque=-7, flag=2, body=b"body"))
    general = decode_command(frame)
    assert (general.code, general.opaque, general.flag, general.body) == (code, -7, 2, b"body")
    assert general.ext == encode_ext(SEND)
    hot = decode_request(frame)
    assert isinstance(hot, SendRequest if code == RequestCode.SEND_MESSAGE_V2 else BatchRequest)
    assert (hot.header, hot.opaque, hot.flag, hot.version) == (SEND, -7, 2, 399)


def test_a_pull_says_the_same_as_the_general_way() -> None:
    frame = frame_of(encode_pull_request(PULL, opaque=8))
    assert decode_ext(PullMessage, decode_command(frame).ext) == PULL
    hot = decode_request(frame)
    assert isinstance(hot, PullRequest)
    assert (hot.header, hot.opaque) == (PULL, 8)


def test_pulls_of_one_queue_say_the_same_as_single_ones() -> None:
    strange = msgspec.structs.replace(PULL, consumer_group='50%"g"', subscription="%d || %%")
    frames = PullFrames(strange)
    for changed in (
        {},
        {"queue_offset": 2**62, "max_msg_nums": 1},
        {"sys_flag": 7, "commit_offset": 9},
        {"lease_epoch": 3},
    ):
        header = msgspec.structs.replace(strange, suspend_timeout_millis=0, **changed)
        assert frames.encode(header, opaque=5) == encode_pull_request(header, opaque=5)


def test_answers_say_the_same_as_the_general_way() -> None:
    sent = SendMessageResponse(
        msg_id="0A", queue_id=1, queue_offset=2, transaction_id="t", region="R", trace_on="true", batch_uniq_id="u", recall_handle="h"
    )  # fmt: skip
    answer = decode_command(frame_of(encode_send_response(sent, opaque=4, code=10)))
    assert (answer.code, answer.opaque, answer.is_response) == (10, 4, True)
    assert decode_ext(SendMessageResponse, answer.ext) == sent

    pulled = PullMessageResponse(suggest_which_broker_id=0, next_begin_offset=5, min_offset=0, max_offset=9)
    raw = encode_pull_response(
        pulled, opaque=5, code=ResponseCode.PULL_NOT_FOUND, remark="OFFSET_OVERFLOW_ONE"
    )
    answer = decode_command(frame_of(raw))
    assert (answer.code, answer.remark, answer.opaque) == (19, "OFFSET_OVERFLOW_ONE", 5)
    assert decode_ext(PullMessageResponse, answer.ext) == pulled


def test_another_code_a_binary_header_or_an_odd_spelling_goes_the_general_way() -> None:
    other = Command(code=105, opaque=1, ext={"topic": "T"})
    assert decode_request(frame_of(encode_command(other))) == other
    binary = Command(code=310, opaque=1, ext=encode_ext(SEND), serializer=BINARY_HEADER)
    assert decode_request(frame_of(encode_command(binary))) == binary
    numbers = b'{"code":310,"opaque":1,"extFields":{"a":1,"b":"T","c":null}}'
    odd = decode_request(Frame(0, numbers, b""))
    assert isinstance(odd, Command)
    assert dict(odd.ext) == {"a": "1", "b": "T"}


def test_an_unreadable_header_is_a_protocol_error() -> None:
    for header in (b"{", b"", b"[" * 60_000, b'{"code":310,"opaque":1,"extFields":{"a":"\xff"}}'):
        with pytest.raises(ProtocolError):
            decode_request(Frame(0, header, b""))
