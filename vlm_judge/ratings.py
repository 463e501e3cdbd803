"""Bradley–Terry strengths by the minorisation–maximisation step (Hunter, Annals of Statistics 32, 2004).

The prior is ``prior`` imaginary games a system, half of them won, against an opponent of strength 1. The
field is brought back to geometric mean 1 after every step, so that this opponent stays at the field's mean.
That fixed point differs from the posterior mode of the un-normalised model by a few points at the ends; it is
the published protocol's number.

All draws of a bootstrap are fitted at once: arrays have a leading axis of draws.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

SCALE = 400.0
"""Rating points for a factor of ten in strength."""
STEPS = 9_000
"""Steps of the published fit, which knows no tolerance; ours ends earlier where nothing moves any more."""
_TOLERANCE = 1e-13
_CHECK_EVERY = 8


@dataclass(frozen=True)
class Fit:
    """ratings : float64 (draws, systems), points with mean 0 over each draw's systems; NaN where a system
    is not in a draw, and for a whole draw that has no finite ratings (only without a prior).
    steps : steps that the slowest draw took. settled : whether every draw stopped moving.
    """

    ratings: Matrix
    steps: int
    settled: bool


def fit(wins: Matrix, prior: float, present: Mask | None = None) -> Fit:
    """Ratings from wins, float64 (draws, systems, systems): how often row beat column, draws as halves.

    present : bool (draws, systems), the systems of each draw; default those with a game. One without a game
    has the strength that the prior gives it.

    With ``prior`` > 0 every rating is finite. Without one a draw has finite ratings only if its systems are
    strongly connected (each is reached from each by wins); the others come out as NaN.
    """
    games = wins + wins.transpose(0, 2, 1)
    present = games.sum(axis=2) > 0 if present is None else present
    solvable = np.ones(len(wins), dtype=bool) if prior > 0 else strongly_connected(wins, present)
    ratings = np.full(wins.shape[:2], np.nan)
    rows = np.flatnonzero(solvable & present.any(axis=1))
    strengths, steps, settled = _iterate(wins[rows], games[rows], present[rows], prior)
    ratings[rows] = np.where(present[rows], SCALE / np.log(10.0) * strengths, np.nan)
    return Fit(ratings, steps, settled)


def _iterate(wins: Matrix, games: Matrix, present: Mask, prior: float) -> tuple[Matrix, int, bool]:
    """Logarithms of the strengths (0 where absent), steps taken, whether all stopped moving."""
    result = np.zeros(present.shape)
    active = np.arange(len(wins))
    numerator = wins.sum(axis=2) + prior / 2
    strength = np.ones(present.shape)
    for step in range(1, STEPS + 1):
        if not len(active):
            return result, step - 1, True
        rate = games / (strength[:, :, None] + strength[:, None, :])
        denominator = rate.sum(axis=2) + prior / (strength + 1)
        # Absent systems have neither games nor, without a prior, a denominator.
        raw = np.divide(numerator, denominator, out=np.ones_like(strength), where=present & (denominator > 0))
        logs = np.log(raw, where=present, out=np.zeros_like(raw))
        logs -= np.where(present, logs.sum(axis=1, keepdims=True) / present.sum(axis=1, keepdims=True), 0.0)
        if step % _CHECK_EVERY == 0 or step == STEPS:
            moved = np.abs(logs - np.log(strength)).max(axis=1)
            result[active] = logs
            keep = moved > _TOLERANCE
            active, games, present, numerator, logs = (
                values[keep] for values in (active, games, present, numerator, logs)
            )
        strength = np.exp(logs)
    return result, STEPS, not len(active)


def reachable(edges: Mask) -> Mask:
    """Transitive and reflexive closure of bool (draws, n, n)."""
    count = edges.shape[1]
    closed = edges | np.eye(count, dtype=bool)
    for _ in range(max(1, count - 1).bit_length()):
        closed = (closed.astype(np.float32) @ closed.astype(np.float32)) > 0
    return closed


def strongly_connected(wins: Matrix, present: Mask) -> Mask:
    """Per draw: is every present system reached from every other by a chain of wins? bool (draws,)."""
    closed = reachable(wins > 0)
    needed = present[:, :, None] & present[:, None, :]
    return np.asarray((closed | ~needed).all(axis=(1, 2)))


def groups(wins: Matrix) -> list[list[int]]:
    """Connected groups of systems, (systems, systems) wins: within one, games link everybody. Largest first,
    systems without a game left out.
    """
    games = (wins + wins.T) > 0
    closed = reachable(games[None])[0]
    found = {tuple(np.flatnonzero(row).tolist()) for index, row in enumerate(closed) if games[index].any()}
    return [list(group) for group in sorted(found, key=lambda group: (-len(group), group))]
