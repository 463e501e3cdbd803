"""What a download has to do: which cases there are, what each of them lacks, and whether it fits the disk."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from glob import escape
from pathlib import Path

from case_tree import CasePlace, sweep
from dataset_cases import AT_ONCE, CaseWork, part_name
from dataset_layout import (
    ESTIMATES_REPO,
    METADATA,
    REAL_REPO,
    REPO_OF,
    Item,
    Listing,
    chosen,
    data_item,
    estimate_items,
    estimated_names,
    real_names,
    synthetic_names,
    video_item,
)
from dataset_place import SPARE
from dataset_present import Present, judge
from dataset_record import NAME as RECORD
from dataset_record import CaseRecord
from dataset_sources import Source

from contract.cases import REAL
from contract.errors import UserError

EXPANSION = 2.5
"""Bytes of an unpacked world for each of its packed form, generously; only for asking whether the disk holds
it all. The true size is known when the file has arrived, and asked about then.
"""


@dataclass(frozen=True)
class Wishes:
    """What the user asked for. cases : names, comma-separated; None for all."""

    kinds: tuple[str, ...]
    cases: list[str] | None
    videos_only: bool
    estimates: bool
    redo: bool


@dataclass
class Plan:
    """names : cases by kind. works : all of them. rebuild : real cases whose video is not in the data set.

    estimated : by kind, how many cases there are estimates for.
    """

    names: dict[str, list[str]]
    works: list[CaseWork]
    rebuild: list[CaseWork]
    estimated: dict[str, int]


class Planner:
    """Makes the plan. say : told what is found in the trees that is not as published."""

    def __init__(
        self, source: Source, cases: Path, data: Path, scratch: Path, say: Callable[[str], None]
    ) -> None:
        self._source, self._cases, self._data = source, cases, data
        self._scratch, self._say = scratch, say

    def plan(self, wishes: Wishes) -> Plan:
        """Raises ``RefusedError``, ``UnreachableError``, ``UserError``, ``OSError``."""
        listings = {kind: self._source.files(REPO_OF[kind]) for kind in wishes.kinds}
        estimates: Listing = self._source.files(ESTIMATES_REPO) if wishes.estimates else {}
        known = {
            kind: self._real_names(listings[kind]) if kind == REAL else synthetic_names(listings[kind])
            for kind in wishes.kinds
        }
        names = chosen(wishes.cases, wishes.kinds, known)
        plan = Plan(names, [], [], {})
        for kind in wishes.kinds:
            with_estimates = set(estimated_names(estimates, kind))
            plan.estimated[kind] = len(with_estimates & set(names[kind]))
            for name in names[kind]:
                self._case(
                    CasePlace(self._cases, self._data, kind, name), listings[kind], estimates, wishes, plan
                )
        return plan

    def _real_names(self, listing: Listing) -> list[str]:
        published = listing.get(METADATA)
        if published is None:
            raise UserError(f"holds no {METADATA}", where=REAL_REPO)
        part = self._scratch / METADATA
        found = self._source.bring(REAL_REPO, published, part, lambda have, total: None)
        return real_names(found.read_bytes())

    def _case(
        self, place: CasePlace, listing: Listing, estimates: Listing, wishes: Wishes, plan: Plan
    ) -> None:
        video = video_item(place, listing)
        data = None if wishes.videos_only else data_item(place, listing)
        # The video comes last: whoever sees it finds the rest.
        wanted = [item for item in (data, *estimate_items(place, estimates), video) if item is not None]
        _tidy([place.data_dir / RECORD, *(item.target for item in wanted)], place)
        work = CaseWork(place, CaseRecord(place))
        work.lacking = [item for item in wanted if self._lacks(work, item, wishes.redo)]
        plan.works.append(work)
        if video is None and not place.video.exists():
            plan.rebuild.append(work)

    def _lacks(self, work: CaseWork, item: Item, redo: bool) -> bool:
        found = judge(item, work.record, self._source)
        label = f"{work.place.label}: {item.label}"
        if found == Present.DAMAGED:
            self._say(f"{label} is not what is published, bringing it again")
        elif found == Present.OUTDATED:
            self._say(f"{label} is from another revision, bringing it again")
        elif found == Present.KEPT and not (redo and not item.theirs):
            what = "is yours" if item.theirs else "is there already, from elsewhere, and was not checked"
            remedy = "remove it" if item.theirs else "give --redo"
            self._say(f"{label} {what}; {remedy} to have the published one")
            return False
        return found != Present.THERE or (redo and not item.theirs)


def _tidy(targets: Iterable[Path], place: CasePlace) -> None:
    """Remove what a killed download left beside these places. Nobody else downloads into this tree."""
    for target in targets:
        for path in target.parent.glob(f".{escape(target.name)}.????????.tmp"):
            path.unlink()
    sweep(place.data_dir)


def work_size(works: Iterable[CaseWork]) -> int:
    """Bytes of the whole work as the progress counts them."""
    items = [item for work in works for item in work.lacking]
    return sum((item.published.size or 0) * (2 if item.form == "world" else 1) for item in items)


def check_space(plan: Plan, cases: Path, data: Path, scratch: Path, *, downloading: bool) -> None:
    """Raise ``UserError`` when what is lacking does not fit the disk."""
    needs: dict[int, int] = defaultdict(int)
    places: dict[int, Path] = {}
    packed = []
    for item in (item for work in plan.works for item in work.lacking):
        size = item.published.size or 0
        tree = cases if cases in item.target.parents else data
        device = _device(tree)
        places.setdefault(device, tree)
        if item.form == "world":
            needs[device] += int(size * EXPANSION)
            packed.append(size)
        else:
            needs[device] += max(0, size - _arrived(scratch / part_name(item)))
    if downloading and packed:
        needs[_device(data)] += sum(sorted(packed)[-AT_ONCE:])
    for device, need in needs.items():
        free = shutil.disk_usage(_existing(places.get(device, data))).free
        if need + SPARE > free:
            raise UserError(
                f"not enough space: about {need / 1e9:.2f} GB needed, {free / 1e9:.2f} GB free",
                where=places.get(device, data),
                next_step="free some, or ask for less: --cases A,B, --kind, --videos-only",
            )


def _arrived(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _existing(path: Path) -> Path:
    return next(level for level in (path, *path.parents) if level.exists())


def _device(path: Path) -> int:
    return _existing(path).stat().st_dev
