"""The same good, odd and bad requests to our servers and to Apache's: codes, fields and bodies of the answers are the same.

Remarks are for people and are not compared. Everything else that differs is listed here, with the reason.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.apache.cluster import ApacheCluster
from tests.apache.versions import is_4x
from tests.interop.answers import CONVERSATIONS, hold, new_name
from trimtab.testing import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trimtab.testing import BlockingCluster

BEYOND = "4.9 sends a consumer that is beyond the end back to the beginning; ours and 5.x send it to the end"
ALLOWED = {
    "topics": {"made without most": "Apache fails over what is missing, or takes Java's zeros for it"},
    "queries": {"maxNum -1": "Apache fails over it; there is nothing to find"},
}
ALLOWED_WITH_4X = {"pulls": {"from 3": BEYOND, "from 100": BEYOND, "may wait beyond": BEYOND}}
ALLOWED_WITH_5X = {
    "offsets": {
        "at 9999999999999 topic:0": "4.9 and ours give the last message for a time behind all, to a client of 4.9; 5.x the end",
        "INVOKE_BROKER_TO_RESET_OFFSET of nobody": "5.x has a code of its own for it",
        "INVOKE_BROKER_TO_RESET_OFFSET of no topic": "5.x has a code of its own for it",
    },
}


@pytest.fixture(scope="module")
def ours() -> Iterator[BlockingCluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def theirs(thorough_version: str) -> Iterator[ApacheCluster]:
    with ApacheCluster(thorough_version) as cluster:
        yield cluster


@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=lambda one: one.__name__)
def test_answers_are_the_same(
    conversation: Callable[[Any], None], ours: BlockingCluster, theirs: ApacheCluster
) -> None:
    name = new_name()
    places = [
        (ours.brokers["broker-a"], ours.nameserver),
        (theirs.brokers[0].address, theirs.nameserver),
    ]
    with ThreadPoolExecutor(2) as pool:
        own, apache = pool.map(lambda place: hold(conversation, place[0], place[1], name), places)
    of_version = ALLOWED_WITH_4X if is_4x(theirs.version) else ALLOWED_WITH_5X
    allowed = ALLOWED.get(conversation.__name__, {}) | of_version.get(conversation.__name__, {})
    different = [
        f"{ask}:\n  ours    {own[ask]}\n  Apache's {apache[ask]}"
        for ask in own
        if own[ask] != apache[ask] and ask not in allowed
    ]
    assert not different, "\n".join(different)
