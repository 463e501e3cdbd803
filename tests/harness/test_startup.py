"""What both launchers say before anything is touched: one line, status 2, whatever the file system holds."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from harness_lab import DELIVER, INFER, SCORE, Lab, snapshot

from contract.errors import UserError
from harness.runtime.trees import check_writable

LAUNCHERS = pytest.mark.parametrize("program", [INFER, SCORE], ids=["infer", "score"])


def refused(lab: Lab, program: Path, *flags: str) -> str:
    """The one line of a refusal; nothing on disk has changed."""
    before = snapshot(lab.root)
    done = lab.infer(*flags, program=program)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert "Errno" not in done.stderr
    assert snapshot(lab.root) == before
    return done.stderr


@pytest.fixture
def finished(lab: Lab) -> Lab:
    """A finished run, so that score.py comes as far as it can."""
    lab.runtime(lab.shell_agent(DELIVER))
    lab.jobs()
    assert lab.infer().returncode == 0
    return lab


def runs_is_a_file(lab: Lab) -> None:
    (lab.root / "file").write_text("", encoding="utf-8")
    lab.runs = lab.root / "file"


def runs_below_a_file(lab: Lab) -> None:
    runs_is_a_file(lab)
    lab.runs /= "runs"


def runs_is_a_broken_link(lab: Lab) -> None:
    lab.runs = lab.root / "link"
    lab.runs.symlink_to(lab.root / "nowhere")


def runs_is_a_loop(lab: Lab) -> None:
    lab.runs = lab.root / "loop"
    lab.runs.symlink_to("loop")


def runs_has_a_long_name(lab: Lab) -> None:
    lab.runs = lab.root / (300 * "r")


@LAUNCHERS
@pytest.mark.parametrize(
    "fault",
    [
        runs_is_a_file, runs_below_a_file, runs_is_a_broken_link, runs_is_a_loop, runs_has_a_long_name,
    ],
)  # fmt: skip
def test_runs_that_cannot_be_written(lab: Lab, program: Path, fault: Callable[[Lab], None]) -> None:
    fault(lab)
    lab.runtime(lab.shell_agent(DELIVER))
    lab.jobs()
    assert str(lab.runs) in refused(lab, program)
    assert str(lab.runs) in refused(lab, program, "--dry-run")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@LAUNCHERS
def test_a_tree_without_write_permission(finished: Lab, program: Path) -> None:
    finished.runs.chmod(0o555)
    try:
        finished.jobs({"case": "clip"}, {})
        said = refused(finished, program)
    finally:
        finished.runs.chmod(0o755)
    assert "runs_root" in said


def test_a_level_below_the_runs_root_counts_as_well(finished: Lab) -> None:
    (finished.runs / "real").write_text("in the way", encoding="utf-8")
    finished.jobs({"case": "clip"})
    assert "runs_root cannot be written" in refused(finished, INFER)


def test_what_the_mode_bits_promise_and_the_file_system_refuses(finished: Lab) -> None:
    (finished.runs / "manifests").write_text("in the way", encoding="utf-8")
    assert "runs_root cannot be written" in refused(finished, SCORE)


def test_a_manifest_that_cannot_be_written_is_one_line(
    finished: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from contract.errors import run_program
    from harness.runtime import invocation, score

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", str(finished.runs / "x"))

    monkeypatch.setattr(invocation, "circumstances", dict)
    monkeypatch.setattr(invocation, "write_json", full)
    with pytest.raises(SystemExit) as left:
        run_program(
            lambda: score.main(
                ["--jobs", str(finished.jobs_path), "--runtime", str(finished.runtime_path), "--type", "mesh"]
            )
        )
    assert left.value.code == 2
    said = capsys.readouterr().err
    assert said == (
        f"error: {finished.runs}/x: no space left on device. "
        "Next: make room, or change runs_root or data_root in the runtime file\n"
    )


@LAUNCHERS
@pytest.mark.parametrize(
    "job",
    [{"model": 400 * "m"}, {"case": 400 * "c"}, {"agent": 400 * "a"}, {"effort": 400 * "e"}],
    ids=["model", "case", "agent", "effort"],
)
def test_names_too_long_for_a_directory(lab: Lab, program: Path, job: dict[str, str]) -> None:
    lab.runtime(lab.shell_agent(DELIVER))
    lab.jobs({}, job)
    said = refused(lab, program)
    assert "[[job]] number 2" in said
    assert "at most 200" in said


@LAUNCHERS
def test_a_case_tree_that_cannot_be_looked_at(lab: Lab, program: Path) -> None:
    lab.cases = lab.root / "loop"
    lab.cases.symlink_to("loop")
    lab.runtime(lab.shell_agent(DELIVER))
    lab.jobs()
    assert "B_01" in refused(lab, program)


@LAUNCHERS
def test_configuration_files_that_are_none(lab: Lab, program: Path) -> None:
    lab.runtime()
    lab.jobs_path.mkdir()
    assert "jobs.toml: is a directory" in refused(lab, program)
    lab.jobs_path.rmdir()
    lab.jobs_path = lab.root / (300 * "j")
    assert "file name too long" in refused(lab, program)


def test_writable_needs_a_directory_above(tmp_path: Path) -> None:
    check_writable(tmp_path / "not" / "yet" / "there", "runs_root")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(UserError, match="runs_root cannot be written"):
        check_writable(tmp_path / "file" / "below", "runs_root")
