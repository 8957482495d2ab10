"""Tokens to sign in with: made at the first start and shown once. The file keeps hashes, for its owner alone."""

import base64
import hashlib
import hmac
import os
import tempfile
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

import msgspec

from trimtab.errors import SettingsError, TrimtabError

FILE_NAME = "dashboard-tokens.json"
FILE_BYTES_MAX = 64 * 1024
TOKEN_CHARS_MAX = 256
_SCRYPT_N, _SCRYPT_R, _SCRYPT_P = 2**14, 8, 1


class Role(StrEnum):
    """What somebody may do: look, or also change."""

    VIEWER = "viewer"
    OPERATOR = "operator"


class TokenFileError(TrimtabError):
    """The file of tokens cannot be used."""


class Hashed(msgspec.Struct, frozen=True):
    """A token that cannot be read back."""

    salt: bytes
    hash: bytes


class Keyring(msgspec.Struct, frozen=True):
    """The hash of each role's token."""

    hashes: dict[Role, Hashed]

    def __repr__(self) -> str:
        """Without the hashes, for logs."""
        return f"<Keyring of {', '.join(self.hashes)}>"

    def role_of(self, token: str) -> Role | None:
        """Whose token this is. All are compared, so that the time says nothing. Slow on purpose: call it in a thread."""
        found = None
        for role, hashed in self.hashes.items():
            if hmac.compare_digest(_hash(token[:TOKEN_CHARS_MAX], hashed.salt), hashed.hash):
                found = role
        return found


def new_keyring(new_secret: Callable[[], str]) -> tuple[Keyring, dict[Role, str]]:
    """A token for each role, hashed and in clear."""
    tokens = {role: new_secret() for role in Role}
    hashes = {}
    for role, token in tokens.items():
        salt = hashlib.sha256(new_secret().encode()).digest()[:16]
        hashes[role] = Hashed(salt, _hash(token, salt))
    return Keyring(hashes), tokens


def load_keyring(
    folder: Path, new_secret: Callable[[], str], *, anew: bool = False
) -> tuple[Keyring, dict[Role, str]]:
    """The tokens of a folder; those that were made just now are there in clear, this once."""
    path = folder / FILE_NAME
    if path.exists() and not anew:
        return _read(path), {}
    keyring, tokens = new_keyring(new_secret)
    _write(path, keyring)
    return keyring, tokens


def _read(path: Path) -> Keyring:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise TokenFileError(f"{path} is larger than {FILE_BYTES_MAX} bytes; that is no file of ours")
        if path.stat().st_mode & 0o077:
            raise TokenFileError(
                f"{path} can be read by others than its owner; `chmod 600` it, or make new tokens"
            )
        return msgspec.json.decode(path.read_bytes(), type=Keyring)
    except (OSError, msgspec.DecodeError) as error:
        raise TokenFileError(f"{path} cannot be read: {error}; --new-tokens makes a new one") from error


def _write(path: Path, keyring: Keyring) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, aside = tempfile.mkstemp(dir=path.parent, prefix=".tokens-")  # for its owner alone, by itself
        with os.fdopen(handle, "wb") as file:
            file.write(msgspec.json.encode(keyring))
        Path(aside).replace(path)
    except OSError as error:
        raise SettingsError(
            f"{path} cannot be written: {error.strerror}; name a folder with --data"
        ) from error


def _hash(token: str, salt: bytes) -> bytes:
    return hashlib.scrypt(token.encode(), salt=salt, n=_SCRYPT_N, r=_SCRYPT_R, p=_SCRYPT_P)


def fingerprint(token: str) -> str:
    """A short name of a token, to remember that it was verified without keeping it."""
    return base64.b64encode(hashlib.sha256(token.encode()).digest()).decode()
