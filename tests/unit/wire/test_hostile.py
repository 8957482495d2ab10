"""Every attack ends in ProtocolError and nothing else, in bounded memory."""

import tracemalloc
from collections.abc import Callable

import pytest

from tests.hostile import MIB, cases
from trimtab.errors import ProtocolError

CASES = cases()


@pytest.mark.parametrize("name", CASES)
def test_an_attack_ends_in_a_protocol_error(name: str) -> None:
    for attack in CASES[name]:
        with pytest.raises(ProtocolError):
            attack()


def memory_of(attack: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            attack()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", CASES)
def test_an_attack_costs_little_memory(name: str) -> None:
    for attack in CASES[name]:
        assert memory_of(attack) < 40 * MIB
