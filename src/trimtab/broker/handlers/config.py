"""The broker's settings: what can be seen of them, and the few that can be changed while it runs.

Java's brokers take any setting from the wire, among them paths and commands; that is how CVE-2023-33246 ran programs. Here
six can change, each with its kind and its range. A request that names anything else, or a value out of range, changes
nothing at all. What was changed lasts until the broker stops: nothing is ever written to a file because of it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from trimtab.broker.core import BrokerCore
from trimtab.broker.names import TRACE_TOPIC
from trimtab.broker.requests import OK, Access, Answer, NoHeader, Refused, Request, handles
from trimtab.errors import ProtocolError
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.fastjson_writer import encode_body
from trimtab.wire.headers.admin import GetBrokerConfigResponse
from trimtab.wire.java_properties import decode_properties, encode_properties

CHANGE_BYTES_MAX = 64 << 10


@dataclass(frozen=True, slots=True)
class Changeable:
    """A setting that can change at run time: its name in `BrokerSettings`, and how its text is read."""

    attribute: str
    read: Callable[[str], bool | int | None]
    range_text: str


def _truth(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text.strip().lower())


def _between(low: int, high: int) -> Callable[[str], int | None]:
    def read(text: str) -> int | None:
        digits = text.strip()
        is_number = digits.isascii() and digits.isdigit() and len(digits) <= len(str(high))
        return int(digits) if is_number and low <= int(digits) <= high else None

    return read


def _boolean(attribute: str) -> Changeable:
    return Changeable(attribute, _truth, "true or false")


def _number(attribute: str, low: int, high: int) -> Changeable:
    return Changeable(attribute, _between(low, high), f"a number from {low} to {high}")


CHANGEABLE: Final[dict[str, Changeable]] = {
    "autoCreateTopicEnable": _boolean("auto_create_topics"),
    "autoCreateSubscriptionGroup": _boolean("auto_create_groups"),
    "rejectTransactionMessage": _boolean("reject_transactions"),
    "maxMessageSize": _number("message_bytes_max", 1 << 10, 4 << 20),
    "maxTransferBytesOnMessageInMemory": _number("pull_bytes_max", 1 << 10, 4 << 20),
    "maxTransferCountOnMessageInMemory": _number("pull_messages_max", 1, 1_024),
}
"""By the names that Apache gave them."""


@handles(RequestCode.UPDATE_BROKER_CONFIG, header=NoHeader, access=Access(admin=True))
def update_config(core: BrokerCore, request: Request[NoHeader]) -> Answer:
    """Changes settings, all that are named or none."""
    wanted = _properties(request.command.body)
    changes: dict[str, Any] = {}
    for name, text in wanted.items():
        setting = CHANGEABLE.get(name)
        if setting is None:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"nothing was changed: {name[:80]!r} cannot be set at run time, only {', '.join(CHANGEABLE)} can",
            )
        value = setting.read(text)
        if value is None:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"nothing was changed: {name} is {text[:80]!r}, it must be {setting.range_text}",
            )
        changes[setting.attribute] = value
    changed = replace(core.settings, **changes)
    if changed != core.settings:
        core.change_settings(changed, request.now)
    return OK


def _properties(body: bytes) -> dict[str, str]:
    if len(body) > CHANGE_BYTES_MAX:
        raise Refused(
            ResponseCode.NO_PERMISSION,
            f"nothing was changed: {len(body)} bytes of settings are more than {CHANGE_BYTES_MAX}",
        )
    try:
        return decode_properties(body)
    except ProtocolError as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"nothing was changed: {error}") from error


@handles(RequestCode.GET_BROKER_CONFIG, header=NoHeader, access=Access(admin=True))
def get_config(core: BrokerCore, request: Request[NoHeader]) -> Answer:
    """The settings, by the names that Apache gave them; without paths and without secrets."""
    return Answer(
        header=GetBrokerConfigResponse(version=encode_body(core.settings_version).decode()),
        body=encode_properties({name: _text(value) for name, value in sorted(_shown(core, request).items())}),
    )


def _shown(core: BrokerCore, request: Request[NoHeader]) -> dict[str, str | int | bool]:
    settings, store = core.settings, core.store.settings
    host, _, port = core.address.rpartition(":")
    changeable = {name: getattr(settings, setting.attribute) for name, setting in CHANGEABLE.items()}
    return changeable | {
        "aclEnable": core.acl is not None,
        "brokerClusterName": settings.cluster_name,
        "brokerId": settings.broker_id,
        "brokerIP1": host,
        "brokerName": settings.broker_name,
        "brokerPermission": 6,
        "brokerRole": "ASYNC_MASTER",
        "channelExpiredTimeout": settings.consumer_silence_ms_max,
        "clusterTopicEnable": True,
        "brokerTopicEnable": True,
        "defaultTopicQueueNums": settings.default_topic_queues,
        "enablePropertyFilter": True,
        "filterServerNums": 0,
        "fileReservedTime": store.retention_ms // 3_600_000,
        "flushDiskType": "SYNC_FLUSH" if store.flush == "sync" else "ASYNC_FLUSH",
        "flushIntervalCommitLog": store.flush_interval_ms,
        "listenPort": int(port),
        "longPollingEnable": True,
        "mappedFileSizeCommitLog": store.segment_bytes,
        "messageDelayLevel": settings.delay_levels,
        "msgTraceTopicName": TRACE_TOPIC,
        "regionId": settings.region,
        "slaveReadEnable": False,
        "timerMaxDelaySec": settings.timer_ms_max // 1_000,
        "traceOn": True,
        "traceTopicEnable": settings.trace_topic,
        "transactionCheckInterval": settings.transaction_check_interval_ms,
        "transactionCheckMax": settings.transaction_checks_max,
        "transactionTimeOut": settings.transaction_timeout_ms,
        "useTLS": request.peer.is_secure,  # it is for all connections or for none
    }


def _text(value: str | int | bool) -> str:  # noqa: FBT001 - it is a value, not a switch
    return str(value).lower() if isinstance(value, bool) else str(value)
