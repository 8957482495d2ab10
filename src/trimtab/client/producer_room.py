"""Room for what a producer sends: bounded in messages and in bytes, given in the order of asking, one by one."""

import asyncio
from collections import deque

from trimtab.errors import ClosedError, NotSentError


class Room:
    """Who asks while others wait comes after them, so that sends leave in the order in which they were made."""

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._idle: asyncio.Future[None] | None = None
        self._is_closed = False
        self.messages = 0
        """How many messages and batches have room now, that is, wait for their receipts."""
        self.bytes = 0

    def take_now(self, size: int) -> bool:
        """Takes room, if there is some and nobody waits for it."""
        return not self._waiting and not self._is_closed and self._taken(size)

    async def take(self, size: int, deadline: float | None) -> None:
        """Takes room as soon as it is this one's turn, by `deadline` in the loop's time if there is one."""
        if self._is_closed:
            raise ClosedError("the producer was closed before the message left")
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append((size, turn))
        timer = None if deadline is None else loop.call_at(deadline, self._too_late, turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.give_back(size)
            else:
                turn.cancel()
                self._hand_out()
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def give_back(self, size: int) -> None:
        """A message has its receipt, or its error."""
        self.messages -= 1
        self.bytes -= size
        if self._waiting:
            self._hand_out()
        if not self.messages and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    async def close(self) -> None:
        """Nobody gets room any more; waits until all is given back. Whoever calls bounds the waiting."""
        self._is_closed = True
        while self._waiting:
            _, turn = self._waiting.popleft()
            if not turn.done():
                turn.set_exception(ClosedError("the producer was closed before the message left"))
        if self.messages:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle

    def _taken(self, size: int) -> bool:
        messages, total = self.messages + 1, self.bytes + size
        if messages > 1 and (messages > self._messages_max or total > self._bytes_max):
            return False
        self.messages, self.bytes = messages, total
        return True

    def _hand_out(self) -> None:
        while self._waiting:
            size, turn = self._waiting[0]
            if not turn.done():
                if not self._taken(size):
                    return
                turn.set_result(None)
            self._waiting.popleft()

    def _too_late(self, turn: "asyncio.Future[None]") -> None:
        if not turn.done():
            turn.set_exception(
                NotSentError(
                    f"{self.messages} messages of {self.bytes} bytes wait already and no room came in time; send less at once"
                )
            )
            self._hand_out()
