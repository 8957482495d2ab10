"""Every attack ends in ProtocolError and nothing else, in bounded memory and time.

Time is the thread's own, so that a busy machine does not count; what is asked for is 50 ms, and slow machines get four times that.
"""

import time
import tracemalloc
from collections.abc import Callable

import pytest

from tests.hostile import MIB, cases
from trimtab.errors import ProtocolError

CASES = cases()
CPU_S_MAX = 4 * 0.050


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


def cpu_s_of(attack: Callable[[], object]) -> float:
    began = time.thread_time()
    with pytest.raises(ProtocolError):
        attack()
    return time.thread_time() - began


@pytest.mark.parametrize("name", CASES)
def test_an_attack_costs_little_time(name: str) -> None:
    for attack in CASES[name]:
        assert min(cpu_s_of(attack) for _ in range(3)) < CPU_S_MAX
