"""Everything that comes from brokers is hostile until it is escaped."""

from html.parser import HTMLParser
from typing import Any, get_args, get_origin

import msgspec
import pytest
from markupsafe import escape

from tests.unit.client.admin_member import ScriptedMember, connected
from tests.unit.dashboard.scene import Scene, eventually, play
from trimtab.dashboard import answers, wishes
from trimtab.dashboard.drawing import render
from trimtab.dashboard.tokens import Role
from trimtab.model import MessageQueue
from trimtab.wire.bodies import ProcessQueueInfo

CORPUS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</title><svg/onload=alert(1)>",
    "javascript:alert(1)",
    "{{ 7 * 7 }}{% include 'base.html' %}",
    "<!--<script>-->&lt;b&gt;",
    "\u2028</script><iframe srcdoc='<script>alert(1)</script>'>",
)
TAGS = {
    "html", "head", "meta", "title", "link", "script", "body", "a", "header", "img", "nav", "form", "span", "button", "main", "section", "h1",
    "h2", "p", "div", "strong", "ul", "li", "table", "caption", "thead", "tbody", "tr", "th", "td", "input", "label", "select", "option",
    "datalist", "details", "summary", "time", "figure", "svg", "rect", "canvas", "figcaption", "pre", "code", "dl", "dt", "dd", "br", "footer",
    "output", "small", "b", "i", "h3",
}  # fmt: skip


SCRIPTS = {"/static/app.js", "/static/charts.js", "/static/watch.js", "/static/chart-library.js"}


class Strict(HTMLParser):
    """Finds whatever our templates do not write."""

    def __init__(self) -> None:
        super().__init__()
        self.problems: list[str] = []
        self.scripts: list[str | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in TAGS:
            self.problems.append(tag)
        for name, value in attrs:
            if name.startswith("on") or name in ("style", "srcdoc"):
                self.problems.append(f"{tag} {name}")
            if name in ("href", "src", "action") and not (value or "").startswith(("/", "#")):
                self.problems.append(f"{tag} {name}={value}")
        if tag == "script":
            self.scripts.append(dict(attrs).get("src"))


def check(text: str) -> None:
    parser = Strict()
    parser.feed(text)
    assert not parser.problems
    assert {(source or "").partition("?")[0] for source in parser.scripts} <= SCRIPTS


def hostile(kind: Any, text: str) -> Any:
    """A value of a type, with the text wherever there is a text."""
    origin, args = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        info = msgspec.structs.fields(kind)
        return kind(**{field.name: hostile(field.type, text) for field in info})
    if origin is tuple:
        return (hostile(args[0], text),)
    if origin is dict:
        return {hostile(args[0], text): hostile(args[1], text)}
    if kind is str:
        return text
    if kind in (int, float, bool):
        return kind(3)
    if origin is not None and type(None) in args:
        return hostile(next(arg for arg in args if arg is not type(None)), text)
    if origin is not None and args:
        return args[0] if isinstance(args[0], str) else hostile(args[0], text)
    raise AssertionError(f"no hostile {kind}")


COMMON: dict[str, Any] = {"path": "/", "role": "operator", "is_operator": True, "csrf": "c", "error": None}


@pytest.mark.parametrize("text", CORPUS)
def test_no_text_becomes_markup(text: str) -> None:
    group, timeline = hostile(answers.Group, text), hostile(answers.Timeline, text)
    asked = {
        "at_ms": "1",
        "join": text,
        "leave": text,
        "strategy": text,
        "key": text,
        "id": text,
        "since": text,
    }
    pages: list[tuple[str, dict[str, Any]]] = [
        ("overview_live.html", {"overview": hostile(answers.Overview, text), "error": text}),
        ("group_live.html", {"group": group, "timeline": timeline, "error": text}),
        (
            "group.html",
            {
                "group": group, "timeline": timeline, "strategies": (text,), "asked": asked, "part": text, "topics": (text,),
                "what_if": hostile(answers.WhatIf, text), "scrubbed": hostile(answers.Scrubbed, text),
            },
        ),
        ("topics.html", {"topics": (text,)}),
        ("topic.html", {"topic": hostile(answers.Topic, text), "found": hostile(answers.MessageLines, text), "asked": asked, "part": text}),
        ("topic_live.html", {"topic": hostile(answers.Topic, text), "error": text}),
        ("held_then.html", {"scrubbed": hostile(answers.Scrubbed, text)}),
        ("message.html", {"message": hostile(answers.Message, text), "trace": hostile(answers.Trace, text)}),
        ("reset.html", {"wish": wishes.ResetWish(name=text, topic=text, to=text), "reset": hostile(answers.Reset, text)}),
        ("resent.html", {"resent": msgspec.structs.replace(hostile(answers.Resent, text), done=False), "action": "/message/resend", "fields": {"topic": [text]}}),
        ("producers.html", {"name": text, "groups": hostile(answers.ProducerNames, text), "producers": hostile(answers.Producers, text)}),
        ("dead_letters.html", {"groups": hostile(answers.DeadGroups, text), "letters": hostile(answers.DeadLetters, text)}),
        ("simulation.html", {"scenarios": {text: text}, "wish": {"scenario": text, "seed": text}, "simulated": answers.Simulated(scenario=text, holdings=((hostile(answers.HeldSpan, text),),), reports=({"mode": text, "violations": (), "strategy": text},))}),
        ("problem.html", {"problem": text}),
        ("sign_in.html", {"problem": text}),
    ]  # fmt: skip
    for template, values in pages:
        page = render(template, **COMMON | values)
        check(page)
        assert str(escape(text)) in page, template


@pytest.mark.parametrize("text", CORPUS)
def test_hostile_messages_and_members_are_shown_as_they_are(text: str) -> None:
    async def story(one: Scene) -> None:
        await one.admin.create_topic("orders", queues=1)
        await one.admin.create_group("billing")
        key = text.replace(" ", "_").replace("\u2028", "_")
        (receipt,) = await one.send(
            "orders", text.encode(), keys=[key], tag=text.replace("|", ""), properties={"p": text}
        )
        queue = MessageQueue("orders", "broker-a", 0)
        member = ScriptedMember(
            "billing",
            f"c-{text}",
            {"orders": "*"},
            {queue: ProcessQueueInfo()},
            {"trimtab.mode": text, "trimtab.flight": text, "allocateMessageQueueStrategy": text},
        )
        async with connected(member, one.cluster.brokers.values()), one.browser(Role.OPERATOR) as browser:

            async def is_there() -> bool:
                group = (await browser.get("/api/v1/group", params={"name": "billing"})).json()
                return [one["client_id"] for one in group.get("members", ())] == [f"c-{text}"]

            await eventually(is_there, "the member is seen")
            for path, params in (
                ("/group", {"name": "billing"}),
                ("/group", {"name": "billing", "strategy": "sticky", "leave": text}),
                ("/topic", {"name": "orders", "key": key}),
                ("/topic", {"name": "orders", "since": text[:60]}),
                ("/message", {"topic": "orders", "id": receipt.offset_message_id}),
                ("/group", {"name": text}),
                ("/topic", {"name": text}),
                ("/producers", {"name": text}),
                ("/dead-letters", {"name": text}),
            ):
                answer = await browser.get(path, params=params)
                assert answer.status_code < 500, (path, answer.text)
                check(answer.text)
            view = (
                await browser.get(
                    "/api/v1/message", params={"topic": "orders", "id": receipt.offset_message_id}
                )
            ).json()
            assert view["text"] == text
            assert view["properties"]["p"] == text

    play(story)


def test_the_check_can_fail() -> None:
    with pytest.raises(AssertionError):
        check("<p onclick=x>")
    with pytest.raises(AssertionError):
        check("<script>1</script>")
