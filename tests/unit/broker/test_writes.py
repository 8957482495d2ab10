"""Answers and writes: nobody is told that something is stored which is not."""

import random
from typing import Any

import msgspec
import pytest

from tests.unit.broker.driver import Client, Driver
from trimtab.broker.store import StoreSettings
from trimtab.sim.disk import SimDisk
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command, encode_command
from trimtab.wire.headers.base import encode_ext
from trimtab.wire.headers.send import SendMessage, SendMessageV2

FIRST_OPAQUE = 100


def sends(client: Client, count: int) -> bytes:
    """Messages that come in one read and are written in several pieces: of three, two are taken together and one by itself."""
    commands = []
    for number in range(count):
        code, header = RequestCode.SEND_MESSAGE_V2, client.send_header("T", n=str(number))
        ext = encode_ext(header)
        if number % 3 == 2:
            code, ext = RequestCode.SEND_MESSAGE, encode_ext(SendMessage(**_with_long_names(header)))
        commands.append(Command(code=code, opaque=FIRST_OPAQUE + number, ext=ext, body=b"x" * 400))
    return b"".join(map(encode_command, commands))


def _with_long_names(header: SendMessageV2) -> dict[str, Any]:
    fields = msgspec.structs.asdict(header)
    del fields["broker_name"]
    return fields


@pytest.mark.parametrize("failing", [(1,), (2,), (3,), (1, 3), (2, 4), (1, 2, 3, 4, 5, 6)])
def test_when_one_piece_of_a_batch_cannot_be_written_exactly_what_is_stored_is_acknowledged(
    failing: tuple[int, ...],
) -> None:
    disk = SimDisk(random.Random(1))
    broker = Driver(disk=disk, store_settings=StoreSettings(frame_bytes_max=2048))
    client = broker.connect()
    client.send("T", n="before")
    writes = 0

    def before(call: str, name: str) -> None:
        nonlocal writes
        if call == "pwrite" and name.startswith("log"):
            writes += 1
            if writes in failing:
                raise OSError("the disk says no")

    disk.before = before
    broker.feed(client, sends(client, 20))
    disk.before = None
    answers = {
        opaque - FIRST_OPAQUE: client.answers[opaque].code
        for opaque in client.answers
        if opaque >= FIRST_OPAQUE
    }
    assert sorted(answers) == list(range(20)), "each is answered once"
    acknowledged = [str(number) for number, code in sorted(answers.items()) if code == ResponseCode.SUCCESS]
    assert len(acknowledged) < 20
    assert [message.properties["n"] for message in client.pull("T")] == ["before", *acknowledged]
    broker.restart(crash=True)
    assert [message.properties["n"] for message in broker.connect().pull("T")] == ["before", *acknowledged]
