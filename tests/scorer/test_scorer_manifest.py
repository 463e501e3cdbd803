from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contract.errors import UserError
from scorer.manifest import Roots, read_manifest, require_cases

ROOTS = Roots(Path("/c"), Path("/d"), Path("/r"), Path("/k"))
GOOD = {"case": "real/a", "world": "runs/real/a/s/1/workspace/world", "out": "runs/real/a/s/1"}


def read(tmp_path: Path, value: Any) -> Any:
    path = tmp_path / "manifest.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return read_manifest(path, ROOTS)


def test_paths_are_resolved_and_order_kept(tmp_path: Path) -> None:
    sanity = {
        "case": "synthetic/b",
        "world": "data/synthetic/b/world",
        "out": "data/synthetic/b/sanity",
        "x": 1,
    }
    first, second = read(tmp_path, [GOOD, sanity])
    assert first.world == Path("/r/real/a/s/1/workspace/world")
    assert first.results == Path("/r/real/a/s/1/results")
    assert first.video == Path("/c/real/a/reference.mp4")
    assert first.build_script == Path("/r/real/a/s/1/workspace/solution/build.sh")
    assert first.estimates == Path("/d/real/a/estimates")
    assert not first.sanity
    assert second.sanity
    assert second.results == Path("/d/synthetic/b/sanity/results")
    assert second.reference is None  # not on disk
    assert second.annotation is None
    assert read(tmp_path, []) == []


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("{", "not JSON"),
        ("\xff", "not JSON"),
        ("{}", "not a list"),
        ([1], "entry 1: not an object"),
        ([GOOD, {"case": "real/b"}], "entry 2: has no 'world'"),
        ([{k: v for k, v in GOOD.items() if k != "out"}], "entry 1: has no 'out'"),
        ([GOOD | {"out": 3}], "entry 1: 'out' is not a text"),
        ([GOOD | {"case": "real"}], "entry 1: 'case' is 'real'"),
        ([GOOD | {"case": "real/../../x"}], "entry 1: 'case'"),
        ([GOOD | {"case": "/real/x"}], "entry 1: 'case'"),
        ([GOOD | {"world": "runs/../x"}], "entry 1: 'world'"),
        ([GOOD | {"world": "runs/a//b"}], "entry 1: 'world'"),
        ([GOOD | {"world": "runs"}], "entry 1: 'world'"),
        ([GOOD | {"world": "/etc/passwd"}], "unknown root"),
        ([GOOD | {"world": "checkpoints/x"}], "unknown root"),
        ([GOOD | {"out": "runs/a\0b"}], "entry 1: 'out'"),
        ([GOOD, GOOD | {"world": "runs/other"}], "entries 1 and 2 have the same 'out'"),
    ],
)
def test_faults_name_the_entry_on_one_line(tmp_path: Path, value: Any, says: str) -> None:
    with pytest.raises(UserError) as caught:
        read(tmp_path, value)
    assert says in caught.value.line()
    assert "manifest.json" in caught.value.line()
    assert "\n" not in caught.value.line()


def test_a_missing_manifest_and_a_missing_case_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere"):
        read_manifest(tmp_path / "nowhere.json", ROOTS)
    with pytest.raises(UserError, match="entry 1: case real/a has no"):
        require_cases(read(tmp_path, [GOOD]))
