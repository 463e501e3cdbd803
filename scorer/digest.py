"""Content digests of everything that a score rests on: what tells whether it is still the right one."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from contract import names
from contract.metrics import RENDER_TYPES, type_of
from contract.states import case_state
from scorer.manifest import Entry

_CHUNK = 1 << 20
_FORBIDDEN = b"forbidden\0"

_SEMANTIC = {f"semantic_{name}": names.SEMANTIC.format(name=name) for name in ("dinov3", "tips")}
_GEOPHYS = names.GEOPHYS.format(name="dinov3")

ESTIMATES: Mapping[str, tuple[str, ...]] = {
    "uni3d": (names.MOGE,),
    "flow": (names.FLOW,),
    "track2d": (names.TRACKS,),
    "semantic": tuple(_SEMANTIC.values()),
    **{unit: (file,) for unit, file in _SEMANTIC.items()},
    "geophys": (_GEOPHYS,),
    "geophys_dinov3": (_GEOPHYS,),
    "depth": (names.DEPTH,),
}
"""Files of the prepare stage that each type, or unit of one, reads."""


def gate_inputs(entry: Entry) -> dict[str, Path]:
    """What the gates look at. ``build`` stands for the presence of the build script."""
    return {"video": entry.video, "world": entry.world, "build": entry.build_script}


def type_inputs(entry: Entry, name: str) -> dict[str, Path]:
    """What the numbers of a type or unit and its gate rest on: label → path (which may be absent)."""
    kind = type_of(name)
    inputs = {"video": entry.video}
    if kind.name in RENDER_TYPES:
        inputs["render"] = entry.render
    else:
        inputs |= gate_inputs(entry)
    if "reference" in (*kind.preparation, *kind.with_reference):
        inputs["reference"] = entry.case_data / names.WORLD
    if name == "dynamic_iou":
        inputs["annotation"] = entry.case_data / names.ANNOTATION / names.DYNAMIC_MASK
    if name == "uni3d" and case_state("uni3d_moge_scene", entry.case) is not None:
        return inputs  # nothing is compared with MoGe's points
    for file in ESTIMATES.get(name, ()):
        inputs[file] = entry.estimates / file
    return inputs


def combined(inputs: Mapping[str, Path], digests: Mapping[Path, str | None], **further: str | None) -> str:
    """One digest of several labelled inputs, from the digests of their paths; ``further`` that are given."""
    parts: dict[str, object] = {
        label: (digests[path] is not None) if label == "build" else digests[path]
        for label, path in inputs.items()
    }
    parts |= {label: value for label, value in further.items() if value is not None}
    return "sha256:" + hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def digests_of(paths: Iterable[Path]) -> dict[Path, str | None]:
    """Digest of each path, see :func:`digest`."""
    return {path: digest(path) for path in paths}


def digest(path: Path) -> str | None:
    """SHA-256 over a file's bytes, or over names, kinds and bytes of everything in a tree; None when absent.

    A link at ``path`` itself is followed; links inside a tree count with their target's name, and with the
    bytes of a regular file that they lead to. Devices, pipes and sockets are never opened. What may not be
    read counts as that: whoever needs it says so.
    """
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError:
        return hashlib.sha256(_FORBIDDEN).hexdigest()
    total = hashlib.sha256()
    total.update(b"link " if path.is_symlink() else b"")
    if not stat.S_ISDIR(found.st_mode):
        total.update(_node(path, found))
        return total.hexdigest()
    pending = [path]
    while pending:
        try:
            children = sorted(pending.pop().iterdir(), key=lambda item: os.fsencode(item.name))
        except PermissionError:
            total.update(_FORBIDDEN)
            continue
        for child in children:
            info = child.lstat()
            total.update(os.fsencode(child.relative_to(path)) + b"\0")
            if stat.S_ISDIR(info.st_mode):
                pending.append(child)
                total.update(b"directory\0")
            else:
                total.update(_node(child, info))
    return total.hexdigest()


def _node(path: Path, info: os.stat_result) -> bytes:
    if stat.S_ISLNK(info.st_mode):
        target = os.fsencode(path.readlink())
        try:
            return b"link " + target + b"\0" + _node(path, path.stat())
        except OSError:
            return b"broken link " + target + b"\0"
    if not stat.S_ISREG(info.st_mode):
        return b"special %o\0" % stat.S_IFMT(info.st_mode)
    try:
        return b"file " + _content(path)
    except PermissionError:
        return _FORBIDDEN


def _content(path: Path) -> bytes:
    total = hashlib.sha256()
    # Without blocking, should the file have become a pipe since it was looked at.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb", buffering=0) as stream:
        while chunk := stream.read(_CHUNK):
            total.update(chunk)
    return total.digest()
