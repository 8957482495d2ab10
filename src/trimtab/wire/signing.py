"""Signatures of requests (ACL version 1): HMAC-SHA1 over the values of all ext fields in the order of their names, and the body."""

import hmac
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field

from trimtab.wire.codes import SPOKEN_VERSION, Version

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"  # noqa: S105 (the name of a field)
SIGNATURE = "Signature"
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"


def signed_content(ext: Mapping[str, str], body: bytes = b"", *, version: int = SPOKEN_VERSION) -> bytes:
    """What is signed of a request whose ext fields (AccessKey and SecurityToken among them) are `ext`.

    Up to 4.9.3 clients add `_UNIQUE_KEY_QUERY` after signing; later ones before. So `version` is that of the request.
    """
    unsigned = (SIGNATURE, UNIQUE_KEY_QUERY) if version <= Version.V4_9_3 else (SIGNATURE,)
    fields = [name for name in ext if name not in unsigned]
    fields.sort(key=_java_order)
    return "".join([ext[name] for name in fields]).encode(errors="replace") + body


def sign(ext: Mapping[str, str], body: bytes = b"", *, secret_key: str, version: int = SPOKEN_VERSION) -> str:
    """The value for the Signature field."""
    content = signed_content(ext, body, version=version)
    return b64encode(hmac.digest(secret_key.encode(), content, "sha1")).decode()


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who signs, and with what. The secret shows nowhere."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def signed(
        self, ext: Mapping[str, str], body: bytes = b"", *, version: int = SPOKEN_VERSION
    ) -> dict[str, str]:
        """The ext fields of a request together with those that say and prove who makes it."""
        fields = {**ext, ACCESS_KEY: self.access_key}
        if self.security_token is not None:
            fields[SECURITY_TOKEN] = self.security_token
        fields[SIGNATURE] = sign(fields, body, secret_key=self.secret_key, version=version)
        return fields


def verify(ext: Mapping[str, str], body: bytes = b"", *, secret_key: str, version: int) -> bool:
    """Whether the request carries the signature that `secret_key` gives; takes the same time however much of it is right."""
    expected = sign(ext, body, secret_key=secret_key, version=version)
    return hmac.compare_digest(expected.encode(), ext.get(SIGNATURE, "").encode(errors="replace"))


def _java_order(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")
