"""Queues that a broker is being told to unlock. PURE.

One is not asked for again before the broker answered: it may take two requests out of turn. An unlock that failed is sent again, or nobody
could have the queue until its lease ends by itself. So is one beside which a renewal travelled: that may have come last and locked the queue anew.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from trimtab.balance.leased_effects import Unlock
from trimtab.balance.locks import LEASE_MS
from trimtab.model import MessageQueue

UNLOCK_AGAIN_MS: Final = 500
"""An unlock that failed is sent again so often, until the lease has ended by itself."""
_NEVER_MS: Final = 2**62


class Unlocks:
    """See the module's own words."""

    def __init__(self) -> None:
        self._ended_ms: dict[MessageQueue, int] = {}
        """Of each queue, when its lease has ended even if the broker never hears of it."""
        self._again_ms: dict[MessageQueue, int] = {}
        self._overtaken: set[MessageQueue] = set()
        """Perhaps locked anew since their unlock was sent."""

    def __contains__(self, queue: object) -> bool:
        return queue in self._ended_ms

    @property
    def queues(self) -> AbstractSet[MessageQueue]:
        """Those whose unlock no broker has answered yet."""
        return self._ended_ms.keys()

    def tell(self, broker_name: str, queues: Iterable[MessageQueue], now_ms: int) -> Unlock:
        """What to tell the broker."""
        question = Unlock(broker_name, tuple(queues))
        for queue in question.queues:
            self._ended_ms[queue] = now_ms + LEASE_MS
        return question

    def once_more(self, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
        """A request that locks these has ended, and nobody knows whether the broker took it before an unlock that is on its way.

        Such an unlock is sent again when it was answered; gives those that none is on its way for.
        """
        self._overtaken.update(queue for queue in queues if queue in self._ended_ms)
        return [queue for queue in queues if queue not in self._ended_ms]

    def on_answered(self, question: Unlock, now_ms: int) -> None:
        """The broker knows, or the leases have ended by themselves."""
        for queue in question.queues:
            if queue in self._overtaken:
                self._again_ms[queue] = now_ms
            else:
                self._ended_ms.pop(queue, None)
                self._again_ms.pop(queue, None)

    def on_failed(self, question: Unlock, now_ms: int) -> None:
        """Nobody knows whether the broker heard of it."""
        again_ms = now_ms + UNLOCK_AGAIN_MS
        self._again_ms.update({queue: again_ms for queue in question.queues if queue in self._ended_ms})

    def again(self, now_ms: int) -> list[Unlock]:
        """What to tell brokers once more, by now."""
        if not self._again_ms:
            return []
        due: defaultdict[str, list[MessageQueue]] = defaultdict(list)
        for queue in [queue for queue, due_ms in self._again_ms.items() if now_ms >= due_ms]:
            del self._again_ms[queue]
            self._overtaken.discard(queue)
            if now_ms < self._ended_ms[queue]:
                due[queue.broker_name].append(queue)
            else:
                del self._ended_ms[queue]
        return [Unlock(broker, tuple(queues)) for broker, queues in due.items()]

    def next_ms(self) -> int:
        """When `again` has something to say."""
        return min(self._again_ms.values(), default=_NEVER_MS)

    def clear(self) -> None:
        """Nothing is unlocked any more."""
        self._ended_ms.clear()
        self._again_ms.clear()
        self._overtaken.clear()
