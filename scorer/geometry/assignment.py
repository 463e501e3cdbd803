"""The cheapest way to give every row a column of its own.

Shortest augmenting paths find it from any prices of the columns, the faster the better the prices are. Where
many rows want the same columns, bidding with ever smaller steps makes good ones. The optimum is exact
whatever the prices, which decide only how long it takes and which of several cheapest matchings is returned.
"""

from __future__ import annotations

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
    return _assign(plain, high - low)


def _assign(cost: NDArray[np.float32], span: float) -> Longs:
    rows, columns = cost.shape
    value, price = np.zeros(columns), np.zeros(rows)
    column, row = np.full(rows, -1, np.int64), np.full(columns, -1, np.int64)
    left = settle(cost, value, price, column, row, _ROUNDING * span)
    if left > _EASY * rows and rows == columns and span > 0.0:
        for step, bids in _PHASES:
            bid(cost, value, step * span, bids * rows, column, row)
        left = settle(cost, value, price, column, row, _ROUNDING * span)
    if left:
        augment(cost, value, price, column, row)
    return column
