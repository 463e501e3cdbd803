"""Cohen's kappa (1960) between two judges: agreement beyond what their habits alone would give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any


@dataclass(frozen=True)
class Agreement:
    """common : items that both decided. agree : share with the same decision. kappa : (p_o − p_e)/(1 − p_e);
    None without common items, and where both always say the same one thing (chance explains everything).
    """

    first: str
    second: str
    common: int
    agree: float | None
    kappa: float | None

    def as_json(self) -> dict[str, Any]:
        return {
            "judges": [self.first, self.second],
            "common": self.common,
            "agree": self.agree,
            "kappa": self.kappa,
        }

    def line(self) -> str:
        """For people."""
        share, kappa = ("–" if value is None else f"{value:.3f}" for value in (self.agree, self.kappa))
        return f"judges {self.first} and {self.second}: agree {share}, kappa {kappa}, {self.common} in common"


def cohen(
    first: Mapping[Hashable, str], second: Mapping[Hashable, str]
) -> tuple[int, float | None, float | None]:
    """Common items, observed agreement and kappa of two mappings from item to decision."""
    common = first.keys() & second.keys()
    count = len(common)
    if not count:
        return 0, None, None
    same = sum(first[item] == second[item] for item in common)
    left, right = Counter(first[item] for item in common), Counter(second[item] for item in common)
    # Integers until the last step: no order of items changes a bit.
    chance = sum(left[decision] * right[decision] for decision in left)
    if chance == count * count:
        return count, same / count, None
    return count, same / count, (same * count - chance) / (count * count - chance)


def between(decisions: Mapping[str, Mapping[Hashable, str]]) -> list[Agreement]:
    """Every pair of judges, by name."""
    return [
        Agreement(first, second, *cohen(decisions[first], decisions[second]))
        for first, second in combinations(sorted(decisions), 2)
    ]
