"""A published data set made here: two packed worlds, real clips, estimates; as directories and on a hub."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hub_server import Hub, Served
from packed_worlds import content_of, tree

from world.packed.pack import pack_world

REAL, SYNTHETIC, ESTIMATES = (
    f"4DCodeBench/Dataset-{name}" for name in ("Real-World", "Synthetic", "Model-Estimation")
)
COMMIT = "0123456789abcdef0123456789abcdef01234567"
WORLDS = ("cloth", "mixed")
CLIPS = ("clip_rigid", "clip_cloth")
"""In the order of the data set's metadata."""
FLOW = b"flow of the rigid clip" * 1000


@dataclass
class Published:
    """The repositories below ``copy``, and the fixtures that they were made from."""

    copy: Path
    fixtures: Path

    def directory(self, repo: str) -> Path:
        return self.copy / repo.split("/")[1]

    def serve(self, hub: Hub) -> None:
        """Put everything on a hub, at one commit."""
        for repo in (REAL, SYNTHETIC, ESTIMATES):
            place = self.directory(repo)
            files = {
                path.relative_to(place).as_posix(): path.read_bytes()
                for path in sorted(place.rglob("*"))
                if path.is_file()
            }
            serve(hub, repo, files)

    def expected(self, *, estimates: bool = False, videos_only: bool = False) -> dict[str, Any]:
        """Contents of both trees after a download, without records: ``cases/…`` and ``data/…``."""
        found: dict[str, Any] = {}
        for name in CLIPS:
            found[f"cases/real/{name}/reference.mp4"] = self._fixture(f"cases/real/{name}/reference.mp4")
            if not videos_only:
                mask = f"data/real/{name}/annotation/dynamic_mask.npz"
                found[mask] = self._fixture(mask)
        for name in WORLDS:
            video = f"cases/synthetic/{name}/reference.mp4"
            found[video] = self._fixture(video)
            if not videos_only:
                world = tree(self.fixtures / f"data/synthetic/{name}/world")
                found |= {
                    f"data/synthetic/{name}/world/{path}": content
                    for path, content in world.items()
                    if content is not None
                }
        if estimates:
            found["data/real/clip_rigid/estimates/flow.h5"] = FLOW
        return found

    def _fixture(self, path: str) -> Any:
        return (self.fixtures / path).read_bytes()


def publish(copy: Path, fixtures: Path) -> Published:
    """Write the repositories."""
    made = Published(copy, fixtures)
    for name in WORLDS:
        _copy(
            fixtures / f"cases/synthetic/{name}/reference.mp4",
            made.directory(SYNTHETIC) / f"videos/{name}.mp4",
        )
        packed = made.directory(SYNTHETIC) / f"worlds/{name}.h5"
        packed.parent.mkdir(exist_ok=True)
        pack_world(fixtures / f"data/synthetic/{name}/world", packed)
    for name in CLIPS:
        _copy(fixtures / f"cases/real/{name}/reference.mp4", made.directory(REAL) / f"videos/{name}.mp4")
        mask = f"annotations/{name}/dynamic_mask.npz"
        _copy(fixtures / f"data/real/{name}/annotation/dynamic_mask.npz", made.directory(REAL) / mask)
    lines = [json.dumps({"case": name, "source": "elsewhere"}) for name in CLIPS]
    (made.directory(REAL) / "metadata.jsonl").write_text("\n".join(lines) + "\n")
    flow = made.directory(ESTIMATES) / "real/clip_rigid/flow.h5"
    flow.parent.mkdir(parents=True)
    flow.write_bytes(FLOW)
    return made


def serve(hub: Hub, repo: str, files: dict[str, bytes], commit: str = COMMIT) -> None:
    """One repository: its newest commit, its list of files, and the files; ``.jsonl`` and ``.py`` in Git."""
    info = json.dumps({"id": repo, "sha": commit}).encode()
    hub.files[f"/api/datasets/{repo}"] = Served(info, large=False)
    listing = []
    for name, content in files.items():
        served = hub.add(
            f"datasets/{repo}", commit, name, Served(content, large=not name.endswith((".jsonl", ".py")))
        )
        entry: dict[str, Any] = {"type": "file", "path": name, "size": len(content), "oid": "0" * 40}
        if served.large:
            digest = hashlib.sha256(content).hexdigest()
            entry["lfs"] = {"oid": digest, "size": len(content), "pointerSize": 130}
        else:
            entry["oid"] = served.name
        listing.append(entry)
    listing.append({"type": "directory", "path": "videos", "oid": "0" * 40})
    hub.files[f"/api/datasets/{repo}/tree/{commit}"] = Served(json.dumps(listing).encode(), large=False)


def found(root: Path) -> dict[str, Any]:
    """What lies in ``cases`` and ``data`` below ``root``; archives of worlds by member.

    Records are left out, and what is not complete yet.
    """
    contents: dict[str, Any] = {}
    for name in ("cases", "data"):
        for path in sorted((root / name).rglob("*")):
            label = path.relative_to(root).as_posix()
            unfinished = "/.partial" in label or path.name.endswith(".tmp")
            if unfinished or path.is_dir() or path.name in ("download.json", "revisions.json"):
                continue
            contents[label] = content_of(path) if "/world/" in label else path.read_bytes()
    return contents


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
