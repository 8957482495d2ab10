"""`Cluster(tls=…, acl=…)`: users can test against servers that want TLS and signatures."""

import ssl
from pathlib import Path

import pytest

from tests.peers import send_header
from tests.raw import RawConnection
from tests.security.accounts import ADMIN, ORDERS, READER, SAMPLE_FILE, WRITER
from tests.security.certificates import identity
from trimtab.broker.acl import AclError
from trimtab.io.tls import TlsError, client_context
from trimtab.testing import Cluster
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.headers.base import encode_ext
from trimtab.wire.signing import Credentials


@pytest.fixture
def accounts(tmp_path: Path) -> Path:
    file = tmp_path / "plain_acl.yml"
    file.write_text(SAMPLE_FILE)
    file.chmod(0o600)
    return file


def send(address: str, who: Credentials | None, tls: ssl.SSLContext | None = None) -> int:
    with RawConnection(address, who, tls) as client:
        ext = encode_ext(send_header(ORDERS, 0))
        return client.ask(RequestCode.SEND_MESSAGE_V2, ext, b"body").code


def test_every_request_must_be_signed_by_somebody_who_may(accounts: Path) -> None:
    with Cluster(acl=accounts) as cluster:
        address = cluster.brokers["broker-a"]
        with RawConnection(address, ADMIN) as admin:
            assert admin.ask(RequestCode.GET_BROKER_RUNTIME_INFO).code == ResponseCode.SUCCESS
        assert send(address, WRITER) == ResponseCode.SUCCESS
        assert send(address, READER) == send(address, None) != ResponseCode.SUCCESS
        with RawConnection(cluster.nameserver, READER) as reader:
            route = reader.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": ORDERS})
            assert route.code == ResponseCode.SUCCESS
        with RawConnection(cluster.nameserver) as nobody:
            assert nobody.ask(RequestCode.GET_BROKER_CLUSTER_INFO).code != ResponseCode.SUCCESS


def test_all_servers_speak_tls_and_find_each_other(tmp_path: Path) -> None:
    own = identity(tmp_path)
    with Cluster(brokers=2, tls=(own.cert, own.key)) as cluster:
        trust = client_context(own.ca)
        for address in cluster.brokers.values():
            assert send(address, None, trust) == ResponseCode.SUCCESS
        with RawConnection(cluster.nameserver, None, trust) as client:
            listed = client.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body.decode()
            assert all(address in listed for address in cluster.brokers.values())
        with RawConnection(cluster.nameserver) as plain:
            plain.send(b"\0\0\0\4\0\0\0\0")
            assert plain.is_closed_by_the_server()
        cluster.restart("broker-a")
        assert send(cluster.brokers["broker-a"], None, trust) == ResponseCode.SUCCESS


def test_files_that_cannot_be_used_are_named_and_nothing_is_left(tmp_path: Path) -> None:
    missing = tmp_path / "missing.pem"
    with pytest.raises(TlsError, match=r"missing\.pem"), Cluster(tls=(missing, missing)):
        pass
    with pytest.raises(AclError, match=r"missing\.yml"), Cluster(acl=tmp_path / "missing.yml"):
        pass
