"""The checks checked: our own code, made wrong on purpose, must be caught."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest

from trimtab.balance import rebalance, takeover, trust
from trimtab.balance.holdings import Holding, Phase
from trimtab.balance.leased import LeasedRebalance
from trimtab.balance.leased_effects import Commit, LeasedEffect
from trimtab.balance.progress import Progress
from trimtab.balance.trust import Trust
from trimtab.model import MessageQueue
from trimtab.sim import run
from trimtab.sim.broker import Granted, SimBroker
from trimtab.sim.leased_shell import LeasedShell
from trimtab.sim.reading import Handling, Reader
from trimtab.sim.swarm import run_seed
from trimtab.sim.watch import Violation
from trimtab.sim.world import Shape, World

SEEDS = 30


def caught(text: str) -> bool:
    """Whether the swarm finds it, with those words."""
    for seed in range(SEEDS):
        violations = run_seed(seed).violations
        if violations:
            assert text in violations[0]
            return True
    return False


def lost_for_a_while() -> World:
    """One of two members is not seen for 14 s; the other takes its queue over, and leaves just before it is back."""
    slow = Handling(handler_ms=150, concurrency=2)
    world = World(Shape(members=2, queues=2, brokers=1, per_s=5.0, handling=slow))
    world.join_all()
    assert world.settle()
    lost, other = world.members[0], world.members[1]
    world.network.close_there(lost.links["broker-0"], None)
    world.network.part(lost.name, "broker-0", world.timeline.now_ms + 14_000)
    world.run_for(13_000)
    assert len(other.shell.holdings()) == 2
    other.stop()
    world.run_for(10_000)
    return world


def test_committing_what_is_not_handled_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Progress, "safe_offset", property(lambda progress: progress.next_offset))
    assert caught("was never handled")


def test_committing_before_the_handlers_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(reader: Reader, queue: MessageQueue, at_rest: Callable[[], object]) -> None:
        held = reader.held.get(queue)
        if held is not None:
            held.is_leaving = True
        at_rest()

    monkeypatch.setattr(Reader, "leave", leave)
    assert caught("though it handed out up to")


def test_giving_a_queue_up_without_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def claim(shell: LeasedShell, question: Commit) -> None:
        answer = partial(shell.machine.on_committed, question, is_written=True)
        shell._member.after(1, lambda: shell._tell(answer(now_ms=shell._member.now_ms)))

    monkeypatch.setattr(LeasedShell, "_commit", claim)
    assert caught("though it handed out up to")


def test_beginning_behind_where_the_group_is(monkeypatch: pytest.MonkeyPatch) -> None:
    original = SimBroker.read_offset
    monkeypatch.setattr(SimBroker, "read_offset", lambda broker, queue: max(0, original(broker, queue) - 5))
    assert caught("though the group has come to")


def test_handing_out_without_looking_at_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Holding, "may_hand_out", lambda holding, _: holding.phase is Phase.HELD)
    assert caught("is held twice")


def test_starting_handlers_without_asking_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Reader.__init__

    def careless(reader: Reader, member: Any, handling: Any, _: Callable[[MessageQueue], bool]) -> None:
        original(reader, member, handling, lambda _: True)

    monkeypatch.setattr(Reader, "__init__", careless)
    assert caught("that it may not")


def test_ignoring_the_age_of_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "TRUST_MS", 10**9)
    with pytest.raises(Violation, match="is held twice"):
        lost_for_a_while()


def test_taking_over_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "TAKEOVER_AFTER_MS", 1_000)
    assert caught("is held twice")


def test_trusting_leases_over_a_lost_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trust, "on_lost", lambda *_: None)
    assert caught("is held twice")


def test_a_lapsed_lease_that_is_granted_again_goes_on_where_the_group_is() -> None:
    assert lost_for_a_while().finish() == 0


def test_going_on_after_a_lapse_without_looking_at_the_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    def renewed(
        machine: LeasedRebalance, holding: Any, _: int | None, sent_ms: int, __: int
    ) -> list[LeasedEffect]:
        machine.trust.on_granted(holding.queue, sent_ms)
        return []

    monkeypatch.setattr(LeasedRebalance, "_renewed", renewed)
    with pytest.raises(Violation, match="took the group back"):
        lost_for_a_while()


def test_storing_offsets_without_looking_at_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    def store(shell: LeasedShell) -> None:
        reader = shell._member.reader
        for queue, held in reader.held.items():
            if not held.is_leaving:
                shell._write(queue, held.progress.safe_offset, lambda _: None)
        shell._member.after(500, shell._store_offsets)

    monkeypatch.setattr(LeasedShell, "_store_offsets", store)
    with pytest.raises(Violation, match="took the group back"):
        lost_for_a_while()


def test_a_broker_that_grants_every_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimBroker, "lock", lambda _, __, queues: Granted(list(queues), {}))
    assert caught("is held twice")


def test_members_in_another_order_for_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if classic mode sorted by a hash that is another one in every process."""
    calls = iter(range(10**9))

    def shuffled(names: Iterable[str]) -> tuple[str, ...]:
        salt = next(calls) % 7
        return tuple(sorted(names, key=lambda name: hash_of(f"{salt} {name}")))

    monkeypatch.setattr(rebalance, "sorted_names", shuffled)
    report = run("join", mode="classic", members=6, queues=24, seed=1)
    assert "did not settle" in report.violations[0]


def hash_of(text: str) -> int:
    return sum(ord(letter) * (at + 7) ** 3 for at, letter in enumerate(text)) % 1009
