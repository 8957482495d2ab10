"""`trimtab message`: send, consume, tail, get, query, trace, resend; in kcat's manner."""

import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from trimtab.cli.message_form import Format, envelope, envelope_line
from trimtab.cli.message_reading import Wanted, print_messages
from trimtab.cli.moments import parse_place, parse_time, time_text
from trimtab.cli.printing import print_facts, print_json, print_table, say, warn
from trimtab.cli.shell import NotSoError, Shell, remote
from trimtab.cli.suggesting import Suggesting
from trimtab.errors import NoMessageError, NoRouteError

if TYPE_CHECKING:
    from trimtab.client.admin import Admin
    from trimtab.client.admin.rows import FoundMessage, MessageTrace, ResentMessage

BODY_SHOWN_MAX = 2_000
FORMAT_HELP = Format.__doc__


class ByPipe(Suggesting):
    """Without a verb, in kcat's manner, a pipe decides: what comes in is sent, else what is there is shown."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """The verb, or the one that is meant by a topic alone."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if args[0].startswith("-") or "Did you mean" in error.message:
                raise
            verb = "send" if is_fed(sys.stdin) else "consume"
            warn(f"no verb is given; this is `trimtab message {verb} {args[0]}`")
            return verb, self.get_command(ctx, verb), args


def is_fed(stream: TextIO) -> bool:
    """Whether something comes in: a pipe, a file or a socket, not a terminal and not /dev/null."""
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except (OSError, ValueError):  # a stream of a test, or a closed one
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


@click.group(
    cls=ByPipe,
    epilog="""\b
Examples:
  echo hello | trimtab message orders          without a verb a pipe decides: this sends
  trimtab message orders                       and this shows what is there""",
)
def message() -> None:
    """Send, read, tail, find and trace messages.

    Reading is for nobody's account: no group, no commit, nothing is taken away.
    """


@message.command(
    epilog=r"""
    \b
    Examples:
      trimtab message send orders "hello"
      echo hello | trimtab message send orders --tag eu --key o-1
      seq 100 | trimtab message send orders                        a message a line
      printf 'k1:one\nk2:two\n' | trimtab message send orders -K :
      trimtab message send orders --file picture.png
      trimtab message consume orders --json | trimtab message send copy --envelopes"""
)
@click.argument("topic")
@click.argument("bodies", nargs=-1)
@click.option(
    "--file", "files", multiple=True, type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A whole file is one message; can be said more than once.",
)  # fmt: skip
@click.option("--tag")
@click.option("--key", "keys", multiple=True, help="Can be said more than once.")
@click.option("--property", "properties", multiple=True, metavar="NAME=VALUE")
@click.option("-K", "key_delimiter", metavar="DELIMITER", help="What stands before it on a line is the key.")
@click.option("-D", "delimiter", default="\\n", show_default=True, help="What separates messages on stdin.")
@click.option("--envelopes", is_flag=True, help="Lines are what `message consume --json` prints.")
@click.option("--delay-level", type=click.IntRange(0, 18), default=0)
@click.option(
    "--deliver-at", metavar="TIME", help="2026-01-31T12:00 or @MILLISECONDS; brokers of 5.x and ours."
)
@click.option(
    "--group", default="TOOLS_PRODUCER", show_default=True, help="The group of producers to send as."
)
@remote
def send(
    shell: Shell,
    topic: str,
    bodies: tuple[str, ...],
    files: tuple[Path, ...],
    tag: str | None,
    keys: tuple[str, ...],
    properties: tuple[str, ...],
    key_delimiter: str | None,
    delimiter: str,
    *,
    envelopes: bool,
    delay_level: int,
    deliver_at: str | None,
    group: str,
) -> None:
    """Send messages: from the command line, from files, or from stdin, a line each."""
    import asyncio

    from trimtab.cli.message_sending import Form, bodies_from, delimiter_bytes, send_all
    from trimtab.io.clock import SystemClock

    form = Form(
        topic=topic,
        tag=tag,
        keys=keys,
        properties=dict(_property(text) for text in properties),
        key_delimiter=None if key_delimiter is None else delimiter_bytes(key_delimiter, "-K"),
        envelopes=envelopes,
        delay_level=delay_level,
        deliver_at_ms=None if deliver_at is None else parse_time(deliver_at, SystemClock().wall_ms()),
    )

    pieces = bodies_from(bodies, files, delimiter_bytes(delimiter, "-D"))

    async def run() -> int:
        sent = 0
        async for receipt in send_all(shell, group, form, pieces):
            sent += 1
            if shell.as_json:
                print_json(receipt)
            elif sys.stdout.isatty() or bodies or files:
                say(f"{receipt.message_id}  {receipt.queue} offset {receipt.queue_offset}")
        return sent

    try:
        sent = asyncio.run(run())
    except NoRouteError:
        shell.ask(
            lambda admin: admin.topic_route(topic)
        )  # says more: no name server, or a name that is like it
        raise
    if not shell.as_json and not bodies and not files:
        say(f"{sent} message(s) sent to {topic}", err=True)


def _property(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found or not name:
        raise click.UsageError(f"--property {text!r} is no NAME=VALUE")
    return name, value


@message.command(
    epilog=r"""
    \b
    Examples:
      trimtab message consume orders                               everything that is there
      trimtab message consume orders -o end -c 10 --follow         the next ten
      trimtab message consume orders -o -15m --tag 'eu || us'
      trimtab message consume orders -o 1200 --queue broker-a:0 -c 1
      trimtab message consume orders -f '%p %o %k %s\n'
      trimtab message consume orders --json | jq .body

    \b
    -f takes: %t topic, %b broker, %p queue, %o offset, %k keys, %g tag, %i id, %s body, %S its size,
    %T and %B when it was stored and born (ms), %R retries, %h properties, %%, \n, \t."""
)
@click.argument("topic")
@click.option(
    "-o",
    "--offset",
    "start",
    default="begin",
    show_default=True,
    metavar="PLACE",
    help="begin, end, an offset, a time, @MILLISECONDS, or -15m.",
)
@click.option("-c", "--count", type=click.IntRange(1), help="Stop after so many.")
@click.option("-f", "--format", "form", default="%s\\n", show_default=True)
@click.option("--tag", default="*", help="'eu || us'")
@click.option("--sql", help="An SQL92 expression over properties, instead of tags.")
@click.option("--queue", metavar="BROKER:N", help="Only this queue.")
@click.option("--follow", is_flag=True, help="Go on at the end, until Ctrl-C.")
@remote
def consume(
    shell: Shell,
    topic: str,
    start: str,
    count: int | None,
    form: str,
    tag: str,
    sql: str | None,
    queue: str | None,
    *,
    follow: bool,
) -> None:
    """Read messages of a topic, by default all that are there, and end."""
    _consume(shell, topic, start, count, form, tag, sql, queue, follow=follow)


@message.command(
    epilog=r"""
    \b
    Examples:
      trimtab message tail orders
      trimtab message tail orders -f '%T %g %s\n'
      trimtab message tail orders --json | jq -c '{tag, body}'"""
)
@click.argument("topic")
@click.option(
    "-o", "--offset", "start", default="end", show_default=True, metavar="PLACE", help="Where to begin."
)
@click.option("-c", "--count", type=click.IntRange(1), help="Stop after so many.")
@click.option("-f", "--format", "form", default="%s\\n", show_default=True)
@click.option("--tag", default="*", help="'eu || us'")
@click.option("--sql", help="An SQL92 expression over properties, instead of tags.")
@click.option("--queue", metavar="BROKER:N", help="Only this queue.")
@remote
def tail(
    shell: Shell,
    topic: str,
    start: str,
    count: int | None,
    form: str,
    tag: str,
    sql: str | None,
    queue: str | None,
) -> None:
    """Show new messages as they come, until Ctrl-C."""
    _consume(shell, topic, start, count, form, tag, sql, queue, follow=True)


def _consume(
    shell: Shell,
    topic: str,
    start: str,
    count: int | None,
    form: str,
    tag: str,
    sql: str | None,
    queue: str | None,
    *,
    follow: bool,
) -> None:
    from trimtab.io.clock import SystemClock

    wanted = Wanted(
        topic=topic,
        start=parse_place(start, SystemClock().wall_ms()),
        expression=tag if sql is None else sql,
        expression_type="TAG" if sql is None else "SQL92",
        queue=queue,
        count=count,
        follow=follow,
    )
    line = envelope_line if shell.as_json else Format(form, for_terminal=sys.stdout.isatty()).line
    printed = shell.ask(lambda admin: print_messages(admin, wanted, line))
    if count is not None and printed < count:
        raise NotSoError(f"only {printed} of {count} message(s) are there")


@message.command(
    epilog="""\b
Examples:
  trimtab message get 7F00000100002A9F0000000000000000
  trimtab message get AC11000200007B1F5C6E0B4D1A2B0000 --topic orders
  trimtab message get ID --topic orders --body > picture.png"""
)
@click.argument("message_id")
@click.option("--topic", help="Needed for an id that the producer gave.")
@click.option("--body", "body_only", is_flag=True, help="Write the body alone, as it is.")
@remote
def get(shell: Shell, message_id: str, topic: str | None, *, body_only: bool) -> None:
    """Show one message by its id."""
    found = _the_message(shell, message_id, topic)
    if body_only:
        sys.stdout.buffer.write(found.body)
        sys.stdout.buffer.flush()
    elif not shell.print_json(envelope(found)):
        print_message(found)


def _the_message(shell: Shell, message_id: str, topic: str | None) -> "FoundMessage":
    try:
        return shell.ask(lambda admin: admin.message(message_id, topic))
    except NoMessageError:
        where = f"topic {topic!r} has no message" if topic else "no broker has a message"
        hint = "" if topic else "; if a producer gave the id, say --topic too"
        raise NotSoError(f"{where} {message_id!r}{hint}") from None


def print_message(found: "FoundMessage") -> None:
    """A message for people."""
    print_facts(
        [
            ("Topic", found.topic),
            ("Queue", f"{found.broker_name}:{found.queue_id} offset {found.queue_offset}"),
            ("Id", found.message_id),
            ("Offset id", found.offset_message_id),
            ("Tag", found.tag or "-"),
            ("Keys", " ".join(found.keys) or "-"),
            ("Born", f"{time_text(found.born_timestamp)} at {found.born_host}"),
            ("Stored", f"{time_text(found.store_timestamp)} at {found.store_host}"),
            ("Retries", str(found.reconsume_times)),
            ("Properties", ", ".join(f"{key}={value}" for key, value in found.properties.items()) or "-"),
            ("Body", f"{len(found.body):,} bytes"),
        ]
    )
    shown = found.body[:BODY_SHOWN_MAX].decode(errors="replace")
    say(shown if shown.isprintable() or "\n" in shown else repr(found.body[:BODY_SHOWN_MAX]))


@message.command(
    epilog="""\b
Examples:
  trimtab message query orders --key o-1
  trimtab message query orders --key o-1 --since -1h
  trimtab message query orders --id AC11000200007B1F5C6E0B4D1A2B0000"""
)
@click.argument("topic")
@click.option("--key", help="One of the message's keys.")
@click.option("--id", "message_id", help="The id that the producer gave.")
@click.option("--since", metavar="TIME", help="2026-01-31T12:00, @MILLISECONDS, or -15m.")
@click.option(
    "--max",
    "max_messages",
    type=click.IntRange(1, 1024),
    default=64,
    show_default=True,
    help="The newest so many.",
)
@remote
def query(
    shell: Shell,
    topic: str,
    key: str | None,
    message_id: str | None,
    since: str | None,
    max_messages: int,
) -> None:
    """Find messages by a key or by an id."""
    from trimtab.io.clock import SystemClock

    if (key is None) == (message_id is None):
        raise click.UsageError("say either --key or --id")
    begin_ms = 0 if since is None else parse_time(since, SystemClock().wall_ms())
    if key is not None:
        wanted = key
        found = shell.ask(
            lambda admin: admin.messages_by_key(topic, wanted, max_messages=max_messages, begin_ms=begin_ms)
        )
    else:
        wanted = message_id or ""
        found = shell.ask(lambda admin: admin.messages_by_id(topic, wanted))
    newest = found.messages[-max_messages:]  # every broker gave as many
    if not shell.print_json({"messages": [envelope(one) for one in newest], "failures": found.failures}):
        rows = [
            (
                one.message_id,
                f"{one.broker_name}:{one.queue_id}",
                str(one.queue_offset),
                time_text(one.store_timestamp),
                one.tag or "-",
                " ".join(one.keys),
                str(len(one.body)),
            )
            for one in newest
        ]
        if rows:
            print_table(
                ("ID", "QUEUE", "OFFSET", "STORED", "TAG", "KEYS", "BYTES"),
                rows,
                right=("OFFSET", "BYTES"),
                spare=("BYTES", "TAG", "KEYS", "STORED"),
                whole=("ID",),
            )
    shell.finish(found.failures)
    if not found.messages:
        raise NotSoError(f"topic {topic!r} has no message with {'key' if key else 'id'} {wanted!r}")


@message.command(
    epilog="""\b
Examples:
  trimtab message trace AC11000200007B1F5C6E0B4D1A2B0000
  trimtab message trace ID --trace-topic my_traces"""
)
@click.argument("message_id")
@click.option("--trace-topic", default="RMQ_SYS_TRACE_TOPIC", show_default=True)
@remote
def trace(shell: Shell, message_id: str, trace_topic: str) -> None:
    """Show what became of a message. Clients record it only if tracing is on."""
    found: MessageTrace = shell.ask(lambda admin: admin.message_trace(message_id, trace_topic=trace_topic))
    if not shell.print_json(found):
        rows = [
            (
                time_text(step.at_ms),
                step.what,
                step.group,
                "ok" if step.ok else "failed",
                "-" if step.cost_ms is None else f"{step.cost_ms} ms",
                step.host or "-",
                step.detail or "-",
            )
            for step in found.steps
        ]
        if rows:
            print_table(("AT", "WHAT", "GROUP", "RESULT", "COST", "HOST", "DETAIL"), rows, right=("COST",))
    shell.finish(found.failures)
    if not found.steps:
        raise NotSoError(
            f"nothing is recorded of message {message_id!r} in {trace_topic}; is tracing on at the clients and the brokers?"
        )


@message.command(
    epilog="""\b
Examples:
  trimtab message resend AC11000200007B1F5C6E0B4D1A2B0000 --topic orders
  trimtab message resend 7F00000100002A9F0000000000000000 --to other"""
)
@click.argument("message_id")
@click.option("--topic", help="Where it is; needed for an id that the producer gave.")
@click.option("--to", "target", help="Send the copy to this topic.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show the message, and send nothing.")
@remote
def resend(
    shell: Shell, message_id: str, topic: str | None, target: str | None, *, yes: bool, dry_run: bool
) -> None:
    """Send a copy of a message: same body, tag, keys, properties and id."""
    from trimtab.client.admin.letters import origin_of

    found = _the_message(shell, message_id, topic)
    where = target or origin_of(found)
    if dry_run:
        if not shell.print_json({"to": where, "sent": None, "message": envelope(found)}):
            print_message(found)
            say(f"nothing was sent to {where}: --dry-run")
        return
    shell.confirm(f"Send a copy of {found.message_id} ({len(found.body):,} bytes) to {where}?", yes=yes)

    async def copy(admin: "Admin") -> "ResentMessage":
        return await admin.resend(found, topic=target)

    sent = shell.ask(copy)
    if not shell.print_json({"to": where, "sent": sent}):
        say(
            f"{sent.offset_message_id}  {sent.topic}@{sent.broker}:{sent.queue_id} offset {sent.queue_offset}"
        )
