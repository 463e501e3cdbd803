"""The jobs file: which agent reconstructs which case, and how often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from contract.cases import KINDS, valid_segment
from contract.errors import UserError
from contract.names import LONGEST_LEVEL, REFERENCE_VIDEO
from contract.runs import RunKey
from harness.runtime.config import find_file
from harness.runtime.tomlfile import Table, nearest, parse, read_toml

MOST_TRIALS = 10_000
MOST_RUNS = 1_000_000
"""Of one jobs file; more is a slip of the keyboard."""

Text = Annotated[str, Field(min_length=1)]


class JobTable(Table):
    """``[[job]]``"""

    case: Text
    agent: Text
    model: Text
    effort: Text
    trial: Annotated[int, Field(ge=1, le=999_999_999)] | None = None


class JobsFile(Table):
    """A whole jobs file."""

    trials: Annotated[int, Field(ge=1, le=MOST_TRIALS)] = 1
    job: tuple[JobTable, ...] = Field(default=(), strict=False)


@dataclass(frozen=True)
class JobList:
    """The runs that a jobs file asks for, in its order, without duplicates."""

    path: Path
    keys: tuple[RunKey, ...]

    @property
    def cases(self) -> tuple[str, ...]:
        """Distinct cases in first-seen order."""
        return tuple(dict.fromkeys(key.case for key in self.keys))


def load_jobs(argument: str | Path, cases_root: Path) -> JobList:
    """Read a jobs file and resolve its cases below ``cases_root``.

    Raises ``UserError`` for unknown keys, an empty list or one of more than ``MOST_RUNS``, a case that does
    not exist, a name too long for a directory, and runs named twice (after resolution, so ``B_01`` and
    ``synthetic/B_01`` are the same case).
    """
    path = find_file(argument)
    file = parse(JobsFile, read_toml(path), path)
    if not file.job:
        raise UserError(
            "holds no [[job]], so there is nothing to do", where=path, next_step="add a [[job]] table"
        )
    count = sum(file.trials if job.trial is None else 1 for job in file.job)
    if count > MOST_RUNS:
        raise UserError(
            f"asks for {count} runs", where=path, expected=f"at most {MOST_RUNS}", next_step="lower trials"
        )
    seen: dict[str, tuple[int, RunKey]] = {}
    for number, job in enumerate(file.job, 1):
        where = f"{path}: [[job]] number {number}"
        _check_system(job, where)
        case = resolve_case(job.case, cases_root, where)
        for trial in range(1, file.trials + 1) if job.trial is None else (job.trial,):
            key = RunKey(case, job.agent, job.model, job.effort, trial)
            first = seen.setdefault(str(key.path), (number, key))
            if first[0] != number:
                raise UserError(
                    f"[[job]] number {number} asks for {key.path}, which number {first[0]} asks for already",
                    where=path,
                )
    return JobList(path, tuple(key for _, key in seen.values()))


def _check_system(job: JobTable, where: str) -> None:
    """Agent, model and effort share one level of the tree, which must be a possible name of a directory."""
    system = RunKey("", job.agent, job.model, job.effort, 1).system
    if len(system) > LONGEST_LEVEL:
        longest = max(("agent", "model", "effort"), key=lambda key: len(getattr(job, key)))
        raise UserError(
            f"<agent>-<model>-<effort> would be a directory of {len(system)} characters",
            where=where,
            expected=f"at most {LONGEST_LEVEL}; characters other than A-Za-z0-9._+- count three a byte",
            next_step=f"shorten {longest}",
        )


def resolve_case(text: str, root: Path, where: str) -> str:
    """``<kind>/<case>`` for ``<case>`` or ``<kind>/<case>``; it exists below ``root`` exactly once."""
    parts = text.split("/")
    if len(parts) > 2 or not all(valid_segment(part) for part in parts):
        raise UserError(f"case {text!r} is no case name", where=where, expected="<case> or <kind>/<case>")
    if len(parts[-1]) > LONGEST_LEVEL:
        raise UserError(
            f"the name of a case of {len(parts[-1])} characters",
            where=where,
            expected=f"at most {LONGEST_LEVEL}",
        )
    if len(parts) == 2 and parts[0] not in KINDS:
        raise UserError(
            f"case {text!r}: {parts[0]!r} is no kind of case", where=where, expected=" or ".join(KINDS)
        )
    kinds = KINDS if len(parts) == 1 else (parts[0],)
    found = [kind for kind in kinds if (root / kind / parts[-1]).is_dir()]
    if len(found) == 1:
        return f"{found[0]}/{parts[-1]}"
    if found:
        raise UserError(
            f"case {text!r} exists under {' and '.join(found)}", where=where, next_step="write <kind>/<case>"
        )
    raise _no_case(text, parts[-1], kinds, root, where)


def _no_case(text: str, name: str, kinds: Sequence[str], root: Path, where: str) -> UserError:
    names = [path.name for kind in KINDS if (root / kind).is_dir() for path in (root / kind).iterdir()]
    like = nearest(name, names)
    sought = " and ".join(str(root / kind / name) for kind in kinds)
    return UserError(
        f"case {text!r} does not exist (looked for {sought})",
        where=where,
        next_step=f"did you mean {like!r}?"
        if like
        else "scripts/make_demo_case.py and scripts/add_case.py make cases",
    )


def reference_video(case: str, root: Path) -> Path:
    """Path of a case's video."""
    return root / case / REFERENCE_VIDEO
