"""What the JSON API takes. Limits are part of the types, so that the OpenAPI document has them and decoding holds to them."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Name = Annotated[str, Meta(min_length=1, max_length=255)]
"""Of a topic or a group."""
Id = Annotated[str, Meta(min_length=1, max_length=255)]
Millis = Annotated[int, Meta(ge=0, le=2**53)]
Place = Annotated[str, Meta(min_length=1, max_length=64)]


class Wish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all."""


class Nothing(Wish, frozen=True):
    """No parameters."""


class Named(Wish, frozen=True):
    """A topic or a group."""

    name: Name


class AtTime(Wish, frozen=True):
    """A group at some time."""

    name: Name
    at_ms: Millis


class WhatIfWish(Wish, frozen=True):
    """Members more and less, and another strategy."""

    name: Name
    join: Annotated[int, Meta(ge=0, le=500)] = 0
    leave: Annotated[str, Meta(max_length=4096)] = ""
    """Client ids with a comma between them."""
    strategy: Annotated[str, Meta(max_length=64)] = "sticky"


class SearchWish(Wish, frozen=True):
    """One of key, id, or a time."""

    name: Name
    key: Annotated[str, Meta(max_length=255)] = ""
    id: Annotated[str, Meta(max_length=255)] = ""
    since: Annotated[str, Meta(max_length=64)] = ""
    """A time as on the command line: `2026-01-31T12:00`, `-15m`, `@1767225600000`."""
    count: Annotated[int, Meta(ge=1, le=500)] = 50


class MessageWish(Wish, frozen=True):
    """A message by either of its ids."""

    topic: Name
    id: Id


class TraceWish(Wish, frozen=True):
    """A message by the id that its producer gave."""

    id: Id


class DeadWish(Wish, frozen=True):
    """Dead letters of a group."""

    name: Name
    count: Annotated[int, Meta(ge=1, le=1_000)] = 100
    skip: Annotated[int, Meta(ge=0, le=10_000)] = 0
    """So many of the oldest are left out."""


class ResetWish(Wish, frozen=True):
    """Where a group shall go on in a topic. Nothing changes unless `preview` is false."""

    name: Name
    topic: Name
    to: Place
    """`begin`, `end`, an offset, or a time."""
    preview: bool = True


class ReplayWish(Wish, frozen=True):
    """Dead letters that a group shall try again: those named, or the first ones. Nothing is sent unless `preview` is false."""

    name: Name
    ids: Annotated[tuple[Id, ...], Meta(max_length=1_000)] = ()
    to_origin: bool = False
    preview: bool = True


class ResendWish(Wish, frozen=True):
    """A message to be sent once more. Nothing is sent unless `preview` is false."""

    topic: Name
    id: Id
    to: Annotated[str, Meta(max_length=255)] = ""
    """Another topic; empty: its own."""
    preview: bool = True


class SimulationWish(Wish, frozen=True):
    """A scenario, in one mode or in both."""

    scenario: Name
    mode: Literal["leased", "classic", "both"] = "both"
    members: Annotated[int, Meta(ge=2, le=200)] | None = None
    queues: Annotated[int, Meta(ge=1, le=2_000)] | None = None
    brokers: Annotated[int, Meta(ge=1, le=16)] | None = None
    broker_kind: Literal["ours", "apache"] = "ours"
    seed: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 1
