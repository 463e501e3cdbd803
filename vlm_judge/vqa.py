"""``judge.py vqa``: yes-or-no questions about one system's renders, one call per scene."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from contract.errors import one_line
from vlm_judge import prompting
from vlm_judge.client import Answer
from vlm_judge.console import say, warn
from vlm_judge.decoding import Sampler
from vlm_judge.framestore import Frames
from vlm_judge.parsing import parse_answers
from vlm_judge.prices import number
from vlm_judge.progress import Progress
from vlm_judge.prompting import Part
from vlm_judge.questions import MISSING, Question, Scene
from vlm_judge.records import Appender, Row, appending, now, read_rows, text_of
from vlm_judge.session import Session, closing, dry_run, opened
from vlm_judge.trees import OK, UNREADABLE, Subject, Trees, look
from vlm_judge.work import Crew

SCHEMA = "vlm-judge-answer/1"
_QUALITY = 3
_RAW = 200
_REPLY_TOKENS = 6
"""Of a usual line of a reply."""
_NAMED = 6
"""Scene ids that a line about unasked scenes names."""


@dataclass(frozen=True)
class Job:
    """One call: a scene with its open questions, and their keys."""

    scene: Scene
    questions: tuple[Question, ...]
    keys: tuple[str, ...]
    frames: Frames


@dataclass(frozen=True)
class Seen:
    """A scene before any call: its render, the call it needs, if any, and records of answers that were paid
    for and lost before they were written.
    """

    scene: Scene
    subject: Subject
    job: Job | None = None
    recovered: tuple[Row, ...] = ()


def main(given: argparse.Namespace) -> int:
    """Look at the renders, ask, write. Returns the exit status."""
    session = opened(given, prompting.VQA, prompting.VQA_MARKS)
    if given.dry_run:
        read = read_rows(given.out) if given.out.exists() else None
        rows = read.rows if read else []
        seen = _look(session, rows)
        return dry_run(session, [_estimate(session, item.job) for item in seen if item.job])
    with appending(given.out) as records:
        read = read_rows(given.out)
        for warning in read.warnings:
            warn(warning)
        seen = _look(session, read.rows)
        _write_unasked(session, seen, read.rows, records)
        records.write(*(row for item in seen for row in item.recovered))
        jobs = [item.job for item in seen if item.job]
        asked = sum(len(job.questions) for job in jobs)
        say(f"{len(jobs)} calls, one a scene, with {asked} questions; {given.frames} frames each; "
            f"judge {given.model}")  # fmt: skip
        progress = Progress(asked, "questions", session.client.budget)
        failed = sum(item.subject.state == UNREADABLE for item in seen)
        done = 0

        def finished(result: tuple[Job, Answer]) -> None:
            nonlocal failed, done
            job, answer = result
            made = rows_of(session, job, answer)
            records.write(*made)
            done += 1
            failed += not any(row["pred"] for row in made)
            progress.step(len(made), cached=answer.cached)

        ended = Crew(partial(_ask, session), given.workers, session.stop).run(jobs, finished)
        if jobs:
            progress.end()
        say(f"records in {given.out}")
        return closing(session, ended, len(jobs) - done, failed)


def sampler(given: argparse.Namespace) -> Sampler:
    return Sampler(given.width, _QUALITY, frames=given.frames)


def _look(session: Session, rows: Sequence[Row]) -> list[Seen]:
    """Every scene's render and what is still to be asked about it, in file order."""
    done = _Done(session, rows)
    trees = Trees(session.given.runs, session.given.runs, session.given.trial)
    found: dict[str, Seen] = {}

    def one(scene: Scene) -> Seen:
        path = trees.render(scene, session.given.system)
        subject = look(path, sampler(session.given), session.store, gated=not session.given.no_layer1)
        if subject.state != OK or subject.frames is None:
            return Seen(scene, subject)
        keys = {question: done.key(scene, question, subject.frames) for question in scene.questions}
        left = tuple(q for q, key in keys.items() if not done.has(scene, q, key))
        whole = Job(scene, scene.questions, tuple(keys.values()), subject.frames)
        recovered = _recovered(session, whole, left)
        known = {row["id"] for row in recovered}
        left = tuple(question for question in left if question.id not in known)
        job = Job(scene, left, tuple(keys[q] for q in left), subject.frames) if left else None
        return Seen(scene, subject, job, recovered)

    def keep(seen: Seen) -> None:
        found[seen.scene.id] = seen

    if Crew(one, session.given.workers, session.stop).run(session.scenes, keep).interrupted:
        raise KeyboardInterrupt
    return [found[scene.id] for scene in session.scenes]


def _recovered(session: Session, whole: Job, left: Sequence[Question]) -> tuple[Row, ...]:
    """Answers to ``left`` in the stored reply to all questions of the scene, where only some of them reached
    the file: the machine stopped in the middle of writing.
    """
    reply = session.client.stored(_message(session, whole)) if 0 < len(left) < len(whole.questions) else None
    if reply is None:
        return ()
    key = session.client.key(_message(session, whole))
    answer = Answer(key, reply.text, reply.usage, 0.0, reply.finish, cached=True)
    open_ids = {question.id for question in left}
    return tuple(row for row in rows_of(session, whole, answer) if row["pred"] and row["id"] in open_ids)


class _Done:
    """Which questions have an answer: by key, or, in records that have none, by judge and system."""

    def __init__(self, session: Session, rows: Sequence[Row]) -> None:
        self._session = session
        answered = [row for row in rows if text_of(row, "pred")]
        self._keys = {text_of(row, "key") for row in answered} - {""}
        self._plain = {
            (text_of(row, "judge"), text_of(row, "system"), text_of(row, "scene"), text_of(row, "id"))
            for row in answered
            if not text_of(row, "key")
        }

    def key(self, scene: Scene, question: Question, frames: Frames) -> str:
        given = self._session.given
        return self._session.key(given.system, given.trial, scene.id, question.id, question.text,
                                 sampler(given).as_json(), frames.video)  # fmt: skip

    def has(self, scene: Scene, question: Question, key: str) -> bool:
        given = self._session.given
        return key in self._keys or (given.model, given.system, scene.id, question.id) in self._plain


def _message(session: Session, job: Job) -> list[Part]:
    lines = [f"{index}. {question.text}" for index, question in enumerate(job.questions, 1)]
    values: Mapping[str, str | Frames] = {
        "images": job.frames,
        "frames": str(len(job.frames)),
        "count": str(len(lines)),
        "questions": "\n".join(lines),
    }
    return session.prompt.filled(values)


def _estimate(session: Session, job: Job) -> tuple[str, list[Part], int]:
    return job.scene.kind, _message(session, job), _REPLY_TOKENS * len(job.questions)


def _ask(session: Session, job: Job) -> tuple[Job, Answer]:
    count = len(job.questions)
    return job, session.client.ask(_message(session, job), lambda text: any(parse_answers(text, count)))


def rows_of(session: Session, job: Job, answer: Answer) -> list[Row]:
    """One record per question of a call; usage and cost are shared out among them."""
    count = len(job.questions)
    usage = {key: float(value) for key, value in answer.usage.items() if isinstance(value, int | float)}
    usage["n_frames"] = len(job.frames)
    said = parse_answers(answer.text, count)
    return [
        {
            "scene": job.scene.id,
            "kind": job.scene.kind,
            "id": question.id,
            "category": question.category,
            "answer": question.answer,
            "pred": pred,
            "correct": pred == question.answer,
            "missing": pred == MISSING,
            "system": session.given.system,
            "judge": session.service.model,
            "per_call": count,
            "usage": {name: value / count for name, value in usage.items()},
            "raw": (answer.text or "")[:_RAW],
            "how": "judged" if pred else "error",
            "error": answer.error or ("" if pred else "the reply has no answer to this question"),
            "cost": None if number(answer.cost) is None else (answer.cost or 0.0) / count,
            "cached": answer.cached,
            "reply": answer.key,
            "video": job.frames.video,
            "frames": job.frames.short,
            **_made_by(session, key),
        }
        for question, key, pred in zip(job.questions, job.keys, said, strict=True)
    ]


def _made_by(session: Session, key: str) -> dict[str, Any]:
    return {
        "trial": session.given.trial,
        "prompt": session.prompt.digest,
        "settings": session.service.asked | sampler(session.given).as_json(),
        "key": key,
        "time": now(),
        "schema": SCHEMA,
    }


def _write_unasked(session: Session, seen: Sequence[Seen], rows: Sequence[Row], records: Appender) -> None:
    """A record without a question for each scene that cannot be asked, unless its last one says so."""
    system = session.given.system
    last: dict[str, str] = {}
    for row in rows:
        if text_of(row, "system") == system and row.get("trial", 1) == session.given.trial:
            last[text_of(row, "scene")] = text_of(row, "key") if row.get("id") is None else ""
    names: dict[str, list[str]] = {}
    for item in seen:
        subject = item.subject
        if subject.state == UNREADABLE:
            warn(f"{item.scene.id}: the render cannot be read ({subject.reason})")
        if subject.state in (OK, UNREADABLE):
            continue
        names.setdefault(subject.state, []).append(item.scene.id)
        reason = one_line(subject.reason)
        key = session.key(system, session.given.trial, item.scene.id, subject.state, reason)
        if last.get(item.scene.id) == key:
            continue
        records.write({"scene": item.scene.id, "kind": item.scene.kind, "id": None, "how": subject.state,
                       "reason": reason, "system": system, "judge": session.service.model,
                       **_made_by(session, key)})  # fmt: skip
    for state, scenes in names.items():
        shown = ", ".join(scenes[:_NAMED]) + (", …" if len(scenes) > _NAMED else "")
        say(f"{len(scenes)} {state}, not asked, count as wrong: {shown}")
