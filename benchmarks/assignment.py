"""How fast the cheapest matching of a dense matrix is found, beside SciPy's on several kinds of costs.

    python benchmarks/assignment.py [--rows 8192] [--only NAME …] > assignment.json

``cpu`` are processor seconds of the one thread that works, which other work on the machine disturbs less.
SciPy's time holds its own conversion to float64. Totals are compared.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from scorer.geometry.assignment import assign

Costs = np.ndarray


def cloud(count: int, seed: int) -> np.ndarray:
    return 0.5 * np.random.default_rng(seed).normal(size=(count, 3))


def between(a: np.ndarray, b: np.ndarray, cap: float = np.inf) -> Costs:
    out = np.empty((len(a), len(b)), np.float32)
    for start in range(0, len(a), 1024):
        out[start : start + 1024] = np.minimum(cdist(a[start : start + 1024], b), cap)
    return out


FAMILIES: dict[str, Callable[[int], Costs]] = {
    "uniform random": lambda n: np.random.default_rng(0).random((n, n), dtype=np.float32),
    "the same cloud and noise": lambda n: between(cloud(n, 0), cloud(n, 0) + 0.02 * cloud(n, 1)),
    "two clouds": lambda n: between(cloud(n, 0), cloud(n, 1)),
    "mostly at the cap": lambda n: between(2 * cloud(n, 0), 2 * cloud(n, 1), 0.6),
    "shifted and squeezed, capped": lambda n: between(cloud(n, 0), 0.6 * cloud(n, 0) + [0.4, 0.1, 0.0], 1.0),
    "other cloud, shifted and squeezed, capped": lambda n: between(
        cloud(n, 0), cloud(n, 1) * [0.5, 1.0, 1.0] + [0.3, 0.0, 0.0], 1.0
    ),
    "far shifted, capped": lambda n: between(cloud(n, 0), 0.5 * cloud(n, 1) + [0.7, 0.1, 0.0], 1.0),
}


def timed(work: Callable[[], Any]) -> tuple[dict[str, float], Any]:
    wall, cpu = time.perf_counter(), time.thread_time()
    result = work()
    took = {"wall": time.perf_counter() - wall, "cpu": time.thread_time() - cpu}
    return {name: round(seconds, 3) for name, seconds in took.items()}, result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--only", nargs="*", default=list(FAMILIES), choices=list(FAMILIES))
    options = parser.parse_args()
    assign(FAMILIES["two clouds"](64))
    report: dict[str, Any] = {
        "machine": platform.processor() or platform.machine(),
        "rows": options.rows,
        "costs": {},
    }
    for name in options.only:
        cost = FAMILIES[name](options.rows)
        ours, partner = timed(lambda cost=cost: assign(cost))
        scipy, (rows, columns) = timed(lambda cost=cost: linear_sum_assignment(cost))
        total, best = cost[rows, partner].sum(dtype=np.float64), cost[rows, columns].sum(dtype=np.float64)
        report["costs"][name] = {
            "ours": ours,
            "scipy": scipy,
            "ratio": round(scipy["cpu"] / ours["cpu"], 1),
            "same_total": bool(abs(total - best) <= 1e-9 * abs(best)),
        }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
