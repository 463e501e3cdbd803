"""Published renders in the tree of the runs: linked, marked, and never in the way of a real run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import place_renders
import pytest

from contract.errors import UserError
from contract.runs import RunKey
from harness.runtime.runrecord import DONE, read_record, state_of
from harness.runtime.scoring import why_not_run

SYSTEM = "codex-gpt-5-high"


@pytest.fixture
def source(tmp_path: Path, fixture_worlds: Path) -> Path:
    """A copy of the data set: one system with two cases, another with one, and what is no render."""
    video = fixture_worlds / "cases/synthetic/mixed/reference.mp4"
    for name in (f"{SYSTEM}/real/clip.mp4", f"{SYSTEM}/synthetic/B_01.mp4", "other/real/clip.mp4"):
        path = tmp_path / "results" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(video, path)
    (tmp_path / "results/README.md").write_text("")
    (tmp_path / f"results/{SYSTEM}/notes").mkdir()
    shutil.copyfile(video, tmp_path / f"results/{SYSTEM}/notes/x.mp4")
    return tmp_path / "results"


def run(source: Path, *words: object) -> int:
    return place_renders.main([str(source), "--runs", str(source.parent / "runs"), *map(str, words)])


def render(source: Path, kind: str, case: str, system: str = SYSTEM) -> Path:
    return source.parent / "runs" / kind / case / system / "1/workspace/world/render.mp4"


def files(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def test_renders_are_linked_and_the_copy_stays(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(source)
    assert run(source) == 0
    assert capsys.readouterr().out.endswith("runs, 0 already there\n")
    assert files(source) == before
    assert files(source.parent / "runs") == sorted(
        f"{path}/1/{file}"
        for path in (f"real/clip/{SYSTEM}", f"synthetic/B_01/{SYSTEM}", "real/clip/other")
        for file in ("run.json", "workspace/world/render.mp4")
    )
    assert render(source, "real", "clip").samefile(source / f"{SYSTEM}/real/clip.mp4")
    assert run(source) == 0
    assert capsys.readouterr().out.endswith(
        "0 renders placed under " + str(source.parent / "runs") + ", 3 already there\n"
    )


@pytest.mark.parametrize("refusal", [None, OSError(18, "Invalid cross-device link")])
def test_a_copy_where_asked_or_where_links_are_refused(
    source: Path, monkeypatch: pytest.MonkeyPatch, refusal: OSError | None
) -> None:
    def link(*_: object) -> None:
        assert refusal is not None
        raise refusal

    monkeypatch.setattr(place_renders.os, "link", link)
    assert run(source, *(() if refusal else ("--copy",))) == 0
    target = render(source, "real", "clip")
    assert target.stat().st_nlink == 1
    assert target.read_bytes() == (source / f"{SYSTEM}/real/clip.mp4").read_bytes()
    assert json.loads((target.parents[2] / "run.json").read_text())["origin"]["linked"] is False


def test_a_link_of_the_cache_is_followed(source: Path) -> None:
    path = source / f"{SYSTEM}/real/clip.mp4"
    path.rename(source.parent / "blob")
    path.symlink_to(source.parent / "blob")
    assert run(source) == 0
    assert not render(source, "real", "clip").is_symlink()
    assert render(source, "real", "clip").is_file()


def test_a_placed_render_can_be_told_from_a_run_and_can_be_scored(source: Path) -> None:
    assert run(source) == 0
    record = read_record(render(source, "synthetic", "B_01").parents[2])
    assert record is not None
    assert state_of(record) == DONE
    origin = record["origin"]
    assert (origin["kind"], origin["dataset"]) == ("placed_render", "4DCodeBench/Results")
    assert origin["file"] == f"{SYSTEM}/synthetic/B_01.mp4"

    key = RunKey("synthetic/B_01", "codex", "gpt-5", "high", 1)
    assert why_not_run(key, source.parent / "runs") == ""


def test_a_dry_run_writes_nothing(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(source, "--dry-run") == 0
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 4
    assert out[0].split(" -> ")[1].endswith(f"runs/real/clip/{SYSTEM}/1/workspace/world/render.mp4")
    assert out[3].startswith("3 renders would be placed under ")
    assert not (source.parent / "runs").exists()


def test_a_real_run_is_left_alone(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = render(source, "real", "clip").parents[2]
    mine.mkdir(parents=True)
    (mine / "run.json").write_text('{"state": "failed"}')
    assert run(source) == 1
    out, err = capsys.readouterr()
    assert err.count("\n") == 1
    assert "a run that was not placed stands there" in err
    assert out.endswith("1 not placed\n")
    assert files(mine) == ["run.json"]
    assert render(source, "real", "clip", "other").is_file()


def test_one_of_ours_without_its_render_is_placed_again(source: Path) -> None:
    assert run(source) == 0
    render(source, "real", "clip").unlink()
    assert run(source) == 0
    assert render(source, "real", "clip").is_file()


def test_a_truncated_render_costs_itself_only(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = source / f"{SYSTEM}/real/clip.mp4"
    path.write_bytes(path.read_bytes()[:-100])
    assert run(source) == 1
    err = capsys.readouterr().err
    assert str(path) in err
    assert "cut off" in err
    assert "download it again" in err
    assert render(source, "synthetic", "B_01").is_file()
    assert not (source.parent / f"runs/real/clip/{SYSTEM}").exists()


def test_nothing_to_place(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such directory"):
        run(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds no render"):
        run(tmp_path / "empty")
