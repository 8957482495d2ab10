"""`trimtab demo`: a message's way through the wire layer, with bytes that an Apache broker would accept."""

from collections import Counter

from rich.console import Console
from rich.markup import escape

from trimtab.errors import MissingExtraError

TAGS = ("eu", "us", "asia")


def run_demo(count: int) -> None:
    """Encodes messages as a broker stores them, reads them back both ways and says what was seen."""
    console = Console(highlight=False, soft_wrap=True)
    console.print("[bold]A send request[/bold], as it goes to a broker:")
    frame = _send_frame()
    console.print(f"  {len(frame)} bytes: {escape(repr(frame[:60]))}…")

    pulled = _stored(count)
    console.print(
        f"[bold]{count:,} stored messages[/bold], as a broker answers a pull: {len(pulled):,} bytes"
    )
    console.print(f"  read as objects: {_by_tag_as_objects(pulled)}")
    try:
        console.print(f"  read as columns: {_by_tag_as_columns(pulled)}")
    except MissingExtraError as error:
        console.print(f"  read as columns: {escape(str(error))}")
    console.print("The same bytes were compared with Apache RocketMQ's own jars: [bold]make interop[/bold].")


def _send_frame() -> bytes:
    from trimtab.wire.codes import RequestCode
    from trimtab.wire.headers.send import SendMessageV2
    from trimtab.wire.hot import encode_send_request

    header = SendMessageV2(
        producer_group="demo",
        topic="orders",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=1_700_000_000_000,
        flag=0,
        properties="TAGS\x01eu\x02KEYS\x01o-1",
    )
    return encode_send_request(RequestCode.SEND_MESSAGE_V2, header, opaque=1, body=b"hello")


def _stored(count: int) -> bytes:
    from trimtab.wire.messages import Storable, encode_stored
    from trimtab.wire.properties import encode_properties

    host = bytes((127, 0, 0, 1)) + (10_911).to_bytes(4, "big")
    messages = bytearray()
    for number in range(count):
        properties = encode_properties({"TAGS": TAGS[number % len(TAGS)], "KEYS": f"o-{number}"})
        message = Storable(
            topic=b"orders",
            body=b"order %d" % number,
            properties=properties,
            queue_id=0,
            born_timestamp=1_700_000_000_000 + number,
            born_host=host,
        )
        messages += encode_stored(message, number, len(messages), message.born_timestamp, host)
    return bytes(messages)


def _by_tag_as_objects(pulled: bytes) -> str:
    from trimtab.wire.messages import decode_messages

    return _told(Counter(message.tag or "" for message in decode_messages(pulled)))


def _by_tag_as_columns(pulled: bytes) -> str:
    from trimtab.wire.columns import decode_columns

    tags = decode_columns(pulled, columns=["tag"]).column("tag")
    return _told(Counter({row["values"]: row["counts"] for row in tags.value_counts().to_pylist()}))


def _told(by_tag: Counter[str]) -> str:
    return ", ".join(f"{count:,} {tag}" for tag, count in sorted(by_tag.items()))
