"""The stock C++ client, through its Python binding, driven by lines: a JSON object in, {"ok": …} or {"error": …} out.

It speaks as the Java and Go programs beside it do, as far as the binding goes. It runs by itself, without this project's code.
"""

import base64
import json
import sys
import threading

from rocketmq.client import Message, Producer, PushConsumer
from rocketmq.ffi import MessageModel


class Events:
    """What happened, from threads of the client."""

    def __init__(self):
        self._events = []
        self._lock = threading.Lock()

    def add(self, **event):
        with self._lock:
            self._events.append(event)

    def since(self, number):
        with self._lock:
            return self._events[number:]


EVENTS = Events()


class Sender:
    def __init__(self, ask):
        self._producer = Producer(ask["group"])
        self._producer.set_namesrv_addr(ask["nameserver"])
        self._producer.start()

    def act(self, what, ask):
        if what == "batch":
            messages = [message_of(ask | {"body": body}) for body in ask["bodies"]]
            return receipt_of(self._producer.send_batch(messages))
        message = message_of(ask)
        if what == "oneway":
            return self._producer.send_oneway(message)
        if what == "orderly":
            return receipt_of(self._producer.send_orderly(message, ask["shard"]))
        assert what == "send", what
        return receipt_of(self._producer.send_sync(message))

    def shutdown(self):
        self._producer.shutdown()


class Listener:
    def __init__(self, ask):
        model = MessageModel.BROADCASTING if ask.get("broadcast") else MessageModel.CLUSTERING
        self._name = ask["client"]
        self._fails_once = set(ask.get("fails_once", ()))
        self._consumer = PushConsumer(ask["group"], orderly=ask.get("orderly", False), message_model=model)
        self._consumer.set_namesrv_addr(ask["nameserver"])
        self._consumer.set_instance_name(self._name)
        self._consumer.subscribe(ask["topic"], self._got, ask.get("expression", "*"))
        self._consumer.start()

    def _got(self, message):
        body = base64.b64encode(message.body.encode() if isinstance(message.body, str) else message.body)
        EVENTS.add(
            client=self._name, kind="message", topic=message.topic, queue_id=message.queue_id,
            offset=message.queue_offset, id=message.id, body=body.decode(), times=message.reconsume_times,
            properties={"TAGS": text(message.tags), "KEYS": text(message.keys)},
        )  # fmt: skip
        if text(message.tags) in self._fails_once and not message.reconsume_times:
            raise RuntimeError("told to fail")

    def act(self, what, ask):
        raise ValueError(f"a push consumer cannot {what}")

    def shutdown(self):
        self._consumer.shutdown()


def text(value):
    return value.decode() if isinstance(value, bytes) else value or ""


def message_of(ask):
    message = Message(ask["topic"])
    message.set_body(base64.b64decode(ask["body"]))
    if "tag" in ask:
        message.set_tags(ask["tag"])
    if "key" in ask:
        message.set_keys(ask["key"])
    if "delay" in ask:
        message.set_delay_time_level(ask["delay"])
    for name, value in ask.get("properties", {}).items():
        message.set_property(name, value)
    return message


def receipt_of(result):
    return {"status": f"SEND_{result.status.name}", "id": result.msg_id, "offset": result.offset}


CLIENTS = {}


def answer_to(ask):
    what = ask["do"]
    if what == "events":
        return EVENTS.since(ask["from"])
    if what == "make":
        CLIENTS[ask["client"]] = {"producer": Sender, "push": Listener}[ask["kind"]](ask)
        return ask["client"]
    if what == "shutdown":
        return CLIENTS.pop(ask["client"]).shutdown()
    return CLIENTS[ask["client"]].act(what, ask)


def main():
    for line in sys.stdin:
        try:
            answer = {"ok": answer_to(json.loads(line))}
        except Exception as error:  # noqa: BLE001 - whatever it is, the test shall read it
            answer = {"error": f"{type(error).__name__}: {error}", "code": -1}
        print(json.dumps(answer), flush=True)  # noqa: T201 - the conversation


if __name__ == "__main__":
    main()
