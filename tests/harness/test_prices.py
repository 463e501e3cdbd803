"""Prices: names, lookups, sums by hand; the bundled table and one of the user's own."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.errors import UserError
from harness.runtime import accounting, cost, prices
from harness.runtime.transcripts import Usage

CACHES = (prices._litellm, prices._own, prices._source)


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No table of somebody's own, and nothing remembered from another test."""
    monkeypatch.delenv(prices.OVERLAY, raising=False)
    for cached in CACHES:
        cached.cache_clear()
    yield
    for cached in CACHES:
        cached.cache_clear()


def table(monkeypatch: pytest.MonkeyPatch, entries: dict[str, dict[str, float]]) -> None:
    by_name: dict[str, list[str]] = {}
    for key in sorted(entries):
        by_name.setdefault(key.rsplit("/", 1)[-1], []).append(key)
    monkeypatch.setattr(prices, "_litellm", lambda: (entries, by_name))


def rates(read: float, write: float) -> dict[str, float]:
    return {"input_cost_per_token": read, "output_cost_per_token": write}


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("Claude-Opus-4-5", "claude-opus-4-5"),
        ("zai/GLM-4.6-FP8-sglang", "glm-4.6"),
        ("a/b/qwen3-coder-awq-int4-vllm", "qwen3-coder"),
        ("int8", "int8"),
        ("", ""),
    ],
)
def test_names(given: str, name: str) -> None:
    assert prices.normal(given) == name


def test_the_bundled_table_knows_models_of_today_without_importing_litellm() -> None:
    before = "litellm" in sys.modules
    found = prices.price("anthropic/claude-opus-4-5")
    assert found is not None
    assert found.source.startswith("litellm ")
    assert 0 < found.input < found.output < 1e-3
    assert ("litellm" in sys.modules) == before
    assert prices.price("no-such-model-of-anybody") is None


def test_exact_names_come_first_and_openrouter_for_open_models(monkeypatch: pytest.MonkeyPatch) -> None:
    table(monkeypatch, {"m": rates(1, 2), "openrouter/b/m": rates(3, 4), "other/m": rates(5, 6)})
    assert prices.price("x/m").input == 1
    assert prices.price("m", openrouter_first=True).input == 3


def test_other_providers_count_only_when_they_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    table(monkeypatch, {"a/m": rates(1, 2), "b/m": rates(1, 2), "a/n": rates(1, 2), "b/n": rates(1, 3)})
    assert prices.price("m").output == 2
    assert prices.price("n") is None


def test_an_entry_without_both_rates_is_no_price(monkeypatch: pytest.MonkeyPatch) -> None:
    table(monkeypatch, {"m": {"input_cost_per_token": 1.0}})
    assert prices.price("m") is None


def test_a_cost_by_hand() -> None:
    usage = Usage(input=1000, cached=10_000, written=100, output=500, reasoning=400)
    full = prices.Price(2e-6, 10e-6, 0.2e-6, 2.5e-6, "test")
    assert full.cost(usage) == pytest.approx(0.002 + 0.002 + 0.00025 + 0.005)
    assert full.cost(usage, assumed_hits=True) == pytest.approx(1500 * 2e-6 + 9500 * 0.2e-6 + 0.00025 + 0.005)
    bare = prices.Price(2e-6, 10e-6, None, None, "test")
    assert bare.cost(usage) == pytest.approx(11_100 * 2e-6 + 0.005)


def test_a_table_of_ones_own_goes_first_and_zero_is_a_price(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "prices.toml"
    path.write_text('["Mine-vllm"]\ninput = 0\noutput = 0.0\n["gpt-5"]\ninput = 7\noutput = 8\ncached = 1\n')
    monkeypatch.setenv(prices.OVERLAY, str(path))
    assert prices.price("org/mine").cost(Usage(input=10, output=10)) == 0.0
    assert prices.price("gpt-5") == prices.Price(7e-6, 8e-6, 1e-6, None, str(path))


@pytest.mark.parametrize(
    "text", ["x = 1", '["m"]\ninput = -1\noutput = 1', '["m"]\ninput = 1\noutputs = 1', "["]
)
def test_a_faulty_table_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(text)
    monkeypatch.setenv(prices.OVERLAY, str(path))
    with pytest.raises(UserError) as caught:
        prices.price("m")
    assert str(path) in caught.value.line()


def test_without_litellm_nothing_is_priced_and_the_note_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prices.importlib.util, "find_spec", lambda _: None)
    assert prices.price("gpt-5") is None
    assert "pip install" in prices.why_unpriced("gpt-5")


# Accounts and the command.


def make_run(root: Path, name: str, model: str, output: int, reported: float | None = None) -> Path:
    run = root / "synthetic/case" / name / "1"
    (run / "session").mkdir(parents=True)
    (run / "logs").mkdir()
    message = {"id": "m", "usage": {"input_tokens": 1000, "output_tokens": output}, "content": []}
    line = json.dumps({"type": "assistant", "message": message})
    (run / "session/a.jsonl").write_text(line + "\n")
    if reported is not None:
        result = {"type": "result", "usage": {}, "total_cost_usd": reported}
        (run / "logs/agent.log").write_text(json.dumps(result) + "\n")
    record = {"agent": "claude", "model": model, "case": "synthetic/case", "effort": "low", "trial": 1}
    (run / "run.json").write_text(json.dumps({**record, "cost_error": "old"}))
    return run


def test_an_account_prefers_what_the_program_reports_and_says_a_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table(monkeypatch, {"m": rates(1e-6, 1e-5)})
    silent = accounting.account("claude", make_run(tmp_path, "a-m-low", "m", 100))
    assert silent.cost_usd == pytest.approx(0.002)
    told = accounting.account("claude", make_run(tmp_path, "b-m-low", "m", 100, reported=0.5))
    assert told.cost_usd == 0.5
    assert "0.002" in told.cost_note
    agreeing = accounting.account("claude", make_run(tmp_path, "c-m-low", "m", 100, reported=0.00201))
    assert agreeing.cost_usd == 0.00201
    assert "0.002 " not in agreeing.cost_note
    unknown = accounting.account("claude", make_run(tmp_path, "d-x-low", "unheard-of", 100))
    assert unknown.cost_usd is None
    assert "unheard-of" in unknown.cost_note


def test_live_reads_again_only_what_has_grown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table(monkeypatch, {"m": rates(1e-6, 1e-5)})
    run = make_run(tmp_path, "a-m-low", "m", 100)
    reader = accounting.reader("claude")
    assert reader is not None
    log = run / "logs/agent.log"
    assert reader.live(run / "session", log, "m") == (1100, pytest.approx(0.002))
    monkeypatch.setattr(reader, "_reader", None)  # would fail if it were asked again
    assert reader.live(run / "session", log, "m")[0] == 1100
    assert accounting.live("claude", tmp_path / "nowhere", log, "m") == (0, None)


def test_the_command_counts_a_tree_and_writes_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table(monkeypatch, {"m": rates(1e-6, 1e-5)})
    known, unknown = make_run(tmp_path, "a-m-low", "m", 100), make_run(tmp_path, "a-x-low", "x", 100)
    before = (known / "run.json").read_bytes()
    assert cost.main([str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["total"] == {"runs": 2, "priced": 1, "cost_usd": 0.002, "tokens": 2200, "steps": 2,
                             "tool_calls": 0}  # fmt: skip
    assert (known / "run.json").read_bytes() == before
    assert cost.main([str(tmp_path), "--write"]) == 0
    shown = capsys.readouterr().out
    assert "1 of 2 runs priced" in shown
    assert "unknown" in shown
    record = json.loads((known / "run.json").read_text())
    assert (record["cost_usd"], record["usage"]["output_tokens"], record["steps"]) == (0.002, 100, 1)
    assert "cost_error" not in record
    assert json.loads((unknown / "run.json").read_text())["cost_usd"] is None


def test_the_command_goes_on_past_a_broken_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path, "a-m-low", "m", 100)
    (run / "run.json").write_text("{")
    make_run(tmp_path, "b-m-low", "m", 100)
    assert cost.main([str(tmp_path)]) == 1
    streams = capsys.readouterr()
    assert "run.json cannot be read" in streams.err
    assert "1 of 2" not in streams.err


def test_the_command_refuses_a_tree_without_runs(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        cost.main([str(tmp_path)])
    with pytest.raises(UserError):
        cost.main([str(tmp_path / "absent")])
