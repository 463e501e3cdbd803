"""``judge.py pairwise``: which of two systems' renders matches the reference better?"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from contract.errors import UserError, one_line
from vlm_judge import prompting
from vlm_judge.answers import CORRUPT as CORRUPT_STATE
from vlm_judge.answers import GATED as GATED_STATE
from vlm_judge.client import Answer
from vlm_judge.console import say, warn
from vlm_judge.decoding import Sampler
from vlm_judge.framestore import Frames
from vlm_judge.games import CORRUPT, COVERAGE, DRAW, ERROR, GATED, JUDGED
from vlm_judge.parsing import parse_pick
from vlm_judge.plan import plan
from vlm_judge.progress import Progress
from vlm_judge.prompting import Part
from vlm_judge.questions import Scene
from vlm_judge.records import Row, appending, now, read_rows, text_of
from vlm_judge.session import Session, closing, dry_run, opened
from vlm_judge.trees import UNREADABLE, Subject, Trees, look
from vlm_judge.work import Crew
from world.video import VideoError

SCHEMA = "vlm-judge-comparison/1"
_QUALITY = 4
_RAW = 120
_REPLY_TOKENS = 2


@dataclass(frozen=True)
class Match:
    """Two renders on one scene, before any call. reference : its frames, or why there are none. how, winner :
    the outcome where none needs a model.
    """

    scene: Scene
    a: str
    b: str
    first: Subject
    second: Subject
    reference: Frames | str
    how: str
    winner: str | None


@dataclass(frozen=True)
class Job:
    """One comparison to record, by a call or without."""

    match: Match
    key: str


def main(given: argparse.Namespace) -> int:
    """Plan, look at the renders, ask, write. Returns the exit status."""
    session = opened(given, prompting.PAIRWISE, prompting.PAIR_MARKS)
    trees = Trees(given.runs, given.cases, given.trial)
    systems = _systems(given, trees)
    planned = _planned(session, trees, systems)
    if given.dry_run:
        rows = read_rows(given.out).rows if given.out.exists() else []
        jobs = _jobs(session, trees, planned, rows)
        asking = [job.match for job in jobs if isinstance(job.match.reference, Frames)]
        return dry_run(session, [_estimate(session, match) for match in asking])
    with appending(given.out) as records:
        read = read_rows(given.out)
        for warning in read.warnings:
            warn(warning)
        jobs = _jobs(session, trees, planned, read.rows)
        say(f"{len(jobs)} comparisons of {len(systems)} systems, {given.fps:g} frames a second; "
            f"judge {given.model}")  # fmt: skip
        progress = Progress(len(jobs), "comparisons", session.client.budget)
        done = failed = 0

        def finished(row: Row) -> None:
            nonlocal done, failed
            records.write(row)
            done += 1
            failed += row["how"] == ERROR
            progress.step(1, cached=row["cached"])

        ended = Crew(partial(_settle, session), given.workers, session.stop).run(jobs, finished)
        if jobs:
            progress.end()
        say(f"records in {given.out}")
        return closing(session, ended, len(jobs) - done, failed)


def sampler(given: argparse.Namespace) -> Sampler:
    return Sampler(given.width, _QUALITY, fps=given.fps)


def outcome(a: str, b: str, first: Subject, second: Subject) -> tuple[str, str | None]:
    """How a comparison ends without the model, and who wins; ("", None) when the model has to say.

    Who delivered nothing loses (``coverage``), as does who delivered something broken (``corrupt``); the
    other one's render is not held against the gate then. Of two that can be decoded, a blank one loses
    (``gated``). Two of one sort draw.
    """
    if UNREADABLE in (first.state, second.state):
        return ERROR, None
    if not (first.delivered and second.delivered):
        if not (first.delivered or second.delivered):
            return DRAW, None
        loser = second if first.delivered else first
        how = CORRUPT if loser.state == CORRUPT_STATE else COVERAGE
        return how, a if first.delivered else b
    blank = [subject.state == GATED_STATE for subject in (first, second)]
    if all(blank):
        return DRAW, None
    if any(blank):
        return GATED, b if blank[0] else a
    return "", None


def _systems(given: argparse.Namespace, trees: Trees) -> list[str]:
    delivered, silent = trees.systems()
    if given.systems:
        chosen = sorted({name for name in given.systems.split(",") if name})
        strangers = [name for name in chosen if name not in delivered]
        if strangers:
            warn(f"without a single render, and so losing everywhere: {', '.join(strangers)}")
    else:
        chosen = delivered
        if silent:
            names = ", ".join(silent)
            warn(f"systems with runs but no render are left out unless --systems names them: {names}")
    if len(chosen) < 2:
        raise UserError(
            f"{len(chosen)} systems cannot be compared", where=given.runs, expected="two or more with renders"
        )
    return chosen


def _planned(session: Session, trees: Trees, systems: Sequence[str]) -> list[tuple[Scene, str, str]]:
    given = session.given
    scenes = {scene.id: scene for scene in session.scenes}
    missing = [name for name, scene in scenes.items() if trees.reference(scene) is None]
    if missing:
        warn(f"{len(missing)} scenes without a reference video are passed over: {', '.join(missing[:6])}")
    neither = 0

    def either(name: str, x: str, y: str) -> bool:
        nonlocal neither
        found = any(trees.render(scenes[name], system) is not None for system in (x, y))
        neither += not found
        return found

    jobs = plan(list(scenes), systems, given.pairs, given.seed,
                shown=lambda name: name not in missing, either=either)  # fmt: skip
    if neither:
        say(f"{neither} pairs without any render are passed over")
    return [(scenes[name], left, right) for name, left, right in jobs]


def _jobs(
    session: Session, trees: Trees, planned: Sequence[tuple[Scene, str, str]], rows: Sequence[Row]
) -> list[Job]:
    """What is still to be recorded, in the plan's order."""
    both = session.given.both_orders
    finished = [row for row in rows if text_of(row, "winner") or text_of(row, "how") == DRAW]
    keys = {text_of(row, "key") for row in finished} - {""}
    plain = {
        (text_of(row, "scene") or text_of(row, "case"), text_of(row, "a"), text_of(row, "b"))
        for row in finished
        if not text_of(row, "key") and text_of(row, "judge") in ("", session.service.model)
    }
    found: dict[int, list[Job]] = {}

    def one(entry: tuple[int, tuple[Scene, str, str]]) -> tuple[int, list[Job]]:
        place, (scene, a, b) = entry
        match = _match(session, trees, scene, a, b)
        turned = Match(scene, b, a, match.second, match.first, match.reference, match.how, match.winner)
        orders = [Job(each, _key(session, each)) for each in (match, turned)]
        known = [job.key in keys or (scene.id, job.match.a, job.match.b) in plain for job in orders]
        if both and not match.how:
            return place, [job for job, old in zip(orders, known, strict=True) if not old]
        return place, [] if any(known) else orders[:1]

    def keep(result: tuple[int, list[Job]]) -> None:
        found[result[0]] = result[1]

    if Crew(one, session.given.workers, session.stop).run(list(enumerate(planned)), keep).interrupted:
        raise KeyboardInterrupt
    return [job for place in sorted(found) for job in found[place]]


def _match(session: Session, trees: Trees, scene: Scene, a: str, b: str) -> Match:
    frames = sampler(session.given)
    gated = not session.given.no_layer1
    first, second = (
        look(trees.render(scene, system), frames, session.store, gated=gated) for system in (a, b)
    )
    how, winner = outcome(a, b, first, second)
    path = trees.reference(scene)
    reference: Frames | str = "no reference video"
    if path is not None and not how:
        try:
            reference = session.store.frames(path, frames)
        except (VideoError, OSError) as error:
            reference = f"reference video: {error}"
    return Match(scene, a, b, first, second, reference, how, winner)


def _key(session: Session, match: Match) -> str:
    videos = [
        None if subject.frames is None else subject.frames.video for subject in (match.first, match.second)
    ]
    reference = match.reference.video if isinstance(match.reference, Frames) else None
    return session.key(match.scene.id, match.a, match.b, session.given.trial, match.first.state,
                       match.second.state, reference, videos, sampler(session.given).as_json())  # fmt: skip


def _message(session: Session, match: Match) -> list[Part]:
    reference, first, second = match.reference, match.first.frames, match.second.frames
    assert isinstance(reference, Frames)
    assert first is not None
    assert second is not None
    return session.prompt.filled(
        {
            "reference": reference, "reference_frames": str(len(reference)),
            "a": first, "a_frames": str(len(first)), "b": second, "b_frames": str(len(second)),
        }
    )  # fmt: skip


def _estimate(session: Session, match: Match) -> tuple[str, list[Part], int]:
    return match.scene.kind, _message(session, match), _REPLY_TOKENS


def _settle(session: Session, job: Job) -> Row:
    """The record of one comparison, asking the model where it has to say."""
    match = job.match
    if match.how:
        return row_of(session, job, match.how, match.winner, None)
    if isinstance(match.reference, str):
        return row_of(session, job, ERROR, None, None, match.reference)
    answer = session.client.ask(_message(session, match), lambda text: parse_pick(text) is not None)
    pick = parse_pick(answer.text)
    if pick is None:
        return row_of(session, job, ERROR, None, answer, answer.error)
    return row_of(session, job, JUDGED, match.a if pick == "A" else match.b, answer)


def row_of(
    session: Session, job: Job, how: str, winner: str | None, answer: Answer | None, error: str = ""
) -> Row:
    """The record; the first keys are the published program's."""
    match = job.match
    shown = {"ref": match.reference, "a": match.first.frames, "b": match.second.frames}
    seen = {side: frames for side, frames in shown.items() if isinstance(frames, Frames)}
    usage: dict[str, Any] = {} if answer is None else dict(answer.usage) or {"error": answer.error}
    return {
        "scene": match.scene.id,
        "kind": match.scene.kind,
        "a": match.a,
        "b": match.b,
        "winner": winner,
        "how": how,
        "judge": session.service.model,
        "fps": session.given.fps,
        "frames": {side: len(seen[side]) if answer is not None else 0 for side in shown if side in seen}
        | {side: 0 for side in shown if side not in seen},
        "usage": usage,
        "raw": ((answer.text if answer else "") or "")[:_RAW],
        "states": {"a": match.first.state, "b": match.second.state},
        "reasons": {
            side: one_line(subject.reason)
            for side, subject in (("a", match.first), ("b", match.second))
            if subject.reason
        },
        "error": error,
        "cost": 0.0 if answer is None else answer.cost,
        "cached": answer is not None and answer.cached,
        "reply": None if answer is None else answer.key,
        "videos": {side: frames.video for side, frames in seen.items()},
        "digests": {side: frames.short for side, frames in seen.items()},
        "both_orders": bool(session.given.both_orders),
        "trial": session.given.trial,
        "prompt": session.prompt.digest,
        "settings": session.service.asked | sampler(session.given).as_json(),
        "key": job.key,
        "time": now(),
        "schema": SCHEMA,
    }
