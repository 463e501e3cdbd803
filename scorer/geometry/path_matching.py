"""The cheapest matching of two sets of paths by their warped distance, without the distance of every pair.

Estimates on a few points of each path serve to find a matching, and prices near the right ones. A pair can
better it only if it costs less than the prices of its two paths together. That most pairs cost more is proven
from outlines of the paths (``path_bounds``); the others are worked out, and so are the pairs that were
matched. Then the matching is found anew, until it takes pairs only that were worked out, at prices that no
pair undercuts: by linear programming duality no matching costs less.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scorer.geometry.assignment import Prices, assign
from scorer.geometry.dtw import Packed, align_pairs, boxes_near, dtw_matrix, each, pack
from scorer.geometry.path_bounds import at_least, outlines

Floats = NDArray[np.float32]
Longs = NDArray[np.int64]
Mask = NDArray[np.bool_]

Outlines = list[tuple[Floats, Floats]]
"""Outlines of both sides, coarse ones first."""

_FEW = 512
"""Paths below which every pair is worked out."""
_POINTS = 16
"""Points of a path that estimates are made on."""
_PIECES = (16, 5)
"""Pieces of the coarse outline, and frames of a piece of the fine one."""
_BLOCK = 1.9
"""What a block of a table of outlines costs, in cells of a warp's table."""
_STRIDE = 16
"""Every so many paths of each side are matched to see whether outlines are worth their while."""
_QUANTILE = 0.5
"""Share of the estimates' errors that the margin covers."""
_ROUNDING = 1e-13
"""Share of the cap by which prices may exceed what is proven."""
_PAIRS = 1 << 17
"""Pairs that a thread looks at at once, about."""


def match_paths(a: ArrayLike, b: ArrayLike, cap: float, threads: int | None = None) -> tuple[Longs, Floats]:
    """Partner int64 (n,) of each path of ``a`` in the matching with paths of ``b`` of least total cost (−1:
    none), and what each costs, float32 (n,), ``cap`` without a partner.

    a, b : (n, L, 3) and (m, L', 3); frames that are not finite are left out. A pair costs its warped distance
    (``dtw``) or ``cap``, whichever is less. The answer is the same for any number of threads.
    """
    left, right = pack(a), pack(b)
    found = None
    if len(left.points) == len(right.points) >= _FEW and min(left.lengths.min(), right.lengths.min()) > 0:
        found = _choose_outlines(left, right, cap, threads)
    if found is None:
        gaps = dtw_matrix(a, b, cap, threads)
        partner = assign(gaps)
        cost = np.full(len(gaps), cap, np.float32)
        rows = np.flatnonzero(partner >= 0)
        cost[rows] = gaps[rows, partner[rows]]
        return partner, cost
    return _Costs.of(left, right, cap, threads, found).match()


def _choose_outlines(left: Packed, right: Packed, cap: float, threads: int | None) -> Outlines | None:
    """The outlines that spare more than they cost, judged by a matching of some of the paths; None when none
    of them does, so that all pairs may as well be worked out.
    """
    some = np.arange(0, len(left.points), _STRIDE)
    rows, columns = (index.ravel() for index in np.meshgrid(some, some, indexing="ij"))
    cost = dtw_matrix(left.frames(some), right.frames(some), cap, threads)
    prices = Prices.none(*cost.shape)
    prices.assign(cost)
    limit = np.minimum(prices.price[:, None] + prices.value, cap).astype(np.float32).ravel()
    open_ = np.flatnonzero(limit > _ROUNDING * cap)
    if not len(open_):
        return []
    found: Outlines = []
    exact = float(left.lengths.mean() * right.lengths.mean())
    fine = -(-left.points.shape[1] // (4 * _PIECES[1])) * 4
    for pieces in sorted({_PIECES[0], max(_PIECES[0], fine)}):
        pair = outlines(left, pieces), outlines(right, pieces)
        proven = at_least(pair[0], rows[open_], pair[1], columns[open_], limit[open_])
        if exact * proven.sum() > _BLOCK * pieces**2 * len(open_):
            found.append(pair)
            open_ = open_[~proven]
    return found or None


@dataclass
class _Costs:
    """What is known of the costs of n paths against n.

    cost : float32 (n, n), exact where ``known``, else an estimate. proven : float32 (n, n), what a cost that
    is not known is at least.
    """

    left: Packed
    right: Packed
    cap: float
    threads: int | None
    cost: Floats
    known: Mask
    proven: Floats
    outlines: Outlines

    @classmethod
    def of(cls, left: Packed, right: Packed, cap: float, threads: int | None, found: Outlines) -> _Costs:
        cost = dtw_matrix(_thinned(left), _thinned(right), cap, threads)
        known = np.empty(cost.shape, np.bool_)
        every = np.arange(len(cost))
        height = max(1, _PAIRS // len(cost))

        def tile(start: int) -> None:
            rows = every[start : start + height]
            known[rows] = far = ~boxes_near(left, rows, right, every, cap)
            cost[rows] = np.where(far, np.float32(cap), cost[rows])

        each(tile, range(0, len(cost), height), threads)
        return cls(left, right, cap, threads, cost, known, np.zeros_like(cost), found)

    def match(self) -> tuple[Longs, Floats]:
        rows = np.arange(len(self.cost))
        prices = Prices.none(*self.cost.shape)
        partner = prices.assign(self.cost)
        margin = self._error(partner)
        while True:
            open_ = self._refine(prices, margin)
            guessed = np.flatnonzero(~self.known[rows, partner])
            self._work_out(guessed, partner[guessed])
            if not open_ and not len(guessed):
                return partner, self.cost[rows, partner]
            partner = prices.assign(self.cost)

    def _error(self, partner: Longs) -> float:
        """How far estimates are off where it matters: at the pairs that they favour."""
        rows = np.arange(len(partner))
        estimates = self.cost[rows, partner]
        self._work_out(rows, partner)
        found = float(np.quantile(np.abs(self.cost[rows, partner] - estimates), _QUANTILE))
        # A limit is float32: without a margin, rounding could leave it below the prices that it must reach.
        return max(found, float(np.finfo(np.float32).eps) * self.cap)

    def _work_out(self, rows: Longs, columns: Longs) -> None:
        self.cost[rows, columns] = align_pairs(self.left, rows, self.right, columns, self.cap)
        self.known[rows, columns] = True

    def _refine(self, prices: Prices, margin: float) -> int:
        """Make sure of every pair whose cost is not proven to reach the prices of its two paths: prove that
        it reaches them and ``margin``, or work it out. Returns how many were worked out.
        """
        size = len(self.cost)
        height = max(1, _PAIRS // size)
        worked = np.zeros(-(-size // height), np.int64)

        def tile(start: int) -> None:
            rows = slice(start, start + height)
            cost, known, proven = self.cost[rows], self.known[rows], self.proven[rows]
            both = prices.price[rows, None] + prices.value
            i, j = np.nonzero((proven < both - _ROUNDING * self.cap) & ~known)
            limit = np.minimum(both[i, j] + margin, self.cap).astype(np.float32)
            for ours, theirs in self.outlines:
                reached = at_least(ours, i + start, theirs, j, limit)
                at = i[reached], j[reached]
                proven[at] = limit[reached]
                cost[at] = np.maximum(cost[at], limit[reached])
                i, j, limit = i[~reached], j[~reached], limit[~reached]
            cost[i, j] = align_pairs(self.left, i + start, self.right, j, self.cap)
            known[i, j] = True
            worked[start // height] = len(i)

        each(tile, range(0, size, height), self.threads)
        return int(worked.sum())


def _thinned(paths: Packed) -> Floats:
    """float32 (P, 16, 3), points of each path at even steps of time."""
    share = (np.arange(_POINTS) + 0.5) / _POINTS
    at = (share * paths.lengths[:, None]).astype(np.int64)
    return paths.points[np.arange(len(paths.points))[:, None], at]
