"""Who gave which queues to whom, from recorded moments. PURE."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trimtab.balance.recorder import Kind
from trimtab.dashboard.answers import Moment, Move

TAKES = {Kind.ACQUIRED.value, Kind.TAKEN_OVER.value}
LEAVES = {Kind.RELEASED.value, Kind.DROPPED.value, Kind.LOST.value, Kind.FENCED.value, Kind.EXPIRED.value}


def names_in(text: str) -> set[str]:
    """Members that a moment names together."""
    return set(text.split(" + ")) - {"", "nobody"}


@dataclass(frozen=True, slots=True)
class _Taken:
    giver: str | None
    taker: str | None
    took_ms: int | None = None


class Moves:
    """Remembers who had each queue last, from one rebalance to the next."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}

    def of(self, moments: Iterable[Moment]) -> tuple[Move, ...]:
        """What a rebalance moved, most queues first."""
        taken: dict[str, _Taken] = {}
        in_flight: dict[str, int | None] = {}
        for moment in moments:
            if moment.queue is None:
                continue
            if moment.source == "seen":
                taken.update(self._seen(moment.queue, moment))
            elif moment.kind in TAKES:
                giver = moment.other or self._last.get(moment.queue)
                self._last[moment.queue] = moment.member
                if giver == moment.member:
                    taken.pop(moment.queue, None)  # it let go and took it again: nothing moved
                else:
                    taken[moment.queue] = _Taken(giver, moment.member, moment.duration_ms)
            elif moment.kind in LEAVES:
                in_flight[moment.queue] = moment.in_flight
                self._last[moment.queue] = moment.member
                taken.setdefault(moment.queue, _Taken(moment.member, None))
        return _together(taken, in_flight)

    def _seen(self, queue: str, moment: Moment) -> dict[str, _Taken]:
        before, after = names_in(moment.other), names_in(moment.member)
        giver, taker = min(before - after, default=None), min(after - before, default=None)
        if taker is not None:
            self._last[queue] = taker
        return {queue: _Taken(giver, taker)} if giver or taker else {}


def _together(taken: dict[str, _Taken], in_flight: dict[str, int | None]) -> tuple[Move, ...]:
    pairs: dict[tuple[str | None, str | None], list[str]] = {}
    for queue, one in taken.items():
        pairs.setdefault((one.giver, one.taker), []).append(queue)
    found = [
        Move(
            giver=giver,
            taker=taker,
            queues=tuple(sorted(queues)),
            took_ms=max(_known([taken[queue].took_ms for queue in queues]), default=None),
            in_flight=sum(flying) if (flying := _known([in_flight.get(queue) for queue in queues])) else None,
        )
        for (giver, taker), queues in pairs.items()
    ]
    return tuple(sorted(found, key=lambda move: -len(move.queues)))


def _known(values: Sequence[int | None]) -> list[int]:
    return [value for value in values if value is not None]
