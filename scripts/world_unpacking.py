"""One packed world into a directory, its files side by side in worker processes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import wait
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from world.packed.layout import Unit
from world.packed.unpack import prepare

if TYPE_CHECKING:
    from unpack_slots import Slots

_INSPECTING = 64 << 20


class Written(NamedTuple):
    """A file of an unpacked world. path : below the world. sha256 : hexadecimal. size : bytes."""

    path: str
    sha256: str
    size: int


def inspect(slots: Slots, packed: Path) -> list[Unit]:
    """The files of a packed world. Raises ``UnpackFault``."""
    found = slots.ask({"do": "inspect", "packed": str(packed)}, memory=_INSPECTING).result()
    return [Unit(**unit) for unit in found]


def unpack(
    slots: Slots,
    packed: Path,
    target: Path,
    advance: Callable[[int], None],
    units: list[Unit] | None = None,
) -> list[Written]:
    """Unpack into the new directory ``target``. advance : told of bytes before compression.

    Raises ``UnpackFault`` with the first fault, when every file has ended one way or the other, and
    ``OSError``.
    """
    if units is None:
        units = inspect(slots, packed)
    prepare(target, units)
    answers = [_asked(slots, packed, target, unit, advance) for unit in sorted(units, key=_largest_first)]
    wait(answers)
    done = [answer.result() for answer in answers]
    written = []
    for unit, told in zip(sorted(units, key=_largest_first), done, strict=True):
        advance(told["advance"])
        written.append(Written(unit.target, told["sha256"], told["size"]))
    return written


def _asked(slots: Slots, packed: Path, target: Path, unit: Unit, advance: Callable[[int], None]):  # type: ignore[no-untyped-def]
    path = target / unit.target
    question = {"do": "unpack", "packed": str(packed), "path": str(path), "unit": unit.__dict__}
    return slots.ask(question, memory=unit.memory, advance=advance)


def _largest_first(unit: Unit) -> int:
    return -unit.raw
