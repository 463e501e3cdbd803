"""Pack reference worlds into one HDF5 file each, the form that ``download_data.py`` unpacks.

    python scripts/pack_world.py WORLD PACKED.h5 [--filter NAME] [--level N]

What is written is read back and compared with the world before it takes its place. Exit status: 0 packed,
1 the world cannot be packed, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

if __name__ == "__main__":
    from contract.errors import end_on_interrupt

    end_on_interrupt()

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from contract.errors import EXIT_ITEM_FAILED, EXIT_OK, UserError, file_faults, one_line, run_program
from contract.record import sync_directory
from world.npz import ArchiveError
from world.packed.compare import differences
from world.packed.filters import CHOICES
from world.packed.layout import PackedError
from world.packed.pack import pack_world

_SHOWN = 5


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    world, packed = options.world.absolute(), options.packed.absolute()
    if not world.is_dir():
        raise UserError("no such directory", where=options.world, expected="a world")
    if os.path.lexists(packed) and not options.force:
        raise UserError("exists", where=options.packed, next_step="give --force to replace it")
    with file_faults():
        packed.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".packing-", dir=packed.parent) as directory:
            draft = Path(directory) / packed.name
            try:
                pack_world(world, draft, choice=options.filter, level=options.level)
                faults = list(differences(world, draft))
            except (PackedError, ArchiveError) as error:
                faults = [str(error)]
            if faults:
                for fault in faults[:_SHOWN]:
                    sys.stderr.write(f"error: {options.world}: {one_line(fault)}\n")
                return EXIT_ITEM_FAILED
            draft.replace(packed)
        sync_directory(packed.parent)
    before = sum(path.stat().st_size for path in world.rglob("*") if path.is_file())
    after = packed.stat().st_size
    print(f"{options.packed}: {after / 1e6:.1f} MB, from {before / 1e6:.1f} MB")
    return EXIT_OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("world", metavar="WORLD", type=Path, help="directory of a world")
    add("packed", metavar="PACKED.h5", type=Path, help="file to write")
    add("--filter", choices=CHOICES, default="zstd", help="how chunks are packed (default: zstd)")
    add("--level", metavar="N", type=int, help="the filter's level (default: a sensible one)")
    add("--force", action="store_true", help="replace an existing file")
    return parser


if __name__ == "__main__":
    run_program(main)
