"""What a handler says about messages, and how it is called. What it returns is not looked at; what it raises is.

- It comes back: consumed. What it returns does not matter, except a coroutine or a generator: that is a handler that did not run, so a
  failure. A function that is a generator by itself is refused.
- It raises `ConsumeLater`: the messages come again after the time it says.
- It raises anything else, or is cancelled from inside: they come again, later each time (10 s, 30 s, 1 min …), and are dead letters in
  the end.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any, Final, TypeAlias

from trimtab.client.received import Received
from trimtab.errors import SettingsError

Handler: TypeAlias = Callable[[Received], Any] | Callable[[list[Received]], Any]
Call: TypeAlias = Callable[[list[Received]], Awaitable[object]]

DELAY_LEVELS_S: Final = (
    1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200,
)  # fmt: skip
"""The stock brokers' levels 1 to 18; theirs can be configured, so a time is only as good as that."""
BY_RETRY_COUNT: Final = 0
DEAD_LETTER: Final = -1


class ConsumeLater(Exception):  # noqa: N818 - it is not an error: a handler says when it wants a message again
    """Raise it in a handler: not now, again later.

    `delay_level` is a level of the broker (-1: no more tries, a dead letter at once); `after_s` takes the level that is nearest
    above it; without both the delay grows with every try. `consumed` says how many messages of a batch, from its
    begin, are done with. For ordered consumption `after_s` is how long the queue rests, up to 30 s.
    """

    def __init__(
        self, delay_level: int | None = None, *, after_s: float | None = None, consumed: int = 0
    ) -> None:
        super().__init__("consume later")
        if delay_level is not None and after_s is not None:
            raise SettingsError("say delay_level or after_s, not both")
        _must_be_whole("consumed", consumed)
        _must_be_whole("delay_level", delay_level or 0)
        self.after_s = after_s
        self.consumed = consumed
        self.delay_level = level_of(after_s) if after_s is not None else delay_level or BY_RETRY_COUNT


def _must_be_whole(name: str, value: object) -> None:
    if not isinstance(value, int):
        raise SettingsError(f"{name} {value!r} is not a whole number")


def level_of(after_s: float) -> int:
    """The level whose delay is nearest above a time; the longest one for more than that."""
    for level, delay_s in enumerate(DELAY_LEVELS_S, 1):
        if after_s <= delay_s:
            return level
    return len(DELAY_LEVELS_S)


class NotAwaitedError(TypeError):
    """A plain function gave back a coroutine or a generator that nobody runs."""


def call_of(handler: Handler, pool: Executor, *, is_batch: bool) -> Call:
    """One way to call every kind of handler: with a list, of one message unless it takes batches; awaited."""
    if not callable(handler):
        raise SettingsError(f"the handler {handler!r} cannot be called")
    if _is(inspect.isgeneratorfunction, handler) or _is(inspect.isasyncgenfunction, handler):
        raise SettingsError(f"the handler {handler!r} is a generator, which nobody runs: leave its yield out")
    function: Callable[..., Any] = handler
    if not is_async(handler):
        return _threaded(function, pool, is_batch=is_batch)
    if is_batch:
        return function
    return lambda messages: function(messages[0])


def _threaded(function: Callable[..., Any], pool: Executor, *, is_batch: bool) -> Call:
    def in_thread(messages: list[Received]) -> None:
        try:
            result = function(messages if is_batch else messages[0])
        except StopIteration as error:
            # No future takes it: whoever waits would wait for ever.
            raise RuntimeError(f"the handler {function!r} raised StopIteration") from error
        if result is not None:
            _refuse_unrun(function, result)

    def threaded(messages: list[Received]) -> Awaitable[object]:
        return asyncio.get_running_loop().run_in_executor(pool, in_thread, messages)

    return threaded


def _refuse_unrun(function: Callable[..., Any], result: object) -> None:
    if inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        if inspect.iscoroutine(result):
            result.close()
        raise NotAwaitedError(
            f"the handler {function!r} is not async and gave back a {type(result).__name__}: nothing was handled"
        )


def is_async(handler: Handler) -> bool:
    """Whether calling it gives something to await."""
    return _is(inspect.iscoroutinefunction, handler)


def _is(kind: Callable[[object], bool], handler: object) -> bool:
    """Whether it is such a function: by itself, under partials, or as an object's call."""
    while isinstance(handler, partial):
        handler = handler.func
    return kind(handler) or kind(getattr(handler, "__call__", None))  # noqa: B004 - what it is, not whether
