"""Records are strict, whole or absent, and names stay on their level of the tree."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract import record
from contract.errors import UserError, one_line
from contract.runs import RunKey, encode_segment


def test_dumps_is_sorted_indented_and_ends_with_a_newline() -> None:
    assert record.dumps({"b": [1], "a": {"d": 1, "c": None}}) == (
        '{\n  "a": {\n    "c": null,\n    "d": 1\n  },\n  "b": [\n    1\n  ]\n}\n'
    )


def test_nan_is_refused_and_finite_replaces_it() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        record.dumps({"a": math.nan})
    assert record.finite({"a": [math.nan, math.inf, (1.5, -math.inf)]}) == {"a": [None, None, [1.5, None]]}


def test_write_json_leaves_no_temporary(tmp_path: Path) -> None:
    record.write_json(tmp_path / "a.json", {"x": 1})
    record.write_json(tmp_path / "a.json", {"x": 2})
    assert record.read_json(tmp_path / "a.json") == {"x": 2}
    assert os.listdir(tmp_path) == ["a.json"]
    assert (tmp_path / "a.json").stat().st_mode & 0o777 == 0o644


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    record.write_json(tmp_path / "a.json", {"x": 1})
    with pytest.raises(ValueError):
        record.write_json(tmp_path / "a.json", {"x": math.nan})
    with pytest.raises(RuntimeError), record.replacing(tmp_path / "a.json") as stream:
        stream.write(b"half")
        raise RuntimeError
    assert record.read_json(tmp_path / "a.json") == {"x": 1}
    assert os.listdir(tmp_path) == ["a.json"]


def test_only_what_our_own_killed_writers_left_is_cleared(tmp_path: Path) -> None:
    kept = ("run.json", ".other.json.abcdefgh.tmp", "run.json.abcdefgh.tmp", ".run.json.abc.tmp", "a/x.log")
    left = (".run.json.abcd_123.tmp", "a/.x.log.zzzzzzzz.tmp")
    (tmp_path / "a").mkdir()
    for name in (*kept, *left):
        (tmp_path / name).write_text("x", encoding="utf-8")
    (tmp_path / ".run.json.12345678.tmp").symlink_to("run.json")
    assert record.clear_unfinished(tmp_path) == len(left)
    there = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if not path.is_dir()}
    assert there == {*kept, ".run.json.12345678.tmp"}
    assert record.clear_unfinished(tmp_path / "absent") == 0


def test_read_json_turns_deep_nesting_into_a_value_error(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(ValueError):
        record.read_json(tmp_path / "deep.json")


def test_errors_are_one_line() -> None:
    error = UserError("no\nsuch \x1b[31mcase", where="jobs.toml", expected="a case", next_step="mend it")
    assert error.line() == r"jobs.toml: no such \x1b[31mcase; expected a case. Next: mend it"


@given(st.text())
def test_one_line_is_one_printable_line(text: str) -> None:
    assert one_line(text).isprintable()


@given(st.text(min_size=1))
def test_encoded_segments_are_one_safe_level(text: str) -> None:
    segment = encode_segment(text)
    assert "/" not in segment
    assert "\0" not in segment
    assert segment not in (".", "..")
    assert segment.isascii()


@given(st.text(min_size=1), st.text(min_size=1))
def test_encoding_keeps_names_apart(one: str, other: str) -> None:
    if "%" not in one + other:
        assert (encode_segment(one) == encode_segment(other)) == (one == other)


def test_run_paths() -> None:
    key = RunKey("real/clip", "stirrup", "org/model:8b", "high", 2)
    assert str(key.path) == "real/clip/stirrup-org%2Fmodel%3A8b-high/2"
    assert str(key.world) == "real/clip/stirrup-org%2Fmodel%3A8b-high/2/workspace/world"
    assert key.label == "real-clip-stirrup-org%2Fmodel%3A8b-high-2"
    assert str(RunKey("real/clip", "claude", "opus-4.5", "max", 1).path) == "real/clip/claude-opus-4.5-max/1"


def test_json_written_is_strict(tmp_path: Path) -> None:
    record.write_json(tmp_path / "a.json", record.finite({"a": math.inf}))

    def refuse(token: str) -> None:
        raise AssertionError(token)

    assert json.loads((tmp_path / "a.json").read_text(), parse_constant=refuse) == {"a": None}
