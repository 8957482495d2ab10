"""Sets of offsets, kept as ranges: which messages were begun, which were handled."""

from bisect import bisect_right


class Ranges:
    """Whole numbers from 0 on. Most are added at the end, and that is quick."""

    __slots__ = ("_begins", "_ends", "count")

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []
        self.count = 0
        """How many numbers there are."""

    def add(self, first: int, end: int) -> int:
        """Adds `first` to `end` - 1; how many of them were new."""
        begins, ends = self._begins, self._ends
        if not begins or first > ends[-1]:
            begins.append(first)
            ends.append(end)
            self.count += end - first
            return end - first
        if first == ends[-1]:
            ends[-1] = end
            self.count += end - first
            return end - first
        left = bisect_right(ends, first - 1)
        right = bisect_right(begins, end)
        had = sum(ends[at] - begins[at] for at in range(left, right))
        begin, stop = min(first, *begins[left:right]) if left < right else first, end
        if left < right:
            stop = max(end, ends[right - 1])
        begins[left:right] = [begin]
        ends[left:right] = [stop]
        new = (stop - begin) - had
        self.count += new
        return new

    def first_missing(self) -> int:
        """The lowest number that is not there."""
        return self._ends[0] if self._begins and self._begins[0] == 0 else 0
