"""Groups of points: centres far from each other, and the points nearest to each. Source: protocol 4dcb-1."""

from __future__ import annotations

import torch
from torch import Tensor


def farthest_points(points: Tensor, count: int) -> Tensor:
    """Rows int64 (count,) of ``points`` (n, 3): the first, then ever the one farthest from all those before.

    Distances are squared, in the points' type; the first of equal ones is taken.
    """
    x, y, z = (axis.contiguous() for axis in points.unbind(1))
    chosen = torch.zeros(count, dtype=torch.int64, device=points.device)
    nearest = torch.full_like(x, torch.inf)
    # One pass over all points a centre; the row stays on the device, so that nothing waits for it.
    for number in range(1, count):
        row = chosen[number - 1 : number]
        distance = (x - x[row]).square_()
        distance += (y - y[row]).square_()
        distance += (z - z[row]).square_()
        nearest = torch.minimum(nearest, distance, out=nearest)
        chosen[number] = nearest.argmax()
    return chosen


def nearest_points(points: Tensor, centres: Tensor, count: int) -> Tensor:
    """Rows int64 (m, count) of the ``points`` (n, 3) nearest to each of ``centres`` (m, 3), in no order.

    By |q|² + |p|² − 2q·p, which rounds differently from the square of the difference.
    """
    ours, theirs = centres.square().sum(1), points.square().sum(1)
    distance = ours[:, None] + theirs - 2 * (centres @ points.T)
    return distance.topk(count, dim=1, largest=False, sorted=False).indices


def grouped(points: Tensor, groups: int, size: int) -> tuple[Tensor, Tensor]:
    """Centres (groups, 3), and the points of each group (groups, size, 3), relative to its centre."""
    centres = points[farthest_points(points, groups)]
    return centres, points[nearest_points(points, centres, size)] - centres[:, None]
