"""Sizes of the point-cloud network. Source: protocol 4dcb-1, Uni3D."""

from __future__ import annotations

from dataclasses import dataclass

PATCH = 14
"""Side of the image patches that the transformer was first trained on; only unused weights have it."""


@dataclass(frozen=True)
class Architecture:
    """Width, depth and heads of the transformer; groups of points, points of each, features of a group
    (``encoded``); features of a cloud (``embedded``). grid, classes : of the image model that the transformer
    came from, as its unused weights still have them.
    """

    width: int
    depth: int
    heads: int
    groups: int
    group_size: int
    encoded: int
    embedded: int
    grid: int = 32
    classes: int = 1000

    def __post_init__(self) -> None:
        if not self.heads or self.width % self.heads:
            raise ValueError(f"{self.heads} heads do not share a width of {self.width}")
        if min(self.groups, self.group_size) < 1:
            raise ValueError("there must be groups and points in them")

    @property
    def hidden(self) -> int:
        """Width inside the transformer's gated layers."""
        return int(self.width * 8 / 3)


LARGE = Architecture(width=1024, depth=24, heads=16, groups=512, group_size=64, encoded=512, embedded=1024)
