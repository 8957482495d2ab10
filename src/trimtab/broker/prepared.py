"""The properties of a message on their way into the store, as bytes: WAIT goes, the cluster comes, and what is needed is found.

A dictionary, and text, would cost more than everything else that is done with an ordinary message.
"""

from typing import NamedTuple

from trimtab.wire.hashing import tags_code
from trimtab.wire.properties import decode_text


class Prepared(NamedTuple):
    """Properties as they are stored, the code of the tag, and what the message is found by."""

    properties: bytes
    tags_code: int
    keys: tuple[bytes, ...]


def prepare(properties: bytes, suffix: bytes) -> Prepared:
    """Properties as they came; `suffix` is what the broker adds, with the separator before each pair."""
    kept: list[bytes] = []
    tag = several = None
    keys: tuple[bytes, ...] = ()
    for pair in properties.split(b"\x02"):
        begin = pair[:5]
        if begin == b"UNIQ_":
            if pair.startswith(b"UNIQ_KEY\x01") and len(pair) > 9:
                keys = (pair[9:],)
        elif begin == b"TAGS\x01":
            tag = pair[5:]
        elif begin == b"KEYS\x01":
            several = pair[5:]
        elif begin == b"WAIT\x01" or not pair:
            continue
        kept.append(pair)
    if several:
        keys += tuple(key for key in several.split(b" ") if key)
    code = tags_code(decode_text(tag)) if tag else 0
    return Prepared(b"\x02".join(kept) + suffix if kept else suffix[1:], code, keys)
