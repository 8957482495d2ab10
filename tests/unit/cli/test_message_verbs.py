"""`trimtab message` and `dlq`, against servers of ours."""

import json
import subprocess
from typing import Any

from tests.unit.cli.test_framework import PROGRAM, program_env
from tests.unit.cli.verbs import good, run
from trimtab.blocking import Producer
from trimtab.broker.settings import BrokerSettings
from trimtab.model import Message, MessageQueue
from trimtab.testing import BlockingCluster, Cluster


def test_what_goes_in_by_lines_comes_out_by_lines(cluster: BlockingCluster) -> None:
    ns = cluster.nameserver
    good(ns, "topic", "create", "lines", "--queues", "1", "--broker", "broker-a")
    sent = good(ns, "message", "send", "lines", "--tag", "eu", stdin="one\ntwo\n\nthree")
    assert (sent.out, sent.err) == ("", "3 message(s) sent to lines\n")
    assert good(ns, "message", "consume", "lines").out == "one\ntwo\nthree\n"
    assert good(ns, "message", "consume", "lines", "-o", "1", "-c", "1").out == "two\n"
    assert good(ns, "message", "consume", "lines", "-o", "end").out == ""
    assert good(ns, "message", "consume", "lines", "-o", "-1h").out == "one\ntwo\nthree\n"
    assert good(ns, "message", "tail", "lines", "-o", "begin", "-c", "2").out == "one\ntwo\n"
    assert good(ns, "message", "consume", "lines", "--tag", "us").out == ""
    form = good(ns, "message", "consume", "lines", "-c", "1", "-f", "%t|%b|%p|%o|%g|%S|%s|%%\\n").out
    assert form == "lines|broker-a|0|0|eu|3|one|%\n"
    told = run(ns, "message", "consume", "lines", "-c", "9")
    assert (told.code, told.err) == (1, "trimtab: only 3 of 9 message(s) are there\n")


def test_keys_on_lines_and_envelopes_there_and_back(cluster: BlockingCluster) -> None:
    ns = cluster.nameserver
    for topic in ("there", "back"):
        good(ns, "topic", "create", topic, "--queues", "1", "--broker", "broker-a")
    good(ns, "message", "send", "there", "-K", ":", "--property", "a=b", stdin="k1:one\nk2:two\n")
    envelopes = good(ns, "message", "consume", "there", "--json").out
    first = json.loads(envelopes.splitlines()[0])
    assert (first["body"], first["keys"], first["properties"]["a"]) == ("one", ["k1"], "b")
    good(ns, "message", "send", "back", "--envelopes", stdin=envelopes)
    again = [json.loads(line) for line in good(ns, "message", "consume", "back", "--json").out.splitlines()]
    assert [(one["body"], one["keys"]) for one in again] == [("one", ["k1"]), ("two", ["k2"])]
    told = run(ns, "message", "send", "back", "--envelopes", stdin="no json\n")
    assert (told.code, told.err.count("\n")) == (2, 1)


def test_bytes_that_are_no_text(cluster: BlockingCluster) -> None:
    ns = cluster.nameserver
    good(ns, "topic", "create", "binary", "--queues", "1", "--broker", "broker-a")
    good(ns, "message", "send", "binary", "-D", "\\0", stdin=b"\xff\xfe\x00\x80\n\x81")
    found = [json.loads(line) for line in good(ns, "message", "consume", "binary", "--json").out.splitlines()]
    assert [one["body_base64"] for one in found] == ["//4=", "gAqB"]
    told = good(ns, "message", "get", found[1]["offset_message_id"], "--body")
    assert told.out_bytes == b"\x80\n\x81"


def test_finding_a_message(cluster: BlockingCluster) -> None:
    ns = cluster.nameserver
    good(ns, "topic", "create", "found", "--queues", "1", "--broker", "broker-a")
    receipt = good(ns, "message", "send", "found", "hello", "--key", "o-1", "--tag", "eu", "--json").json
    shown = good(ns, "message", "get", receipt["message_id"], "--topic", "found").out
    assert "Keys:       o-1" in shown
    assert shown.endswith("hello\n")
    by_key = good(ns, "message", "query", "found", "--key", "o-1", "--json").json["messages"]
    by_id = good(ns, "message", "query", "found", "--id", receipt["message_id"], "--json").json["messages"]
    assert by_key == by_id == [good(ns, "message", "get", receipt["offset_message_id"], "--json").json]
    told = run(ns, "message", "query", "found", "--key", "o-2")
    assert (told.code, told.err) == (1, "trimtab: topic 'found' has no message with key 'o-2'\n")
    told = run(ns, "message", "get", "nonsense")
    assert (told.code, told.err.startswith("trimtab: no broker has a message 'nonsense'")) == (1, True)
    told = run(ns, "message", "resend", "nonsense", "--topic", "found", "--yes")
    assert (told.code, told.err) == (1, "trimtab: topic 'found' has no message 'nonsense'\n")
    assert run(ns, "message", "query", "found").code == 2
    assert run(ns, "message", "consume", "found", "-f", "%z").code == 2
    assert run(ns, "message", "consume", "found", "--queue", "broker-z:0").code == 2
    assert run(ns, "message", "trace", receipt["message_id"]).code == 1


def test_a_query_gives_the_newest_and_no_more_than_were_asked_for(cluster: BlockingCluster) -> None:
    ns = cluster.nameserver
    good(ns, "topic", "create", "queried", "--queues", "2")
    for number in range(8):
        good(ns, "message", "send", "queried", str(number), "--key", "same")
    found = good(ns, "message", "query", "queried", "--key", "same", "--max", "3", "--json").json["messages"]
    assert [one["body"] for one in found] == ["5", "6", "7"]
    assert len(good(ns, "message", "query", "queried", "--key", "same", "--max", "3").rows) == 1 + 3


def test_a_copy_of_a_message(cluster: BlockingCluster) -> None:
    ns = cluster.nameserver
    good(ns, "topic", "create", "copied", "--queues", "1", "--broker", "broker-a")
    receipt = good(
        ns, "message", "send", "copied", "hello", "--tag", "eu", "--property", "a=b", "--json"
    ).json
    dry = good(ns, "message", "resend", receipt["offset_message_id"], "--dry-run", "--json").json
    assert (dry["to"], dry["sent"]) == ("copied", None)
    good(ns, "message", "resend", receipt["offset_message_id"], "--yes")
    lines = [json.loads(line) for line in good(ns, "message", "consume", "copied", "--json").out.splitlines()]
    assert [(one["body"], one["tag"], one["properties"]["a"], one["message_id"]) for one in lines] == [
        ("hello", "eu", "b", receipt["message_id"])
    ] * 2


def test_dead_letters(cluster: BlockingCluster) -> None:
    ns = cluster.nameserver
    for topic in ("letters", "%DLQ%buried-g", "%RETRY%buried-g"):
        good(ns, "topic", "create", topic, "--queues", "1", "--broker", "broker-a")
    good(ns, "message", "send", "%DLQ%buried-g", "dead", "--key", "o-1")
    (row,) = [row for row in good(ns, "dlq", "list", "--json").json["groups"] if row["group"] == "buried-g"]
    assert row["messages"] == 1
    (letter,) = good(ns, "dlq", "show", "buried-g", "--json").json["messages"]
    assert letter["body"] == "dead"
    assert "nothing was sent" in good(ns, "dlq", "replay", "buried-g", "--dry-run").out
    good(ns, "dlq", "replay", "buried-g", "--id", letter["message_id"], "--yes")
    (again,) = [
        json.loads(line)
        for line in good(ns, "message", "consume", "%RETRY%buried-g", "--json").out.splitlines()
    ]
    assert (again["body"], again["keys"], again["message_id"]) == ("dead", ["o-1"], letter["message_id"])
    assert run(ns, "dlq", "replay", "buried-g", "--id", "other", "--yes").code == 1


def test_a_broker_that_hangs_is_named_beside_the_letters_of_the_others() -> None:
    with Cluster(brokers=2) as own:
        ns = own.nameserver
        for topic in ("%DLQ%halved-g", "%RETRY%halved-g"):
            good(ns, "topic", "create", topic, "--queues", "1")
        with Producer("shop", nameserver=ns) as producer:
            for number in range(8):
                queue = MessageQueue("%DLQ%halved-g", f"broker-{'ab'[number % 2]}", 0)
                producer.send(Message(queue.topic, b"dead"), queue=queue)
        every = good(ns, "dlq", "show", "halved-g", "--json").json["messages"]
        own.pause("broker-b")
        try:
            told = run(ns, "dlq", "show", "halved-g", "--json", "--timeout", "2")
            replayed = run(ns, "dlq", "replay", "halved-g", "--dry-run", "--json", "--timeout", "2")
        finally:
            own.resume("broker-b")
    reached = [one for one in every if one["broker"] == "broker-a"]
    assert 0 < len(reached) < len(every) == 8
    assert told.json["messages"] == reached
    assert len(replayed.json["letters"]) == len(reached)
    for one in (told, replayed):
        assert (one.code, "broker-b: " in one.err) == (3, True), one


def test_no_dead_letters_and_no_such_group_are_told_apart(cluster: BlockingCluster) -> None:
    ns = cluster.nameserver
    for verb in (("show",), ("replay", "--yes")):
        told = run(ns, "dlq", *verb, "TOOLS_CONSUMER")
        assert (told.code, told.err) == (1, "trimtab: group 'TOOLS_CONSUMER' has no dead letters\n")
        told = run(ns, "dlq", *verb, "TOOLS_CONSUMR")
        assert (told.code, "did you mean TOOLS_CONSUMER" in told.err) == (1, True)


def test_delimiters_and_keys_that_cannot_be_are_said_in_one_line(cluster: BlockingCluster) -> None:
    ns = cluster.nameserver
    good(ns, "topic", "create", "odd", "--queues", "1", "--broker", "broker-a")
    for args in (("-K", ""), ("-D", ""), ("-D", "\\x"), ("-D", "\\q"), ("-K", "\\")):
        told = run(ns, "message", "send", "odd", *args, stdin="a:b\n")
        assert (told.code, told.err.count("\n")) == (2, 1), args
    told = run(ns, "message", "send", "odd", "-K", ":", stdin=b"\xff:b\n")
    assert (told.code, "is no UTF-8" in told.err) == (2, True)
    assert run(ns, "message", "send", "odd", "x", "--property", "nothing").code == 2
    good(ns, "message", "send", "odd", "-D", "\\x1f", "-K", "\\t", stdin="k\tone\x1ftwo")
    assert good(ns, "message", "consume", "odd", "-f", "%k=%s\\n").out == "k=one\n=two\n"


def test_sending_to_a_name_that_is_not_there_says_which_one_is_like_it() -> None:
    with Cluster(settings=BrokerSettings(auto_create_topics=False)) as cluster:
        good(cluster.nameserver, "topic", "create", "similar", "--queues", "1")
        told = run(cluster.nameserver, "message", "send", "simila", "x", "--timeout", "30")
    assert (told.code, told.err.count("\n")) == (1, 1)
    assert "did you mean similar?" in told.err


def test_many_dead_letters_are_replayed_a_few_at_a_time(cluster: BlockingCluster) -> None:
    ns = cluster.nameserver
    for topic in ("%DLQ%many-g", "%RETRY%many-g"):
        good(ns, "topic", "create", topic, "--queues", "1", "--broker", "broker-a")
    good(ns, "message", "send", "%DLQ%many-g", stdin="".join(f"{number}\n" for number in range(100)))
    told = good(ns, "dlq", "replay", "many-g", "--yes", "--json").json
    assert (len(told["letters"]), len(told["sent"])) == (100, 100)
    assert good(ns, "message", "consume", "%RETRY%many-g").out.split() == [
        str(number) for number in range(100)
    ]


def test_without_a_verb_a_pipe_decides_and_it_is_said(cluster: BlockingCluster) -> None:
    ns = cluster.nameserver
    good(ns, "topic", "create", "piped", "--queues", "1", "--broker", "broker-a")
    env = program_env(ns)

    def program(**streams: Any) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*PROGRAM, "message", "piped", "--timeout", "60"],
            text=True,
            capture_output=True,
            env=env,
            check=True,
            **streams,
        )

    sent = program(input="one\ntwo\n")
    assert "this is `trimtab message send piped`" in sent.stderr
    shown = program(stdin=subprocess.DEVNULL)
    assert shown.stdout == "one\ntwo\n"
    assert "this is `trimtab message consume piped`" in shown.stderr
    assert "Did you mean send" in run(ns, "message", "sned", "x").err
