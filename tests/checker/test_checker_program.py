"""``python -m checker``: lines, streams, statuses."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from base_world import FACES, build_base_world, edit

import checker.__main__ as program
from checker.program import EXIT_CRASH, run
from checker.solution import check_solution
from world.video import write_video


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_base_world(tmp_path_factory.mktemp("base")).parent


@pytest.fixture
def workspace(base: Path, tmp_path: Path) -> Path:
    shutil.copytree(base, tmp_path / "workspace", symlinks=True)
    return tmp_path / "workspace"


@pytest.fixture
def command(repository: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("PYTHONPATH", str(repository))
    return [sys.executable, "-m", "checker"]


def call(command: list[str], *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )


def violations(workspace: Path) -> list[tuple[str, str]]:
    return [(item.name, item.field) for item in check_solution(workspace)]


def test_clean(command: list[str], workspace: Path) -> None:
    done = call(command, "--workspace", workspace)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.count("\n") == 1
    assert "no violation" in done.stderr


def test_violations_go_to_stdout_in_order(command: list[str], workspace: Path) -> None:
    (workspace / "solution" / "notes.txt").write_text("x")
    (workspace / "solution" / "link.py").symlink_to("make.py")
    (workspace / "world" / "link").symlink_to("camera.json")
    (workspace / "world" / "dynamics" / "a.npz").unlink()
    (workspace / "world" / "meshes" / "a\nb: ok.npz").write_bytes(b"")
    done = call(command, "--workspace", workspace)
    lines = done.stdout.splitlines()
    assert done.returncode == 1
    assert [line.split(" ")[0] for line in lines] == [
        "world/link:",
        "solution/link.py:",
        "meshes/a",
        "meshes/1.npz:",
        "solution/notes.txt:",
    ]
    assert "5 violations" in done.stderr


def test_strict_counts_advice(command: list[str], workspace: Path) -> None:
    (workspace / "world" / "dynamics" / "readme").write_text("x")
    lax, strict = (call(command, "--workspace", workspace, *more) for more in ([], ["--strict"]))
    assert (lax.returncode, lax.stdout) == (0, "")
    assert lax.stderr.startswith("advice: dynamics: name")
    assert strict.returncode == 1
    assert strict.stdout.startswith("dynamics: name")


def test_json(command: list[str], workspace: Path) -> None:
    name = os.fsdecode(b"\xff.npz")
    (workspace / "world" / "meshes" / name).write_bytes(b"")
    done = call(command, "--json", "--workspace", workspace)
    record = json.loads(done.stdout)
    assert done.returncode == 1
    assert (record["clean"], record["advice"], record["video"]) == (False, [], None)
    assert [item["field"] for item in record["violations"]] == ["name"]
    assert record["violations"][0]["line"].startswith("meshes/")


def test_input_video(command: list[str], workspace: Path, tmp_path: Path) -> None:
    video = tmp_path / "input.mp4"
    write_video(video, (np.zeros((48, 64, 3), np.uint8) for _ in range(5)), 24)
    done = call(command, "--workspace", workspace, "--video", video)
    assert done.returncode == 1
    assert done.stdout.startswith("render.mp4: input ")
    done = call(command, "--workspace", workspace, "--video", workspace / "world" / "render.mp4")
    assert (done.returncode, done.stdout) == (0, "")
    video.write_bytes(b"no video")
    assert call(command, "--workspace", workspace, "--video", video).returncode == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["stray"],
        ["--workspace"],
        ["--work", "."],
        ["--workspace", "/nowhere"],
        ["--video", "/nowhere.mp4"],
        ["--jso"],
    ],
)
def test_wrong_use_is_one_line(command: list[str], workspace: Path, arguments: list[str]) -> None:
    given = arguments if "--workspace" in arguments else [*arguments, "--workspace", str(workspace)]
    done = call(command, *given)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_crash_is_one_line_and_status_three(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], workspace: Path, tmp_path: Path
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(program, "check_workspace", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(SystemExit) as left:
        run(lambda: program.main(["--workspace", str(workspace)]), "checker")
    assert left.value.code == EXIT_CRASH == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert "RuntimeError: two lines" in line
    (trace,) = tmp_path.glob("checker-crash-*.txt")
    assert str(trace) in line
    assert "Traceback" in trace.read_text()


def test_any_locale(command: list[str], workspace: Path) -> None:
    edit(workspace / "world" / "meshes" / "1.npz", {"\u00e9\u4e2d": FACES})
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [*command, "--workspace", str(workspace)],
        capture_output=True,
        env=environment,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout.startswith(b"meshes/1.npz: ")


def test_light_imports(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent's image has NumPy and the video reader, nothing else."""
    code = "import sys, checker.__main__, checker.preview; print(*{n.split('.')[0] for n in sys.modules})"
    monkeypatch.setenv("PYTHONPATH", str(repository))
    done = call([sys.executable, "-c"], code)
    heavy = {"scipy", "numba", "cv2", "torch", "h5py", "pydantic", "scorer", "harness", "docker"}
    assert done.returncode == 0
    assert not heavy & set(done.stdout.split())


# Solution


def test_solution_missing_or_a_file(workspace: Path) -> None:
    shutil.rmtree(workspace / "solution")
    assert violations(workspace) == [("solution", "path")]
    (workspace / "solution").write_text("x")
    assert violations(workspace) == [("solution", "")]


def test_build_script(workspace: Path) -> None:
    script = workspace / "solution" / "build.sh"
    (workspace / "solution" / "x.txt").touch()
    script.chmod(0o644)
    assert violations(workspace) == [("solution/build.sh", ""), ("solution/x.txt", "")]
    script.chmod(0o601)
    assert violations(workspace) == [("solution/x.txt", "")]
    script.unlink()
    assert violations(workspace) == [("solution/build.sh", "")]
    script.mkdir()
    assert violations(workspace) == [("solution/build.sh", "")]
    assert "directory" in check_solution(workspace)[0].text
    script.rmdir()
    os.mkfifo(script)
    assert "pipe" in check_solution(workspace)[0].text


def test_foreign_files_in_path_order(workspace: Path) -> None:
    solution = workspace / "solution"
    for name in (
        "a/b/c.py",
        "a/b/d.json",
        "a-b.txt",
        "a/z.PY",
        "__pycache__/make.cpython-311.pyc",
        ".py",
        "noend",
        "e.sh",
    ):
        (solution / name).parent.mkdir(parents=True, exist_ok=True)
        (solution / name).touch()
    (solution / "loop").symlink_to("loop")
    os.mkfifo(solution / "pipe.bin")
    names = [".py", "__pycache__/make.cpython-311.pyc", "a/b/d.json", "a/z.PY", "a-b.txt", "noend"]
    assert violations(workspace) == [(f"solution/{name}", "") for name in names]
    by_name = {item.name: item.text for item in check_solution(workspace)}
    assert "delete __pycache__" in by_name["solution/__pycache__/make.cpython-311.pyc"]
    assert "lower case" in by_name["solution/a/z.PY"]
    expected = sorted(
        p
        for p in solution.rglob("*")
        if p.is_file() and not p.is_symlink() and p.suffix not in (".py", ".sh")
    )
    assert [solution / name for name in names] == expected


def test_deep_trees(workspace: Path) -> None:
    here = workspace / "solution"
    for _ in range(300):
        here = here / "d"
        here.mkdir()
    (here / "x.bin").touch()
    (found,) = check_solution(workspace)
    assert found.name.endswith("d/x.bin")
    assert len(str(found)) < 2100


def test_modes_are_left_alone(command: list[str], workspace: Path) -> None:
    """Checking writes nothing into the workspace."""
    before = sorted((path, path.stat().st_mtime_ns) for path in workspace.rglob("*"))
    workspace.chmod(stat.S_IRUSR | stat.S_IXUSR)
    call(command, "--workspace", workspace)
    workspace.chmod(0o755)
    assert before == sorted((path, path.stat().st_mtime_ns) for path in workspace.rglob("*"))
