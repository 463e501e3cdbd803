"""Does the judge favour the video that it sees first?

Bradley–Terry with one more term: log-odds that A wins = θ_A − θ_B + β. The prior holds the θ only, as in the
ratings (``prior`` games a system, half won, against strength 1); β is free. Newton's method on the
log-posterior; the standard error comes from the curvature and ignores that verdicts on a scene go together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vlm_judge.games import Game
from vlm_judge.ratings import SCALE

_STEPS = 200
_STILL = 1e-12
_LONGEST = 2.0
"""Longest step in log-odds: keeps Newton's method from overshooting where verdicts are nearly separable."""


@dataclass(frozen=True)
class Position:
    """judged : verdicts. first : share that the first video won. log_odds, error : β and its standard error;
    None where they have no finite value. points : β on the scale of the ratings.
    """

    judged: int
    first: float | None
    log_odds: float | None
    error: float | None
    points: float | None


def estimate(judged: Sequence[Game], systems: Sequence[str], prior: float) -> Position:
    """The advantage of being shown first, from the model's own verdicts only."""
    count = len(judged)
    if not count:
        return Position(0, None, None, None, None)
    first = sum(game.share for game in judged) / count
    if first in (0.0, 1.0) or prior <= 0:
        return Position(count, first, None, None, None)
    found = _newton(judged, systems, prior)
    if found is None:
        return Position(count, first, None, None, None)
    beta, error = found
    return Position(count, first, beta, error, beta * SCALE / math.log(10.0))


def _newton(judged: Sequence[Game], systems: Sequence[str], prior: float) -> tuple[float, float] | None:
    column = {name: index for index, name in enumerate(systems)}
    size = len(systems) + 1
    design = np.zeros((len(judged), size))
    for row, game in enumerate(judged):
        design[row, column[game.a]], design[row, column[game.b]], design[row, -1] = 1.0, -1.0, 1.0
    won = np.array([game.share for game in judged])
    held = np.append(np.ones(len(systems)), 0.0)
    theta = np.zeros(size)
    for _ in range(_STEPS):
        chance, anchor = _logistic(design @ theta), _logistic(theta)
        slope = design.T @ (won - chance) + prior * held * (0.5 - anchor)
        weight = chance * (1 - chance)
        curvature = design.T @ (design * weight[:, None]) + np.diag(prior * held * anchor * (1 - anchor))
        try:
            step = np.linalg.solve(curvature, slope)
        except np.linalg.LinAlgError:
            return None
        longest = float(np.abs(step).max())
        if not math.isfinite(longest):
            return None
        theta = theta + step * min(1.0, _LONGEST / longest if longest else 1.0)
        if longest < _STILL:
            variance = float(np.linalg.inv(curvature)[-1, -1])
            return (float(theta[-1]), math.sqrt(variance)) if variance > 0 else None
    return None


def _logistic(values: np.ndarray) -> np.ndarray:
    return np.asarray(0.5 * (1.0 + np.tanh(values / 2)))
