"""Command frames and header classes, compared with what the stock jars write and read."""

import random
from pathlib import Path

import msgspec
import pytest

from tests.apache.oracle import JavaOracle
from tests.interop.seeds import seed
from trimtab.wire.codes import LanguageCode
from trimtab.wire.commands import Command, decode_command, encode_command
from trimtab.wire.frames import FrameDecoder
from trimtab.wire.headers import admin, callbacks, consume, names, send
from trimtab.wire.headers.base import Header

SOURCE = Path(__file__).parent.parent / "apache" / "java" / "CommandOracle.java"
COMMANDS = 5_000

JAVA_NAMES: dict[type[Header], tuple[str, ...]] = {
    send.SendMessage: ("SendMessageRequestHeader",),
    send.SendMessageV2: ("SendMessageRequestHeaderV2",),
    send.SendMessageResponse: ("SendMessageResponseHeader",),
    send.ConsumerSendMsgBack: ("ConsumerSendMsgBackRequestHeader",),
    send.EndTransaction: ("EndTransactionRequestHeader",),
    send.RecallMessage: ("RecallMessageRequestHeader",),
    send.RecallMessageResponse: ("RecallMessageResponseHeader",),
    consume.PullMessage: ("PullMessageRequestHeader",),
    consume.PullMessageResponse: ("PullMessageResponseHeader",),
    consume.QueueOnly: ("GetMinOffsetRequestHeader", "GetEarliestMsgStoretimeRequestHeader"),
    consume.GetMaxOffset: ("GetMaxOffsetRequestHeader",),
    consume.SearchOffset: ("SearchOffsetRequestHeader",),
    consume.QueryConsumerOffset: ("QueryConsumerOffsetRequestHeader",),
    consume.UpdateConsumerOffset: ("UpdateConsumerOffsetRequestHeader",),
    consume.OffsetResponse: (
        "GetMaxOffsetResponseHeader",
        "GetMinOffsetResponseHeader",
        "SearchOffsetResponseHeader",
        "QueryConsumerOffsetResponseHeader",
    ),
    consume.TimestampResponse: ("GetEarliestMsgStoretimeResponseHeader",),
    consume.ViewMessage: ("ViewMessageRequestHeader",),
    consume.QueryMessage: ("QueryMessageRequestHeader",),
    consume.QueryMessageResponse: ("QueryMessageResponseHeader",),
    consume.GroupOnly: (
        "GetConsumerListByGroupRequestHeader",
        "NotifyConsumerIdsChangedRequestHeader",
        "GetConsumerConnectionListRequestHeader",
    ),
    consume.UnregisterClient: ("UnregisterClientRequestHeader",),
    names.GetRouteInfo: ("GetRouteInfoRequestHeader",),
    names.RegisterBroker: ("RegisterBrokerRequestHeader",),
    names.RegisterBrokerResponse: ("RegisterBrokerResponseHeader",),
    names.BrokerIdentity: (
        "UnRegisterBrokerRequestHeader",
        "QueryDataVersionRequestHeader",
        "BrokerHeartbeatRequestHeader",
    ),
    names.QueryDataVersionResponse: ("QueryDataVersionResponseHeader",),
    names.PutKvConfig: ("PutKVConfigRequestHeader",),
    names.KvConfigKey: ("GetKVConfigRequestHeader", "DeleteKVConfigRequestHeader"),
    names.GetKvConfigResponse: ("GetKVConfigResponseHeader",),
    names.NamespaceOnly: ("GetKVListByNamespaceRequestHeader",),
    names.ClusterOnly: ("GetTopicsByClusterRequestHeader",),
    names.BrokerNameOnly: ("WipeWritePermOfBrokerRequestHeader", "AddWritePermOfBrokerRequestHeader"),
    names.WipeWritePermResponse: ("WipeWritePermOfBrokerResponseHeader",),
    names.AddWritePermResponse: ("AddWritePermOfBrokerResponseHeader",),
    names.DeleteTopicInNames: ("DeleteTopicFromNamesrvRequestHeader",),
    names.RegisterTopic: ("RegisterTopicRequestHeader",),
    names.GetBrokerMemberGroup: ("GetBrokerMemberGroupRequestHeader",),
    admin.CreateTopic: ("CreateTopicRequestHeader",),
    admin.TopicOnly: (
        "DeleteTopicRequestHeader",
        "GetTopicStatsInfoRequestHeader",
        "QueryTopicConsumeByWhoRequestHeader",
    ),
    admin.GetTopicConfig: ("GetTopicConfigRequestHeader",),
    admin.DeleteSubscriptionGroup: ("DeleteSubscriptionGroupRequestHeader",),
    admin.GroupNamed: ("GetSubscriptionGroupConfigRequestHeader", "QueryTopicsByConsumerRequestHeader"),
    admin.QuerySubscription: ("QuerySubscriptionByConsumerRequestHeader",),
    admin.ProducerGroupOnly: ("GetProducerConnectionListRequestHeader",),
    admin.GetConsumeStats: ("GetConsumeStatsRequestHeader",),
    admin.GetBrokerConsumeStats: ("GetConsumeStatsInBrokerHeader",),
    admin.ResetOffset: ("ResetOffsetRequestHeader",),
    admin.GetConsumerStatus: ("GetConsumerStatusRequestHeader",),
    admin.TopicAndGroup: ("QueryConsumeTimeSpanRequestHeader",),
    admin.QueryCorrectionOffset: ("QueryCorrectionOffsetHeader",),
    admin.CloneGroupOffset: ("CloneGroupOffsetRequestHeader",),
    admin.ViewBrokerStats: ("ViewBrokerStatsDataRequestHeader",),
    admin.QueryConsumeQueue: ("QueryConsumeQueueRequestHeader",),
    admin.ResumeCheckHalfMessage: ("ResumeCheckHalfMessageRequestHeader",),
    admin.GetBrokerConfigResponse: ("GetBrokerConfigResponseHeader",),
    admin.UpdateAclConfig: ("CreateAccessConfigRequestHeader",),
    admin.DeleteAclConfig: ("DeleteAccessConfigRequestHeader",),
    admin.UpdateGlobalWhiteAddrs: ("UpdateGlobalWhiteAddrsConfigRequestHeader",),
    admin.AclVersionResponse: ("GetBrokerAclConfigResponseHeader",),
    callbacks.CheckTransactionState: ("CheckTransactionStateRequestHeader",),
    callbacks.GetConsumerRunningInfo: ("GetConsumerRunningInfoRequestHeader",),
    callbacks.ConsumeMessageDirectly: ("ConsumeMessageDirectlyResultRequestHeader",),
    callbacks.PushReplyMessage: ("ReplyMessageRequestHeader",),
}

# Fields that travel beside the header class, so Java has no class member for them; leaseEpoch is our own.
BESIDE_THE_CLASS = {
    "leaseEpoch",
    "MSG_REGION",
    "TRACE_ON",
    "_UNIQUE_KEY_QUERY",
    "acceptStandardJsonOnly",
    "clusterName",
}

# Java marks these as optional and fails without them.
NEEDED_IN_EFFECT = {
    ("QueryConsumeQueueRequestHeader", "topic"),
    ("ResumeCheckHalfMessageRequestHeader", "msgId"),
}


@pytest.fixture(params=["4.9.3", "5.5.0"], scope="module")
def oracle(request: pytest.FixtureRequest) -> JavaOracle:
    return JavaOracle(request.param, SOURCE)


def told(command: Command) -> str:
    """The same words that CommandOracle.told uses."""
    remark = "-" if command.remark is None else "r" + command.remark.encode().hex()
    body = command.body.hex() or "-"
    parts = [command.code, command.language.name, command.version, command.opaque, command.flag, remark, body]
    by_utf16 = sorted(command.ext.items(), key=lambda item: item[0].encode("utf-16-be"))
    fields = [f"{name.encode().hex()}={value.encode().hex()}" for name, value in by_utf16]
    return " ".join(map(str, [*parts, *fields]))


def decoded(raw: bytes) -> Command:
    (frame,) = FrameDecoder().feed(raw)
    return decode_command(frame)


def random_text(rng: random.Random) -> str:
    alphabet = [
        '"',
        "\\",
        "/",
        "\x00",
        "\x01",
        "\x02",
        "\x1f",
        "\x7f",
        "a",
        "Z",
        " ",
        "é",
        "中",
        "\u2028",
        "\ufffd",
        "🚀",
    ]
    return "".join(rng.choice(alphabet) for _ in range(rng.randrange(10)))


def random_command(rng: random.Random) -> Command:
    return Command(
        code=rng.randrange(0x7FFF),
        opaque=rng.randrange(-(2**31), 2**31),
        flag=rng.randrange(4),
        # An empty value is null to Java 5.x in a binary header, so nobody may rely on one. Names are identifiers:
        # the fastjson2 of 5.5.0 cannot read others ("malformed input" for a rocket).
        ext={f"_field{i}": random_text(rng) + "v" for i in range(rng.randrange(12))},
        body=rng.randbytes(rng.randrange(40)),
        remark=random_text(rng) + "." if rng.random() < 0.5 else None,
        language=rng.choice(list(LanguageCode)[:12]),
        version=rng.randrange(500),
        serializer=rng.randrange(2),
    )


def test_java_reads_what_we_write(oracle: JavaOracle) -> None:
    rng = random.Random(seed())
    commands = [random_command(rng) for _ in range(COMMANDS)]
    answers = oracle.run([encode_command(command).hex() for command in commands], args=["read"])
    assert len(answers) == COMMANDS
    for command, answer in zip(commands, answers, strict=True):
        assert told(command) == answer, f"TRIMTAB_SEED={seed()}"


def test_we_read_what_java_writes_and_write_it_back(oracle: JavaOracle) -> None:
    lines = oracle.run([], args=["write", str(seed()), str(COMMANDS)])
    assert len(lines) == COMMANDS
    again = []
    for line in lines:
        frame, words = line.split(" ", 1)
        command = decoded(bytes.fromhex(frame))
        assert told(command) == words, f"TRIMTAB_SEED={seed()}"
        again.append(encode_command(command))
        # Java's maps have no order; without fields, or with one, the very bytes agree.
        if len(command.ext) <= 1 and command.serializer == 1:
            assert again[-1].hex() == frame, f"TRIMTAB_SEED={seed()}"
    answers = oracle.run([raw.hex() for raw in again], args=["read"])
    assert answers == [line.split(" ", 1)[1] for line in lines], f"TRIMTAB_SEED={seed()}"


def java_headers(oracle: JavaOracle) -> dict[str, dict[str, tuple[str, bool]]]:
    headers = {}
    for line in oracle.run([], args=["headers"]):
        name, *fields = line.split()
        split = (field.split(":") for field in fields)
        headers[name] = {field: (kind, needed == "true") for field, kind, needed in split}
    return headers


def our_kind(field: msgspec.structs.FieldInfo) -> str:
    text = str(field.type)
    if "bool" in text:
        return "boolean"
    if "int" in text:
        return "long" if str(2**63 - 1) in text else "int"
    return "string"


JAVA_KINDS = {"integer": "int", "boundarytype": "string"}


def test_every_field_of_every_header_is_javas(oracle: JavaOracle) -> None:
    java = java_headers(oracle)
    checked = 0
    for ours, java_names in JAVA_NAMES.items():
        fields = {field.encode_name: field for field in msgspec.structs.fields(ours)}
        for name in java_names:
            if name not in java:
                continue
            checked += 1
            theirs = java[name]
            for field, (kind, needed) in theirs.items():
                if field in fields:
                    assert our_kind(fields[field]) == JAVA_KINDS.get(kind, kind), (name, field)
                    assert needed or not fields[field].required or (name, field) in NEEDED_IN_EFFECT, (
                        name,
                        field,
                    )
                else:
                    assert not needed, (name, field, "Java needs a field that we do not know")
    assert checked > 60


def test_no_field_is_an_invention() -> None:
    java: dict[str, set[str]] = {}
    for version in ("4.9.3", "5.5.0"):
        for name, fields in java_headers(JavaOracle(version, SOURCE)).items():
            java.setdefault(name, set()).update(fields)
    for ours, java_names in JAVA_NAMES.items():
        known = set().union(*(java.get(name, set()) for name in java_names))
        assert known, f"no Java class for {ours.__name__}"
        unknown = {field.encode_name for field in msgspec.structs.fields(ours)} - known - BESIDE_THE_CLASS
        assert not unknown, (ours.__name__, unknown)


def test_every_header_class_is_compared() -> None:
    defined = {
        value
        for module in (send, consume, names, admin, callbacks)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Header) and value is not Header
    }
    # Heartbeat answers carry loose fields, Java has no class for them; two of ours add a flag to Java's for brokers and members of ours.
    ours_alone = {
        consume.HeartbeatResponse,
        consume.GroupAndLeases,
        callbacks.GetHoldings,
        callbacks.GetInfoOfOurs,
    }
    assert defined - ours_alone == set(JAVA_NAMES)
