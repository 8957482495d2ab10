"""The account calls of `Admin`, at brokers of ours with ACL."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import trimtab
from tests.security.accounts import ADMIN, ORDERS, READER, SAMPLE_FILE, STRANGER, WRITER, written
from trimtab.client.admin.reach import NoSuchAccountError
from trimtab.errors import TrimtabError
from trimtab.settings import Timeouts
from trimtab.testing import AsyncCluster, Cluster
from trimtab.wire.signing import Credentials

PATIENT = Timeouts(request_s=30.0)
NEW = Credentials("a-new-key", "a-new-secret-4711")


def play(directory: Path, scenario: Callable[[AsyncCluster, trimtab.Admin], Awaitable[None]]) -> None:
    async def run() -> None:
        async with (
            Cluster(brokers=2, acl=written(directory, SAMPLE_FILE)) as cluster,
            admin_of(cluster, ADMIN) as admin,
        ):
            await scenario(cluster, admin)

    asyncio.run(run())


def admin_of(cluster: AsyncCluster, who: Credentials | None) -> trimtab.Admin:
    return trimtab.Admin(nameserver=cluster.nameserver, credentials=who, timeouts=PATIENT)


async def keys(admin: trimtab.Admin, broker: str = "broker-a") -> set[str]:
    return {one.access_key for one in (await admin.accounts(broker)).accounts}


def test_accounts_are_listed_without_their_secrets(tmp_path: Path) -> None:
    async def scenario(_cluster: AsyncCluster, admin: trimtab.Admin) -> None:
        told = await admin.accounts("broker-b")
        by_key = {one.access_key: one for one in told.accounts}
        assert set(by_key) == {one.access_key for one in (ADMIN, READER, WRITER, STRANGER)}
        assert by_key[ADMIN.access_key].admin
        assert by_key[READER.access_key].topic_perms == (f"{ORDERS}=SUB",)
        assert not any(one.secret_key in repr(told) for one in (ADMIN, READER, WRITER, STRANGER))

    play(tmp_path, scenario)


def test_an_account_is_made_used_changed_and_removed(tmp_path: Path) -> None:
    async def scenario(cluster: AsyncCluster, admin: trimtab.Admin) -> None:
        await admin.create_topic(ORDERS, queues=1)
        done = await admin.put_account(NEW.access_key, NEW.secret_key, topic_perms=[f"{ORDERS}=PUB|SUB"])
        assert done == ("broker-a", "broker-b")
        assert NEW.access_key in await keys(admin)
        async with trimtab.Producer("pg", nameserver=cluster.nameserver, credentials=NEW) as producer:
            await producer.send(trimtab.Message(ORDERS, b"hello"))
        await admin.put_account(NEW.access_key, NEW.secret_key, topic_perms=[f"{ORDERS}=DENY"])
        async with trimtab.Producer("pg", nameserver=cluster.nameserver, credentials=NEW) as producer:
            with pytest.raises(TrimtabError):
                await producer.send(trimtab.Message(ORDERS, b"hello"))
        assert await admin.delete_account(NEW.access_key)  # the brokers of a cluster share their accounts
        with pytest.raises(NoSuchAccountError, match="'a-new-key' does not exist"):
            await admin.delete_account(NEW.access_key)
        assert NEW.access_key not in await keys(admin, "broker-b")

    play(tmp_path, scenario)


def test_addresses_that_need_no_account(tmp_path: Path) -> None:
    async def scenario(_cluster: AsyncCluster, admin: trimtab.Admin) -> None:
        assert await admin.set_white_addresses(["10.1.2.3"]) == ("broker-a", "broker-b")
        assert (await admin.accounts("broker-a")).global_white_addresses == ("10.1.2.3",)

    play(tmp_path, scenario)


@pytest.mark.parametrize("who", [READER, STRANGER, None], ids=["reader", "stranger", "nobody"])
def test_only_an_admin_may(tmp_path: Path, who: Credentials | None) -> None:
    async def scenario(cluster: AsyncCluster, admin: trimtab.Admin) -> None:
        async with admin_of(cluster, who) as other:
            for call in (
                other.accounts("broker-a"),
                other.put_account(NEW.access_key, NEW.secret_key, admin=True),
                other.delete_account(ADMIN.access_key),
                other.set_white_addresses(["*"]),
            ):
                with pytest.raises(TrimtabError) as caught:
                    await call
                assert NEW.secret_key not in str(caught.value)
        assert ADMIN.access_key in await keys(admin)
        assert NEW.access_key not in await keys(admin)

    play(tmp_path, scenario)
