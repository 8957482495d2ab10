"""S9 and S10 with stock Java clients: what they may, what they may not, and over TLS."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.apache.conversation import Conversation
from tests.apache.fixtures import OracleFactory
from tests.security.accounts import FORGER, written
from tests.security.certificates import Identity, identity
from tests.security.live import Servers, running
from trimtab.broker.acl_file import load_acl
from trimtab.broker.server import BrokerPlan
from trimtab.io.tls import client_context, server_context
from trimtab.wire.signing import Credentials

pytestmark = pytest.mark.interop

USER = Credentials("a-java-client", "a-java-secret-4711")
FILE = f"""\
accounts:
- accessKey: the-admin-key
  secretKey: the-admin-secret-4711
  admin: true
- accessKey: {USER.access_key}
  secretKey: {USER.secret_key}
  topicPerms:
  - mine=PUB|SUB
  - written=PUB
  - secrets=DENY
  groupPerms:
  - readers=SUB
"""


@pytest.fixture(scope="module", params=["4.9.3", "5.5.0"])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    acl = load_acl(written(tmp_path_factory.mktemp("acl"), FILE))
    with running(BrokerPlan(acl=acl), guard=acl) as found:
        yield found


def client(
    oracle: OracleFactory, version: str, address: str, who: Credentials | None, jvm_args: Sequence[str] = ()
) -> Conversation:
    keys = ["-", "-"] if who is None else [who.access_key, who.secret_key]
    return oracle(version, "AccessClient").start([address, *keys], jvm_args)


def test_a_stock_client_may_what_it_was_granted_and_nothing_else(
    servers: Servers, java_oracle: OracleFactory, version: str
) -> None:
    with client(java_oracle, version, servers.names_address, USER) as java:
        assert java.ask("send mine hello") == "OK SEND_OK"
        assert java.ask("send written hello") == "OK SEND_OK"
        assert int(java.ask("pull mine readers").removeprefix("OK ")) >= 1
        assert java.ask("listen mine readers 1") == "OK true"
        for line, complaint in (
            ("send secrets hello", "has no PUB permission for topic 'secrets'"),
            ("send unheard-of hello", "has no PUB permission for topic 'unheard-of'"),
            ("pull written readers", "has no SUB permission for topic 'written'"),
            ("pull mine others", "has no SUB permission for group 'others'"),
        ):
            answer = java.ask(line)
            assert answer.startswith("ERR"), answer
            assert "AclException" in answer
            assert complaint in answer


@pytest.mark.parametrize("who", [None, FORGER, Credentials("nobody-knows-me", "whatever-it-is")])
def test_a_stock_client_without_the_right_key_gets_nowhere(
    servers: Servers, java_oracle: OracleFactory, version: str, who: Credentials | None
) -> None:
    with client(java_oracle, version, servers.names_address, who) as java:
        for line in ("send mine hello", "pull mine readers"):
            answer = java.ask(line)
            assert answer.startswith("ERR"), answer


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    return identity(tmp_path_factory.mktemp("tls"))


def tls_flags(ca: Path) -> list[str]:
    return [
        "-Dtls.enable=true",
        "-Dtls.test.mode.enable=false",
        "-Dtls.client.authServer=true",
        f"-Dtls.client.trustCertPath={ca}",
        "-Dtls.config.file=/nowhere/tls.properties",
    ]


def test_a_stock_client_works_over_tls(
    java_oracle: OracleFactory, version: str, own: Identity, tmp_path: Path
) -> None:
    acl = load_acl(written(tmp_path, FILE))
    tls = server_context(own.cert, own.key)
    plan = BrokerPlan(acl=acl, tls=tls, nameserver_tls=client_context(own.ca))
    with running(plan, guard=acl, names_tls=tls) as servers:
        with client(java_oracle, version, servers.names_address, USER, tls_flags(own.ca)) as java:
            assert java.ask("send mine hello") == "OK SEND_OK"
            assert java.ask("listen mine readers 1") == "OK true"
            assert "has no PUB permission" in java.ask("send secrets hello")
        stranger = identity(tmp_path / "stranger")
        with client(java_oracle, version, servers.names_address, USER, tls_flags(stranger.ca)) as java:
            assert java.ask("send mine hello").startswith("ERR")
        with client(java_oracle, version, servers.names_address, USER) as java:
            assert java.ask("send mine hello").startswith("ERR")
