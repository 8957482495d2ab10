"""What a broker signs its own requests with, when accounts change."""

from pathlib import Path

import pytest

from tests.raw import RawConnection
from tests.security.accounts import ADMIN, ORDERS, SAMPLE_FILE, acl_in, sample_acl, written
from tests.security.live import running
from trimtab.broker.acl import AclError
from trimtab.broker.acl_file import load_acl
from trimtab.broker.server import BrokerPlan
from trimtab.testing import Cluster
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.signing import Credentials

NEW_TOPIC = {
    "topic": "invoices", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6",
    "topicFilterType": "SINGLE_TAG", "order": "false",
}  # fmt: skip


@pytest.mark.parametrize("names_know", [True, False])
def test_a_broker_is_registered_on_when_the_secret_of_its_account_changes(
    tmp_path: Path, names_know: bool
) -> None:
    acl = acl_in(tmp_path)
    changed = Credentials(ADMIN.access_key, "another-secret-0815")
    form = {"accessKey": changed.access_key, "secretKey": changed.secret_key, "admin": "true"}
    with running(BrokerPlan(acl=acl), guard=acl if names_know else sample_acl()) as servers:
        with RawConnection(servers.broker_address, ADMIN) as admin:
            assert admin.ask(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, form).code == ResponseCode.SUCCESS
        with (
            RawConnection(servers.broker_address, changed) as admin,
            RawConnection(servers.names_address, changed if names_know else ADMIN) as names,
        ):
            assert admin.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, NEW_TOPIC).code == ResponseCode.SUCCESS
            route = names.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "invoices"})
            assert route.code == ResponseCode.SUCCESS


def test_a_broker_registers_with_an_admin_account_that_has_lists(tmp_path: Path) -> None:
    lists = f"  admin: true\n  topicPerms:\n  - {ORDERS}=PUB\n"
    acl = load_acl(written(tmp_path, SAMPLE_FILE.replace("  admin: true\n", lists)))
    with (
        running(BrokerPlan(acl=acl), guard=acl) as servers,
        RawConnection(servers.names_address, ADMIN) as names,
    ):
        route = names.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
        assert route.code == ResponseCode.SUCCESS


def test_a_cluster_that_could_not_register_does_not_start(tmp_path: Path) -> None:
    file = written(tmp_path, SAMPLE_FILE.replace("  admin: true\n", ""))
    with pytest.raises(AclError, match="no account is an admin"), Cluster(acl=file):
        pass
