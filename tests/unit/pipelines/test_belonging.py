"""Which source a checkpoint belongs to, as far as it goes without Spark."""

import pytest

from trimtab.pipelines.belonging import Identity, identity_of, refusal

HERE = identity_of({"nameserver": "a:1;b:1", "topic": "orders"})


def test_what_options_say_of_where_a_source_is() -> None:
    assert HERE == {"nameserver": ["a:1", "b:1"], "topic": ["orders"]}
    assert identity_of({"NAMESRVADDR": "b:1; a:1", "Subscribe": "orders"}) == HERE
    assert identity_of({"kafka.bootstrap.servers": "a:1,b:1", "queues": '{"orders": {"x": [0]}}'}) == HERE
    assert identity_of({"topic": "orders"}, "a:1;b:1") == HERE
    assert identity_of({"nameserver": "a:1;b:1", "topic": "orders"}, "elsewhere:1") == HERE
    assert identity_of({"topicPattern": "o.*"}) == {"topicPattern": ["o.*"]}
    assert identity_of({"queues": "nonsense"}) == {}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"nameserver": "c:1", "topic": "orders"},
            "was made for orders at a:1, b:1, and this is orders at c:1",
        ),
        ({"nameserver": "a:1", "topic": "bills"}, "this is bills at a:1"),
        ({"nameserver": "a:1", "topicPattern": "o.*"}, "this is o.* at a:1"),
        ({"topic": "orders"}, "this is orders at no name server"),
    ],
)
def test_a_checkpoint_of_another_source_is_refused(options: dict[str, str], words: str) -> None:
    reason = refusal("/data/c", HERE, identity_of(options))
    assert reason is not None
    assert reason.startswith("/data/c was made for orders at a:1, b:1")
    assert words in reason
    assert "choose another folder, or remove /data/c/trimtab-source.json" in reason


@pytest.mark.parametrize(
    "now",
    [
        HERE,
        identity_of({"nameserver": "b:1;c:1", "topic": "orders"}),
        identity_of({"nameserver": "a:1", "topic": "orders, bills"}),
    ],
)
def test_a_source_that_grew_is_the_same(now: Identity) -> None:
    assert refusal("/data/c", HERE, now) is None
