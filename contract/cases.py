"""Case names, kinds and the cases that some metrics cannot judge."""

from __future__ import annotations

import re

REAL, SYNTHETIC = "real", "synthetic"
KINDS = (REAL, SYNTHETIC)

TRANSPARENT = frozenset(
    f"real/{name}"
    for name in (
        "internet_01_purple_granular_sand",
        "internet_19_fabric_laundry_tumbles",
        "internet_22_viscous_honey_dripping",
        "phys101_01_solid_object_dropped",
        "wisa_80k_06_pouring_red_wine",
        "wisa_80k_46_wooden_pestle_crushing",
    )
)
"""Footage that shows the background through the object, while rasterised masks and depth stop at its surface.
"""

_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+ -]*")


def kind(case: str) -> str:
    """``real`` when the text before the first slash is exactly that, else ``synthetic``."""
    return REAL if case.split("/", 1)[0] == REAL else SYNTHETIC


def valid_segment(name: str) -> bool:
    """Whether ``name`` can be one level of a tree: no separators, no dots in front, nothing a shell would
    mind.
    """
    return bool(_SEGMENT.fullmatch(name)) and not name.endswith((" ", "."))
