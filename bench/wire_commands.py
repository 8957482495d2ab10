"""A send request and its answer, encoded and decoded, beside json and struct by hand."""

import json
import struct

from bench.report import Row, median_rate, print_rows
from trimtab.wire.codes import RequestCode
from trimtab.wire.commands import decode_command
from trimtab.wire.frames import FrameDecoder
from trimtab.wire.headers.base import decode_ext
from trimtab.wire.headers.send import SendMessageResponse, SendMessageV2
from trimtab.wire.hot import decode_request, encode_send_request, encode_send_response

FRAMES = 2_000
BODY = b"x" * 128
PROPERTIES = "UNIQ_KEY\x01" + "7F000001000018B4AAC27E32C6E70000" + "\x02WAIT\x01true\x02TAGS\x01TagA"
REQUEST = SendMessageV2(
    producer_group="producers", topic="TopicTest", default_topic="TBW102", default_topic_queue_nums=4, queue_id=3,
    sys_flag=0, born_timestamp=1_700_000_000_000, flag=0, properties=PROPERTIES,
)  # fmt: skip
ANSWER = SendMessageResponse(
    msg_id="7F00000100002A9F00000000000F4240", queue_id=3, queue_offset=4711, region="DefaultRegion", trace_on="true"
)  # fmt: skip


def encode_requests() -> list[bytes]:
    code = RequestCode.SEND_MESSAGE_V2
    return [encode_send_request(code, REQUEST, opaque=number, body=BODY) for number in range(FRAMES)]


def encode_answers() -> list[bytes]:
    return [encode_send_response(ANSWER, opaque=number) for number in range(FRAMES)]


def decode_requests(stream: bytes) -> list[object]:
    return [decode_request(frame) for frame in FrameDecoder().feed(stream)]


def decode_answers(stream: bytes) -> list[object]:
    return [
        decode_ext(SendMessageResponse, decode_command(frame).ext) for frame in FrameDecoder().feed(stream)
    ]


def naive_frame(code: int, flag: int, opaque: int, ext: dict[str, str], body: bytes) -> bytes:
    header = {
        "code": code,
        "extFields": ext,
        "flag": flag,
        "language": "PYTHON",
        "opaque": opaque,
        "version": 399,
    }
    raw = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack(">ii", 4 + len(raw) + len(body), len(raw)) + raw + body


def naive_requests() -> list[bytes]:
    ext = {
        "a": "producers",
        "b": "TopicTest",
        "c": "TBW102",
        "d": "4",
        "e": "3",
        "f": "0",
        "h": "0",
        "j": "0",
    }
    ext |= {"k": "false", "m": "false", "i": PROPERTIES}
    return [
        naive_frame(310, 0, number, ext | {"g": str(REQUEST.born_timestamp)}, BODY)
        for number in range(FRAMES)
    ]


def naive_answers() -> list[bytes]:
    ext = {"msgId": ANSWER.msg_id, "queueId": "3", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    return [naive_frame(0, 1, number, ext | {"queueOffset": "4711"}, b"") for number in range(FRAMES)]


def naive_decode(stream: bytes, numbers: tuple[str, ...]) -> list[object]:
    found: list[object] = []
    buffer = bytearray(stream)
    at = 0
    while at < len(buffer):
        length, header_length = struct.unpack_from(">ii", buffer, at)
        header = json.loads(buffer[at + 8 : at + 8 + header_length])
        ext = header["extFields"]
        body = bytes(buffer[at + 8 + header_length : at + 4 + length])
        found.append(
            (header["code"], header["opaque"], {**ext, **{name: int(ext[name]) for name in numbers}}, body)
        )
        at += 4 + length
    return found


def rows() -> list[Row]:
    requests, answers = b"".join(encode_requests()), b"".join(encode_answers())
    send_numbers, answer_numbers = ("d", "e", "f", "g", "h"), ("queueId", "queueOffset")

    def rate(work: object) -> float:
        assert callable(work)
        return median_rate(work, FRAMES, runs=9)

    return [
        Row("encode a send request", rate(encode_requests), rate(naive_requests)),
        Row("decode a send request", rate(lambda: decode_requests(requests)), rate(lambda: naive_decode(requests, send_numbers))),
        Row("encode its answer", rate(encode_answers), rate(naive_answers)),
        Row("decode its answer", rate(lambda: decode_answers(answers)), rate(lambda: naive_decode(answers, answer_numbers))),
    ]  # fmt: skip


if __name__ == "__main__":
    print_rows(rows())
