"""Texts that begin alike and are equally long, as message ids and stamps are: laid out for all rows at once."""

from typing import Any

import numpy as np
import pyarrow as pa

from trimtab.wire.columns.arrays import memory

HEX = np.frombuffer(bytes(range(256)).hex().encode(), np.uint16)
"""The two digits of each byte."""
HEX_UPPER = np.frombuffer(bytes(range(256)).hex().upper().encode(), np.uint16)


def begun_alike(beginning: str, ends: Any) -> Any:
    """A binary column: in each row `beginning` and a row of `ends`, which are digits in memory."""
    head = np.frombuffer(beginning.encode(), np.uint8)
    tails = ends.view(np.uint8)
    texts = np.empty((len(tails), len(head) + tails.shape[1]), np.uint8)
    texts[:, : len(head)] = head
    texts[:, len(head) :] = tails
    borders = np.arange(len(texts) + 1, dtype=np.int32) * texts.shape[1]
    return pa.Array.from_buffers(pa.binary(), len(texts), [None, memory(borders), memory(texts)])


def counted(beginning: str, counts: list[int]) -> Any:
    """A binary column: `beginning` and the lower sixteen bits of each count, as ids of messages end."""
    numbers = np.array(counts, np.int64).astype(">u2")
    return begun_alike(beginning, HEX_UPPER[numbers.view(np.uint8).reshape(-1, 2)])
