"""Compiled loops of the assignment: bidding, and shortest augmenting paths on a dense matrix.

A column's price is what it costs a row beside the matrix; a row's best column is the one of least cost less
``value``, with ``value`` the negative price. Both loops over a whole row keep the least of each block of
columns, so that finding which column it was costs a short second look. They are in one file because a cached
kernel is not recompiled when one that it calls changes elsewhere.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_BLOCK = 256
_NEVER = 1e300
_FAST = {"contract", "nnan", "ninf", "nsz"}


@njit(cache=True, nogil=True, fastmath=_FAST)
def _best_two(costs: np.ndarray, value: np.ndarray, least: np.ndarray) -> tuple[float, int, float]:
    """Least of costs − value, its column (the first), and the least of the other columns."""
    columns = len(value)
    for b in range(len(least)):
        low = _NEVER
        for j in range(b * _BLOCK, min(columns, (b + 1) * _BLOCK)):
            rest = np.float64(costs[j]) - value[j]
            low = rest if rest < low else low
        least[b] = low
    at = 0
    for b in range(1, len(least)):
        if least[b] < least[at]:
            at = b
    first = least[at]
    second = _NEVER
    for b in range(len(least)):
        if b != at and least[b] < second:
            second = least[b]
    where = -1
    for j in range(at * _BLOCK, min(columns, (at + 1) * _BLOCK)):
        rest = np.float64(costs[j]) - value[j]
        if where < 0 and rest <= first:
            where = j
        elif rest < second:
            second = rest
    return first, where, second


@njit(cache=True, nogil=True)
def _scratch(columns: int) -> np.ndarray:
    return np.empty((columns + _BLOCK - 1) // _BLOCK)


@njit(cache=True, nogil=True)
def bid(
    cost: np.ndarray,
    value: np.ndarray,
    step: float,
    bids: int,
    column: np.ndarray,
    row: np.ndarray,
) -> None:
    """Rows without a column bid for their best one: its price rises until the row likes its second best as
    much, and by ``step``; the row that held it goes to the end of the queue.

    cost : float32 (n, n). value : float64 (n,). column, row : int64 (n,), who has whom, −1 for nobody; all
    are set free first. Ends when no row is left, or after so many ``bids``. With step 0 each row that has a
    column has a best one.
    """
    rows = len(column)
    least = _scratch(len(value))
    column[:] = -1
    row[:] = -1
    queue = np.arange(rows)
    head = 0
    waiting = rows
    for _ in range(bids):
        if not waiting:
            return
        i = queue[head]
        head = (head + 1) % rows
        waiting -= 1
        _, j, second = _best_two(cost[i], value, least)
        if second < _NEVER:
            value[j] = np.float64(cost[i, j]) - second - step
        before = row[j]
        row[j] = i
        column[i] = j
        if before >= 0:
            column[before] = -1
            queue[(head + waiting) % rows] = before
            waiting += 1


@njit(cache=True, nogil=True)
def settle(
    cost: np.ndarray, value: np.ndarray, price: np.ndarray, column: np.ndarray, row: np.ndarray, tight: float
) -> int:
    """Keep the pairs that are the best for their row to within ``tight``, pair further rows whose best column
    is free, and set ``price`` float64 (n,) to each row's least cost. Returns how many rows are left.
    """
    least = _scratch(len(value))
    left = 0
    for i in range(len(column)):
        price[i] = _best_two(cost[i], value, least)[0]
        j = column[i]
        if j >= 0:
            here = np.float64(cost[i, j]) - value[j]
            if here <= price[i] + tight:
                price[i] = here
            else:
                column[i] = -1
                row[j] = -1
    for i in range(len(column)):
        if column[i] < 0:
            j = _best_two(cost[i], value, least)[1]
            if row[j] < 0:
                row[j] = i
                column[i] = j
            else:
                left += 1
    return left


@njit(cache=True, nogil=True, fastmath=_FAST)
def _relax(
    costs: np.ndarray,
    value: np.ndarray,
    shift: float,
    i: int,
    reach: np.ndarray,
    via: np.ndarray,
    least: np.ndarray,
) -> None:
    """Shorten the way to every column by way of row i."""
    columns = len(value)
    for b in range(len(least)):
        low = _NEVER
        for j in range(b * _BLOCK, min(columns, (b + 1) * _BLOCK)):
            new = np.float64(costs[j]) - value[j] + shift
            old = reach[j]
            nearer = new < old
            kept = new if nearer else old
            via[j] = i if nearer else via[j]
            reach[j] = kept
            low = kept if kept < low else low
        least[b] = low


@njit(cache=True, nogil=True)
def augment(
    cost: np.ndarray, value: np.ndarray, price: np.ndarray, column: np.ndarray, row: np.ndarray
) -> None:
    """Give every row a column along shortest augmenting paths, keeping every pair at its row's least cost:
    at the end the total is the least there is.

    cost : float32 (n, m), n ≤ m. value (m,), price (n,), column (n,), row (m,) as :func:`settle` leaves them;
    if n < m, value must be 0.
    """
    columns = len(value)
    least = _scratch(columns)
    reach = np.empty(columns)
    via = np.empty(columns, np.int64)
    open_value = np.empty(columns)
    pending = np.empty(columns, np.int64)
    done = np.empty(columns, np.int64)
    level_of = np.empty(columns)
    for start in range(len(column)):
        if column[start] >= 0:
            continue
        reach[:] = _NEVER
        open_value[:] = value
        count = 0
        top = 0
        level = 0.0
        end = -1
        i = start
        while True:
            _relax(cost[i], open_value, level - price[i], i, reach, via, least)
            low = least.min()
            if top == 0 or low <= level:
                # Every column at the shortest distance is done; one that is free ends the path.
                level = max(level, low)
                for b in range(len(least)):
                    if end >= 0:
                        break
                    if least[b] > level:
                        continue
                    for j in range(b * _BLOCK, min(columns, (b + 1) * _BLOCK)):
                        if reach[j] > level:
                            continue
                        if row[j] < 0:
                            end = j
                            break
                        pending[top] = j
                        top += 1
                        done[count] = j
                        level_of[count] = level
                        count += 1
                        reach[j] = _NEVER
                        open_value[j] = -_NEVER
            if end >= 0:
                break
            top -= 1
            i = row[pending[top]]
        for k in range(count):
            j = done[k]
            value[j] += level_of[k] - level
            price[row[j]] += level - level_of[k]
        price[start] += level
        j = end
        while True:
            i = via[j]
            row[j] = i
            before = column[i]
            column[i] = j
            if i == start:
                break
            j = before
