"""Who is signed in. In memory: a restart signs everybody out. PURE but for the secrets, which come in."""

import hmac
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from trimtab.dashboard.tokens import Role

SESSION_MS = 12 * 3_600_000
SESSIONS_MAX = 1_000
TRIES_MAX = 5
TRIES_WITHIN_MS = 60_000
PEERS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Session:
    """Somebody who signed in."""

    role: Role
    csrf: str
    until_ms: int

    def __repr__(self) -> str:
        """Without the secret, for logs."""
        return f"<Session of {self.role}>"

    def has_csrf(self, given: str) -> bool:
        """Whether a change comes from our own page."""
        return hmac.compare_digest(self.csrf.encode(), given.encode())


class Sessions:
    """All of them, by their secret."""

    def __init__(self, new_secret: Callable[[], str]) -> None:
        self._new_secret = new_secret
        self._sessions: dict[str, Session] = {}

    def begin(self, role: Role, now_ms: int) -> str:
        """Signs somebody in; gives the session's secret."""
        while len(self._sessions) >= SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]  # the oldest
        secret = self._new_secret()
        self._sessions[secret] = Session(role, self._new_secret(), now_ms + SESSION_MS)
        return secret

    def find(self, secret: str, now_ms: int) -> Session | None:
        """The session, if it is there and not over."""
        session = self._sessions.get(secret)
        if session is not None and session.until_ms <= now_ms:
            del self._sessions[secret]
            return None
        return session

    def end(self, secret: str) -> None:
        """Signs somebody out."""
        self._sessions.pop(secret, None)


class Tries:
    """How often somebody tried a token: five wrong ones a minute, then wait."""

    def __init__(self) -> None:
        self._tries: dict[str, deque[int]] = {}

    def take(self, peer: str, now_ms: int) -> bool:
        """Whether this peer may try now. It is counted before it is known to be wrong, so that many at once are no way around."""
        tries = self._tries.get(peer)
        if tries is None:
            while len(self._tries) >= PEERS_MAX:
                del self._tries[next(iter(self._tries))]
            tries = self._tries[peer] = deque(maxlen=TRIES_MAX)
        while tries and tries[0] <= now_ms - TRIES_WITHIN_MS:
            tries.popleft()
        if len(tries) >= TRIES_MAX:
            return False
        tries.append(now_ms)
        return True

    def forgive(self, peer: str) -> None:
        """It was the right one."""
        self._tries.pop(peer, None)
