"""Verbs at servers that want to know who asks, and that speak TLS."""

from pathlib import Path

import pytest

from tests.security.accounts import ADMIN, FORGER, STRANGER, acl_in
from tests.security.certificates import identity
from tests.security.live import running
from tests.unit.cli.test_framework import ALL
from tests.unit.cli.verbs import Told, run
from trimtab.broker.server import BrokerPlan
from trimtab.io.tls import client_context, server_context
from trimtab.wire.signing import Credentials


def as_somebody(nameserver: str, who: Credentials | None, *args: str) -> Told:
    account = (
        {} if who is None else {"TRIMTAB_ACCESS_KEY": who.access_key, "TRIMTAB_SECRET_KEY": who.secret_key}
    )
    return run(nameserver, *args, "--timeout", "30", **account)


def test_an_account_is_taken_from_the_environment_from_options_and_from_a_file(tmp_path: Path) -> None:
    acl = acl_in(tmp_path)
    secret = tmp_path / "secret"
    secret.write_text(f"{ADMIN.secret_key}\n")
    with running(BrokerPlan(acl=acl, credentials=ADMIN), guard=acl) as servers:
        ns = servers.names_address
        made = as_somebody(ns, ADMIN, "topic", "create", "mine", "--queues", "1")
        assert made.code == 0, made.err
        options = ("--access-key", ADMIN.access_key, "--secret-key-file", str(secret))
        told = run(ns, "topic", "queues", "mine", *options)
        assert told.code == 0, told.err
        assert as_somebody(ns, ADMIN, "message", "send", "mine", "hello").code == 0
        assert as_somebody(ns, ADMIN, "message", "consume", "mine").out == "hello\n"
        for bench in (
            ("send", "--topic", "mine", "--messages", "20"),
            ("drain", "--topic", "mine", "--api", "pull"),
            (
                "rebalance",
                "--members",
                "2",
                "--changes",
                "0",
                "--rate",
                "50",
                "--pause-s",
                "0.1",
                "--queues",
                "2",
            ),
        ):
            told = as_somebody(ns, ADMIN, "bench", *bench, "--json")
            assert told.code == 0, told.err
        assert as_somebody(ns, FORGER, "bench", "send", "--topic", "mine").code == 1


@pytest.mark.parametrize("who", [None, FORGER, STRANGER], ids=["nobody", "forger", "stranger"])
def test_who_may_not_is_told_so_in_one_line_without_secrets(tmp_path: Path, who: Credentials | None) -> None:
    acl = acl_in(tmp_path)
    with running(BrokerPlan(acl=acl, credentials=ADMIN), guard=acl) as servers:
        told = as_somebody(servers.names_address, who, "topic", "create", "mine")
    assert told.code == 1, told.err
    assert told.err.count("\n") == 1
    assert who is None or who.secret_key not in told.err


def test_tls_is_spoken_when_asked_for_and_missing_it_is_one_line(tmp_path: Path) -> None:
    files = identity(tmp_path / "ca")
    other = identity(tmp_path / "other")
    tls = server_context(files.cert, files.key)
    plan = BrokerPlan(tls=tls, nameserver_tls=client_context(files.ca))
    with running(plan, names_tls=tls) as servers:
        ns = servers.names_address
        assert run(ns, "cluster", "info", "--tls-ca", str(files.ca), "--timeout", "30").code == 0
        for options in ((), ("--tls",), ("--tls-ca", str(other.ca))):
            told = run(ns, "cluster", "info", *options)
            assert (told.code, told.err.count("\n")) == (3, 1), told.err


def test_a_secret_is_no_option_since_others_can_see_a_command_line() -> None:
    for path, command in ALL:
        assert not any("--secret-key" in parameter.opts for parameter in command.params), path
    told = run("h:1", "topic", "list", "--access-key", "reader")
    assert (told.code, told.err.count("\n")) == (2, 1)
    assert "TRIMTAB_SECRET_KEY" in told.err
