"""`trimtab topic`: list, describe, create, alter, delete, route, queues."""

from typing import TYPE_CHECKING, Any

import click

from trimtab.cli.moments import number_text, time_text
from trimtab.cli.printing import print_facts, print_table, say
from trimtab.cli.shell import NotSoError, Shell, remote
from trimtab.cli.suggesting import Suggesting

if TYPE_CHECKING:
    from trimtab.client.admin import Admin
    from trimtab.client.admin.rows import Names, TopicQueues, TopicRoute, TopicSettings

PERMS = click.Choice(["rw", "r", "w", "none"])
QUEUES = click.IntRange(1, 65_536)
INNER_PREFIXES = ("%RETRY%", "%DLQ%", "rmq_sys_", "RMQ_SYS_")
INNER = {"TBW102", "SCHEDULE_TOPIC_XXXX", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "BenchmarkTest"}
INNER_SUFFIXES = ("_REPLY_TOPIC",)


@click.group(cls=Suggesting)
def topic() -> None:
    """List, make, change, delete and look at topics."""


def is_inner(name: str, brokers_and_clusters: frozenset[str] = frozenset()) -> bool:
    """Whether a topic belongs to the servers or to a group, rather than to users."""
    return (
        name in INNER
        or name in brokers_and_clusters
        or name.startswith(INNER_PREFIXES)
        or name.endswith(INNER_SUFFIXES)
        or name == "TRANS_CHECK_MAX_TIME_TOPIC"
    )


@topic.command(
    "list",
    epilog="""\b
Examples:
  trimtab topic list
  trimtab topic list --all                 system, retry and dead-letter topics too
  trimtab topic list --json | jq -r '.topics[]'""",
)
@click.option("-a", "--all", "every", is_flag=True, help="Also those of the system and of groups.")
@remote
def list_topics(shell: Shell, *, every: bool) -> None:
    """List topics."""

    async def fetch(admin: "Admin") -> "tuple[Names, frozenset[str]]":
        names = await admin.topics()
        view = await admin.cluster()
        return names, frozenset({*view.clusters, *(place.broker for place in view.brokers)})

    found, own = shell.ask(fetch)
    names = [name for name in found.names if every or not is_inner(name, own)]
    if not shell.print_json({"topics": names}):
        for name in names:
            say(name)


@topic.command(
    epilog="""\b
Examples:
  trimtab topic describe orders
  trimtab topic describe orders --json"""
)
@click.argument("name")
@remote
def describe(shell: Shell, name: str) -> None:
    """Show a topic: its settings at each broker, what lies in it, who consumes it."""

    async def fetch(admin: "Admin") -> "tuple[TopicSettings, TopicQueues, Names]":
        return (
            await admin.topic_settings(name),
            await admin.topic_queues(name),
            await admin.topic_groups(name),
        )

    settings, queues, groups = shell.ask(fetch)
    failures = (*settings.failures, *queues.failures, *groups.failures)
    messages = {
        one.broker: sum(row.max_offset - row.min_offset for row in queues.queues if row.broker == one.broker)
        for one in settings.brokers
    }
    if not shell.print_json(
        {
            "topic": name,
            "messages": sum(messages.values()),
            "groups": groups.names,
            "brokers": settings.brokers,
            "failures": failures,
        }
    ):
        newest = max((row.newest_ms for row in queues.queues if row.newest_ms), default=None)
        print_facts(
            [
                ("Topic", name),
                ("Messages", number_text(sum(messages.values()))),
                ("Newest", time_text(newest)),
                ("Groups", ", ".join(groups.names) or "none"),
            ]
        )
        say()
        print_table(
            ("BROKER", "READ", "WRITE", "PERM", "ORDER", "MESSAGES", "ATTRIBUTES"),
            [
                (
                    one.broker,
                    str(one.read_queues),
                    str(one.write_queues),
                    one.perm,
                    "yes" if one.order else "no",
                    number_text(messages[one.broker]),
                    ", ".join(f"{key}={value}" for key, value in one.attributes.items()),
                )
                for one in settings.brokers
            ],
            right=("READ", "WRITE", "MESSAGES"),
        )
    shell.finish(_once(failures))


def _once(failures: Any) -> list[Any]:
    """One line for each broker."""
    return list({failure.broker: failure for failure in failures}.values())


@topic.command(
    epilog="""\b
Examples:
  trimtab topic create orders                       16 queues at every broker
  trimtab topic create orders --queues 8 --broker broker-a --broker broker-b
  trimtab topic create delayed --attribute +message.type=DELAY        brokers of 5.x"""
)
@click.argument("name")
@click.option("--queues", type=QUEUES, default=16, show_default=True, help="At each broker.")
@click.option("--perm", type=PERMS, default="rw", show_default=True)
@click.option("--order", is_flag=True, help="Mark it as ordered.")
@click.option("--broker", "brokers", multiple=True, help="Only there; can be said more than once.")
@click.option("--cluster", help="At the brokers of this cluster.")
@click.option("--attribute", "attributes", multiple=True, metavar="+NAME=VALUE", help="For brokers of 5.x.")
@remote
def create(
    shell: Shell,
    name: str,
    queues: int,
    perm: Any,
    *,
    order: bool,
    brokers: tuple[str, ...],
    cluster: str | None,
    attributes: tuple[str, ...],
) -> None:
    """Make a topic; one that is there gets these settings."""
    pairs = dict(text.partition("=")[::2] for text in attributes)
    made = shell.ask(
        lambda admin: admin.create_topic(
            name,
            queues=queues,
            perm=perm,
            order=order,
            brokers=brokers or None,
            cluster=cluster,
            attributes=pairs or None,
        )
    )
    if not shell.print_json(made):
        where = ", ".join(one.broker for one in made.brokers)
        say(f"topic {name} has {queues} queue(s) at {where}")


@topic.command(
    epilog="""\b
Examples:
  trimtab topic alter orders --queues 32
  trimtab topic alter orders --perm r --broker broker-a      no more writing there
  trimtab topic alter orders --write-queues 4                shrink: stop writing first, reading later"""
)
@click.argument("name")
@click.option("--queues", type=QUEUES, help="For reading and for writing.")
@click.option("--read-queues", type=QUEUES)
@click.option("--write-queues", type=QUEUES)
@click.option("--perm", type=PERMS)
@click.option("--broker", "brokers", multiple=True, help="Only there; can be said more than once.")
@click.option("--dry-run", is_flag=True, help="Show what there is and what would be, and change nothing.")
@remote
def alter(
    shell: Shell,
    name: str,
    queues: int | None,
    read_queues: int | None,
    write_queues: int | None,
    perm: Any,
    *,
    brokers: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Change what is said, and leave the rest as it is."""
    if queues is read_queues is write_queues is perm is None:
        raise click.UsageError("say what to change: --queues, --read-queues, --write-queues or --perm")

    async def change(admin: "Admin") -> "tuple[TopicSettings, TopicSettings]":
        before = await admin.topic_settings(name)
        after = planned(before)
        if not dry_run:
            after = await admin.alter_topic(
                name,
                queues=queues,
                read_queues=read_queues,
                write_queues=write_queues,
                perm=perm,
                brokers=brokers or None,
            )
        return before, after

    def planned(before: "TopicSettings") -> "TopicSettings":
        import msgspec

        wanted = [one for one in before.brokers if not brokers or one.broker in brokers]
        changed = [
            msgspec.structs.replace(
                one,
                read_queues=read_queues or queues or one.read_queues,
                write_queues=write_queues or queues or one.write_queues,
                perm=perm or one.perm,
            )
            for one in wanted
        ]
        return msgspec.structs.replace(before, brokers=tuple(changed))

    before, after = shell.ask(change)
    if not shell.print_json(
        {"topic": name, "before": before.brokers, "after": after.brokers, "done": not dry_run}
    ):
        old = {one.broker: one for one in before.brokers}
        rows = [
            (
                one.broker,
                _arrow(old[one.broker].read_queues, one.read_queues),
                _arrow(old[one.broker].write_queues, one.write_queues),
                _arrow(old[one.broker].perm, one.perm),
            )
            for one in after.brokers
        ]
        print_table(("BROKER", "READ", "WRITE", "PERM"), rows)
        if dry_run:
            say("nothing was changed: --dry-run")


def _arrow(before: object, after: object) -> str:
    return str(after) if before == after else f"{before} -> {after}"


@topic.command(
    epilog="""\b
Examples:
  trimtab topic delete orders
  trimtab topic delete orders --yes
  trimtab topic delete orders --dry-run        what would be lost"""
)
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show what would be lost, and change nothing.")
@remote
def delete(shell: Shell, name: str, *, yes: bool, dry_run: bool) -> None:
    """Delete a topic and everything in it, at all brokers and name servers."""

    async def look(admin: "Admin") -> "tuple[TopicQueues, Names]":
        return await admin.topic_queues(name), await admin.topic_groups(name)

    queues, groups = shell.ask(look)
    messages = queues.messages
    brokers = sorted({row.broker for row in queues.queues})
    what = (
        f"Topic {name}: {messages:,} message(s) in {len(queues.queues)} queue(s) at {', '.join(brokers)}, consumed by"
        f" {', '.join(groups.names) or 'no group'}."
    )
    if not dry_run:
        shell.confirm(f"{what} Delete it?", yes=yes)
        shell.ask(lambda admin: admin.delete_topic(name))
    if not shell.print_json(
        {
            "topic": name,
            "messages": messages,
            "brokers": brokers,
            "groups": groups.names,
            "deleted": not dry_run,
        }
    ):
        say(what if dry_run else f"topic {name} is deleted at {', '.join(brokers)}")
        if dry_run:
            say("nothing was changed: --dry-run")


@topic.command(
    epilog="""\b
Examples:
  trimtab topic route orders
  trimtab topic route orders --each            what every name server says: they should agree"""
)
@click.argument("name")
@click.option("--each", is_flag=True, help="Ask every name server; exit code 1 if they disagree.")
@remote
def route(shell: Shell, name: str, *, each: bool) -> None:
    """Show where a topic is, as name servers tell clients."""
    if each:
        _routes(shell, name)
        return
    found = shell.ask(lambda admin: admin.topic_route(name))
    if not shell.print_json(found):
        _print_route(found)


def _routes(shell: Shell, name: str) -> None:
    rows, failures = shell.ask(lambda admin: admin.topic_routes(name))
    agree = all(row.route == rows[0].route for row in rows)
    if not shell.print_json({"topic": name, "agree": agree, "nameservers": rows, "failures": failures}):
        for row in rows:
            say(f"{row.nameserver}:")
            if row.route is None:
                say("does not know it")
            else:
                _print_route(row.route)
            say()
        say("they agree" if agree else "they do NOT agree: clients see different queues")
    if rows and all(row.route is None for row in rows):
        raise NotSoError(f"topic {name!r} does not exist")
    shell.finish(failures, 0 if agree else 1)


def _print_route(found: "TopicRoute") -> None:
    queues = {one.broker: one for one in found.queues}
    rows = [
        (
            place.broker,
            place.cluster,
            str(queues[place.broker].read_queues) if place.broker in queues else "-",
            str(queues[place.broker].write_queues) if place.broker in queues else "-",
            queues[place.broker].perm if place.broker in queues else "-",
            " ".join(f"{number}={address}" for number, address in place.addresses.items()),
        )
        for place in found.brokers
    ]
    titles = ("BROKER", "CLUSTER", "READ", "WRITE", "PERM", "ADDRESSES")
    print_table(titles, rows, right=("READ", "WRITE"), spare=("CLUSTER",))
    if found.order_conf:
        say(f"order: {found.order_conf}")


@topic.command(
    epilog="""\b
Examples:
  trimtab topic queues orders
  trimtab topic queues orders --times          also when the oldest message was stored"""
)
@click.argument("name")
@click.option("--times", is_flag=True, help="Ask each queue for its oldest message too.")
@remote
def queues(shell: Shell, name: str, *, times: bool) -> None:
    """Show the queues of a topic and what lies in them."""
    found = shell.ask(lambda admin: admin.topic_queues(name, times=times))
    if not shell.print_json(found):
        rows = [
            (
                row.broker,
                str(row.queue_id),
                str(row.min_offset),
                str(row.max_offset),
                number_text(row.max_offset - row.min_offset),
                time_text(row.oldest_ms),
                time_text(row.newest_ms),
            )
            for row in found.queues
        ]
        print_table(
            ("BROKER", "QUEUE", "MIN", "MAX", "MESSAGES", "OLDEST", "NEWEST"),
            rows,
            right=("QUEUE", "MIN", "MAX", "MESSAGES"),
            spare=("OLDEST", "NEWEST"),
        )
    shell.finish(found.failures)
