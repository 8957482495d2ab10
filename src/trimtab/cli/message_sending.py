"""`trimtab message send`: what is in a pipe, a file or the command line, as messages."""

import json
import os
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from trimtab.cli.message_form import ESCAPES
from trimtab.errors import SettingsError

if TYPE_CHECKING:
    from trimtab.cli.shell import Shell
    from trimtab.model import Message, Receipt

LINE_BYTES_MAX = 16 << 20
SENT_AT_ONCE_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How input becomes messages."""

    topic: str
    tag: str | None = None
    keys: tuple[str, ...] = ()
    properties: dict[str, str]
    key_delimiter: bytes | None = None
    """`-K :` as in kcat: what stands before it on a line is the key."""
    envelopes: bool = False
    delay_level: int = 0
    deliver_at_ms: int | None = None


def message_of(form: Form, data: bytes) -> "Message":
    """One message from the bytes of a line or file."""
    from trimtab.model import Message

    fields: dict[str, Any] = {"tag": form.tag, "keys": form.keys, "properties": dict(form.properties)}
    if form.envelopes:
        data, fields = _from_envelope(form, data)
    elif form.key_delimiter is not None:
        key, found, rest = data.partition(form.key_delimiter)
        if found:
            data, fields["keys"] = rest, (*form.keys, _key_text(key))
    return Message(form.topic, data, delay_level=form.delay_level, deliver_at_ms=form.deliver_at_ms, **fields)


def _key_text(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError:
        raise SettingsError(f"key {key[:40]!r} is no UTF-8: keys are text; send without -K") from None


def delimiter_bytes(text: str, option: str) -> bytes:
    r"""A delimiter as people write it: `\n`, `\t`, `\r`, `\0`, `\\` and `\x1f` mean what they mean in most programs."""
    found = b""
    for at, part in enumerate(re.split(r"\\(x[0-9a-fA-F]{2}|.|$)", text)):
        if at % 2 == 0:
            found += os.fsencode(part)
        elif part in ESCAPES and part:
            found += ESCAPES[part].encode()
        elif len(part) == 3:
            found += bytes([int(part[1:], 16)])
        else:
            raise SettingsError(f"{option} {text!r} has \\{part}; known are \\n \\t \\r \\0 \\\\ and \\xHH")
    if not found:
        raise SettingsError(f"{option} is empty; say what stands between")
    return found


def _from_envelope(form: Form, data: bytes) -> tuple[bytes, dict[str, Any]]:
    import base64

    from trimtab.wire.properties import RESERVED

    try:
        told = json.loads(data)
        body = base64.b64decode(told["body_base64"]) if "body_base64" in told else str(told["body"]).encode()
        own = {
            str(name): str(value)
            for name, value in (told.get("properties") or {}).items()
            if name not in RESERVED
        }
        keys = tuple(map(str, told.get("keys") or form.keys))
        tag = told.get("tag") or form.tag
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SettingsError(
            f"a line is no envelope: {error!r}; `trimtab message consume --json` prints them"
        ) from error
    return body, {"tag": tag, "keys": keys, "properties": {**own, **form.properties}}


def pieces_of(stream: BinaryIO, delimiter: bytes) -> Iterator[bytes]:
    """What stands between delimiters; empty pieces are passed over."""
    rest = b""
    while True:
        chunk = stream.read1(1 << 16) if hasattr(stream, "read1") else stream.read(1 << 16)
        if not chunk:
            break
        *whole, rest = (rest + chunk).split(delimiter)
        yield from filter(None, whole)
        if len(rest) > LINE_BYTES_MAX:
            raise SettingsError(f"a line has more than {LINE_BYTES_MAX} bytes; send it with --file")
    if rest:
        yield rest


async def send_all(
    shell: "Shell", group: str, form: Form, bodies: Iterator[bytes]
) -> "AsyncIterator[Receipt]":
    """Sends in the order of the input, many at a time, and gives receipts in that order."""
    import asyncio

    from trimtab.client.producer import Producer
    from trimtab.settings import Timeouts

    async with Producer(
        group,
        **shell.target.options(),
        timeouts=Timeouts(
            send_s=shell.timeout_s, request_s=shell.timeout_s, connect_s=min(3.0, shell.timeout_s)
        ),
    ) as producer:
        waiting: list[asyncio.Task[Receipt]] = []
        at_once = (
            1  # the first one alone: it finds the route, so that those after it leave in the order they came
        )
        async for data in _read_aside(bodies):
            waiting.append(asyncio.ensure_future(producer.send(message_of(form, data))))
            if len(waiting) >= at_once or sys.stdin.isatty():
                for task in waiting:
                    yield await task
                waiting, at_once = [], SENT_AT_ONCE_MAX
        for task in waiting:
            yield await task


async def _read_aside(bodies: Iterator[bytes]) -> "AsyncIterator[bytes]":
    """What a thread reads for which nobody waits at the end: Ctrl-C ends the program though nobody types the next line."""
    import asyncio
    import queue
    import threading

    loop = asyncio.get_running_loop()
    wanted: queue.SimpleQueue[asyncio.Future[bytes | None]] = queue.SimpleQueue()

    def tell(answer: "asyncio.Future[bytes | None]", data: bytes | None, error: Exception | None) -> None:
        if answer.cancelled():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(data)

    def read() -> None:
        while True:
            answer, data, error = wanted.get(), None, None
            try:
                data = next(bodies, None)
            except Exception as caught:  # noqa: BLE001 - told to whoever waits
                error = caught
            with suppress(RuntimeError):  # the loop is gone
                loop.call_soon_threadsafe(tell, answer, data, error)
            if data is None:
                return

    threading.Thread(target=read, daemon=True, name="trimtab-stdin").start()
    while True:
        answer = loop.create_future()
        wanted.put(answer)
        data = await answer
        if data is None:
            return
        yield data


def bodies_from(texts: tuple[str, ...], files: tuple[Path, ...], delimiter: bytes) -> Iterator[bytes]:
    """The command line's texts, then whole files; without either, stdin by lines."""
    for text in texts:
        yield os.fsencode(text)
    for file in files:
        yield file.read_bytes()
    if not texts and not files:
        # Its raw stream: a thread that hangs in a read of the buffered one would hold a lock that Python wants at its end.
        yield from pieces_of(getattr(sys.stdin.buffer, "raw", sys.stdin.buffer), delimiter)
