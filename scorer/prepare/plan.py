"""What is to be computed: which cases and estimates, and what is on disk already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from scorer.digest import digest
from scorer.prepare.cases import Case
from scorer.prepare.clip import Clip
from scorer.prepare.provenance import State, fingerprint, state
from scorer.prepare.table import Estimate
from world.video import VideoError, probe


class BadCase(Exception):
    """Nothing can be estimated on a case; the message says why and names the file."""


class Subject:
    """A case with what is found out about it, each once."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.reported = False
        """Whether the user has been told that nothing can be done with it."""

    @property
    def name(self) -> str:
        return self.case.name

    @cached_property
    def video_digest(self) -> str:
        """Raises ``BadCase`` without a video that can be read."""
        try:
            found = digest(self.case.video) if self.case.video.is_file() else None
        except OSError as error:
            raise BadCase(f"{self.case.video}: {error.strerror}") from error
        if found is None:
            raise BadCase(f"{self.case.video}: no such video; check --cases, or add the case")
        return found

    @cached_property
    def annotation_digest(self) -> str | None:
        return None if self.case.annotation is None else digest(self.case.annotation)

    @property
    def clip(self) -> Clip:
        """The video, decoded to its end once. Raises ``BadCase``, again at each call, when it cannot be."""
        found = self._decoded
        if isinstance(found, str):
            raise BadCase(found)
        return found

    @cached_property
    def _decoded(self) -> Clip | str:
        try:
            return Clip(self.case.video, probe(self.case.video), self.case.annotation)
        except VideoError as error:
            return f"{self.case.video}: {error}"


@dataclass(frozen=True)
class Item:
    """One estimate of one case."""

    estimate: Estimate
    subject: Subject
    stamp: str

    @property
    def path(self) -> Path:
        return self.subject.case.estimates / self.estimate.file

    @property
    def name(self) -> str:
        return f"{self.subject.name}: {self.estimate.file}"

    def state(self) -> State:
        """What is on disk now. Raises ``OSError`` when the disk cannot be read."""
        return state(self.path, self.estimate, self.stamp)


def item(estimate: Estimate, subject: Subject, identities: Mapping[str, str]) -> Item:
    """The estimate of a case with its fingerprint. Raises ``BadCase`` without a video, ``OSError``."""
    stamp = fingerprint(
        estimate,
        video=subject.video_digest,
        checkpoint=identities[estimate.model().directory],
        annotation=subject.annotation_digest if estimate.annotated else None,
    )
    return Item(estimate, subject, stamp)


def wanted(
    estimates: Sequence[Estimate], subjects: Sequence[Subject], every: bool
) -> list[tuple[Estimate, Subject]]:
    """Pairs that are to be on disk in the end, estimate by estimate; ``every``: whatever metrics need."""
    return [
        (estimate, subject)
        for estimate in estimates
        for subject in subjects
        if every or estimate.needed(subject.name)
    ]
