"""Something that is looked at again and again, for as many pages as there are. Each look is drawn once.

A look that took long is followed by a pause that is as long: brokers are never asked more than half of the time. While nobody is
there it rests: only what the history keeps is asked for, seldom. Whoever comes then waits for a look, but not for long: what was
seen last is there, with its time on it.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from trimtab.errors import TrimtabError
from trimtab.io.clock import Clock

logger = logging.getLogger(__name__)
T = TypeVar("T")

FIRST_LOOK_S_MAX = 30.0
FRESH_LOOK_S_MAX = 2.0
"""How long somebody waits for a fresh look who could have an old one."""


class BusyError(TrimtabError):
    """The dashboard does as much as it may already."""

    retriable = True


class LookFailedError(TrimtabError):
    """A mistake of our own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often brokers are asked."""

    overview_s: float = 3.0
    group_s: float = 1.0
    topic_s: float = 2.0
    idle_s: float = 60.0
    """So long after the last page was there nobody is."""
    rest_s: float = 60.0
    """How often the history gets its figures while nobody is there."""


class Subject(Generic[T]):
    """See the module's own words."""

    def __init__(
        self,
        look: Callable[[], Awaitable[T]],
        every_s: float,
        clock: Clock,
        *,
        pace: Pace | None = None,
        rest: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._look = look
        self._every_s = every_s
        self._clock = clock
        self._pace = pace or Pace()
        self._rest = rest
        self._listeners: set[asyncio.Event] = set()
        self._looked = asyncio.Event()
        self._woken = asyncio.Event()
        self._drawing: tuple[int, asyncio.Future[str]] | None = None
        self.value: T | None = None
        self.error: TrimtabError | None = None
        self.looks = 0
        self.asked_ms = clock.monotonic_ms()
        self.task = asyncio.create_task(self._run())

    @property
    def is_watched(self) -> bool:
        """Whether a page listens."""
        return bool(self._listeners)

    @property
    def listeners(self) -> int:
        """How many pages listen."""
        return len(self._listeners)

    async def now(self) -> T:
        """What was seen last; waits for the first look. Raises if nothing was ever seen."""
        self._wake()
        try:
            async with asyncio.timeout(FIRST_LOOK_S_MAX if self.value is None else FRESH_LOOK_S_MAX):
                await self._looked.wait()
        except TimeoutError:
            if self.value is None:
                raise BusyError("the first look takes long; come again in a moment") from None
        if self.value is None:
            assert self.error is not None
            raise self.error
        return self.value

    async def drawn(self, draw: Callable[[T, TrimtabError | None], str]) -> str:
        """What was seen last as a text: made once a look, in a thread, however many pages want it."""
        value = await self.now()
        if self._drawing is None or self._drawing[0] != self.looks:
            made = asyncio.ensure_future(asyncio.to_thread(draw, value, self.error))
            self._drawing = (self.looks, made)
        return await asyncio.shield(self._drawing[1])

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[asyncio.Event]:
        """An event that is set whenever there is something new; whoever waits clears it."""
        event = asyncio.Event()
        self._listeners.add(event)
        self._wake()
        try:
            yield event
        finally:
            self._listeners.discard(event)
            self.asked_ms = self._clock.monotonic_ms()

    def _wake(self) -> None:
        self.asked_ms = self._clock.monotonic_ms()
        self._woken.set()

    async def _run(self) -> None:
        while True:
            began_ms = self._clock.monotonic_ms()
            await self._once()
            took_s = (self._clock.monotonic_ms() - began_ms) / 1000
            await asyncio.sleep(max(self._every_s - took_s, took_s, 0.05))
            if self._rest is not None:
                await self._while_nobody_is_there(self._rest)

    async def _once(self) -> None:
        try:
            self.value = await self._look()
            self.error = None
        except TrimtabError as error:
            self.error = error
        except Exception:
            logger.exception("a look failed; the next one comes in its time")
            self.error = LookFailedError("the dashboard made a mistake while it looked; its log says more")
        self.looks += 1
        self._looked.set()
        for event in self._listeners:
            event.set()

    async def _while_nobody_is_there(self, rest: Callable[[], Awaitable[None]]) -> None:
        self._woken.clear()
        while self._is_idle() and not self._woken.is_set():
            self._looked.clear()  # what was seen is getting old
            try:
                async with asyncio.timeout(self._pace.rest_s):
                    await self._woken.wait()
            except TimeoutError:
                try:
                    await rest()
                except TrimtabError as error:
                    logger.info("nothing is kept this time: %s", error)
                except Exception:
                    logger.exception("nothing is kept this time; the next try comes in its time")

    def _is_idle(self) -> bool:
        since_ms = self._clock.monotonic_ms() - self.asked_ms
        return not self._listeners and since_ms >= self._pace.idle_s * 1000
