"""Names, keys, bodies and words of others reach the terminal as text: nothing of them moves the cursor, colours or hides anything."""

import json

import pytest

from tests.unit.cli.verbs import good, online, run
from tests.unit.client.admin_member import ScriptedMember
from trimtab.cli.message_form import Format
from trimtab.cli.visible import visible, visible_bytes, visible_json, visible_lines
from trimtab.client.admin.rows import FoundMessage
from trimtab.model import MessageQueue
from trimtab.testing import BlockingCluster
from trimtab.wire.bodies import ProcessQueueInfo

HOSTILE = "red\x1b[31m\x9b2J\x07\u202eevil"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain – ünïcode 中文 ok", "plain – ünïcode 中文 ok"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\r\nb\tc\x7f", "a\\r\\nb\\tc\\x7f"),
        ("\x9b31m\u202e", "\\x9b31m\\u202e"),
    ],
)
def test_what_a_terminal_would_do_is_shown_instead(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_lines_and_tabs_stay_where_they_may() -> None:
    assert visible_lines("a\n\tb\x1bc") == "a\n\tb\\x1bc"
    assert visible_bytes(b"ok\n\xff\x1b[0m") == b"ok\n\\xff\\x1b[0m"


def test_a_json_document_stays_the_same_document() -> None:
    document = {"name": HOSTILE}
    text = visible_json(json.dumps(document, ensure_ascii=False))
    assert json.loads(text) == document
    assert not {"\x1b", "\x9b", "\u202e"} & set(text)


def test_a_body_is_shown_on_a_terminal_and_goes_into_a_pipe_as_it_is() -> None:
    found = FoundMessage(
        topic="t", broker_name="a", queue_id=0, queue_offset=0, body=b"\x1b[2J\n", tag=HOSTILE, keys=("k",), properties={},
        message_id="i", offset_message_id="o", born_timestamp=0, store_timestamp=0, reconsume_times=0, born_host="", store_host="",
        stored_size=0,
    )  # fmt: skip
    assert Format("%s").line(found) == b"\x1b[2J\n"
    shown = Format("\x1b[1m%g %s", for_terminal=True).line(found)
    assert shown.startswith(b"\x1b[1mred\\x1b[31m")  # what the user asked for is the user's
    assert shown.endswith(b"\\x1b[2J\n")


def test_no_verb_lets_a_hostile_member_or_message_through(cluster: BlockingCluster) -> None:
    ns = cluster.nameserver
    good(ns, "topic", "create", "hostile", "--queues", "1", "--broker", "broker-a")
    good(
        ns,
        "message",
        "send",
        "hostile",
        HOSTILE,
        "--key",
        "k\x1b[5m",
        "--tag",
        "t\x1b[6m",
        "--property",
        f"p={HOSTILE}",
    )
    member = ScriptedMember(
        "hostile-g",
        f"c-{HOSTILE}",
        {"hostile": "*"},
        {MessageQueue("hostile", "broker-a", 0): ProcessQueueInfo()},
    )
    told = good(ns, "message", "query", "hostile", "--key", "k\x1b[5m", "--json").json["messages"][0]
    with online([member], list(cluster.brokers.values())):
        for args in (
            ("message", "query", "hostile", "--key", "k\x1b[5m"),
            ("message", "get", told["offset_message_id"]),
            ("message", "consume", "hostile", "--json"),
            ("group", "describe", "hostile-g", "--sample", "0"),
            ("group", "members", "hostile-g"),
            ("group", "doctor", "hostile-g", "--sample", "0"),
            ("group", "watch", "hostile-g", "-c", "1"),
            ("group", "history", "hostile-g"),
            ("topic", "describe", "no\x1b[31msuch"),
        ):
            answer = run(ns, *args, "--timeout", "30")
            printed = answer.out + answer.err
            assert printed, args
            assert not {"\x1b", "\x9b", "\x07", "\u202e"} & set(printed), args


def test_a_member_that_does_not_answer_has_not_moved(cluster: BlockingCluster) -> None:
    ns = cluster.nameserver
    good(ns, "topic", "create", "silent", "--queues", "2", "--broker", "broker-a")
    queues = [MessageQueue("silent", "broker-a", number) for number in range(2)]
    told = ScriptedMember("silent-g", "c-1", {"silent": "*"}, {queues[0]: ProcessQueueInfo()})
    mute = ScriptedMember("silent-g", "c-2", {"silent": "*"}, {queues[1]: ProcessQueueInfo()}, is_silent=True)
    with online([told, mute], list(cluster.brokers.values())):
        answer = run(ns, "group", "watch", "silent-g", "-c", "2", "--interval", "0.05", "--timeout", "0.5")
    assert answer.out == ""
    assert "c-2 does not answer, so this look tells of no change" in answer.err
