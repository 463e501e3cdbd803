"""Names of worlds in addresses, and the geometry of recently shown ones."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from pathlib import Path

from contract.names import DATA, RENDER, RUNS, WORKSPACE, WORLD
from viewer.geometry import Shape, pack, read_shape, stamp
from viewer.trees import Absent, Item, Trees

_SHAPES = 24
_PACKETS = 256 << 20
"""Bytes of packets that are kept."""
Place = tuple[Path, tuple[str, ...]]


def world_place(trees: Trees, name: str) -> Place:
    """Root and levels of a world: ``data/<kind>/<case>`` or ``runs/<kind>/<case>/<system>/<trial>``.

    Raises ``Absent`` for any other name.
    """
    tree, *levels = name.split("/")
    hidden = any(level.startswith(".") for level in levels)
    if tree == DATA and len(levels) == 2 and not hidden:
        return trees.data, (*levels, WORLD)
    if tree == RUNS and len(levels) == 4 and not hidden:
        return trees.runs, (*levels, WORKSPACE, WORLD)
    raise Absent("no such world")


def render_place(trees: Trees, name: str) -> Place:
    """Root and levels of a world's render."""
    root, parts = world_place(trees, name)
    return root, (*parts, RENDER)


class Worlds:
    """Indexes and packets by world, forgotten when the files change or others are wanted. For any thread."""

    def __init__(self, trees: Trees) -> None:
        self.trees = trees
        self._shapes: OrderedDict[str, tuple[tuple[Item, ...], Shape, int]] = OrderedDict()
        self._packets: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._bytes = 0
        self._serial = itertools.count()
        self._lock = threading.Lock()

    def shape(self, name: str) -> tuple[Shape, int]:
        """Index of a world, and a number of its own. Raises ``Absent`` or ``NoGeometry``."""
        root, parts = world_place(self.trees, name)
        items = stamp(root, parts)
        if not items:
            raise Absent("this world holds no meshes")
        with self._lock:
            known = self._shapes.get(name)
            if known is not None and known[0] == items:
                self._shapes.move_to_end(name)
                return known[1], known[2]
        shape = read_shape(root, parts, items)
        with self._lock:
            serial = next(self._serial)
            self._shapes[name] = (items, shape, serial)
            while len(self._shapes) > _SHAPES:
                self._shapes.popitem(last=False)
        return shape, serial

    def packet(self, name: str, number: int) -> bytes:
        """Packet ``number`` of a world; −1 is the base. Raises ``Absent`` or ``NoGeometry``."""
        shape, serial = self.shape(name)
        if not -1 <= number < shape.packets:
            raise Absent(f"this world has {shape.packets} packets")
        key = (serial, number)
        with self._lock:
            found = self._packets.get(key)
        if found is None:
            found = pack(shape, sorted(shape.base) if number < 0 else shape.packet(number))
            with self._lock:
                if key not in self._packets:
                    self._packets[key] = found
                    self._bytes += len(found)
                while self._bytes > _PACKETS and len(self._packets) > 1:
                    self._bytes -= len(self._packets.popitem(last=False)[1])
        return found
