"""The cheapest way to give every row a column of its own.

Shortest augmenting paths find it from any prices of the columns, the faster the better the prices are. Where
many rows want the same columns, bidding with ever smaller steps makes good ones. The optimum is exact
whatever the prices, which decide only how long it takes and which of several cheapest matchings is returned.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scorer.geometry.assignment_kernels import augment, bid, settle

Longs = NDArray[np.int64]
Doubles = NDArray[np.float64]

_EASY = 0.15
"""Share of rows without a column of their own below which bidding costs more than it saves."""
_PHASES = ((5e-2, 40), (1e-2, 40), (2e-3, 40), (4e-4, 40), (1e-4, 40), (0.0, 4))
"""Of each bidding: step as a share of the costs' range, bids a row at most. It goes on to the last row: where
one crowd of rows has too few columns, those left over would each have to search the whole crowd.
"""
_LATER = 2
"""The first of the biddings that are made when prices are good ones already."""
_ROUNDING = 1e-13
"""Share of the costs' range by which a pair may miss its row's least cost and still count as the best."""


def assign(cost: NDArray[np.float32]) -> Longs:
    """For each row of ``cost`` (n, m) its column in an assignment of least total cost, int64 (n,); −1 for
    rows left over when there are fewer columns. No two rows share a column.

    Costs are float32, sums of them float64. Scratch is a few vectors: the matrix is not copied if it is
    C-contiguous and n ≤ m. Raises ``ValueError`` when a cost is not finite.
    """
    if cost.ndim != 2:
        raise ValueError(f"costs must have shape (n, m), not {cost.shape}")
    rows, columns = cost.shape
    if rows > columns:
        partner = np.full(rows, -1, np.int64)
        of_columns = assign(cost.T)
        partner[of_columns] = np.arange(columns)
        return partner
    if not rows:
        return np.zeros(0, np.int64)
    plain = np.ascontiguousarray(cost, np.float32)
    low, high = float(plain.min()), float(plain.max())
    if not np.isfinite(low) or not np.isfinite(high):
        raise ValueError("an assignment was asked for with a cost that is not finite")
    prices = Prices.none(rows, columns)
    if prices._bid(plain, high - low, _PHASES):
        augment(plain, prices.value, prices.price, prices.column, prices.row)
    return prices.column


@dataclass(eq=False)
class Prices:
    """What the columns of a square matrix are worth, and who has whom; carried from one matrix to the next.

    value : float64 (n,), of a column. price : float64 (n,), of a row, its least cost less value. column,
    row : int64 (n,), partners, −1 for nobody.
    """

    value: Doubles
    price: Doubles
    column: Longs
    row: Longs

    @classmethod
    def none(cls, rows: int, columns: int) -> Prices:
        return cls(np.zeros(columns), np.zeros(rows), np.full(rows, -1), np.full(columns, -1))

    def assign(self, cost: NDArray[np.float32]) -> Longs:
        """As the function :func:`assign`, for finite costs (n, n), from these prices, which are then those of
        the matching: price + value is nowhere above the cost, but for rounding.
        """
        fresh = not self.value.any()
        if self._bid(cost, float(np.ptp(cost)), _PHASES if fresh else _PHASES[_LATER:]):
            augment(cost, self.value, self.price, self.column, self.row)
        return self.column.copy()

    def _bid(self, cost: NDArray[np.float32], span: float, phases: tuple[tuple[float, int], ...]) -> int:
        """Bid if many rows are without a best column that is free; returns how many are in the end."""
        rows = len(self.column)
        left = settle(cost, self.value, self.price, self.column, self.row, _ROUNDING * span)
        if left > _EASY * rows and rows == len(self.row) and span > 0.0:
            for step, bids in phases:
                bid(cost, self.value, step * span, bids * rows, self.column, self.row)
            left = settle(cost, self.value, self.price, self.column, self.row, _ROUNDING * span)
        return left
