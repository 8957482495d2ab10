"""Every body as stock RocketMQ 4.9.3 wrote it: read, and written back to the very same bytes.

The texts come from running the 4.9.3 jars (protocol reference §1.7, §4.1, §7, §8); those of 5.x from the 5.5.0 jars.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from trimtab.errors import ProtocolError
from trimtab.model import MessageQueue
from trimtab.wire import bodies
from trimtab.wire.bodies import Form, decode_body, encode_body
from trimtab.wire.codes import LanguageCode

if TYPE_CHECKING:
    import msgspec

MQ = '{"brokerName":"b","queueId":0,"topic":"T"}'
QUEUE = MessageQueue("T", "b", 0)
SUBSCRIPTION_JSON = '{"classFilterMode":false,"codeSet":[2598919,2598920],"expressionType":"TAG","subString":"TagA || TagB","subVersion":1794826799678,"tagsSet":["TagA","TagB"],"topic":"T"}'
SUBSCRIPTION = bodies.SubscriptionData(
    topic="T",
    sub_string="TagA || TagB",
    tags_set=("TagA", "TagB"),
    code_set=(2598919, 2598920),
    sub_version=1794826799678,
)
CONNECTION_JSON = '{"clientAddr":"a:1","clientId":"c","language":"JAVA","version":399}'
CONNECTION = bodies.Connection(client_id="c", client_addr="a:1", language=LanguageCode.JAVA, version=399)
TOPIC_JSON = '{"order":false,"perm":6,"readQueueNums":16,"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":16}'
GROUP_JSON = '{"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,"groupName":"g","notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}'
PROCESS_QUEUE_JSON = '{"cachedMsgCount":0,"cachedMsgMaxOffset":0,"cachedMsgMinOffset":0,"cachedMsgSizeInMiB":0,"commitOffset":0,"droped":false,"lastConsumeTimestamp":0,"lastLockTimestamp":0,"lastPullTimestamp":0,"locked":false,"transactionMsgCount":0,"transactionMsgMaxOffset":0,"transactionMsgMinOffset":0,"tryUnlockTimes":0}'
STATUS_JSON = '{"consumeFailedMsgs":0,"consumeFailedTPS":0.0,"consumeOKTPS":0.0,"consumeRT":0.0,"pullRT":0.0,"pullTPS":0.0}'
ITEM_JSON = '{"avgpt":0.0,"sum":0,"tps":0.0}'
NO_TIME = "1970-01-01#00:00:00:000"
ROUTE = bodies.TopicRouteData(
    queue_datas=(bodies.QueueData(broker_name="b", read_queue_nums=4, write_queue_nums=4, perm=6),),
    broker_datas=(
        bodies.BrokerData(
            cluster="C", broker_name="b", broker_addrs={0: "1.1.1.1:10911", 1: "1.1.1.2:10911"}
        ),
    ),
)

VECTORS_4_9_3: dict[str, tuple[msgspec.Struct, str]] = {
    "route": (
        ROUTE,
        '{"brokerDatas":[{"brokerAddrs":{0:"1.1.1.1:10911",1:"1.1.1.2:10911"},"brokerName":"b","cluster":"C"}],"filterServerTable":{},"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}',
    ),
    "route of an ordered topic": (
        bodies.TopicRouteData(order_topic_conf="b1:4;b2:4", filter_server_table={"1.1.1.1:1": ("f1", "f2")}),
        '{"brokerDatas":[],"filterServerTable":{"1.1.1.1:1":["f1","f2"]},"orderTopicConf":"b1:4;b2:4","queueDatas":[]}',
    ),
    "cluster": (
        bodies.ClusterInfo(
            broker_addr_table={
                "b": bodies.BrokerData(cluster="C", broker_name="b", broker_addrs={0: "1.1.1.1:10911"})
            },
            cluster_addr_table={"C": ("b",)},
        ),
        '{"brokerAddrTable":{"b":{"brokerAddrs":{0:"1.1.1.1:10911"},"brokerName":"b","cluster":"C"}},"clusterAddrTable":{"C":["b"]}}',
    ),
    "heartbeat": (
        bodies.HeartbeatData(
            client_id="1.1.1.1@x",
            producer_data_set=(bodies.ProducerData(group_name="pg"),),
            consumer_data_set=(
                bodies.ConsumerData(
                    group_name="cg",
                    consume_type=bodies.ConsumeType.CONSUME_PASSIVELY,
                    message_model=bodies.MessageModel.CLUSTERING,
                    consume_from_where=bodies.ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
                    subscription_data_set=(SUBSCRIPTION,),
                ),
            ),
        ),
        f'{{"clientID":"1.1.1.1@x","consumerDataSet":[{{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"cg","messageModel":"CLUSTERING","subscriptionDataSet":[{SUBSCRIPTION_JSON}],"unitMode":false}}],"producerDataSet":[{{"groupName":"pg"}}]}}',
    ),
    "check client": (
        bodies.CheckClientRequestBody(client_id="c", group="g", subscription_data=SUBSCRIPTION),
        f'{{"clientId":"c","group":"g","subscriptionData":{SUBSCRIPTION_JSON}}}',
    ),
    "subscription of a group": (
        bodies.QuerySubscriptionResponseBody(group="g", topic="T", subscription_data=SUBSCRIPTION),
        f'{{"group":"g","subscriptionData":{SUBSCRIPTION_JSON},"topic":"T"}}',
    ),
    "lock": (
        bodies.LockBatchRequestBody(client_id="c", consumer_group="g", mq_set=(QUEUE,)),
        f'{{"clientId":"c","consumerGroup":"g","mqSet":[{MQ}]}}',
    ),
    "unlock": (
        bodies.UnlockBatchRequestBody(client_id="c", consumer_group="g", mq_set=(QUEUE,)),
        f'{{"clientId":"c","consumerGroup":"g","mqSet":[{MQ}]}}',
    ),
    "locked": (bodies.LockBatchResponseBody(lock_ok_mq_set=(QUEUE,)), f'{{"lockOKMQSet":[{MQ}]}}'),
    "consumer ids": (bodies.ConsumerIdList(consumer_id_list=("c", "c")), '{"consumerIdList":["c","c"]}'),
    "topics": (bodies.TopicList(topic_list=("T",)), '{"topicList":["T"]}'),
    "system topics": (
        bodies.TopicList(topic_list=("T",), broker_addr="x:1"),
        '{"brokerAddr":"x:1","topicList":["T"]}',
    ),
    "groups": (bodies.GroupList(group_list=("g",)), '{"groupList":["g"]}'),
    "texts": (bodies.KVTable(table={"k": "v"}), '{"table":{"k":"v"}}'),
    "data version": (bodies.DataVersion(timestamp=1), '{"counter":0,"timestamp":1}'),
    "topic configs": (
        bodies.TopicConfigSerializeWrapper(
            topic_config_table={"T": bodies.TopicConfig(topic_name="T")},
            data_version=bodies.DataVersion(timestamp=1794826799720),
        ),
        f'{{"dataVersion":{{"counter":0,"timestamp":1794826799720}},"topicConfigTable":{{"T":{TOPIC_JSON}}}}}',
    ),
    "topic config": (bodies.TopicConfigAndMapping(topic_name="T"), TOPIC_JSON),
    "subscription groups": (
        bodies.SubscriptionGroupWrapper(
            subscription_group_table={"g": bodies.SubscriptionGroupConfig(group_name="g")},
            data_version=bodies.DataVersion(timestamp=1),
        ),
        f'{{"dataVersion":{{"counter":0,"timestamp":1}},"subscriptionGroupTable":{{"g":{GROUP_JSON}}}}}',
    ),
    "subscription group": (bodies.SubscriptionGroupConfig(group_name="g"), GROUP_JSON),
    "consumers": (
        bodies.ConsumerConnection(
            connection_set=(CONNECTION,),
            subscription_table={"T": SUBSCRIPTION},
            consume_type=bodies.ConsumeType.CONSUME_PASSIVELY,
            message_model=bodies.MessageModel.CLUSTERING,
            consume_from_where=bodies.ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        ),
        f'{{"connectionSet":[{CONNECTION_JSON}],"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","subscriptionTable":{{"T":{SUBSCRIPTION_JSON}}}}}',
    ),
    "producers": (
        bodies.ProducerConnection(connection_set=(CONNECTION,)),
        f'{{"connectionSet":[{CONNECTION_JSON}]}}',
    ),
    "topic stats": (
        bodies.TopicStatsTable(offset_table={QUEUE: bodies.TopicOffset(max_offset=5)}),
        f'{{"offsetTable":{{{MQ}:{{"lastUpdateTimestamp":0,"maxOffset":5,"minOffset":0}}}}}}',
    ),
    "consume stats": (
        bodies.ConsumeStats(consume_tps=1.5, offset_table={QUEUE: bodies.OffsetWrapper(broker_offset=9)}),
        f'{{"consumeTps":1.5,"offsetTable":{{{MQ}:{{"brokerOffset":9,"consumerOffset":0,"lastTimestamp":0}}}}}}',
    ),
    "consume stats of a broker": (
        bodies.ConsumeStatsList(
            broker_addr="x:1", consume_stats_list=({"g": (bodies.ConsumeStats(),)},), total_diff=9
        ),
        '{"brokerAddr":"x:1","consumeStatsList":[{"g":[{"consumeTps":0.0,"offsetTable":{}}]}],"totalDiff":9}',
    ),
    "running info": (
        bodies.ConsumerRunningInfo(
            mq_table={QUEUE: bodies.ProcessQueueInfo()},
            properties={"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"},
            status_table={"T": bodies.ConsumeStatus()},
            subscription_set=(SUBSCRIPTION,),
        ),
        f'{{"mqTable":{{{MQ}:{PROCESS_QUEUE_JSON}}},"properties":{{"PROP_CONSUME_TYPE":"CONSUME_PASSIVELY"}},"statusTable":{{"T":{STATUS_JSON}}},"subscriptionSet":[{SUBSCRIPTION_JSON}]}}',
    ),
    "consumed directly": (
        bodies.ConsumeMessageDirectlyResult(consume_result=bodies.ConsumeResult.CR_SUCCESS),
        '{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false,"spentTimeMills":0}',
    ),
    "reset": (bodies.ResetOffsetBody(offset_table={QUEUE: 5}), f'{{"offsetTable":{{{MQ}:5}}}}'),
    "reset for C": (
        bodies.ResetOffsetBodyForC(
            offset_table=(bodies.MessageQueueForC(topic="T", broker_name="b", queue_id=0, offset=5),)
        ),
        '{"offsetTable":[{"brokerName":"b","offset":5,"queueId":0,"topic":"T"}]}',
    ),
    "consumer status": (
        bodies.GetConsumerStatusBody(consumer_table={"cid": {QUEUE: 5}}, message_queue_table={QUEUE: 5}),
        f'{{"consumerTable":{{"cid":{{{MQ}:5}}}},"messageQueueTable":{{{MQ}:5}}}}',
    ),
    "time spans": (
        bodies.QueryConsumeTimeSpanBody(
            consume_time_span_set=(
                bodies.QueueTimeSpan(
                    message_queue=QUEUE,
                    consume_time_stamp_str=NO_TIME,
                    max_time_stamp_str=NO_TIME,
                    min_time_stamp_str=NO_TIME,
                ),
            )
        ),
        f'{{"consumeTimeSpanSet":[{{"consumeTimeStamp":0,"consumeTimeStampStr":"{NO_TIME}","delayTime":0,"maxTimeStamp":0,"maxTimeStampStr":"{NO_TIME}","messageQueue":{MQ},"minTimeStamp":0,"minTimeStampStr":"{NO_TIME}"}}]}}',
    ),
    "consume queue": (
        bodies.QueryConsumeQueueResponseBody(
            filter_data="f",
            queue_data=(bodies.ConsumeQueueData(bit_map="m", extend_data_json="{}", msg="x"),),
            subscription_data=SUBSCRIPTION,
        ),
        f'{{"filterData":"f","maxQueueIndex":0,"minQueueIndex":0,"queueData":[{{"bitMap":"m","eval":false,"extendDataJson":"{{}}","msg":"x","physicOffset":0,"physicSize":0,"tagsCode":0}}],"subscriptionData":{SUBSCRIPTION_JSON}}}',
    ),
    "corrections": (
        bodies.QueryCorrectionOffsetBody(correction_offsets={0: 1}),
        '{"correctionOffsets":{0:1}}',
    ),
    "broker stats": (
        bodies.BrokerStatsData(
            stats_day=bodies.BrokerStatsItem(),
            stats_hour=bodies.BrokerStatsItem(),
            stats_minute=bodies.BrokerStatsItem(),
        ),
        f'{{"statsDay":{ITEM_JSON},"statsHour":{ITEM_JSON},"statsMinute":{ITEM_JSON}}}',
    ),
    "offsets": (
        bodies.ConsumerOffsets(offset_table={"T@g": {0: 5, 1: 6}}),
        '{"offsetTable":{"T@g":{0:5,1:6}}}',
    ),
    "delay offsets": (bodies.DelayOffsets(offset_table={1: 10}), '{"offsetTable":{1:10}}'),
    "accounts": (
        bodies.AclConfig(
            global_white_addrs=("10.*",),
            plain_access_configs=(
                bodies.PlainAccessConfig(
                    access_key="ak",
                    secret_key="sk",
                    white_remote_address="",
                    default_group_perm="SUB",
                    default_topic_perm="DENY",
                    group_perms=("g=SUB",),
                    topic_perms=("t=PUB|SUB",),
                ),
            ),
        ),
        '{"globalWhiteAddrs":["10.*"],"plainAccessConfigs":[{"accessKey":"ak","admin":false,"defaultGroupPerm":"SUB","defaultTopicPerm":"DENY","groupPerms":["g=SUB"],"secretKey":"sk","topicPerms":["t=PUB|SUB"],"whiteRemoteAddress":""}]}',
    ),
    "account versions": (
        bodies.ClusterAclVersionInfo(
            broker_name="b",
            broker_addr="x:1",
            cluster_name="C",
            acl_config_data_version=bodies.DataVersion(timestamp=1),
            all_acl_config_data_version={"/acl.yml": bodies.DataVersion(counter=2, timestamp=3)},
        ),
        '{"aclConfigDataVersion":{"counter":0,"timestamp":1},"allAclConfigDataVersion":{"/acl.yml":{"counter":2,"timestamp":3}},"brokerAddr":"x:1","brokerName":"b","clusterName":"C"}',
    ),
    "offset moved": (
        bodies.OffsetMovedEvent(consumer_group="g", message_queue=QUEUE, offset_new=2, offset_request=1),
        f'{{"consumerGroup":"g","messageQueue":{MQ},"offsetNew":2,"offsetRequest":1}}',
    ),
    "registration": (
        bodies.RegisterBrokerBody(
            topic_config_serialize_wrapper=bodies.TopicConfigAndMappingSerializeWrapper(
                topic_config_table={"T": bodies.TopicConfig(topic_name="T")},
                data_version=bodies.DataVersion(timestamp=1794826799720),
            )
        ),
        f'{{"filterServerList":[],"topicConfigSerializeWrapper":{{"dataVersion":{{"counter":0,"timestamp":1794826799720}},"topicConfigTable":{{"T":{TOPIC_JSON}}}}}}}',
    ),
}

VECTORS_5_5_0: dict[str, tuple[msgspec.Struct, str]] = {
    "heartbeat": (
        bodies.HeartbeatData(client_id="c", heartbeat_fingerprint=0, without_sub=False),
        '{"clientID":"c","consumerDataSet":[],"heartbeatFingerprint":0,"producerDataSet":[],"withoutSub":false}',
    ),
    "route": (
        bodies.TopicRouteData(
            broker_datas=(
                bodies.BrokerData(
                    cluster="C", broker_name="b", broker_addrs={0: "a:1"}, enable_acting_master=False
                ),
            )
        ),
        '{"brokerDatas":[{"brokerAddrs":{0:"a:1"},"brokerName":"b","cluster":"C","enableActingMaster":false}],"filterServerTable":{},"queueDatas":[]}',
    ),
    "topic stats": (
        bodies.TopicStatsTable(offset_table={QUEUE: bodies.TopicOffset()}, topic_put_tps=0.0),
        f'{{"offsetTable":{{{MQ}:{{"lastUpdateTimestamp":0,"maxOffset":0,"minOffset":0}}}},"topicPutTps":0.0}}',
    ),
    "consume stats": (
        bodies.ConsumeStats(consume_tps=1e10, offset_table={QUEUE: bodies.OffsetWrapper(pull_offset=0)}),
        f'{{"consumeTps":1.0E10,"offsetTable":{{{MQ}:{{"brokerOffset":0,"consumerOffset":0,"lastTimestamp":0,"pullOffset":0}}}}}}',
    ),
    "running info": (
        bodies.ConsumerRunningInfo(
            mq_pop_table={QUEUE: bodies.PopProcessQueueInfo()},
            mq_table={QUEUE: bodies.ProcessQueueInfo()},
            user_consumer_info={},
        ),
        f'{{"mqPopTable":{{{MQ}:{{"droped":false,"lastPopTimestamp":0,"waitAckCount":0}}}},"mqTable":{{{MQ}:{PROCESS_QUEUE_JSON}}},"properties":{{}},"statusTable":{{}},"subscriptionSet":[],"userConsumerInfo":{{}}}}',
    ),
    "subscription group": (
        bodies.SubscriptionGroupConfig(
            group_name="g",
            attributes={},
            consume_message_orderly=False,
            consume_timeout_minute=15,
            group_retry_policy=bodies.GroupRetryPolicy(),
            group_sys_flag=0,
        ),
        '{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,"consumeMessageOrderly":false,"consumeTimeoutMinute":15,"groupName":"g","groupRetryPolicy":{"type":"CUSTOMIZED"},"groupSysFlag":0,"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}',
    ),
    "topic config": (
        bodies.TopicConfigAndMapping(
            topic_name="T",
            attributes={},
            mapping_detail=bodies.TopicQueueMappingDetail(topic="T", bname="b", epoch=1, total_queues=4),
        ),
        '{"attributes":{},"mappingDetail":{"bname":"b","currIdMap":{},"dirty":false,"epoch":1,"hostedQueues":{},"scope":"__global__","topic":"T","totalQueues":4},"order":false,"perm":6,"readQueueNums":16,"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":16}',
    ),
    "lock": (
        bodies.LockBatchRequestBody(client_id="c", consumer_group="g", only_this_broker=False),
        '{"clientId":"c","consumerGroup":"g","mqSet":[],"onlyThisBroker":false}',
    ),
    "data version": (
        bodies.DataVersion(timestamp=1, state_version=0),
        '{"counter":0,"stateVersion":0,"timestamp":1}',
    ),
    "producers": (
        bodies.ProducerTableInfo(
            data={
                "g": (
                    bodies.ProducerInfo(client_id="c", remote_ip="a:1", language=LanguageCode.CPP, version=1),
                )
            }
        ),
        '{"data":{"g":[{"clientId":"c","language":"CPP","lastUpdateTimestamp":0,"remoteIP":"a:1","version":1}]}}',
    ),
    "subscription groups": (
        bodies.SubscriptionGroupWrapper(
            data_version=bodies.DataVersion(timestamp=1, state_version=0), forbidden_table={"g": {"T": 1}}
        ),
        '{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":1},"forbiddenTable":{"g":{"T":1}},"subscriptionGroupTable":{}}',
    ),
    "registration": (
        bodies.RegisterBrokerBody(
            topic_config_serialize_wrapper=bodies.TopicConfigAndMappingSerializeWrapper(
                data_version=bodies.DataVersion(timestamp=1, state_version=0),
                mapping_data_version=bodies.DataVersion(timestamp=1, state_version=0),
                topic_queue_mapping_detail_map={},
                topic_queue_mapping_info_map={},
            )
        ),
        '{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":1},"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":1},"topicConfigTable":{},"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}}}',
    ),
}


@pytest.mark.parametrize("name", VECTORS_4_9_3)
def test_what_4_9_3_writes_is_read_and_written_alike(name: str) -> None:
    body, text = VECTORS_4_9_3[name]
    assert decode_body(type(body), text.encode()) == body
    assert encode_body(body) == text.encode()


@pytest.mark.parametrize("name", VECTORS_5_5_0)
def test_what_5_5_0_writes_is_read_and_written_alike(name: str) -> None:
    body, text = VECTORS_5_5_0[name]
    assert decode_body(type(body), text.encode()) == body
    assert encode_body(body) == text.encode()


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("name", VECTORS_4_9_3)
def test_every_form_reads_back_alike(name: str, form: Form) -> None:
    body, _ = VECTORS_4_9_3[name]
    assert decode_body(type(body), encode_body(body, form)) == body


def test_a_route_for_newer_clients_is_standard_json() -> None:
    text = b'{"brokerDatas":[{"brokerAddrs":{"0":"1.1.1.1:10911","1":"1.1.1.2:10911"},"brokerName":"b","cluster":"C"}],"filterServerTable":{},"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    assert encode_body(ROUTE, Form.BROWSER) == text
    assert decode_body(bodies.TopicRouteData, text) == ROUTE


def test_fields_of_later_versions_are_ignored() -> None:
    text = '{"clientID":"c","x":{"y":[1,{"z":null}]},"producerDataSet":[{"groupName":"g","later":true}]}'
    assert decode_body(bodies.HeartbeatData, text.encode()) == bodies.HeartbeatData(
        client_id="c", producer_data_set=(bodies.ProducerData(group_name="g"),)
    )


EMPTY_MEANS_DEFAULTS: list[msgspec.Struct] = [
    bodies.TopicRouteData(),
    bodies.ClusterInfo(),
    bodies.ConsumerConnection(),
    bodies.ConsumerRunningInfo(),
    bodies.ConsumeMessageDirectlyResult(auto_commit=True, order=False),
    bodies.ConsumeStats(consume_tps=0.0),
    bodies.ResetOffsetBody(),
    bodies.RegisterBrokerBody(),
    bodies.LogicQueueMappingItem(end_offset=-1, time_of_end=-1, time_of_start=-1),
    bodies.ExponentialRetryPolicy(initial=5_000, max=7_200_000, multiplier=2),
    bodies.GroupRetryPolicy(type=bodies.RetryPolicyType.CUSTOMIZED),
]


@pytest.mark.parametrize("body", EMPTY_MEANS_DEFAULTS, ids=lambda body: type(body).__name__)
def test_what_is_missing_has_javas_default(body: msgspec.Struct) -> None:
    assert decode_body(type(body), b"{}") == body


def test_a_topic_and_a_group_need_no_more_than_a_name() -> None:
    topic = decode_body(bodies.TopicConfig, b'{"topicName":"T"}')
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm, topic.order) == (16, 16, 6, False)
    assert topic.topic_filter_type is bodies.TopicFilterType.SINGLE_TAG
    group = decode_body(bodies.SubscriptionGroupConfig, b'{"groupName":"g"}')
    assert (group.retry_queue_nums, group.retry_max_times, group.consume_enable) == (1, 16, True)
    assert (group.broker_id, group.which_broker_when_consume_slowly) == (0, 1)


@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (bodies.HeartbeatData, b"{}"),
        (bodies.TopicConfig, b"{}"),
        (bodies.SubscriptionGroupConfig, b"{}"),
        (bodies.LockBatchRequestBody, b'{"clientId":"c"}'),
        (bodies.SubscriptionData, b'{"subString":"*"}'),
        (bodies.ResetOffsetBody, b'{"offsetTable":{{"topic":"T"}:5}}'),
    ],
)
def test_nothing_goes_without_its_name(cls: type[msgspec.Struct], text: bytes) -> None:
    with pytest.raises(ProtocolError, match="missing required field"):
        decode_body(cls, text)


def test_secrets_do_not_show() -> None:
    assert "sk" not in repr(bodies.PlainAccessConfig(access_key="a", secret_key="sk"))


def test_bodies_are_frozen_and_equal_by_value() -> None:
    body = bodies.TopicList(topic_list=("a",))
    with pytest.raises(AttributeError):
        body.topic_list = ()  # type: ignore[misc]
    assert hash(body) == hash(bodies.TopicList(topic_list=("a",)))


def test_maps_without_a_class_of_their_own_are_read_too() -> None:
    read = decode_body(dict[str, bodies.DataVersion], b'{"/acl.yml":{"counter":2,"timestamp":3}}')
    assert read == {"/acl.yml": bodies.DataVersion(counter=2, timestamp=3)}


# The file of a broadcasting consumer


def test_local_offsets_are_written_as_java_prints_them() -> None:
    offsets = bodies.LocalOffsets(offset_table={QUEUE: 5, MessageQueue("T", "b", 1): 6})
    text = (
        '{\n\t"offsetTable":{{\n\t\t\t"brokerName":"b",\n\t\t\t"queueId":0,\n\t\t\t"topic":"T"\n\t\t}:5,'
        '{\n\t\t\t"brokerName":"b",\n\t\t\t"queueId":1,\n\t\t\t"topic":"T"\n\t\t}:6\n\t}\n}'
    )
    assert bodies.encode_local_offsets(offsets) == text.encode()
    assert decode_body(bodies.LocalOffsets, text.encode()) == offsets


def test_no_local_offsets_are_an_empty_table() -> None:
    assert bodies.encode_local_offsets(bodies.LocalOffsets()) == b'{\n\t"offsetTable":{}\n}'
    assert decode_body(bodies.LocalOffsets, b'{\n\t"offsetTable":{}\n}') == bodies.LocalOffsets()


@pytest.mark.parametrize("text", [b"", b"{", b'{"offsetTable":{{}:1}}', b"\0" * 64])
def test_a_damaged_file_is_refused(text: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_body(bodies.LocalOffsets, text)
