"""How messages look on a line: formats in kcat's manner, and a JSON envelope. PURE."""

import base64
import json
from typing import TYPE_CHECKING, Any

from trimtab.cli.visible import visible_bytes, visible_json
from trimtab.errors import SettingsError

if TYPE_CHECKING:
    from trimtab.client.admin.rows import FoundMessage

ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
LETTERS = "tbpokgisSTBRh%"


def envelope(message: "FoundMessage") -> dict[str, Any]:
    """A message with stable names; the body as text if it is some, else in base64."""
    found: dict[str, Any] = {
        "topic": message.topic,
        "broker": message.broker_name,
        "queue_id": message.queue_id,
        "offset": message.queue_offset,
        "message_id": message.message_id,
        "offset_message_id": message.offset_message_id,
        "tag": message.tag,
        "keys": list(message.keys),
        "properties": message.properties,
        "born_ms": message.born_timestamp,
        "stored_ms": message.store_timestamp,
        "retries": message.reconsume_times,
    }
    try:
        found["body"] = message.body.decode()
    except UnicodeDecodeError:
        found["body_base64"] = base64.b64encode(message.body).decode()
    return found


def envelope_line(message: "FoundMessage") -> bytes:
    """The envelope on a line."""
    return visible_json(json.dumps(envelope(message), ensure_ascii=False)).encode() + b"\n"


class Format:
    r"""`%t` topic, `%b` broker, `%p` queue, `%o` offset, `%k` keys, `%g` tag, `%i` id, `%s` body, `%S` its size, `%T` and `%B` when it was stored and born (ms), `%R` retries, `%h` properties, `%%`; `\n` and `\t`."""

    def __init__(self, text: str, *, for_terminal: bool = False) -> None:
        self._parts = list(_parts(text))
        self._value = _visible_value if for_terminal else _value

    def line(self, message: "FoundMessage") -> bytes:
        """The message in this form."""
        return b"".join(
            part if isinstance(part, bytes) else self._value(part, message) for part in self._parts
        )


def _parts(text: str) -> "list[bytes | str]":
    parts: list[bytes | str] = []
    at = 0
    while at < len(text):
        letter = text[at]
        follows = text[at + 1 : at + 2]
        if letter == "%":
            if follows not in LETTERS or not follows:
                raise SettingsError(
                    f"format {text!r} has %{follows}; known are {' '.join('%' + one for one in LETTERS)}"
                )
            parts.append(b"%" if follows == "%" else follows)
            at += 2
        elif letter == "\\" and follows in ESCAPES:
            parts.append(ESCAPES[follows].encode())
            at += 2
        else:
            parts.append(letter.encode())
            at += 1
    return parts


def _visible_value(letter: str, message: "FoundMessage") -> bytes:
    """What others wrote does nothing to the terminal; into a pipe it goes as it is."""
    return visible_bytes(_value(letter, message))


def _value(letter: str, message: "FoundMessage") -> bytes:
    if letter == "s":
        return message.body
    values = {
        "t": message.topic,
        "b": message.broker_name,
        "p": message.queue_id,
        "o": message.queue_offset,
        "k": " ".join(message.keys),
        "g": message.tag or "",
        "i": message.message_id,
        "S": len(message.body),
        "T": message.store_timestamp,
        "B": message.born_timestamp,
        "R": message.reconsume_times,
    }
    if letter == "h":
        return ",".join(f"{name}={value}" for name, value in message.properties.items()).encode()
    return str(values[letter]).encode()
