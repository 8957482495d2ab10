"""How long the worst inputs occupy us: attacks per second in the median (20 a second is 50 ms)."""

from bench.report import Row, median_rate, print_rows
from tests.hostile import cases
from trimtab.errors import ProtocolError

LIMIT_MS = 50


def rows() -> list[Row]:
    found = []
    for name, attacks in cases().items():
        rate = min(median_rate(lambda attack=attack: refused(attack), 1, runs=3) for attack in attacks)  # type: ignore[misc]
        milliseconds = 1000 / rate
        verdict = "" if milliseconds <= LIMIT_MS else f" over {LIMIT_MS} ms"
        found.append(Row(name, rate, None, f"{milliseconds:.2f} ms{verdict}"))
    return found


def refused(attack: object) -> None:
    assert callable(attack)
    try:
        attack()
    except ProtocolError:
        return
    raise AssertionError("the attack was not refused")


if __name__ == "__main__":
    print_rows(rows())
