"""The published data sets: which file of which repository lies where in the trees."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from case_tree import CasePlace
from hub_files import Published

from contract.cases import KINDS, REAL, SYNTHETIC, valid_segment
from contract.errors import UserError, one_line
from contract.names import (
    ANNOTATION,
    DYNAMIC_MASK,
    ESTIMATES,
    LONGEST_LEVEL,
    REFERENCE_VIDEO,
    WORLD,
)

OWNER = "4DCodeBench"
REAL_REPO = f"{OWNER}/Dataset-Real-World"
SYNTHETIC_REPO = f"{OWNER}/Dataset-Synthetic"
ESTIMATES_REPO = f"{OWNER}/Dataset-Model-Estimation"
RESULTS_REPO = f"{OWNER}/Results"
REPO_OF = {REAL: REAL_REPO, SYNTHETIC: SYNTHETIC_REPO}

METADATA = "metadata.jsonl"
SCRIPT = "scripts/prepare_videos.py"
PACKED_SUFFIX = ".h5"

Listing = dict[str, Published]
"""Files of a repository by path."""


@dataclass(frozen=True)
class Item:
    """One thing to put into its place.

    label : its name in records and messages, a path below the case. form : a ``file`` is placed as it is, a
    ``world`` is unpacked. theirs : what lies there may be the user's own work and is then left alone.
    """

    repo: str
    published: Published
    label: str
    target: Path
    form: Literal["file", "world"] = "file"
    theirs: bool = False


def video_item(place: CasePlace, listing: Listing) -> Item | None:
    """The case's video, None where the data set does not hold it."""
    return _item(place, listing, f"videos/{place.name}.mp4", REFERENCE_VIDEO, place.video)


def data_item(place: CasePlace, listing: Listing) -> Item | None:
    """The case's mask, or its packed world; None where there is none."""
    if place.kind == REAL:
        source = f"annotations/{place.name}/{DYNAMIC_MASK}"
        return _item(place, listing, source, f"{ANNOTATION}/{DYNAMIC_MASK}", place.mask)
    return _item(place, listing, f"worlds/{place.name}{PACKED_SUFFIX}", WORLD, place.world, world=True)


def estimate_items(place: CasePlace, listing: Listing) -> list[Item]:
    """The estimates of the case's video, sorted by name."""
    prefix = f"{place.label}/"
    return [
        Item(
            ESTIMATES_REPO,
            listing[path],
            f"{ESTIMATES}/{name}",
            place.data_dir / ESTIMATES / name,
            theirs=True,
        )
        for path in sorted(listing)
        if path.startswith(prefix) and valid_segment(name := path.removeprefix(prefix))
    ]


def synthetic_names(listing: Listing) -> list[str]:
    """Cases of the synthetic data set: the stems of its videos, sorted."""
    found = [Path(path).stem for path in listing if _below(path, "videos") and path.endswith(".mp4")]
    return _checked(sorted(found), SYNTHETIC_REPO)


def real_names(metadata: bytes) -> list[str]:
    """Cases of the real data set, in the order of its ``metadata.jsonl``. Raises ``UserError``."""
    names = []
    for number, line in enumerate(metadata.decode("utf-8", "replace").splitlines(), 1):
        if not line.strip():
            continue
        try:
            name = json.loads(line)["case"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UserError(
                f"line {number} names no case ({type(error).__name__})", where=f"{REAL_REPO}/{METADATA}"
            ) from error
        names.append(str(name))
    return _checked(list(dict.fromkeys(names)), REAL_REPO)


def estimated_names(listing: Listing, kind: str) -> list[str]:
    """Cases of a kind that estimates are published for, sorted."""
    parts = [path.split("/") for path in listing]
    return _checked(sorted({part[1] for part in parts if len(part) == 3 and part[0] == kind}), ESTIMATES_REPO)


def chosen(
    given: list[str] | None, kinds: tuple[str, ...], known: dict[str, list[str]]
) -> dict[str, list[str]]:
    """Of the known cases by kind, those that ``--cases`` names. Raises ``UserError`` at an unknown name."""
    if given is None:
        return known
    asked = [name for item in given for name in item.split(",") if name]
    if not asked:
        raise UserError("--cases names no case", next_step="give A,B or kind/A")
    found: dict[str, list[str]] = {kind: [] for kind in kinds}
    for text in asked:
        kind, _, rest = text.partition("/")
        name, among = (rest, (kind,)) if kind in KINDS and rest else (text, kinds)
        places = [kind for kind in among if name in known.get(kind, ())]
        if not places:
            raise UserError(one_line(f"--cases {text}: no such case"), expected=_some(known))
        for kind in places:
            if name not in found[kind]:
                found[kind].append(name)
    return {kind: [name for name in known[kind] if name in found[kind]] for kind in found}


def _some(known: dict[str, list[str]]) -> str:
    labels = [f"{kind}/{name}" for kind, names in known.items() for name in names]
    return ", ".join(labels[:8]) + (f" … ({len(labels)} in all)" if len(labels) > 8 else "")


def _checked(names: list[str], repo: str) -> list[str]:
    for name in names:
        if not valid_segment(name) or len(name) > LONGEST_LEVEL:
            raise UserError(one_line(f"holds a case named {name!r}, which can be no directory"), where=repo)
    return names


def _below(path: str, directory: str) -> bool:
    return path.split("/")[:-1] == [directory]


def _item(
    place: CasePlace, listing: Listing, source: str, label: str, target: Path, *, world: bool = False
) -> Item | None:
    published = listing.get(source)
    if published is None:
        return None
    return Item(REPO_OF[place.kind], published, label, target, "world" if world else "file")
