"""The dataset's index: its cases, where their files lie, and the identity of the set (spec 70 §3.4)."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .store import identifier, identity

SUBSETS = ("static", "dynamic")
NEEDED = (
    "success",
    "uid",
    "obj_id",
    "output_dir",
    "visibility_dict_path",
    "fov",
    "use_stationary",
    "overlap_mode",
    "window_ratio",
    "window_move_ratio",
)
_PATHS = ("output_dir", "visibility_dict_path", "object_dir")
PathMap = tuple[str, str]


@dataclass(frozen=True)
class DatasetCase:
    """One completed case. row : every column of the index, with absolute paths and the final uid."""

    uid: str
    folder: Path
    visibility: Path
    row: Mapping[str, Any]

    @property
    def input_frames(self) -> Path:
        return self.folder / "view_0" / "frames"

    @property
    def input_cameras(self) -> Path:
        return self.folder / "view_0" / "camera_params.npy"

    @property
    def target_frames(self) -> Path:
        return self.folder / "center" / "frames"

    @property
    def target_masks(self) -> Path:
        return self.folder / "center" / "masks"

    @property
    def target_cameras(self) -> Path:
        return self.folder / "center" / "camera_params.npy"


@dataclass(frozen=True)
class Dataset:
    """The completed cases of a dataset, sorted by uid, and the identity that a relocated copy keeps."""

    root: Path
    cases: tuple[DatasetCase, ...]
    dataset_id: str

    @property
    def uids(self) -> list[str]:
        return [case.uid for case in self.cases]


def parse_path_map(text: str) -> PathMap:
    """``OLD=NEW`` as a pair. Errors: ``ValueError``."""
    old, separator, new = text.partition("=")
    if not (separator and old and new):
        raise ValueError("--path-map must be OLD_PREFIX=NEW_PREFIX")
    return old, new


def database_of(root: Path, chosen: Path | None = None) -> Path:
    """``chosen``, else ``database.db``, else ``data.db`` of a dataset. Errors: ``FileNotFoundError``."""
    if chosen is None:
        chosen = root / "database.db"
        if not chosen.is_file():
            chosen = root / "data.db"
    chosen = chosen.expanduser().absolute()
    if not chosen.is_file():
        raise FileNotFoundError(f"Benchmark database not found: {chosen}")
    return chosen


def read_index(root: Path, database: Path | None = None, path_maps: Iterable[PathMap] = ()) -> Dataset:
    """Read the completed cases of the dataset at ``root``; the database is never written.

    Errors: ``FileNotFoundError``, ``ValueError`` naming the database and the row.
    """
    root = root.resolve()
    database = database_of(root, database)
    maps = sorted(path_maps, key=lambda pair: -len(pair[0]))
    rows = [_finished(row, root, maps, database) for row in _rows(database)]
    rows.sort(key=lambda row: row["uid"])
    uids = [row["uid"] for row in rows]
    if len(set(uids)) != len(uids):
        raise ValueError("Benchmark contains duplicate case IDs")
    try:
        dataset_id = identity([_relative(row, root) for row in rows])
    except TypeError as error:
        raise ValueError(f"{database}: a column holds what JSON cannot say: {error}") from None
    return Dataset(root, tuple(_case(row) for row in rows), dataset_id)


def _rows(database: Path) -> list[dict[str, Any]]:
    try:
        with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
            cursor = connection.execute("SELECT * FROM data WHERE success = 1")
            names = [column[0] for column in cursor.description]
            rows = [dict(zip(names, row)) for row in cursor]
    except sqlite3.Error as error:
        raise ValueError(f"{database} is no benchmark index: {error}") from None
    missing = [name for name in NEEDED if name not in names]
    if missing:
        raise ValueError(f"{database}: table data lacks the columns {', '.join(missing)}")
    return rows


def _finished(row: dict[str, Any], root: Path, maps: list[PathMap], database: Path) -> dict[str, Any]:
    identifier(row["obj_id"])
    uid = identifier(row["uid"])
    row = {**row, "uid": uid}
    if row.get("object_dir") and row.get("subset") in SUBSETS:
        row["case_id"] = uid
        row["uid"] = f"{row['subset']}__{uid}"
    for name in (
        ("visibility_dict_path",) if row.get("object_dir") else ("visibility_dict_path", "output_dir")
    ):
        if not row[name]:
            raise ValueError(f"{database}: case {row['uid']} has no {name}")
    for name in _PATHS:
        if row.get(name):
            row[name] = str(_located(str(row[name]), root, maps))
    return row


def _located(text: str, root: Path, maps: list[PathMap]) -> Path:
    path = Path(text)
    for old, new in maps:
        with contextlib.suppress(ValueError):
            path = Path(new) / path.relative_to(old)
            break
    return (root / path).resolve()


def _relative(row: dict[str, Any], root: Path) -> dict[str, Any]:
    """The row as it stands in the identity: paths inside the root say where they lie below it."""
    result = dict(row)
    for name in _PATHS:
        if row.get(name):
            with contextlib.suppress(ValueError):
                result[name] = Path(row[name]).relative_to(root).as_posix()
    return result


def _case(row: dict[str, Any]) -> DatasetCase:
    if row.get("object_dir"):
        folder = Path(row["object_dir"])
    else:
        folder = Path(row["output_dir"]) / "data" / str(row["obj_id"])
    return DatasetCase(row["uid"], folder, Path(row["visibility_dict_path"]), row)
