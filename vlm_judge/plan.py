"""Who meets whom on which scene: the published plan, the same for the same scenes, systems and seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

Pair = tuple[str, str]


def matching(systems: Sequence[str], round_number: int) -> list[Pair]:
    """Pairs of one round by the circle method; of an odd number one sits out, a different one each round."""
    field = sorted(systems)
    if len(field) % 2:
        del field[round_number % len(field)]
    if len(field) < 2:
        return []
    rest = field[1:]
    turn = round_number % len(rest)
    ring = [field[0], *rest[turn:], *rest[:turn]]
    return [(ring[index], ring[-1 - index]) for index in range(len(ring) // 2)]


def plan(
    scenes: Sequence[str],
    systems: Sequence[str],
    pairs: int,
    seed: int,
    *,
    shown: Callable[[str], bool] = lambda scene: True,
    either: Callable[[str, str, str], bool] = lambda scene, x, y: True,
) -> list[tuple[str, str, str]]:
    """(scene, video A, video B) for every comparison.

    On each scene the round's pairs with the fewest meetings so far come first (ties at random), ``pairs`` of
    them (0: all); whoever was shown first less often is shown first.

    shown : is there a reference video? A scene without one is passed over, but its round counts.
    either : has at least one of two systems a render? A pair without any is dropped, but it has met.
    """
    source = random.Random(seed)
    met: Counter[str] = Counter()
    first: Counter[str] = Counter()
    jobs = []
    for number, scene in enumerate(scenes):
        if not shown(scene):
            continue
        drawn = [(met[x] + met[y], source.random(), (x, y)) for x, y in matching(systems, number)]
        ordered = [pair for _, _, pair in sorted(drawn, key=lambda entry: entry[:2])]
        for x, y in ordered[:pairs] if pairs else ordered:
            met[x] += 1
            met[y] += 1
            if not either(scene, x, y):
                continue
            left, right = (x, y) if first[x] <= first[y] else (y, x)
            first[left] += 1
            jobs.append((scene, left, right))
    return jobs
