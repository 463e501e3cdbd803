"""A hundred kills of the launcher, two runs at a time: nothing is lost, repeated, or left behind."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from typing import Any

import pytest
from harness_lab import REPOSITORY, Lab, eventually

KILLS, JOBS = 100, 48
AGENT = """
import json, os, pathlib, random, sys, time, uuid
root, session, kind = pathlib.Path(sys.argv[1]), pathlib.Path.home() / ".s", sys.argv[2]
name, dice, calm = uuid.uuid4().hex, random.Random(), (root / "calm").exists()
with open(session / (name + ".jsonl"), "w") as transcript:
    for number in range(4):
        used = {"input_tokens": dice.randrange(1, 1000), "output_tokens": dice.randrange(1, 100)}
        if kind == "usage":
            line = {"usage": used, "cost_usd": dice.randrange(1, 100) / 64}
        else:
            line = {"type": "assistant", "requestId": "r%d" % number,
                    "message": {"id": "m-%s-%d" % (name, number), "usage": used}}
        transcript.write(json.dumps(line) + "\\n")
        transcript.flush()
        if number == 0:
            with open(root / "starts", "a") as starts:
                starts.write(name + "\\n")
        if not calm:
            time.sleep(dice.uniform(0, 0.3))
os.makedirs("world"), os.makedirs("solution")
open("solution/build.sh", "w").write("#!/bin/sh\\n")
"""


class Zygote:
    """A process that forks launchers; see ``helpers/zygote.py``."""

    def __init__(self, lab: Lab) -> None:
        self.log = lab.root / "launchers.log"
        self._arguments = lab.command()[2:]
        (lab.root / "tmp").mkdir()
        self._process = subprocess.Popen(
            [sys.executable, str(REPOSITORY / "tests/helpers/zygote.py"), str(self.log)],
            env=lab.environment(TMPDIR=str(lab.root / "tmp")),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=lab.root,
        )  # fmt: skip
        assert self._line() == "ready"

    def start(self) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(self._arguments) + "\n")
        self._process.stdin.flush()
        return int(self._line())

    def wait(self) -> int:
        """Exit status of the launcher, negative for a signal."""
        return int(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


def transcripts(lab: Lab) -> dict[str, list[dict[str, Any]]]:
    """Every transcript in the tree, by the name that its agent gave it; each must be there once."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in lab.runs.rglob("*.jsonl"):
        assert path.stem not in found, f"{path} is there twice"
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        found[path.stem] = [json.loads(line) for line in lines if line.endswith("\n")]
    return found


def used(line: dict[str, Any]) -> int:
    usage = line["usage"] if "usage" in line else line["message"]["usage"]
    return int(usage["input_tokens"] + usage["output_tokens"])


def finished(lab: Lab) -> dict[str, bytes]:
    """Records of runs in their place that are done."""
    found = {}
    for path in lab.runs.glob("*/*/*/1/run.json"):
        content = path.read_bytes()
        if json.loads(content)["state"] == "done":  # never half-written
            found[path.parent.parent.name] = content
    return found


def wait_for_a_moment(lab: Lab, dice: random.Random) -> None:
    """A random moment of a launcher's life: while it starts and takes stock, or some time after one, two or
    three agents have started (the third starts when another has ended). On a slow machine as on a fast one.
    """
    agents = dice.choice((0, 0, 0, 1, 1, 2, 2, 2, 2, 3))
    starts = lab.root / "starts"
    before = starts.stat().st_size if starts.exists() else 0
    eventually(lambda: (starts.exists() and starts.stat().st_size >= before + 33 * agents) or not agents, 5.0)
    time.sleep(dice.random() * (0.15 if agents else 0.05))


@pytest.mark.slow
def test_a_hundred_kills_of_the_launcher_over_a_batch_on_two_slots(lab: Lab) -> None:
    (lab.root / "agent.py").write_text(AGENT, encoding="utf-8")
    agents = ""
    words = [sys.executable, "-I", "-S", str(lab.root / "agent.py"), str(lab.root)]
    for name, kind in (("dollars", "usage"), ("tokens", "claude")):
        agents += (
            f"[agent.{name}]\ncommand = {json.dumps([*words, kind])}\n"
            f'session_dir = ".s"\ntranscript = "{kind}"\n'
        )
    lab.runtime(agents, agent="timeout_sec = 60\ngrace_sec = 0.2\nparallel = 2\nretry_wait_sec = 0.05")
    lab.jobs(*({"agent": ("dollars", "tokens")[n % 2], "model": f"m{n}"} for n in range(JOBS)))
    moments = random.Random(100)
    seen: dict[str, bytes] = {}
    zygote = Zygote(lab)
    try:
        kills = 0
        for _ in range(KILLS):
            pid = zygote.start()
            wait_for_a_moment(lab, moments)
            os.kill(pid, signal.SIGKILL)
            kills += zygote.wait() == -signal.SIGKILL
            now = finished(lab)
            assert {name: now.get(name) for name in seen} == seen, "a finished run was touched"
            seen = now
        (lab.root / "calm").touch()
        zygote.start()
        status = zygote.wait()
    finally:
        zygote.end()
    log = zygote.log.read_text(encoding="utf-8")
    assert status == 0, log[-3000:]
    assert kills == KILLS, "the batch was over before the kills were"
    check_the_end(lab, seen)


def check_the_end(lab: Lab, seen: dict[str, bytes]) -> None:
    """Every job is done once, every attempt is on record with its transcript, and nothing is left."""
    records = {name: json.loads(content) for name, content in finished(lab).items()}
    assert len(records) == JOBS
    assert {name: finished(lab)[name] for name in seen} == seen
    for record in records.values():
        passed = Counter(entry["state"] for entry in record["history"])
        assert (passed["done"], passed["failed"], record["delivered"]) == (1, 0, True)
        ends = [entry.get("failure") for entry in record["attempts"]]
        assert ends == ["launcher_killed"] * (len(ends) - 1) + [None]
        assert [entry["number"] for entry in record["attempts"]] == list(range(1, len(ends) + 1))
    written = transcripts(lab)
    starts = (lab.root / "starts").read_text(encoding="utf-8").split()
    assert set(starts) <= set(written), "a transcript was lost"
    attempts = sum(len(record["attempts"]) for record in records.values())
    assert attempts > JOBS, "no attempt was cut off: the test shows nothing"
    lines = [line for one in written.values() for line in one]
    assert sum(record["spent"]["tokens"] for record in records.values()) == sum(map(used, lines))
    dollars = sum(line.get("cost_usd", 0.0) for line in lines)
    priced = [record for record in records.values() if record["agent"] == "dollars"]
    assert sum(record["spent"]["cost_usd"] for record in priced) == pytest.approx(dollars, abs=1e-6)
    assert lab.leftovers() == []
    assert list((lab.root / "tmp").iterdir()) == []
    assert eventually(lambda: not lab.processes())
