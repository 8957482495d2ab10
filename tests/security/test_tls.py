"""S10: TLS is on or off. Whoever is wrong about it, or about the server, is told so and served nothing."""

import asyncio
import logging
import ssl
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.raw import RawConnection
from tests.security.accounts import ADMIN, sample_acl
from tests.security.certificates import Identity, identity
from tests.security.live import Servers, running, until
from trimtab.broker.server import BrokerPlan
from trimtab.errors import ServerUnreachableError
from trimtab.io.connection import PeerConnection
from trimtab.io.tls import TlsError, client_context, reload_certificate, server_context
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    return identity(tmp_path_factory.mktemp("own"))


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    return identity(tmp_path_factory.mktemp("foreign"))


@pytest.fixture(params=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest) -> asyncio.AbstractEventLoop:
    if request.param == "asyncio":
        return asyncio.new_event_loop()
    found: asyncio.AbstractEventLoop = pytest.importorskip("uvloop").new_event_loop()
    return found


@pytest.fixture
def secured(own: Identity, loop: asyncio.AbstractEventLoop) -> Iterator[Servers]:
    tls = server_context(own.cert, own.key)
    plan = BrokerPlan(tls=tls, nameserver_tls=client_context(own.ca))
    with running(plan, names_tls=tls, loop=loop) as servers:
        yield servers


def connect(address: str, tls: ssl.SSLContext | None) -> Command:
    """As our own clients connect."""

    async def asking() -> Command:
        is_over = asyncio.Event()
        connection = await PeerConnection.open(address, tls=tls, on_lost=lambda _: is_over.set())
        try:
            return await connection.ask(Command(code=9_999, opaque=1), timeout_s=30)
        finally:
            connection.close()
            await is_over.wait()

    return asyncio.run(asking())


def test_who_trusts_the_authority_is_served_by_both(secured: Servers, own: Identity) -> None:
    for address in (secured.broker_address, secured.names_address):
        answer = connect(address, client_context(own.ca))
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def test_the_broker_registers_over_tls(secured: Servers) -> None:
    table = secured.look(lambda: secured.names.names.routes.cluster_info().broker_addr_table)
    assert list(table) == ["broker-a"]


def test_the_connection_is_known_to_be_secure(secured: Servers, own: Identity) -> None:
    with RawConnection(secured.broker_address, tls=client_context(own.ca)) as client:
        assert client.ask(9_999).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert secured.look(lambda: [peer.is_secure for peer in secured.broker.core.peers.values()]) == [True]
        assert client.wire.version() in ("TLSv1.2", "TLSv1.3")  # type: ignore[attr-defined]


def test_another_authority_is_not_trusted(secured: Servers, foreign: Identity) -> None:
    with pytest.raises(ServerUnreachableError, match="certificate verify failed"):
        connect(secured.broker_address, client_context(foreign.ca))


def test_the_system_does_not_trust_it_either(secured: Servers) -> None:
    with pytest.raises(ServerUnreachableError, match="certificate verify failed"):
        connect(secured.broker_address, client_context())


def test_another_host_is_not_trusted(tmp_path: Path) -> None:
    other = identity(tmp_path, "broker.example.org")
    with (
        running(BrokerPlan(tls=server_context(other.cert, other.key))) as servers,
        pytest.raises(ServerUnreachableError, match=r"not valid for '127\.0\.0\.1'"),
    ):
        connect(servers.broker_address, client_context(other.ca))


def test_an_expired_certificate_is_not_trusted(tmp_path: Path) -> None:
    old = identity(tmp_path, expires=datetime(2001, 1, 1, tzinfo=UTC))
    with (
        running(BrokerPlan(tls=server_context(old.cert, old.key))) as servers,
        pytest.raises(ServerUnreachableError, match="expired"),
    ):
        connect(servers.broker_address, client_context(old.ca))


def test_who_does_not_verify_is_warned(secured: Servers, caplog: pytest.LogCaptureFixture) -> None:
    answer = connect(secured.broker_address, client_context(verify=False))
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert "TLS without verification" in caplog.text


def test_plain_bytes_to_a_tls_port_end_with_one_clear_line(
    secured: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    for address in (secured.broker_address, secured.names_address):
        caplog.clear()
        with caplog.at_level(logging.INFO), RawConnection(address) as plain:
            plain.send(b'\0\0\0\x69\0\0\0\x65{"code":9999,"opaque":1}' + b" " * 200)
            assert plain.is_closed_by_the_server()
            until(lambda: bool(caplog.records), "it is logged")
        assert [record.getMessage() for record in caplog.records] == [
            "a client spoke no TLS to a port that wants it, and is closed: turn TLS on at the client"
        ]


def test_tls_to_a_plain_port_ends_with_one_clear_line(
    own: Identity, loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    with running(loop=loop) as servers:
        for address in (servers.broker_address, servers.names_address):
            caplog.clear()
            with caplog.at_level(logging.INFO), pytest.raises(ServerUnreachableError):
                connect(address, client_context(own.ca))
            (line,) = [record.getMessage() for record in caplog.records if "spoke TLS" in record.getMessage()]
            assert "spoke TLS to a port without it, and is closed: turn TLS on here or off there" in line
            assert line.startswith("127.0.0.1:")


def test_old_versions_are_refused(secured: Servers, caplog: pytest.LogCaptureFixture) -> None:
    context = client_context(verify=False)
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    caplog.clear()
    with pytest.raises(ServerUnreachableError):
        connect(secured.broker_address, context)
    until(lambda: "a TLS handshake failed" in caplog.text, "it is logged")


def test_a_handshake_that_never_ends_is_cut_off(own: Identity) -> None:
    from trimtab.io.serving import ServingLimits

    plan = BrokerPlan(tls=server_context(own.cert, own.key), limits=ServingLimits(first_frame_ms_max=200))
    with running(plan) as servers, RawConnection(servers.broker_address) as slow:
        slow.send(b"\x16\x03\x01\x02\x00\x01")
        assert slow.is_closed_by_the_server()


def test_a_new_certificate_is_taken_up_without_a_drop(own: Identity, tmp_path: Path) -> None:
    new = identity(tmp_path)
    tls = server_context(own.cert, own.key)
    with running(BrokerPlan(tls=tls)) as servers:
        with RawConnection(servers.broker_address, tls=client_context(own.ca)) as before:
            assert before.ask(9_999).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            servers.look(lambda: reload_certificate(tls, new.cert, new.key))
            with RawConnection(servers.broker_address, tls=client_context(new.ca)) as after:
                assert after.ask(9_999).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert before.ask(9_999).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        with pytest.raises(ServerUnreachableError, match="certificate verify failed"):
            connect(servers.broker_address, client_context(own.ca))


def test_files_that_cannot_be_used_are_named(own: Identity, foreign: Identity, tmp_path: Path) -> None:
    with pytest.raises(TlsError, match="belong together"):
        server_context(own.cert, foreign.key)
    with pytest.raises(TlsError, match=r"nowhere\.pem"):
        server_context(tmp_path / "nowhere.pem", own.key)
    with pytest.raises(TlsError, match="CA file"):
        client_context(own.key)
    with pytest.raises(TlsError, match=r"nowhere\.pem"):
        client_context(tmp_path / "nowhere.pem")


def test_accounts_work_over_tls(own: Identity) -> None:
    acl, tls = sample_acl(), server_context(own.cert, own.key)
    plan = BrokerPlan(acl=acl, tls=tls, nameserver_tls=client_context(own.ca))
    with running(plan, guard=acl, names_tls=tls) as servers:
        trusted = client_context(own.ca)
        with (
            RawConnection(servers.names_address, ADMIN, tls=trusted) as admin,
            RawConnection(servers.names_address, tls=trusted) as nobody,
        ):
            assert b"broker-a" in admin.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body
            assert "not signed" in str(nobody.ask(RequestCode.GET_BROKER_CLUSTER_INFO).remark)
