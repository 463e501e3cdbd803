"""Where a run lies: runs/<kind>/<case>/<agent>-<model>-<effort>/<trial>/."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from contract.names import WORKSPACE, WORLD

_PLAIN = re.compile(r"[A-Za-z0-9._+-]")


def encode_segment(text: str) -> str:
    """``text`` as one safe path level: characters outside ``A-Za-z0-9._+-`` become ``%XX`` of their UTF-8
    bytes.

    A model called ``org/model`` must not add a level to the tree; the true name stands in ``run.json``.
    """
    encoded = "".join(c if _PLAIN.fullmatch(c) else "".join(f"%{b:02X}" for b in c.encode()) for c in text)
    return f"%2E{encoded[1:]}" if encoded.startswith(".") else encoded


@dataclass(frozen=True, order=True)
class RunKey:
    """The identity of one run."""

    case: str
    """``<kind>/<case>``"""
    agent: str
    model: str
    effort: str
    trial: int

    @property
    def system(self) -> str:
        """Directory of the agent set-up: ``<agent>-<model>-<effort>``."""
        return "-".join(encode_segment(part) for part in (self.agent, self.model, self.effort))

    @property
    def path(self) -> PurePosixPath:
        """Path below the runs root."""
        return PurePosixPath(self.case) / self.system / str(self.trial)

    @property
    def world(self) -> PurePosixPath:
        """Path of the delivered world below the runs root."""
        return self.path / WORKSPACE / WORLD

    @property
    def label(self) -> str:
        """Name for logs: the parts joined by ``-``, the case's slash too."""
        return f"{self.case.replace('/', '-')}-{self.system}-{self.trial}"
