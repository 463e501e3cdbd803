"""The prepare stage as a program: what it skips, what it repeats, and how it ends."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest
from clips import clip
from prepare_lab import FAKE_TABLE, PrepareLab
from scorer_lab import eventually

from contract.errors import UserError

ALL = [each.file for each in FAKE_TABLE]
RENDER_ONLY = ["geophys_dinov3.npz", "semantic_dinov3.npz", "semantic_tips.npz"]


@pytest.fixture
def lab(tmp_path: Path) -> PrepareLab:
    return PrepareLab(tmp_path / "lab")


def loads(lab: PrepareLab) -> list[str]:
    return [line.split()[1] for line in lab.calls if line.startswith("load ")]


def test_a_whole_run(lab: PrepareLab) -> None:
    lab.add_case("real/a")
    lab.add_case("synthetic/b")
    lab.cases += ["real/a"]
    done = lab.prepare()
    assert done.returncode == 0
    assert done.stderr == "warning: FOURDCB_UNVERIFIED_CHECKPOINTS=1: checkpoints are not verified\n"
    lines = done.stdout.splitlines()
    assert lines[0] == "2 case(s), groups ['flow', 'tracks', 'moge', 'semantic', 'geophys', 'depth']"
    assert [line for line in lines if line.startswith("==")] == [
        "== flow", "== tracks", "== moge", "== semantic", "== geophys", "== depth",
    ]  # fmt: skip
    assert lines[2] == "1 case without a metric that needs it (--all computes it)"
    assert lines[3].startswith("real/a: flow.h5: done in ")
    assert "semantic_tips.npz, about " in next(line for line in lines if "real/a: semantic_tips" in line)
    assert lines[-1] == "10 computed, 0 kept, 0 failed"
    assert lab.files("real/a") == sorted(ALL)
    assert lab.files("synthetic/b") == RENDER_ONLY
    assert loads(lab) == [
        "raft-large", "cotracker3-offline", "moge-3-vitl", "dinov3", "tips", "dinov3",
        "video-depth-anything-large",
    ]  # fmt: skip

    before = {p: p.stat().st_mtime_ns for p in lab.estimates("real/a").iterdir()}
    lab.forget_calls()
    again = lab.prepare()
    assert again.returncode == 0
    assert again.stdout.splitlines()[-1] == "0 computed, 10 kept, 0 failed"
    assert (
        "== flow\n1 case without a metric that needs it (--all computes it)\n1 estimate up to date\n"
        in again.stdout
    )
    assert lab.calls == []
    assert {p: p.stat().st_mtime_ns for p in lab.estimates("real/a").iterdir()} == before


def test_all_computes_what_no_metric_needs(lab: PrepareLab) -> None:
    lab.add_case("synthetic/b")
    assert lab.here("--all") == 0
    assert lab.files("synthetic/b") == sorted(ALL)


@pytest.mark.parametrize(
    ("flags", "files"),
    [
        (["--only", "depth,flow"], ["depth.h5", "flow.h5"]),
        (["--only", "geophys", "--only", "semantic"], RENDER_ONLY),
        (["--only", " moge ,"], ["moge.npz"]),
    ],
)
def test_only_some_groups_in_their_fixed_order(lab: PrepareLab, flags: list[str], files: list[str]) -> None:
    lab.add_case("real/a")
    shutil.rmtree(lab.root / "checkpoints")  # of groups that are not wanted nothing is asked
    store = PrepareLab(lab.root / "other").root / "checkpoints"
    shutil.copytree(store, lab.root / "checkpoints")
    for name, group in (("cotracker3", "tracks"), ("raft-large", "flow")):
        if group not in " ".join(flags):
            shutil.rmtree(lab.root / "checkpoints" / name)
    assert lab.here(*flags) == 0
    assert lab.files("real/a") == files
    if "flow.h5" in files:
        assert loads(lab) == ["raft-large", "video-depth-anything-large"]


def test_what_makes_an_estimate_out_of_date(lab: PrepareLab, capsys: pytest.CaptureFixture[str]) -> None:
    lab.add_case("real/a")
    lab.add_case("real/b")
    assert lab.here() == 0
    lab.forget_calls()

    (lab.root / "checkpoints" / "tipsv2-l14" / "model.safetensors").write_text("other weights of tips")
    assert lab.here() == 0
    assert lab.calls == ["load tips on cpu", "tips embed 5", "tips embed 5"]
    lab.forget_calls()

    clip(lab.video("real/b"), 4, 40, 56)
    assert lab.here("--only", "flow,depth") == 0
    assert "real/b: flow.h5: made from something else, computed again" in capsys.readouterr().out
    assert [line for line in lab.calls if "flow" in line] == ["raft-large flow 3", "raft-large flow 2"]
    with h5py.File(lab.estimates("real/b") / "flow.h5") as file:
        assert file["flow"].shape[0] == 3
    lab.forget_calls()

    newer = tuple(
        each if each.file != "depth.h5" else type(each)(**{**vars(each), "version": 2}) for each in FAKE_TABLE
    )
    assert lab.here("--only", "flow,depth", table=newer) == 0
    assert loads(lab) == ["video-depth-anything-large"]
    lab.forget_calls()

    assert lab.here("--only", "moge", "--redo") == 0
    assert lab.calls == ["load moge-3-vitl on cpu"] + ["moge-3-vitl points (40, 56, 3)"] * 2


def write_foreign(directory: Path) -> None:
    """Files as the public tool writes them: without any note of what they were made from."""
    directory.mkdir(parents=True)
    with h5py.File(directory / "flow.h5", "w") as file:
        file["flow"], file["valid"] = np.zeros((4, 40, 56, 2), np.float16), np.ones((4, 40, 56), bool)
        file["stride"], file["model"], file["iterations"] = 1, "raft-large", 12
    np.savez(directory / "semantic_tips.npz", embeddings=np.zeros((5, 8), np.float32), stride=np.int64(1))


def test_files_of_the_public_tool_are_kept(lab: PrepareLab, capsys: pytest.CaptureFixture[str]) -> None:
    directory = lab.add_case("real/a")
    write_foreign(directory)
    before = {name: (directory / name).read_bytes() for name in ("flow.h5", "semantic_tips.npz")}
    assert lab.here("--only", "flow,semantic") == 0
    out = capsys.readouterr().out
    kept = "kept as it is, though it does not say what it was made from (--redo makes it again)"
    assert f"real/a: flow.h5: {kept}\n" in out
    assert f"real/a: semantic_tips.npz: {kept}\n" in out
    assert {name: (directory / name).read_bytes() for name in before} == before
    assert loads(lab) == ["dinov3"]
    assert lab.here("--only", "flow,semantic", "--redo") == 0
    assert all((directory / name).read_bytes() != content for name, content in before.items())


@pytest.mark.parametrize("how", ["cut", "empty", "junk", "lacks"])
def test_damaged_files_are_made_again(lab: PrepareLab, capsys: pytest.CaptureFixture[str], how: str) -> None:
    directory = lab.add_case("real/a")
    write_foreign(directory)
    for name in ("flow.h5", "semantic_tips.npz"):
        path = directory / name
        content = path.read_bytes()
        path.write_bytes(
            {"cut": content[: len(content) // 2], "empty": b"", "junk": b"junk" * 99}.get(how, content)
        )
    if how == "lacks":
        with h5py.File(directory / "flow.h5", "a") as file:
            del file["valid"]
        np.savez(directory / "semantic_tips.npz", embeddings=np.zeros((5, 8), np.float32))
    assert lab.here("--only", "flow,semantic") == 0
    out = capsys.readouterr().out
    assert "real/a: flow.h5: cannot be read, computed again" in out
    assert "real/a: semantic_tips.npz: cannot be read, computed again" in out
    assert loads(lab) == ["raft-large", "dinov3", "tips"]
    lab.forget_calls()
    assert lab.here("--only", "flow,semantic") == 0
    assert lab.calls == []


def test_dry_run(lab: PrepareLab) -> None:
    lab.add_case("real/a")
    write_foreign(lab.estimates("real/a"))
    done = lab.prepare("--dry-run", "--only", "flow,depth,semantic")
    assert done.returncode == 0
    assert "real/a: depth.h5: to be computed (missing)" in done.stdout
    assert "flow.h5: kept as it is" in done.stdout
    assert done.stdout.splitlines()[-1] == "0 computed, 2 kept, 2 to compute, 0 failed"
    assert lab.files("real/a") == ["flow.h5", "semantic_tips.npz"]
    assert lab.calls == []
    assert not (lab.estimates("real/a") / ".lock").exists()
    assert "flow.h5: to be computed (--redo)" in lab.prepare("--dry-run", "--redo", "--only", "flow").stdout


def break_video(path: Path, how: str) -> None:
    if how == "missing":
        path.unlink()
    elif how == "cut":
        path.write_bytes(path.read_bytes()[:-900])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "junk":
        path.write_bytes(b"junk" * 500)
    elif how == "directory":
        path.unlink()
        path.mkdir()


@pytest.mark.parametrize("how", ["missing", "cut", "empty", "junk", "directory"])
def test_a_bad_video_stays_with_its_case(
    lab: PrepareLab, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    for name in ("real/a", "real/bad", "real/c"):
        lab.add_case(name)
    break_video(lab.video("real/bad"), how)
    assert lab.here("--only", "moge,semantic") == 1
    captured = capsys.readouterr()
    told = [line for line in captured.err.splitlines() if "real/bad" in line]
    assert len(told) == 2  # when it happens, and at the end
    assert str(lab.video("real/bad")) in told[0]
    assert told[1] == f"failed: {told[0]}"
    assert captured.out.splitlines()[-1] == "6 computed, 0 kept, 1 failed"
    some = ["moge.npz", "semantic_dinov3.npz", "semantic_tips.npz"]
    assert lab.files("real/a") == lab.files("real/c") == some
    assert lab.files("real/bad") == []
    shutil.rmtree(lab.video("real/bad")) if how == "directory" else None
    clip(lab.video("real/bad"), 5, 40, 56)
    lab.forget_calls()
    assert lab.here("--only", "moge,semantic") == 0
    assert lab.calls.count("dinov3 embed 5") == 1
    assert lab.files("real/bad") == some


def test_one_frame_has_no_flow_and_all_the_rest(lab: PrepareLab, capsys: pytest.CaptureFixture[str]) -> None:
    directory = lab.add_case("real/still", frames=1)
    assert lab.here() == 1
    assert lab.files("real/still") == sorted(set(ALL) - {"flow.h5"})
    err = capsys.readouterr().err
    assert "failed: real/still: flow.h5: " in err
    assert "has one frame only" in err
    with np.load(directory / "semantic_tips.npz") as file:
        assert file["embeddings"].shape[0] == 1
    with h5py.File(directory / "depth.h5") as file:
        assert file["disparity"].shape[0] == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.nan, "frame 3: disparity is not finite"),
        (np.inf, "frame 3: disparity is not finite"),
        (7e4, "frame 3: disparity of 70000 does not fit into float16"),
    ],
)
def test_disparity_that_is_no_number(
    lab: PrepareLab,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    value: float,
    text: str,
) -> None:
    seen = []

    def edit(self: object, disparity: np.ndarray) -> np.ndarray:
        seen.append(None)
        disparity[2, 3] = value if len(seen) == 4 else 65504
        return disparity

    lab.add_case("real/a")
    monkeypatch.setattr("prepare_lab.FakeModel.edit", edit)
    assert lab.here("--only", "depth") == 1
    assert f"real/a: depth.h5: {lab.video('real/a')}: {text}" in capsys.readouterr().err
    assert lab.files("real/a") == []
    assert lab.here("--only", "depth") == 0
    with h5py.File(lab.estimates("real/a") / "depth.h5") as file:
        assert (file["disparity"][:, 2, 3] == 65504).all()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        ("ValueError:odd", "real/a: flow.h5: odd"),
        ("MemoryError:much", "real/a: flow.h5: out of memory: much; give the device more free memory"),
        ("OSError:gone", "real/a: flow.h5: gone"),
        ("KeyError:lost", "real/a: flow.h5: internal error: KeyError: 'lost'"),
    ],
)
def test_a_model_that_fails_on_a_case(
    lab: PrepareLab, capsys: pytest.CaptureFixture[str], error: str, text: str
) -> None:
    lab.add_case("real/a")
    lab.add_case("real/b", frames=4)
    lab.fail(**{"raft-large_flow_3": error, "dinov3_patches_4": "ValueError:no"})
    assert lab.here("--only", "flow,geophys") == 1
    captured = capsys.readouterr()
    assert text in captured.err
    assert ("Traceback" in captured.err) == (error[0] == "K")
    assert lab.files("real/a") == ["geophys_dinov3.npz"]
    assert lab.files("real/b") == []
    assert captured.out.splitlines()[-1] == "1 computed, 0 kept, 3 failed"
    assert "the same command tries again what failed, and only that" in captured.err


def test_a_model_that_cannot_be_loaded_costs_its_group_only(
    lab: PrepareLab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.add_case("real/a")
    lab.add_case("real/b")
    lab.fail(load_raft="ValueError:keys are missing", load_tips="OSError:input/output error")
    assert lab.here() == 1
    captured = capsys.readouterr()
    assert "failed: flow: raft-large cannot be loaded: keys are missing" in captured.err
    assert "failed: semantic: tips cannot be loaded: input/output error" in captured.err
    assert lab.files("real/a") == lab.files("real/b") == sorted(set(ALL) - {"flow.h5", "semantic_tips.npz"})


def test_a_directory_that_cannot_be_written(lab: PrepareLab, capsys: pytest.CaptureFixture[str]) -> None:
    lab.add_case("real/a")
    lab.add_case("real/b")
    lab.estimates("real/a").parent.mkdir(parents=True)
    lab.estimates("real/a").write_text("in the way")
    assert lab.here("--only", "moge") == 1
    assert "failed: real/a: moge.npz: " in capsys.readouterr().err
    assert lab.files("real/b") == ["moge.npz"]


def test_a_broken_annotation_costs_the_tracks_only(
    lab: PrepareLab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.add_case("real/a")
    lab.add_mask("real/a", np.zeros((5, 40, 56), np.uint8)).write_bytes(b"junk")
    assert lab.here("--only", "tracks,moge") == 1
    assert "dynamic_mask.npz: " in capsys.readouterr().err
    assert lab.files("real/a") == ["moge.npz"]


def test_missing_models_are_said_at_once(lab: PrepareLab) -> None:
    lab.add_case("real/a")
    for name in ("raft-large", "tipsv2-l14"):
        shutil.rmtree(lab.root / "checkpoints" / name)
    done = lab.prepare()
    assert done.returncode == 2
    assert done.stdout == ""
    error = done.stderr.splitlines()[-1]
    assert error.startswith("error: raft-large: ")
    for part in (
        "tipsv2-l14: ",
        "is missing; run: python scripts/download_checkpoints.py",
        "--only tipsv2-l14",
    ):
        assert part in error
    assert lab.files("real/a") == []
    assert lab.here("--only", "depth") == 0
    # What no case needs is not asked for.
    lab.cases = []
    lab.add_case("synthetic/b")
    assert lab.here("--only", "flow") == 0
    with pytest.raises(UserError, match="raft-large"):
        lab.here("--only", "flow", "--all")


def test_a_missing_package_is_said_at_once(lab: PrepareLab) -> None:
    lab.add_case("real/a")
    table = tuple(
        each
        if each.group != "moge"
        else type(each)(**{**vars(each), "estimator": "test_prepare_process:NEEDY"})
        for each in FAKE_TABLE
    )
    with pytest.raises(UserError, match="package no_such_package is not installed"):
        lab.here(table=table)
    assert lab.here("--only", "depth", table=table) == 0


class NEEDY:
    name = directory = "moge-3-vitl"
    requires = ("no_such_package",)


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--only", "flwo"], "did you mean flow?"),
        (["--only", ","], "names no group"),
        (["--runs", "x"], "unrecognized arguments"),
        (["--device", "cuda:77"], "cuda:77"),
        (["--device", "gpu"], "no such device: gpu"),
    ],
)
def test_wrong_usage(lab: PrepareLab, flags: list[str], text: str) -> None:
    lab.add_case("real/a")
    with pytest.raises(UserError) as caught:
        lab.here(*flags)
    assert text in str(caught.value)
    assert lab.calls == []


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "cannot be read"),
        ("{", "not JSON"),
        ("{}", "not a list"),
        ('[{"world": "x"}]', "entry 1: has no 'case'"),
        ('[{"case": "real/a"}, {"case": "real/../a"}]', "entry 2: 'case' is 'real/../a'"),
        ('["real/a"]', "entry 1: has no 'case'"),
    ],
)
def test_a_wrong_manifest(lab: PrepareLab, content: str | None, text: str) -> None:
    path = lab.root / "other.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError) as caught:
        lab.here("--manifest", str(path))
    assert text in str(caught.value)


def test_an_empty_manifest(lab: PrepareLab, capsys: pytest.CaptureFixture[str]) -> None:
    assert lab.here() == 0
    assert capsys.readouterr().out.startswith("0 case(s), groups [")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_ends_cleanly_and_goes_on_later(lab: PrepareLab, number: signal.Signals) -> None:
    lab.add_case("real/a")
    lab.add_case("real/b")
    lab.hang_at("disparity 2")
    running = lab.start("--only", "flow,depth", "--device", "cpu")
    assert eventually(lambda: lab.hanging, 120)
    running.send_signal(number)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    assert err.splitlines()[-1] == "interrupted; run the same command again to continue"
    assert "Traceback" not in err
    assert lab.files("real/a") == lab.files("real/b") == ["flow.h5"]
    lab.hang_at(None)
    lab.forget_calls()
    assert lab.here("--only", "flow,depth") == 0
    assert loads(lab) == ["video-depth-anything-large"]
    assert lab.files("real/b") == ["depth.h5", "flow.h5"]


POINTS = ["load raft", "flow 2", "track (5", "embed 3", "disparity 3"]


def test_killed_at_any_point_it_goes_on_where_it_was(lab: PrepareLab) -> None:
    """SIGKILL in the middle of each group in turn: nothing half written, nothing made twice."""
    lab.add_case("real/a", frames=4)
    lab.add_case("real/b", frames=5)
    lab.add_case("real/c", frames=3)
    finished: dict[Path, int] = {}
    for point in POINTS:
        lab.hang_at(point)
        running = lab.start("--device", "cpu")
        assert eventually(lambda: lab.hanging, 120), point
        if point in ("flow 2", "disparity 3"):  # in the middle of a file
            assert any(name.endswith(".tmp") for case in lab.cases for name in lab.files(case))
        os.kill(running.pid, signal.SIGKILL)
        running.communicate(timeout=60)
        for case in lab.cases:
            for path in lab.estimates(case).glob("[!.]*"):
                assert finished.setdefault(path, path.stat().st_mtime_ns) == path.stat().st_mtime_ns
                assert readable(path)
    assert len(finished) >= 15
    lab.hang_at(None)
    assert lab.here() == 0
    assert all(lab.files(case) == sorted(ALL) for case in lab.cases)  # nothing is left over either
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    assert lab.calls.count("dinov3 embed 3") == 2  # killed in it once


def readable(path: Path) -> bool:
    if path.suffix == ".h5":
        with h5py.File(path) as file:
            return all(dataset[()] is not None for dataset in file.values())
    with np.load(path) as archive:
        return all(archive[name] is not None for name in archive.files)


def test_a_case_that_ends_the_process_stops_no_other(lab: PrepareLab) -> None:
    lab.add_case("real/a", frames=1, height=24, width=32)
    lab.add_case("real/b")
    lab.fail(**{"track (": "ValueError:no"})  # what fails in the ordinary way leaves no mark
    lab.die_at("points (24, 32, 3)")
    assert lab.prepare("--only", "tracks,moge,depth").returncode == -signal.SIGKILL
    assert (lab.files("real/a"), lab.files("real/b")) == ([".moge.npz.begun"], [])

    lab.fail()
    done = lab.prepare("--only", "tracks,moge,depth")
    assert done.returncode == -signal.SIGKILL
    assert lab.files("real/b") == ["depth.h5", "moge.npz", "tracks.npz"]
    assert lab.files("real/a") == [".moge.npz.begun", "depth.h5", "tracks.npz"]
    said = "real/a: moge.npz: an earlier run ended without a word while it was at this (1 so far)"
    assert said in done.stderr.splitlines()
    assert "== cases that an earlier run never came back from" in done.stdout.splitlines()

    lab.die_at(None)
    done = lab.prepare("--only", "tracks,moge,depth")
    assert (done.returncode, "at this (2 so far)" in done.stderr) == (0, True)
    assert lab.files("real/a") == ["depth.h5", "moge.npz", "tracks.npz"]


def test_of_several_estimates_that_end_the_process_each_gets_its_turn(lab: PrepareLab) -> None:
    lab.add_case("real/a")
    lab.die_at("raft-large flow")
    assert lab.prepare("--only", "flow,moge").returncode == -signal.SIGKILL
    lab.die_at("points")
    assert lab.prepare("--only", "flow,moge").returncode == -signal.SIGKILL
    # The one that has ended a process less often comes first: it was moge's turn before flow's.
    assert lab.files("real/a") == [".flow.h5.begun", ".moge.npz.begun"]
    assert lab.prepare("--only", "flow,moge").returncode == -signal.SIGKILL
    assert lab.files("real/a") == [".moge.npz.begun", "flow.h5"]


def test_two_at_once_do_each_estimate_once(lab: PrepareLab) -> None:
    lab.add_case("real/a")
    directory = lab.estimates("real/a")
    directory.mkdir(parents=True)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        both = [lab.start("--only", "moge", "--device", "cpu") for _ in range(2)]
        try:
            for each in both:
                assert each.stderr is not None
                assert "not verified" in each.stderr.readline()
                line = each.stderr.readline()
                assert line == "real/a: moge.npz: waiting for another prepare that works on it\n"
            assert lab.files("real/a") == []
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)
    ends = [each.communicate(timeout=120)[0].splitlines()[-1] for each in both]
    assert sorted(ends) == ["0 computed, 1 kept, 0 failed", "1 computed, 0 kept, 0 failed"]
    assert lab.calls.count("moge-3-vitl points (40, 56, 3)") == 1


def test_ctrl_c_while_it_waits_for_the_lock(lab: PrepareLab) -> None:
    lab.add_case("real/a")
    directory = lab.estimates("real/a")
    directory.mkdir(parents=True)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        running = lab.start("--only", "moge", "--device", "cpu")
        assert running.stderr is not None
        running.stderr.readline()
        assert "waiting" in running.stderr.readline()
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 130
        running.communicate()


_LIMITED = """
import resource, sys
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), hard))
from contract.errors import run_program
from scorer.prepare.__main__ import main
from prepare_lab import FAKE_TABLE
run_program(lambda: main(sys.argv[2:], FAKE_TABLE))
"""


def test_a_disk_that_is_full(lab: PrepareLab) -> None:
    """What does not fit is reported and leaves nothing behind; what fits is made."""
    lab.add_case("real/a", height=96, width=128)
    command = lab.command("--only", "flow,semantic,depth", "--device", "cpu")
    command[2:3] = [_LIMITED, "30000"]
    done = subprocess.run(command, env=lab.env, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 1, done.stderr
    assert "failed: real/a: flow.h5: [Errno 27] File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert lab.files("real/a") == ["depth.h5", "semantic_dinov3.npz", "semantic_tips.npz"]


def test_names_are_one_line(lab: PrepareLab, capsys: pytest.CaptureFixture[str]) -> None:
    lab.cases.append("real/evil\n== all fine\x1b[31m")
    assert lab.here() == 1
    captured = capsys.readouterr()
    assert "\n== all fine" not in captured.out + captured.err
    assert "\x1b" not in captured.out + captured.err


def test_it_loads_nothing_heavy_before_it_must(lab: PrepareLab) -> None:
    """Help and a dry run of a store that is in order come without torch."""
    lab.add_case("real/a")
    code = (
        "import json, sys\nfrom scorer.prepare.__main__ import main\nfrom prepare_lab import FAKE_TABLE\n"
        "main(sys.argv[1:], FAKE_TABLE)\n"
        "print(json.dumps(sorted({'torch', 'transformers'} & set(sys.modules))))"
    )
    command = lab.command("--dry-run")
    command[2] = code
    done = subprocess.run(command, env=lab.env, capture_output=True, text=True, check=True, timeout=300)
    assert json.loads(done.stdout.splitlines()[-1]) == []
