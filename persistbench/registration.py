"""Which dataset this user has: checked once, remembered, looked up by every command (spec 70 §3.2)."""

from __future__ import annotations

import os
from pathlib import Path

from .images import image_files
from .index import Dataset, DatasetCase, PathMap, read_index
from .store import read_json, write_json

SCHEMA = 1
_NONE = (
    "No dataset registered. Run 'persistbench dataset register /path/to/data' with a reconstructed dataset "
    "(one that 'persistbench dataset download' of the public package made will do)"
)


def record_path() -> Path:
    """Where the registration is kept. Errors: ``ValueError`` for a relative ``XDG_CONFIG_HOME``."""
    base = os.environ.get("XDG_CONFIG_HOME")
    if base and not Path(base).is_absolute():
        raise ValueError(f"XDG_CONFIG_HOME must be an absolute path, not {base!r}")
    return (Path(base) if base else Path.home() / ".config") / "persistbench" / "dataset.json"


def register(path: Path) -> Dataset:
    """Check the dataset at ``path`` and remember it in place of an earlier one.

    Errors: ``OSError``; ``ValueError`` naming the first folder or file that a case lacks.
    """
    root = path.expanduser().resolve()
    if not root.is_dir():
        raise ValueError(f"Dataset folder not found: {root}")
    dataset = read_index(root)
    if not dataset.cases:
        raise ValueError(f"{root} has no completed cases")
    for case in dataset.cases:
        _check(case)
    target = record_path()
    target.parent.mkdir(parents=True, exist_ok=True)
    write_json(target, {"schema_version": SCHEMA, "dataset": str(root)})
    return dataset


def _check(case: DatasetCase) -> None:
    for folder in (case.input_frames, case.target_frames, case.target_masks):
        if not (folder.is_dir() and image_files(folder)):
            raise ValueError(f"Reconstructed images missing: {folder}")
    for file in (case.input_cameras, case.target_cameras, case.visibility):
        if not file.is_file():
            raise ValueError(f"Reconstructed case file missing: {file}")


def registered() -> Path:
    """The registered dataset. Errors: ``ValueError`` telling how to register."""
    target = record_path()
    if not target.is_file():
        raise ValueError(_NONE)
    again = "; run 'persistbench dataset register /path/to/data' again"
    try:
        record = read_json(target)
    except ValueError as error:
        raise ValueError(f"{error}{again}") from None
    path = (
        record.get("dataset") if isinstance(record, dict) and record.get("schema_version") == SCHEMA else None
    )
    if not isinstance(path, str) or not Path(path).is_absolute():
        raise ValueError(f"{target} is no registration of a dataset{again}")
    if not Path(path).is_dir():
        raise ValueError(f"The registered dataset {path} is gone{again}")
    return Path(path)


def open_registered(
    given: Path | None, database: Path | None = None, path_maps: tuple[PathMap, ...] = ()
) -> Dataset:
    """The index of the registered dataset; ``given`` must name that dataset where it is named at all.

    Errors: ``ValueError``, ``OSError``.
    """
    root = registered()
    if given is not None and given.expanduser().resolve() != root.resolve():
        raise ValueError(
            f"--dataset {given} is not the registered dataset {root}; "
            f"run 'persistbench dataset register {given}' first"
        )
    dataset = read_index(root, database, path_maps)
    if not dataset.cases:
        raise ValueError(f"{root} has no completed cases")
    return dataset
