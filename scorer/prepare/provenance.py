"""What an estimate rests on, and whether the file on disk still does."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import scorer
from scorer.prepare.output import PROVENANCE
from scorer.prepare.table import Estimate


class State(Enum):
    """What is on disk; the value is how a line says it."""

    MISSING = "missing"
    CURRENT = "up to date"
    STALE = "made from something else"
    FOREIGN = "kept as it is, though it does not say what it was made from (--redo makes it again)"
    DAMAGED = "cannot be read"

    @property
    def usable(self) -> bool:
        return self in (State.CURRENT, State.FOREIGN)


def fingerprint(
    estimate: Estimate, *, video: str | None, checkpoint: str, annotation: str | None = None
) -> str:
    """Digest of all that decides an estimate's content: video, model, mask, options, version."""
    parts = {
        "annotation": annotation if estimate.annotated else None,
        "checkpoint": checkpoint,
        "file": estimate.file,
        "options": dict(estimate.options),
        "version": estimate.version,
        "video": video,
    }
    return "sha256:" + hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def provenance(
    estimate: Estimate, stamp: str, *, checkpoint: str, verified: bool, device: str, packages: Iterable[str]
) -> dict[str, Any]:
    """What is noted in the file. Nothing of it changes from one run to the next on the same machine, so that
    what rests on the file does not seem out of date."""
    libraries = {}
    for name in sorted(packages):
        with suppress(PackageNotFoundError):
            libraries[name] = version(name)
    return {
        "checkpoint": checkpoint,
        "device": device,
        "fingerprint": stamp,
        "libraries": libraries,
        "model": estimate.model().name,
        "options": dict(estimate.options),
        "scorer": scorer.__version__,
        "verified": verified,
    }


def state(path: Path, estimate: Estimate, stamp: str) -> State:
    """What the file at ``path`` is to an estimate with that fingerprint."""
    if not path.is_file():
        return State.MISSING
    held = read_note(path, estimate.members)
    if held is None:
        return State.DAMAGED
    found = held.get("fingerprint")
    if found is None:
        return State.FOREIGN
    return State.CURRENT if found == stamp else State.STALE


def read_note(path: Path, members: Iterable[str]) -> Mapping[str, Any] | None:
    """The note in an estimate, empty when it has none; None when the file is damaged or lacks a member."""
    try:
        names, text = _hdf5(path) if path.suffix == ".h5" else _archive(path)
        note = json.loads(text) if text is not None else {}
    except OSError as error:
        if error.errno is not None:
            raise  # the disk's fault, not the file's
        return None
    except Exception:  # whatever libraries raise on damaged files
        return None
    return note if isinstance(note, dict) and set(members) <= names else None


def _hdf5(path: Path) -> tuple[set[str], str | None]:
    import h5py

    with h5py.File(path, "r", locking=False) as file:
        text = file.attrs.get(PROVENANCE)
        return set(file), None if text is None else str(text)


def _archive(path: Path) -> tuple[set[str], str | None]:
    import numpy as np

    with np.load(path, allow_pickle=False) as archive:
        text = str(archive[PROVENANCE]) if PROVENANCE in archive.files else None
        return set(archive.files), text
