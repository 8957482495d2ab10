"""What Prometheus sees of consumers."""

from prometheus_client import CollectorRegistry, generate_latest

from tests.unit.client.pushing import TOPIC, Inbox, consumer, eventually, numbered, owners, play, send
from trimtab import metrics
from trimtab.balance.recorder import Kind, Recorder, Spent
from trimtab.client.push import PushConsumer
from trimtab.model import Now
from trimtab.testing import AsyncCluster


def value(registry: CollectorRegistry, member: PushConsumer, name: str, **more: str) -> float | None:
    return registry.get_sample_value(name, {"group": "g", "member": member.client_id, **more})


def test_a_handover_between_two_members_shows_in_both() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        registry = CollectorRegistry()
        await send(cluster, numbered(8))
        inbox = Inbox()
        first = consumer(cluster, inbox, mode="leased", client_id="a")
        second = consumer(cluster, inbox, mode="leased", client_id="b")
        metrics.expose(first, second, registry=registry)
        assert b"trimtab_held_queues{" not in generate_latest(registry)
        async with first:
            await eventually(lambda: len(owners([first])) == 4, "the first has all")
            await eventually(lambda: len(inbox.messages) == 8, "all came")
            assert value(registry, first, "trimtab_held_queues", topic=TOPIC) == 4
            assert value(registry, first, "trimtab_in_flight_messages", topic=TOPIC) == 0
            assert value(registry, first, "trimtab_moved_queues_total", direction="out") == 0
            async with second:
                await eventually(lambda: len(owners([second])) == 2, "the second has half")
                assert value(registry, first, "trimtab_held_queues", topic=TOPIC) == 2
                given = first.recorder.counts[Kind.RELEASED]
                assert given >= 2
                assert value(registry, first, "trimtab_moved_queues_total", direction="out") == given
                assert value(registry, first, "trimtab_handover_seconds_count") == given
                assert value(registry, second, "trimtab_events_total", kind="acquired") >= 2  # type: ignore[operator]
                assert value(registry, second, "trimtab_rebalances_total") >= 1  # type: ignore[operator]
                assert value(registry, second, "trimtab_fenced_total") == 0
        assert value(registry, second, "trimtab_held_queues", topic=TOPIC) is None
        assert value(registry, second, "trimtab_events_total", kind="left") == 1

    play(scenario)


def test_exposing_again_neither_raises_nor_counts_twice() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        registry = CollectorRegistry()
        async with consumer(cluster, Inbox(), subscribe={}) as member:
            assert metrics.expose(member, registry=registry) is metrics.expose(member, registry=registry)
            lines = generate_latest(registry).decode().splitlines()
            assert sum(line.startswith("trimtab_rebalances_total{") for line in lines) == 1

    play(scenario)


def test_a_closed_consumer_is_shown_until_it_is_removed() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        registry = CollectorRegistry()
        member = consumer(cluster, Inbox(), subscribe={})
        async with member:
            metrics.expose(member, registry=registry)
        assert b"trimtab_rebalances_total{" in generate_latest(registry)
        metrics.expose(registry=registry).remove(member)
        assert b"trimtab_rebalances_total{" not in generate_latest(registry)

    play(scenario)


def test_queues_that_move_together_are_one_rebalance_and_durations_add_up() -> None:
    recorder = Recorder("g", "me", events_max=2)
    for at_ms, kind, took_ms in ((0, Kind.ACQUIRED, 5), (900, Kind.RELEASED, 10), (1_800, Kind.RELEASED, 20), (9_000, Kind.LOST, None)):  # fmt: skip
        recorder.record(Now(monotonic_ms=at_ms, wall_ms=at_ms), kind, duration_ms=took_ms)
    recorder.record(Now(monotonic_ms=99_000, wall_ms=0), Kind.VIEW)
    assert recorder.rebalances == 2
    assert recorder.spent(Kind.RELEASED) == Spent(times=2, ms=30)
    assert recorder.spent(Kind.LOST) == Spent()
