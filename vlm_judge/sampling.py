"""Which frames of a video the judge sees."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

Index = int


def even_indices(total: int, wanted: int) -> list[Index]:
    """``wanted`` frames of ``total``: both ends, and the others evenly from frame 1 to the last but one.

    As published: first, ``round(1 + i·(total − 3)/(wanted − 3))`` for i = 0 … wanted − 3 (halves to even),
    last; all frames where there are fewer than wanted. Where that has no value or gives two frames for one,
    ours are the middle (1) and both ends with the middle (3). Raises ``ValueError`` below one.
    """
    if wanted < 1 or total < 1:
        raise ValueError("at least one frame")
    if total < wanted:
        return list(range(total))
    if wanted == 1:
        return [(total - 1) // 2]
    inner = {round(1 + i * (total - 3) / (wanted - 3)) for i in range(wanted - 2)} if wanted > 3 else set()
    middle = {(total - 1) // 2} if wanted == 3 else set()
    return sorted({0, total - 1} | inner | middle)


def rate_of(fps: float) -> Fraction:
    """A rate as FFmpeg understands it."""
    return Fraction(str(fps)).limit_denominator(1_001_000)


class RateSampler:
    """Frames at a fixed rate, chosen one by one as FFmpeg's ``fps`` filter does.

    A frame's time is rounded to the nearest slot of the rate (halves up), and each slot shows the last frame
    that is not after it. So the first picture of a 30 fps video at 3 fps is frame 4, and a video always
    yields ``round(duration · fps)`` pictures.
    """

    def __init__(self, fps: Fraction) -> None:
        self._fps = fps
        self._next: int | None = None
        self._held: Index | None = None

    def add(self, index: Index, time: Fraction) -> Iterator[Index]:
        """Tell of a frame at ``time`` seconds from the first; yields the earlier one as often as it shows."""
        slot = _round(time * self._fps)
        if self._next is None:
            self._next = slot
        yield from self._until(slot)
        self._held = index

    def end(self, time: Fraction) -> Iterator[Index]:
        """The last frame's end; yields that frame as often as it shows."""
        yield from self._until(_round(time * self._fps))

    def _until(self, slot: int) -> Iterator[Index]:
        while self._held is not None and self._next is not None and slot > self._next:
            self._next += 1
            yield self._held


def _round(value: Fraction) -> int:
    """Nearest integer, halves away from zero; times are not negative."""
    return (2 * value.numerator + value.denominator) // (2 * value.denominator)
