"""S4, S6, S7, N1, N2, N3: bytes that are cut, wrong or hostile, at live servers. They answer or close, and go on serving others."""

import contextlib
import logging
import random
import re
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NoReturn

import pytest

from tests.interop.seeds import seed
from tests.raw import RawConnection
from tests.security.attacks import MIB, OVERSIZED, broker_attacks, hostile_frame, names_attacks
from tests.security.conversations import BROKER, NAMES, TOPIC, frames
from tests.security.live import Servers, resident_bytes, running, until
from trimtab.broker.requests import HANDLERS, HOT_HANDLERS
from trimtab.errors import ProtocolError
from trimtab.io.serving import FrameServer
from trimtab.names.handlers import HANDLERS as NAMES_HANDLERS
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command, encode_command
from trimtab.wire.frames import BINARY_HEADER, JSON_HEADER, Frame, FrameDecoder
from trimtab.wire.hot import PullRequest

HOSTILE_FRAMES = 20_000
PROBE_OPAQUE = 777_777


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with running() as found:
        fields = {"a": "pg", "b": TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
        with RawConnection(found.broker_address) as client:
            assert client.ask(RequestCode.SEND_MESSAGE_V2, fields, b"x").code == ResponseCode.SUCCESS
        yield found


@pytest.fixture(params=["broker", "names"])
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def address_of(servers: Servers, target: str) -> str:
    return servers.broker_address if target == "broker" else servers.names_address


def frame_server(servers: Servers, target: str) -> FrameServer:
    return servers.broker._server if target == "broker" else servers.names._server


def is_alive(servers: Servers, target: str) -> bool:
    with RawConnection(address_of(servers, target)) as client:
        if target == "broker":
            return (
                client.ask(RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"}).ext["offset"] == "1"
            )
        return client.ask(RequestCode.GET_BROKER_CLUSTER_INFO).code == ResponseCode.SUCCESS


def pending_bytes(servers: Servers, target: str) -> int:
    """What the server keeps of unfinished frames, of all connections."""
    server = frame_server(servers, target)
    return servers.look(lambda: sum(one._decoder.pending_bytes for one in server._protocols.values()))


# --- N1: cut anywhere


def essence(answer: Command) -> tuple[object, ...]:
    """What does not depend on how often something was sent before."""
    ext = {
        name: value for name, value in answer.ext.items() if name not in ("msgId", "queueOffset", "maxOffset")
    }
    body = re.sub(rb'"leaseEpochs":\[[0-9]*\]', b"", answer.body)
    return answer.code, answer.opaque, ext, answer.remark, body


def answers_to(client: RawConnection, pieces: list[bytes], wait: Callable[[int], None]) -> tuple[object, ...]:
    for piece in pieces[:-1]:
        client.send(piece)
        wait(len(piece))
    client.send(pieces[-1])
    while not (answer := client.receive()).is_response:
        pass
    return essence(answer)


def test_a_frame_cut_at_any_byte_gets_the_same_answer(servers: Servers, target: str) -> None:
    conversation = frames(BROKER if target == "broker" else NAMES)
    with RawConnection(address_of(servers, target)) as client:
        for frame in conversation:
            whole = answers_to(client, [frame], lambda _: None)

            def is_read(count: int) -> None:
                until(lambda: pending_bytes(servers, target) == count, f"{count} bytes read")

            for cut in range(1, len(frame)):
                assert answers_to(client, [frame[:cut], frame[cut:]], is_read) == whole, (cut, frame)


def test_every_code_cut_at_any_byte_gets_the_same_answer(servers: Servers, target: str) -> None:
    codes = sorted(HANDLERS if target == "broker" else NAMES_HANDLERS)
    assert len(codes) > (60 if target == "broker" else 15)
    with RawConnection(address_of(servers, target)) as client:
        for code in codes:
            frame = encode_command(Command(code=code, opaque=PROBE_OPAQUE, ext={"a": "b"}))
            client.send(frame)
            whole = told_in(client)
            for cut in range(1, len(frame)):
                client.send(frame[:cut])
                client.send(frame[cut:])
                assert told_in(client) == whole, (code, cut)


def told_in(client: RawConnection) -> tuple[object, ...]:
    """What an answer says that does not depend on time and chance."""
    while not (answer := client.receive()).is_response:
        pass
    return answer.code, answer.opaque, answer.remark


def test_a_conversation_one_byte_at_a_time_gets_the_same_answers(servers: Servers, target: str) -> None:
    conversation = frames(BROKER if target == "broker" else NAMES)
    with RawConnection(address_of(servers, target)) as client:
        whole = [answers_to(client, [frame], lambda _: None) for frame in conversation]
        for frame, expected in zip(conversation, whole, strict=True):
            for at in range(len(frame) - 1):
                client.send(frame[at : at + 1])
            assert answers_to(client, [frame[-1:]], lambda _: None) == expected


def test_frames_that_come_together_get_the_same_answers_in_order(servers: Servers, target: str) -> None:
    conversation = frames(BROKER if target == "broker" else NAMES)
    with RawConnection(address_of(servers, target)) as client:
        whole = [answers_to(client, [frame], lambda _: None) for frame in conversation]
        client.send(b"".join(conversation))
        together: list[tuple[object, ...]] = []
        while len(together) < len(conversation):
            answer = client.receive()
            if answer.is_response:
                together.append(essence(answer))
    # Sends are answered when they are on disk, so they may be overtaken.
    assert sorted(together, key=str) == sorted(whole, key=str)


# --- N3: lengths that lie


@pytest.mark.parametrize("name", OVERSIZED)
def test_an_oversized_frame_is_refused_as_soon_as_its_length_is_in(
    servers: Servers, target: str, name: str
) -> None:
    with RawConnection(address_of(servers, target)) as attacker:
        attacker.send(OVERSIZED[name])
        assert attacker.is_closed_by_the_server()
    until(lambda: pending_bytes(servers, target) == 0, "nothing kept")
    assert is_alive(servers, target)


def test_a_promised_frame_is_not_paid_for_in_advance(servers: Servers, target: str) -> None:
    before = resident_bytes()
    attackers = [RawConnection(address_of(servers, target)) for _ in range(100)]
    for attacker in attackers:
        attacker.send(struct.pack(">II", 15 * MIB, 100) + b"x" * 1_000)
    until(lambda: pending_bytes(servers, target) == 100 * 1_008, "all of it read")
    assert resident_bytes() - before < 64 * MIB
    assert is_alive(servers, target)
    for attacker in attackers:
        attacker.wire.close()


def test_what_comes_before_a_bad_frame_is_answered(servers: Servers, target: str) -> None:
    with RawConnection(address_of(servers, target)) as attacker:
        good = frames(BROKER[4:5] if target == "broker" else NAMES[:1])[0]
        attacker.send(good + b"\xff\xff\xff\xff" + good)
        assert attacker.receive().code == ResponseCode.SUCCESS
        assert attacker.is_closed_by_the_server()


# --- S6, S7: bombs


@pytest.mark.parametrize("name", broker_attacks())
def test_a_broker_outlives(servers: Servers, name: str) -> None:
    _outlives(servers, "broker", broker_attacks()[name]())


@pytest.mark.parametrize("name", names_attacks())
def test_a_name_server_outlives(servers: Servers, name: str) -> None:
    _outlives(servers, "names", names_attacks()[name]())


def _outlives(servers: Servers, target: str, attack: bytes) -> None:
    """An answer that says no, or the end of the connection; and the next client is served."""
    before = resident_bytes()
    with RawConnection(address_of(servers, target)) as attacker:
        try:
            attacker.send(attack)
            answer = attacker.receive()
            while not answer.is_response:
                answer = attacker.receive()
            assert "failed" not in (answer.remark or ""), answer.remark
        except ConnectionError:
            pass
    assert is_alive(servers, target)
    assert resident_bytes() - before < 100 * MIB


# --- N2: by chance


def test_twenty_thousand_hostile_frames(target: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    chance = random.Random(seed())
    print(f"TRIMTAB_SEED={seed()}")  # noqa: T201 - shown when the test fails
    code, fields, _ = BROKER[4] if target == "broker" else NAMES[3]
    probe = encode_command(Command(code=code, opaque=PROBE_OPAQUE, ext=fields))
    honest = frames(BROKER if target == "broker" else NAMES)
    handlers = HANDLERS if target == "broker" else NAMES_HANDLERS
    known = {number: handler.header_type for number, handler in handlers.items()}
    before = resident_bytes()
    fates = {"answered": 0, "closed": 0}
    with running() as servers:
        with RawConnection(address_of(servers, target)) as client:
            for number in range(HOSTILE_FRAMES):
                frame = hostile_frame(chance, honest, known)
                fate = _fate(client, frame, probe)
                fates[fate] += 1
                if fate == "closed":
                    client.connect()
                assert not caplog.records, f"TRIMTAB_SEED={seed()} frame {number}: {frame!r}\n{caplog.text}"
        with RawConnection(address_of(servers, target)) as honest_client:
            assert honest_client.ask(9_999).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert min(fates.values()) > HOSTILE_FRAMES // 20, fates
        assert resident_bytes() - before < 200 * MIB


def _fate(client: RawConnection, frame: bytes, probe: bytes) -> str:
    """Sends a frame and then a request whose answer is known. If the frame swallows that, nothing more comes."""
    seen: list[Frame] = []
    with contextlib.suppress(ProtocolError):
        for whole in FrameDecoder().feed(frame + probe):
            seen.append(whole)  # noqa: PERF402 - those in front of a bad one count
    try:
        client.send(frame + probe)
        if seen[-1:] != list(FrameDecoder().feed(probe)):
            client.wire.shutdown(socket.SHUT_WR)
        while True:
            answer = client.receive()
            if answer.is_response and answer.opaque == PROBE_OPAQUE:
                return "answered"
    except ConnectionError:
        return "closed"


@pytest.mark.parametrize("hot", [True, False])
def test_a_defect_of_ours_costs_one_request_and_not_the_connection(
    hot: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> NoReturn:
        raise ZeroDivisionError("a defect")

    if hot:
        monkeypatch.setitem(HOT_HANDLERS, PullRequest, fail)
    else:
        monkeypatch.setitem(
            HANDLERS, RequestCode.PULL_MESSAGE, replace(HANDLERS[RequestCode.PULL_MESSAGE], run=fail)
        )
    code, fields, _ = BROKER[3]
    with running() as servers, RawConnection(servers.broker_address) as client:
        command = Command(code=code, opaque=9, ext=fields, serializer=JSON_HEADER if hot else BINARY_HEADER)
        client.send(encode_command(command))
        answer = client.answer_to(9)
        assert (answer.code, answer.remark) == (1, "the broker failed: ZeroDivisionError: a defect")
        assert client.ask(9_999).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert "request 11 failed inside" in caplog.text
