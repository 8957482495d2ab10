"""Messages as they are shown: lines in lists, and bodies as text, JSON and hex. PURE."""

import json

from trimtab.client.admin.letters import origin_of
from trimtab.client.admin.rows import FoundMessage
from trimtab.dashboard.answers import Message, MessageLine

SHOWN_BYTES_MAX = 64 * 1024
HEX_BYTES_MAX = 4 * 1024
HEX_ROW_BYTES = 16


def message_line(message: FoundMessage) -> MessageLine:
    """For a list."""
    return MessageLine(
        topic=message.topic,
        broker=message.broker_name,
        queue_id=message.queue_id,
        offset=message.queue_offset,
        message_id=message.message_id,
        offset_message_id=message.offset_message_id,
        tag=message.tag,
        keys=message.keys,
        stored_ms=message.store_timestamp,
        born_ms=message.born_timestamp,
        retries=message.reconsume_times,
        body_bytes=len(message.body),
        origin=origin_of(message),
    )


def message_view(message: FoundMessage) -> Message:
    """With its body."""
    shown = message.body[:SHOWN_BYTES_MAX]
    return Message(
        line=message_line(message),
        properties=message.properties,
        born_host=message.born_host,
        store_host=message.store_host,
        text=_text(shown, is_cut=len(shown) < len(message.body)),
        json=_json(message.body),
        hex=hex_dump(message.body[:HEX_BYTES_MAX]),
        cut_bytes=len(message.body) - len(shown),
    )


def _text(body: bytes, *, is_cut: bool) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        # A cut may go through the middle of a character.
        return body[: error.start].decode() if is_cut and error.start >= len(body) - 3 else None


def _json(body: bytes) -> str | None:
    if len(body) > SHOWN_BYTES_MAX:
        return None
    try:
        text = json.dumps(json.loads(body), indent=2, ensure_ascii=False)
        text.encode()  # JSON can name halves of characters, which no page can carry
    except (ValueError, RecursionError):
        return None
    return text


def hex_dump(body: bytes) -> str:
    """Offset, bytes, and what of them is ASCII."""
    rows = []
    for start in range(0, len(body), HEX_ROW_BYTES):
        row = body[start : start + HEX_ROW_BYTES]
        plain = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        rows.append(f"{start:08x}  {row.hex(' '):<{3 * HEX_ROW_BYTES - 1}}  {plain}")
    return "\n".join(rows)
