# ruff: noqa: E501
"""Pairing, reading of replies and prompts: the published cases, and what must hold for any."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from contract.errors import UserError
from vlm_judge import prompting
from vlm_judge.framestore import Frames
from vlm_judge.gate import Gate
from vlm_judge.pairwise import outcome
from vlm_judge.parsing import parse_answers, parse_pick
from vlm_judge.plan import matching, plan
from vlm_judge.trees import Subject

Y, N, M = "Yes", "No", "Missing"


def test_the_published_matchings_and_plans(reference: Any) -> None:
    for case in reference["matching"]:
        assert matching(case["systems"], case["round"]) == [tuple(pair) for pair in case["pairs"]]
    for case in reference["plan"]:
        scenes = [f"s{index:03d}" for index in range(case["scenes"])]
        jobs = plan(scenes, case["systems"], case["pairs"], case["seed"])
        # The fixture lists the jobs of a scene in alphabetical order.
        assert sorted(jobs) == sorted(tuple(job) for job in case["jobs"])


@pytest.mark.parametrize(
    ("pairs", "count", "games", "balance", "meetings"),
    [(3, 600, (70, 72), (-3, 2), (1, 9)), (0, 1600, (188, 189), (-5, 4), (10, 13))],
)
def test_the_published_size(
    pairs: int, count: int, games: tuple[int, int], balance: tuple[int, int], meetings: tuple[int, int]
) -> None:
    systems = [f"m{index:02d}" for index in range(17)]
    jobs = plan([f"s{index:03d}" for index in range(200)], systems, pairs, 0)
    assert len(jobs) == count
    left, right = Counter(job[1] for job in jobs), Counter(job[2] for job in jobs)
    played = [left[s] + right[s] for s in systems]
    assert (min(played), max(played)) == games
    surplus = [left[s] - right[s] for s in systems]
    assert balance[0] <= min(surplus) <= max(surplus) <= balance[1]
    met = Counter(frozenset(job[1:]) for job in jobs)
    assert len(met) == 136
    assert (min(met.values()), max(met.values())) == meetings


def test_a_scene_without_reference_is_passed_over_and_its_round_counts() -> None:
    scenes = ["s0", "s1", "s2"]
    jobs = plan(scenes, "abcd", 0, 0, shown=lambda scene: scene != "s1")
    assert {job[0] for job in jobs} == {"s0", "s2"}
    assert {frozenset(job[1:]) for job in jobs if job[0] == "s2"} == {
        frozenset(p) for p in matching("abcd", 2)
    }


def test_a_pair_without_renders_is_dropped_and_the_others_stay_as_planned() -> None:
    every = plan([f"s{i}" for i in range(8)], "abcde", 1, 0)
    some = plan([f"s{i}" for i in range(8)], "abcde", 1, 0, either=lambda scene, x, y: scene != "s7")
    assert some == every[:-1]
    assert matching(["a"], 3) == []


def test_published_replies(reference: Any) -> None:
    for case in reference["parse_vqa"]:
        assert parse_answers(case["text"], case["k"]) == case["out"], case
    for case in reference["parse_pair"]:
        assert parse_pick(case["text"]) == case["pick"], case


@pytest.mark.parametrize(
    ("text", "count", "expected"),
    [
        ("1) yes\n 2: NO\n3 . missing", 3, [Y, N, M]), ("2. Yes", 3, [None, Y, None]),
        ("1.\nYes\n2.\nNo", 2, [Y, N]), ("I cannot answer; no objects are missing", 3, [N, M, None]),
        ("1. Yes\n2. N/A\n3. No", 3, [Y, None, N]), (None, 2, [None, None]), ("1. Nothing", 1, [None]),
        ("9" * 9000 + ". Yes", 1, [Y]),
    ],
)  # fmt: skip
def test_more_published_replies(text: str | None, count: int, expected: list[str | None]) -> None:
    assert parse_answers(text, count) == expected


@pytest.mark.parametrize(
    ("text", "pick"),
    [("a", "A"), ("Video_A", None), ("It is a close call, but B wins", "A"), ("", None), (None, None)],
)
def test_more_published_picks(text: str | None, pick: str | None) -> None:
    assert parse_pick(text) == pick


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("ok", "ok", ("", None)), ("absent", "ok", ("coverage", "b")), ("ok", "absent", ("coverage", "a")),
        ("corrupt", "ok", ("corrupt", "b")), ("gated", "ok", ("gated", "b")), ("gated", "gated", ("draw", None)),
        ("absent", "gated", ("coverage", "b")), ("gated", "corrupt", ("corrupt", "a")),
        ("corrupt", "absent", ("draw", None)), ("corrupt", "corrupt", ("draw", None)),
        ("unreadable", "absent", ("error", None)),
    ],
)  # fmt: skip
def test_who_wins_without_a_verdict(first: str, second: str, expected: tuple[str, str | None]) -> None:
    assert outcome("a", "b", Subject(first), Subject(second)) == expected


def frames_named(name: str) -> Frames:
    return Frames(name, 1, [0], [name], Gate(None, None, False), Path())


def test_our_prompts_have_the_published_order() -> None:
    vqa = prompting.load(prompting.VQA, prompting.VQA_MARKS)
    seen = frames_named("v")
    parts = vqa.filled({"images": seen, "frames": "16", "count": "2", "questions": "1. One?\n2. Two?"})
    assert parts[0] is seen
    (text,) = parts[1:]
    assert isinstance(text, str)
    order = ["16 pictures", "ends of the video", "2 questions", "Missing is for absence only", "1. One?", "one line per",
             "3. Missing"]  # fmt: skip
    places = [text.index(words) for words in order]
    assert places == sorted(places)
    pair = prompting.load(prompting.PAIRWISE, prompting.PAIR_MARKS)
    videos = {"reference": frames_named("r"), "a": frames_named("a"), "b": frames_named("b")}
    counts = {"reference_frames": "12", "a_frames": "11", "b_frames": "10"}
    parts = pair.filled({**videos, **counts})
    assert [type(part) for part in parts] == [str, Frames, str, Frames, str, Frames, str]
    assert ["12" in str(parts[0]), "11" in str(parts[2]), "10" in str(parts[4])] == [True] * 3
    last = str(parts[-1])
    places = [
        last.index(word) for word in ("shapes", "move", "plausible", "contacts", "change shape", "ends up")
    ]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("text", "words"),
    [("no marks", "{images} is there 0 times"), ("{images}{images}{questions}", "{images} is there 2 times"),
     ("{images}{questions}{sound}", "unknown mark {sound}"), (b"\xff", "is not UTF-8")],
)  # fmt: skip
def test_a_prompt_of_one_s_own_is_checked(tmp_path: Path, text: str | bytes, words: str) -> None:
    path = tmp_path / "p.txt"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(UserError) as caught:
        prompting.load(path, prompting.VQA_MARKS)
    assert words in caught.value.line()


def test_words_with_braces_in_questions_stay_words(tmp_path: Path) -> None:
    path = tmp_path / "p.txt"
    path.write_text("{images} ask {questions}")
    parts = prompting.load(path, prompting.VQA_MARKS).filled(
        {"images": frames_named("v"), "questions": "{count}?"}
    )
    assert parts[1:] == ["ask {count}?"]
