"""`trimtab cluster`: info, brokers, health."""

from typing import TYPE_CHECKING

import click

from trimtab.cli.moments import rate_text, span_text
from trimtab.cli.printing import print_facts, print_table, say
from trimtab.cli.shell import NOT_SO, Shell, remote
from trimtab.cli.suggesting import Suggesting

if TYPE_CHECKING:
    from trimtab.client.admin import Admin
    from trimtab.client.admin.rows import BrokerState, BrokerStates, ClusterView, Names

DISK_USED_MAX = 0.85
"""Brokers refuse messages from about here on."""


@click.group(cls=Suggesting)
def cluster() -> None:
    """Brokers and name servers: who is there and how they are."""


@cluster.command(
    epilog="""\b
Examples:
  trimtab cluster info
  trimtab cluster info --json"""
)
@remote
def info(shell: Shell) -> None:
    """Show the name servers, the clusters and how much is in them."""

    async def fetch(admin: "Admin") -> "tuple[ClusterView, Names, Names, tuple[str, ...]]":
        return await admin.cluster(), await admin.topics(), await admin.groups(), admin.nameservers

    view, topics, groups, nameservers = shell.ask(fetch)
    if not shell.print_json(
        {
            "nameservers": nameservers,
            "clusters": view.clusters,
            "brokers": view.brokers,
            "topics": len(topics.names),
            "groups": len(groups.names),
            "failures": groups.failures,
        }
    ):
        print_facts(
            [
                ("Name servers", ", ".join(nameservers)),
                ("Clusters", ", ".join(view.clusters)),
                ("Brokers", ", ".join(place.broker for place in view.brokers)),
                ("Topics", str(len(topics.names))),
                ("Groups", str(len(groups.names))),
            ]
        )
    shell.finish(groups.failures)


@cluster.command(
    epilog="""\b
Examples:
  trimtab cluster brokers
  trimtab cluster brokers --json | jq '.brokers[].facts'         all that they say"""
)
@remote
def brokers(shell: Shell) -> None:
    """Show the brokers: version, rates, disk."""
    from trimtab.io.clock import SystemClock

    states = shell.ask(lambda admin: admin.broker_states())
    if not shell.print_json(states):
        now_ms = SystemClock().wall_ms()
        print_table(
            ("BROKER", "ID", "CLUSTER", "ADDRESS", "VERSION", "IN", "OUT", "DISK", "UP"),
            [_row(state, now_ms) for state in states.brokers],
            right=("ID", "IN", "OUT", "DISK", "UP"),
            spare=("CLUSTER", "ID", "VERSION", "UP"),
        )
    shell.finish(states.failures)


def _row(state: "BrokerState", now_ms: int) -> tuple[str, ...]:
    return (
        state.broker,
        str(state.broker_id),
        state.cluster,
        state.address,
        state.version or "-",
        rate_text(state.put_per_s),
        rate_text(state.get_per_s),
        "-" if state.disk_used is None else f"{state.disk_used:.0%}",
        "-" if state.started_ms is None else span_text(now_ms - state.started_ms),
    )


@cluster.command(
    epilog="""\b
Examples:
  trimtab cluster health && echo fine
  trimtab cluster health --json"""
)
@remote
def health(shell: Shell) -> None:
    """Say what is wrong, a line each; exit code 1 if anything is, 3 if a server cannot be reached."""

    async def fetch(admin: "Admin") -> "tuple[ClusterView, BrokerStates]":
        return await admin.cluster(), await admin.broker_states()

    view, states = shell.ask(fetch)
    complaints = complaints_about(view, states)
    if not shell.print_json(
        {
            "healthy": not complaints and not states.failures,
            "complaints": complaints,
            "failures": states.failures,
        }
    ):
        for complaint in complaints:
            say(complaint)
        if not complaints and not states.failures:
            say(f"healthy: {len(states.brokers)} broker(s) answer")
    shell.finish(states.failures, NOT_SO if complaints else 0)


def complaints_about(view: "ClusterView", states: "BrokerStates") -> list[str]:
    """What is wrong. PURE."""
    found = [
        f"{place.broker} has no master registered: nobody can write to it"
        for place in view.brokers
        if place.master is None
    ]
    found += [
        f"{state.broker} has {state.disk_used:.0%} of its disk in use: brokers refuse messages when it is full"
        for state in states.brokers
        if state.disk_used is not None and state.disk_used > DISK_USED_MAX
    ]
    versions = {state.version for state in states.brokers if state.version}
    if len(versions) > 1:
        found.append(f"brokers have different versions: {', '.join(sorted(versions))}")
    return found
