# ruff: noqa: E501
"""vqa and pairwise against a chat-completions server over real HTTP, with everything that goes wrong there."""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from chat_server import Body, ChatServer, Reply, fails, says
from clips import moving_square
from judge_lab import question_file, rows, write_rows

from contract.errors import UserError
from vlm_judge import framestore, judge
from world.video import write_video

SCENES = ["s1", "s2", "s3", "s4"]
KEY = "sk-secret-0123456789"


class Lab:
    """Trees with three systems on four scenes, a server, and the program's command line."""

    def __init__(self, root: Path, server: ChatServer) -> None:
        self.root, self.server = root, server
        self.out, self.cache = root / "out.jsonl", root / "cache"
        self.questions = question_file(root / "q.json", SCENES)

    def render(self, scene: str, system: str) -> Path:
        return self.root / f"runs/synthetic/{scene}/{system}/1/workspace/world/render.mp4"

    def run(self, command: str, *more: object) -> int:
        return judge.main([str(word) for word in self.command(command, *more)])

    def command(self, command: str, *more: object) -> list[object]:
        own = (
            ["--cases", self.root / "cases"] if command == "pairwise" else ["--system", "one", "--frames", 4]
        )
        return [command, "--questions", self.questions, "--runs", self.root / "runs", "--out", self.out,
                "--width", 64, "--base-url", self.server.url, "--cache", self.cache, "--backoff", 0.001,
                *own, *more]  # fmt: skip

    @property
    def rows(self) -> list[dict[str, Any]]:
        return rows(self.out)

    @property
    def ledger(self) -> list[dict[str, Any]]:
        return rows(self.cache / "replies" / "calls.jsonl")


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every render differs from every other, so that no two requests are the same."""
    root = tmp_path_factory.mktemp("trees")
    for index, scene in enumerate(SCENES):
        for shift, system in enumerate((None, "one", "two", "three")):
            place = root / f"runs/synthetic/{scene}/{system}/1/workspace/world/render.mp4"
            path = place if system else root / f"cases/synthetic/{scene}/reference.mp4"
            path.parent.mkdir(parents=True)
            images = (np.roll(image, 7 * index + 3 * shift, axis=1) for image in moving_square(12))
            write_video(path, images, 12)
    return root


@pytest.fixture
def lab(tmp_path: Path, trees: Path) -> Iterator[Lab]:
    shutil.copytree(trees, tmp_path, dirs_exist_ok=True)
    with ChatServer().running() as server:
        server.otherwise = truthful
        yield Lab(tmp_path, server)


def text_of(body: Body) -> str:
    return str(body["messages"][0]["content"][-1]["text"])


def truthful(body: Body) -> Reply:
    """Right answers, and video A."""
    text = text_of(body)
    if "letter only" in text:
        return says("A", read=40_000)
    asked = re.findall(r"^\d+\. (.*\?)$", text, re.MULTILINE)
    lines = [f"{i}. {'No' if 'burn' in question else 'Yes'}" for i, question in enumerate(asked, 1)]
    return says("\n".join(lines), read=18_000)


def costing(dollars: float) -> Callable[[Body], Reply]:
    def reply(body: Body) -> Reply:
        found = truthful(body)
        found.body["usage"]["cost"] = dollars
        return found

    return reply


def test_one_call_a_scene_with_all_its_frames_and_questions(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lab.run("vqa") == 0
    assert len(lab.server.requests) == 4
    for body in lab.server.requests:
        assert (body["temperature"], body["max_tokens"]) == (0, 4096)
        (message,) = body["messages"]
        kinds = [part["type"] for part in message["content"]]
        assert kinds == ["image_url"] * 4 + ["text"]
        data = message["content"][0]["image_url"]["url"].removeprefix("data:image/jpeg;base64,")
        with av.open(io.BytesIO(base64.b64decode(data))) as image:
            assert image.streams.video[0].width == 64
    assert [(row["pred"], row["correct"]) for row in lab.rows] == [
        ("Yes", True),
        ("Yes", True),
        ("No", True),
    ] * 4
    row = lab.rows[0]
    assert list(row)[:13] == ["scene", "kind", "id", "category", "answer", "pred", "correct", "missing", "system",
                              "judge", "per_call", "usage", "raw"]  # fmt: skip
    assert row["usage"] == {"prompt_tokens": 6000, "completion_tokens": 10 / 3, "total_tokens": 18_010 / 3,
                            "n_frames": 4 / 3}  # fmt: skip
    assert (row["trial"], len(row["frames"]), len(row["prompt"])) == (1, 4, 64)
    assert lab.run("vqa") == 0
    assert len(lab.server.requests) == 4
    assert "0 calls" in capsys.readouterr().err


def test_a_second_system_in_the_same_file_is_asked_about_its_own_frames(lab: Lab) -> None:
    """The public program asks nothing, or sends the first one's frames."""
    lab.run("vqa")
    lab.run("vqa", "--system", "two")
    assert len(lab.server.requests) == 8
    pictures = [json.dumps(body["messages"][0]["content"][:4]) for body in lab.server.requests]
    assert len(set(pictures)) == 8
    assert sorted({(row["system"], row["scene"]) for row in lab.rows}) == sorted(
        (system, scene) for system in ("one", "two") for scene in SCENES
    )


@pytest.mark.parametrize(
    "change",
    [["--frames", 5], ["--width", 32], ["--max-tokens", 99], ["--model", "other"]],
    ids=["frames", "width", "tokens", "model"],
)
def test_whatever_can_change_an_answer_is_asked_again(lab: Lab, change: list[object]) -> None:
    lab.run("vqa", "--scenes", "s1")
    lab.run("vqa", "--scenes", "s1", *change)
    assert len(lab.server.requests) == 2


def test_a_changed_prompt_question_or_render_is_asked_again(lab: Lab) -> None:
    lab.run("vqa", "--scenes", "s1")
    own = lab.root / "own.txt"
    own.write_text("{images}\nAnswer.\n{questions}\n1. Yes")
    lab.run("vqa", "--scenes", "s1", "--prompt", own)
    assert len({row["prompt"] for row in lab.rows}) == 2
    lab.questions.write_text(lab.questions.read_text().replace("Does s1 move?", "Does s1 fall?"))
    lab.run("vqa", "--scenes", "s1")
    assert text_of(lab.server.requests[-1]).count("?\n") == 1
    shutil.copy(lab.render("s2", "one"), lab.render("s1", "one"))
    lab.run("vqa", "--scenes", "s1")
    assert len(lab.server.requests) == 4


def test_absent_corrupt_and_blank_renders_are_not_asked_and_counted_apart(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.render("s1", "one").unlink()
    lab.render("s2", "one").write_bytes(lab.render("s2", "one").read_bytes()[:900])
    write_video(lab.render("s3", "one"), [np.full((48, 64, 3), 9, np.uint8)] * 12, 12)
    assert lab.run("vqa") == 0
    assert [(r["scene"], r["how"]) for r in lab.rows if r["id"] is None] == [
        ("s1", "absent"), ("s2", "corrupt"), ("s3", "gated"),
    ]  # fmt: skip
    assert len(lab.server.requests) == 1
    before = lab.out.read_bytes()
    lab.run("vqa")
    assert lab.out.read_bytes() == before
    judge.main(["score", str(lab.out), "--questions", str(lab.questions), "--json", "--boot", "0"])
    (system,) = json.loads(capsys.readouterr().out)["judges"][0]["systems"]
    assert system["unasked_scenes"] == {"absent": 1, "corrupt": 1, "gated": 1}
    assert (system["acc"], system["asked"]) == (0.25, 2)
    lab.run("vqa", "--no-layer1")
    assert len(lab.server.requests) == 2


def test_what_passes_is_tried_again(lab: Lab) -> None:
    """Every request is in the ledger, and each scene is answered once."""
    lab.server.replies = [fails(429, "slow", **{"Retry-After": "0"}), fails(500, "boom"), Reply(drop=True),
                          Reply(truthful_body(), cut=True), Reply(raw=b"<html>busy</html>"), fails(529, "full"),
                          Reply({"error": {"message": "upstream", "code": 503}})]  # fmt: skip
    assert lab.run("vqa", "--workers", 2) == 0
    assert len(lab.server.requests) == 11
    assert len(lab.ledger) == 11
    assert sum("error" in entry for entry in lab.ledger) == 7
    assert [row["pred"] is not None for row in lab.rows] == [True] * 12


def truthful_body() -> Body:
    return says("1. Yes\n2. Yes\n3. No").body


def test_a_wait_that_the_provider_asks_for_is_kept_by_everybody(lab: Lab) -> None:
    lab.server.replies = [fails(429, "slow", **{"Retry-After": "1"})]
    begun = time.monotonic()
    assert lab.run("vqa", "--workers", 1, "--scenes", "s1") == 0
    assert time.monotonic() - begun >= 1
    assert len(lab.server.requests) == 2


def test_a_time_out_is_a_failed_try(lab: Lab) -> None:
    never = threading.Event()
    lab.server.replies = [Reply(truthful_body(), hold=never)]
    try:
        assert lab.run("vqa", "--scenes", "s1", "--timeout", 1) == 0
    finally:
        never.set()
    assert len(lab.server.requests) == 2
    assert "Timeout" in lab.ledger[0]["error"]
    assert lab.ledger[0]["maybe_charged"] is True


def test_after_the_last_try_the_others_go_on_and_the_error_is_on_record(lab: Lab) -> None:
    lab.server.replies = [fails(500, "boom"), fails(500, "boom")]
    assert lab.run("vqa", "--workers", 1, "--attempts", 2) == 1
    assert len(lab.server.requests) == 5
    first = [row for row in lab.rows if row["scene"] == "s1"]
    assert [row["pred"] for row in first] == [None] * 3
    assert "HTTP 500" in first[0]["error"]
    assert lab.run("vqa") == 0
    assert len(lab.server.requests) == 6


@pytest.mark.parametrize("status", [401, 402, 403, 404])
def test_a_refusal_stops_every_worker_and_keeps_what_came(
    lab: Lab, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The public program sends all that was queued, and loses what was not yet collected."""
    lab.server.replies = [truthful, fails(status, "no more")]
    lab.server.otherwise = lambda _: fails(status, "no more")
    assert lab.run("vqa", "--workers", 1) == 3
    assert len(lab.server.requests) == 2
    assert len(lab.rows) == 3
    assert f"HTTP {status}" in capsys.readouterr().err
    lab.server.otherwise = truthful
    assert lab.run("vqa") == 0
    assert len(lab.server.requests) == 5


def test_a_refusal_ends_the_waits_of_the_others(lab: Lab) -> None:
    """One worker is told to wait for five minutes while the refusal is on its way to the other."""
    lab.server.replies = [delayed(fails(402, "pay"), 0.5), fails(429, "slow", **{"Retry-After": "300"})]
    begun = time.monotonic()
    assert lab.run("vqa", "--workers", 2) == 3
    assert time.monotonic() - begun < 120
    assert len(lab.server.requests) == 2


def delayed(reply: Reply, seconds: float) -> Reply:
    reply.hold = threading.Event()
    threading.Timer(seconds, reply.hold.set).start()
    return reply


def test_a_request_that_is_rejected_costs_itself_only_unless_all_are(lab: Lab) -> None:
    lab.server.replies = [truthful, fails(413, "too large")]
    assert lab.run("vqa", "--workers", 1) == 1
    assert len(lab.server.requests) == 4
    assert sum(row["pred"] is None for row in lab.rows) == 3
    shutil.rmtree(lab.cache)
    lab.out.unlink()
    lab.server.otherwise = lambda _: fails(400, "no such parameter")
    assert lab.run("vqa", "--workers", 1) == 3
    assert len(lab.server.requests) == 7


def test_garbage_is_asked_once_more_and_never_taken_for_an_answer(lab: Lab) -> None:
    lab.server.otherwise = lambda _: says("As a language model I prefer yesterday.")
    assert lab.run("vqa", "--scenes", "s1") == 1
    assert len(lab.server.requests) == 2
    assert {row["pred"] for row in lab.rows} == {None}
    assert "answers nothing" in lab.rows[0]["error"]
    assert len(lab.ledger) == 2
    lab.server.otherwise = truthful
    assert lab.run("vqa", "--scenes", "s1") == 0
    assert len(lab.server.requests) == 3
    judge.main(["score", str(lab.out), "--questions", str(lab.questions)])


def test_an_empty_reply_that_ran_out_of_room_gets_more(lab: Lab) -> None:
    short = says("")
    short.body["choices"][0]["finish_reason"] = "length"
    lab.server.replies = [short]
    assert lab.run("vqa", "--scenes", "s1", "--max-tokens", 50) == 0
    assert [body["max_tokens"] for body in lab.server.requests] == [50, 100]


def test_a_partly_readable_reply_is_kept_and_the_rest_asked_again(lab: Lab) -> None:
    lab.server.replies = [says("1. Yes\n2. perhaps\n3. No")]
    lab.run("vqa", "--scenes", "s1")
    assert [row["pred"] for row in lab.rows] == ["Yes", None, "No"]
    lab.run("vqa", "--scenes", "s1")
    assert len(re.findall(r"^\d\. .*\?$", text_of(lab.server.requests[1]), re.MULTILINE)) == 1
    assert [row["pred"] for row in lab.rows] == ["Yes", None, "No", "Yes"]


def test_dollars_are_capped_and_counted(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    lab.server.otherwise = costing(0.02)
    assert lab.run("vqa", "--workers", 1, "--price", "0.1,0", "--max-usd", "0.05") == 1
    assert len(lab.server.requests) == 2
    shown = capsys.readouterr().err
    assert "--max-usd 0.05 leaves no room" in shown
    assert "2 calls were not made" in shown
    assert sum(row["cost"] for row in lab.rows) == pytest.approx(0.04)
    assert [entry["cost"] for entry in lab.ledger] == [0.02, 0.02]


def test_a_cap_without_a_price_is_refused_and_requests_are_capped_too(lab: Lab) -> None:
    with pytest.raises(UserError, match="--price IN"):
        lab.run("vqa", "--model", "my-own", "--max-usd", "1")
    assert lab.run("vqa", "--workers", 1, "--max-calls", 3) == 1
    assert len(lab.server.requests) == 3


def test_a_dry_run_asks_nothing_and_writes_no_record(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert lab.run("vqa", "--dry-run", "--price", "1,0") == 0
    shown = capsys.readouterr().out
    assert re.search(r"all +4 calls +16 pictures +18,\d\d\d prompt tokens +about \$0\.02", shown)
    assert lab.run("pairwise", "--dry-run") == 0
    assert re.search(r"all +4 calls +36 pictures", capsys.readouterr().out)
    assert not lab.out.exists()
    assert not lab.server.requests


def test_the_key_is_sent_and_stands_in_no_file(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    lab.server.replies = [fails(500, f"the key {KEY} is fine")]
    assert lab.run("vqa", "--key-env", "MY_KEY") == 0
    assert all(sent["authorization"] == f"Bearer {KEY}" for sent in lab.server.headers)
    files = [path for path in lab.root.rglob("*") if path.is_file()]
    assert not [path for path in files if KEY.encode() in path.read_bytes()]
    monkeypatch.delenv("MY_KEY")
    with pytest.raises(UserError, match="MY_KEY: the environment variable is not set"):
        lab.run("vqa", "--key-env", "MY_KEY")


def test_openrouter_s_own_form(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", KEY)
    lab.server.otherwise = costing(0.01)
    provider = ["--provider", "openrouter", "--key-env", "OPENROUTER_API_KEY"]
    assert lab.run("vqa", "--scenes", "s1", *provider) == 0
    (body,) = lab.server.requests
    assert body["model"] == "google/gemini-3.8-flash"
    assert body["usage"] == {"include": True}
    assert lab.server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert lab.rows[0]["usage"]["cost"] == pytest.approx(0.01 / 3)
    lab.server.replies = [fails(429, "slow", **{"Retry-After": "0"}), fails(402, "pay")]
    assert lab.run("vqa", *provider) == 3


def test_a_kill_pays_nothing_twice(lab: Lab, repository: Path) -> None:
    """Killed while the third reply is awaited: two were paid for, one of them perhaps not yet on record."""
    held = threading.Event()
    lab.server.replies = [truthful, truthful, Reply(truthful_body(), hold=held)]
    program = [sys.executable, "vlm_judge/judge.py", *map(str, lab.command("vqa", "--workers", 1))]
    child = subprocess.Popen(program, cwd=repository, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: len(lab.server.requests) == 3)
        child.send_signal(signal.SIGKILL)
        child.wait(60)
    finally:
        child.kill()
        held.set()
    # As if it had died between reply and record.
    kept = lab.out.read_bytes()
    lab.out.write_bytes(kept[: len(kept) - len(kept.splitlines(keepends=True)[-1]) + 20])
    assert lab.run("vqa") == 0
    assert len(lab.server.requests) == 5
    texts = [json.dumps(body["messages"]) for body in lab.server.requests]
    assert [texts.count(text) for text in texts[:3]] == [1, 1, 2]
    found = {}
    for line in lab.out.read_text().splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        found[row["scene"], row["id"]] = row["pred"]
    assert len(found) == 12
    assert None not in found.values()


def test_ctrl_c_waits_for_what_is_on_its_way(lab: Lab, repository: Path) -> None:
    held = threading.Event()
    lab.server.replies = [Reply(truthful_body(), hold=held)]
    program = [sys.executable, "vlm_judge/judge.py", *map(str, lab.command("vqa", "--workers", 1))]
    child = subprocess.Popen(program, cwd=repository, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    try:
        wait_until(lambda: len(lab.server.requests) == 1)
        child.send_signal(signal.SIGINT)
        told = [child.stderr.readline()]
        while told[-1] and "waiting for the calls" not in told[-1]:
            told.append(child.stderr.readline())
        held.set()
        assert child.wait(60) == 130
        told += child.stderr.read().splitlines()
        assert [line for line in told if not line.startswith("[JUDGE] ")] == []
        assert "3 calls were not made" in told[-1]
    finally:
        held.set()
        child.kill()
        child.stderr.close()
    assert len(lab.rows) == 3
    assert len(lab.server.requests) == 1


def wait_until(condition: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_two_programs_do_not_write_to_one_file(lab: Lab) -> None:
    from vlm_judge.records import appending

    with appending(lab.out), pytest.raises(UserError, match="writes to this file"):
        lab.run("vqa")


def test_records_of_the_public_program_are_taken_up(lab: Lab) -> None:
    model = "google/gemini-3.8-flash"
    old = [{"scene": "s1", "id": f"Q{i}", "pred": "Yes", "system": "one", "judge": model} for i in range(3)]
    old.append({"scene": "s2", "id": "Q0", "pred": None, "system": "one", "judge": model})
    write_rows(lab.out, old)
    lab.run("vqa")
    assert len(lab.server.requests) == 3


def test_pairwise_shows_reference_a_and_b(lab: Lab) -> None:
    assert lab.run("pairwise") == 0
    assert len(lab.server.requests) == len(lab.rows) == 4
    content = lab.server.requests[0]["messages"][0]["content"]
    assert [part["type"] for part in content] == (["text"] + ["image_url"] * 3) * 3 + ["text"]
    row = lab.rows[0]
    assert list(row)[:11] == [
        "scene",
        "kind",
        "a",
        "b",
        "winner",
        "how",
        "judge",
        "fps",
        "frames",
        "usage",
        "raw",
    ]
    assert (row["winner"], row["how"], row["raw"]) == (row["a"], "judged", "A")
    assert row["frames"] == {"ref": 3, "a": 3, "b": 3}
    assert lab.run("pairwise") == 0
    assert len(lab.server.requests) == 4


def test_pairwise_without_a_verdict(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    for scene in SCENES:
        lab.render(scene, "three").unlink()
    lab.render("s1", "two").unlink()
    lab.render("s2", "two").write_bytes(b"broken")
    write_video(lab.render("s3", "two"), [np.full((48, 64, 3), 9, np.uint8)] * 12, 12)
    assert lab.run("pairwise", "--systems", "one,two") == 0
    assert {row["scene"]: (row["how"], row["winner"]) for row in lab.rows} == {
        "s1": ("coverage", "one"), "s2": ("corrupt", "one"), "s3": ("gated", "one"),
        "s4": ("judged", lab.rows[-1]["a"]),
    }  # fmt: skip
    assert len(lab.server.requests) == 1
    lab.run("pairwise", "--systems", "one,two")
    assert len(lab.rows) == 4
    lab.run("pairwise", "--systems", "two,three")
    assert "1 pairs without any render are passed over" in capsys.readouterr().err
    assert sorted(row["how"] for row in lab.rows[4:]) == ["coverage", "coverage", "draw"]
    capsys.readouterr()
    judge.main(["elo", str(lab.out), "--json", "--boot", "0"])
    systems = {s["name"]: s for s in json.loads(capsys.readouterr().out)["judges"][0]["systems"]}
    assert systems["two"]["lost"] == {"absent": 1, "corrupt": 1, "gated": 1, "no verdict": 1}
    assert systems["three"]["lost"]["absent"] == 2


def test_pairwise_in_both_orders(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """A judge that always says A disagrees with itself: nothing but ties. What is known is not asked again."""
    lab.run("pairwise")
    assert lab.run("pairwise", "--both-orders") == 0
    assert len(lab.server.requests) == 8
    assert {(row["b"], row["a"], row["scene"]) for row in lab.rows[4:]} == {
        (row["a"], row["b"], row["scene"]) for row in lab.rows[:4]
    }
    capsys.readouterr()
    judge.main(["elo", str(lab.out), "--json", "--boot", "0"])
    (table,) = json.loads(capsys.readouterr().out)["judges"]
    assert table["orders"] == {"same": 0, "split": 4}
    assert [s["elo"] for s in table["systems"]] == pytest.approx([0, 0, 0], abs=1e-9)
    assert (table["position"]["judged"], table["position"]["first"]) == (8, 1.0)


def test_a_new_render_replaces_the_old_verdict(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    lab.run("pairwise", "--systems", "one,two", "--scenes", "s1")
    lab.render("s1", "two").unlink()
    lab.run("pairwise", "--systems", "one,two", "--scenes", "s1")
    capsys.readouterr()
    judge.main(["elo", str(lab.out), "--json", "--boot", "0"])
    (table,) = json.loads(capsys.readouterr().out)["judges"]
    assert table["left_out"] == {"superseded": 1}
    assert [s["games"] for s in table["systems"]] == [1, 1]


def test_published_comparisons_are_not_bought_again(lab: Lab) -> None:
    lab.run("pairwise", "--dry-run")
    lab.run("pairwise", "--workers", 1)
    bought = [(row["scene"], row["a"], row["b"]) for row in lab.rows]
    old = [{"case": s, "scene": s, "kind": "synthetic", "a": b, "b": a, "winner": a, "how": "judged"}
           for s, a, b in bought[:2]]  # fmt: skip
    old.append({"case": "s3", "scene": "s3", "a": bought[2][1], "b": bought[2][2], "winner": None,
                "how": "error:CalledProcessError"})  # fmt: skip
    write_rows(lab.out, old)
    shutil.rmtree(lab.cache)
    lab.server.requests.clear()
    lab.run("pairwise")
    assert len(lab.server.requests) == 2


def test_pairwise_garbage_is_an_error_and_asked_again_later(lab: Lab) -> None:
    lab.server.otherwise = lambda _: says("Both look fine.")
    assert lab.run("pairwise", "--scenes", "s1") == 1
    assert (lab.rows[0]["how"], lab.rows[0]["winner"]) == ("error", None)
    lab.server.otherwise = truthful
    assert lab.run("pairwise", "--scenes", "s1") == 0
    assert [row["how"] for row in lab.rows] == ["error", "judged"]


def test_a_render_that_cannot_be_read_is_nobody_s_loss(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(path: Path) -> str:
        if path == lab.render("s1", "one"):
            raise PermissionError(13, "Permission denied")
        return digest(path)

    digest = framestore.sha256
    monkeypatch.setattr(framestore, "sha256", refusing)
    assert lab.run("vqa") == 1
    assert {row["scene"] for row in lab.rows} == {"s2", "s3", "s4"}
    assert lab.run("pairwise", "--systems", "one,two", "--scenes", "s1") == 1
    assert (lab.rows[-1]["how"], lab.rows[-1]["states"]) == ("error", {"a": "unreadable", "b": "ok"})


def test_faults_in_what_is_given(lab: Lab) -> None:
    for more, words in (
        (["--workers", "0"], "--workers: must be above 0"), (["--scenes", "s9"], "no such scene"),
        (["--runs", "nowhere"], "no such directory"), (["--price", "x"], "is no price"),
        (["--split", "real"], "no scene is left"), (["--max-usd", "-1"], "cannot be negative"),
    ):  # fmt: skip
        with pytest.raises(UserError) as caught:
            lab.run("vqa", *more)
        assert words in caught.value.line()
    with pytest.raises(UserError, match="1 systems cannot be compared"):
        lab.run("pairwise", "--systems", "one")
