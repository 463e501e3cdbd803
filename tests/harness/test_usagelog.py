"""The transcript format for agents of one's own, filled in by agents that mean ill."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.record import dumps
from harness.runtime.usagelog import READER

FINE = '{"usage": {"input_tokens": 10, "output_tokens": 5}, "cost_usd": 0.25}\n'


def write(run: Path, text: str) -> None:
    place = run / "session/.notes"
    place.mkdir(parents=True)
    (place / "usage.jsonl").write_text(text, encoding="utf-8")


def test_lines_add_up(tmp_path: Path) -> None:
    write(tmp_path, FINE * 3)
    account = READER.account(tmp_path, "m")
    assert (account.cost_usd, account.steps) == (0.75, 3)
    assert account.usage is not None
    assert (account.usage["input_tokens"], account.usage["output_tokens"]) == (30, 15)
    assert READER.live(tmp_path / "session", tmp_path, "m") == (45, 0.75)


@pytest.mark.parametrize(
    "cost", ["1e308", "1" + "0" * 400, "Infinity", "NaN", "-1", "true", '"1"', "null", "{}", "[]"]
)
def test_an_impossible_cost_is_an_unknown_one(tmp_path: Path, cost: str) -> None:
    line = f'{{"usage": {{"input_tokens": 10, "output_tokens": {cost}}}, "cost_usd": {cost}}}\n'
    write(tmp_path, FINE + line * 3)
    account = READER.account(tmp_path, "m")
    assert account.cost_usd is None
    assert account.cost_note == "3 of 4 usage lines name no cost_usd"
    assert account.usage is not None
    assert (account.usage["input_tokens"], account.usage["output_tokens"]) == (40, 5)
    assert dumps({"usage": account.usage, "steps": account.steps})
    assert READER.live(tmp_path / "session", tmp_path, "m") == (45, None)
