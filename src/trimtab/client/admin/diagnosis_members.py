"""What may be wrong with who is there. PURE."""

from collections import defaultdict
from collections.abc import Callable, Iterator

from trimtab.client.admin.diagnosis_facts import Facts, Finding, brokers_with_queues, some
from trimtab.client.admin.rows import MemberState
from trimtab.wire.resources import RETRY_PREFIX


def _no_members(facts: Facts) -> Iterator[Finding]:
    lag = facts.after.progress.lag
    if not facts.members.views and lag:
        yield Finding(
            cause="no-members",
            severity="broken",
            evidence=f"no member is connected to any broker, and {lag:,} message(s) wait",
            advice="start consumers of the group, or look into their logs",
        )


def _disabled(facts: Facts) -> Iterator[Finding]:
    brokers = [one.broker for one in facts.settings.brokers if not one.enabled]
    if brokers:
        yield Finding(
            cause="group-disabled",
            severity="broken",
            evidence=f"the group may not consume at {', '.join(brokers)}",
            advice="enable it there: admin.alter_group(group, enabled=True), or mqadmin updateSubGroup -s true",
        )


def _same_client_id(facts: Facts) -> Iterator[Finding]:
    addresses: dict[str, set[str]] = defaultdict(set)
    for view in facts.members.views:
        here: dict[str, list[str]] = defaultdict(list)
        for member in view.members:
            here[member.client_id].append(member.address)
        for client_id, seen in here.items():
            if len(seen) > 1:
                addresses[client_id].update(seen)
    for client_id, seen_at in sorted(addresses.items()):
        yield Finding(
            cause="same-client-id",
            severity="broken",
            evidence=f"client id {client_id} is connected {len(seen_at)} times: {', '.join(sorted(seen_at))}",
            advice="each takes the same share, so messages come twice and other queues to nobody: give every instance an id of its"
            " own (in Java: instanceName; in containers with host network the pid may be equal)",
        )


def _split_views(facts: Facts) -> Iterator[Finding]:
    everybody = set(facts.members.client_ids)
    for view in facts.members.views:
        missing = everybody - {member.client_id for member in view.members}
        if missing:
            yield Finding(
                cause="split-view",
                severity="broken",
                evidence=f"{view.broker} does not see {some(sorted(missing))}, other brokers do",
                advice="members share out queues by what one broker tells them, so they disagree: check that these members reach"
                f" {view.broker}, and that their name servers list it",
            )
    seen_by = {view.broker for view in facts.members.views}
    blind = sorted(brokers_with_queues(facts) - seen_by - {one.broker for one in facts.members.failures})
    if blind and facts.members.views:
        yield Finding(
            cause="split-view",
            severity="broken",
            evidence=f"{', '.join(blind)} has queues of the group's topics and sees no member at all",
            advice="members do not reach it, or have an old route: check addresses and name servers of the members",
        )


def _unequal_subscriptions(facts: Facts) -> Iterator[Finding]:
    said: dict[tuple[tuple[str, str, str], ...], list[str]] = defaultdict(list)
    for state in facts.after.states.members:
        said[_subscribed(state)].append(state.client_id)
    if len(said) > 1:
        kinds = [
            f"{some(clients)} wants {'; '.join(f'{topic}: {expression}' for topic, _, expression in wants) or 'nothing'}"
            for wants, clients in sorted(said.items(), key=lambda item: (-len(item[1]), item[0]))
        ]
        yield Finding(
            cause="unequal-subscriptions",
            severity="broken",
            evidence="members subscribe differently: " + " / ".join(kinds),
            advice="brokers keep one subscription for the group, the last one that came: the others lose messages. Give all"
            " members the same topics and expressions, or make two groups",
        )


def _subscribed(state: MemberState) -> tuple[tuple[str, str, str], ...]:
    return tuple(
        (one.topic, one.kind, one.expression)
        for one in state.subscriptions
        if not one.topic.startswith(RETRY_PREFIX)
    )


def _mixed_sdks(facts: Facts) -> Iterator[Finding]:
    languages: dict[str, set[str]] = defaultdict(set)
    for view in facts.members.views:
        for member in view.members:
            languages[member.language].add(member.client_id)
    if len(languages) > 1:
        kinds = ", ".join(
            f"{language} ({some(sorted(clients))})" for language, clients in sorted(languages.items())
        )
        yield Finding(
            cause="mixed-sdks",
            severity="note",
            evidence=f"members are of different SDKs: {kinds}",
            advice="make sure that all use the same strategy and order queues and ids alike; see strategies below, if any",
        )
    strategies: dict[str, list[str]] = defaultdict(list)
    for state in facts.after.states.members:
        strategy = strategy_of(state)
        if strategy:
            strategies[strategy].append(state.client_id)
    if len(strategies) > 1:
        kinds = ", ".join(f"{name} ({some(clients)})" for name, clients in sorted(strategies.items()))
        yield Finding(
            cause="mixed-strategies",
            severity="broken",
            evidence=f"members share out queues by different strategies: {kinds}",
            advice="shares computed by different rules overlap and leave gaps: give all members the same strategy",
        )


_STRATEGIES = {
    "AllocateMessageQueueAveragely": "AVG",
    "AllocateMessageQueueAveragelyByCircle": "AVG_BY_CIRCLE",
    "AllocateMessageQueueConsistentHash": "CONSISTENT_HASH",
    "AllocateMessageQueueByConfig": "CONFIG",
    "AllocateMessageQueueByMachineRoom": "MACHINE_ROOM",
    "AllocateMachineRoomNearby": "MACHINE_ROOM_NEARBY",
}


def strategy_of(state: MemberState) -> str | None:
    """Its strategy's name; Java says a class and an address, `pkg.AllocateMessageQueueAveragely@1b2c`."""
    text = state.properties.get("allocateMessageQueueStrategy") or ""
    name = text.partition("@")[0].rpartition(".")[2]
    return _STRATEGIES.get(name, name) or None


def _mixed_models(facts: Facts) -> Iterator[Finding]:
    models = {view.message_model: view.broker for view in facts.members.views}
    told = {state.client_id: state.properties.get("messageModel", "") for state in facts.after.states.members}
    named = {model for model in told.values() if model} or set(models)
    if len(named) > 1:
        yield Finding(
            cause="mixed-models",
            severity="broken",
            evidence=f"some members broadcast and some do not: {', '.join(sorted(named))}",
            advice="a group is one or the other; make two groups",
        )


def _silent_members(facts: Facts) -> Iterator[Finding]:
    for failure in facts.after.states.failures:
        yield Finding(
            cause="silent-member",
            severity="warning",
            evidence=f"{failure.broker} is connected and does not say what it holds: {failure.error}",
            advice="it may hang, or be of an SDK that does not answer; what it holds is not known, so queues may look unheld",
        )


CHECKS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    _no_members,
    _disabled,
    _same_client_id,
    _split_views,
    _unequal_subscriptions,
    _mixed_sdks,
    _mixed_models,
    _silent_members,
)
