"""``harness/base/verify_gpu.py`` against programs and modules that stand in for a GPU's, and Mesa's EGL."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

NVCC = "echo 'Cuda compilation tools, release 13.0, V13.0.88'"
# Writes the picture that the last argument names, as the script would.
BLENDER = 'echo "$@" >> "$CALLS"; for picture; do :; done; echo png > "$picture"'
TORCH = """
__version__ = "2.13.0+cu130"
class version: cuda = "13.0"
class cuda:
    is_available = staticmethod(lambda: True)
    synchronize = staticmethod(lambda: None)
    get_device_name = staticmethod(lambda: "stand-in")
class Tensor:
    is_cuda, device = True, "cuda:0"
    def __matmul__(self, other): return self
    def __getitem__(self, place): return 1024.0
def ones(shape, device): return Tensor()
"""
BPY = 'class app: version_string = "5.2.0"'


class Machine:
    """A directory of programs and one of modules."""

    def __init__(self, root: Path, program: Path) -> None:
        self.root, self.program = root, program
        self.calls = root / "calls"
        (root / "bin").mkdir()
        (root / "modules").mkdir()
        self.has("nvidia-smi", "echo 'NVIDIA-SMI 580'")
        self.has("nvcc", NVCC)
        self.has("blender", BLENDER)
        self.knows("torch", TORCH)
        self.knows("bpy", BPY)

    def has(self, name: str, script: str) -> None:
        path = self.root / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="ascii")
        path.chmod(0o755)

    def knows(self, name: str, text: str) -> None:
        (self.root / "modules" / f"{name}.py").write_text(text, encoding="ascii")

    def verify(self, *names: str, **env: str) -> subprocess.CompletedProcess[str]:
        places = {"PATH": str(self.root / "bin"), "PYTHONPATH": str(self.root / "modules")}
        return subprocess.run(
            [sys.executable, str(self.program), *names],
            env=places | {"CALLS": str(self.calls), "TMPDIR": str(self.root)} | env,
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip


@pytest.fixture
def machine(tmp_path: Path, repository: Path) -> Machine:
    return Machine(tmp_path, repository / "harness/base/verify_gpu.py")


WITHOUT_EGL = ("driver", "toolkit", "cycles", "torch", "bpy", "eevee", "caches")


def test_all_that_needs_no_egl_holds(machine: Machine) -> None:
    done = machine.verify(*WITHOUT_EGL, HF_HOME=str(machine.root / "new/hf"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert re.findall(r"^=== (\w+):", done.stdout, re.MULTILINE) == [*WITHOUT_EGL]
    for part in ("NVIDIA-SMI 580", "release 13.0", "torch 2.13.0+cu130 on stand-in", "bpy 5.2.0"):
        assert part in done.stdout
    calls = [line.split() for line in machine.calls.read_text(encoding="ascii").splitlines()]
    assert [words[-2] for words in calls] == ["CYCLES", "BLENDER_EEVEE"]
    for words in calls:
        assert words[:5] == ["--background", "--factory-startup", "--python-exit-code", "1", "--python"]
        assert words[-3] == "--"
    assert list(machine.root.glob("tmp*")) == []


@pytest.mark.parametrize(
    ("name", "script", "part"),
    [
        ("nvidia-smi", "echo 'no devices were found'; exit 6", "driver: nvidia-smi ended with status 6"),
        ("nvcc", "echo 'release 12.8, V12.8.93'", "toolkit: nvcc is not of CUDA 13.0"),
        ("blender", "echo Traceback; exit 1", "cycles: blender ended with status 1"),
        ("blender", "exit 0", "cycles: blender wrote no picture with CYCLES"),
        ("blender", 'for picture; do :; done; : > "$picture"', "cycles: blender wrote no picture"),
    ],
)
def test_the_first_failure_ends_it(machine: Machine, name: str, script: str, part: str) -> None:
    machine.has(name, script)
    done = machine.verify()
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {part}")
    assert done.stdout.rstrip().rsplit("=== ", 1)[1].startswith(part.split(":")[0])


@pytest.mark.parametrize("name", ["nvidia-smi", "nvcc", "blender"])
def test_a_program_that_is_missing_is_named(machine: Machine, name: str) -> None:
    (machine.root / "bin" / name).unlink()
    done = machine.verify()
    assert done.returncode == 1
    assert f"{name} is not on the path" in done.stderr


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("2.13.0+cu130", "2.12.1+cu130", "torch is 2.12.1, not 2.13.0"),
        ('cuda = "13.0"', 'cuda = "12.8"', "torch was built for CUDA 12.8, not 13.0"),
        ('cuda = "13.0"', "cuda = None", "torch was built for CUDA None, not 13.0"),
        ("lambda: True", "lambda: False", "torch sees no CUDA device"),
        ('True, "cuda:0"', 'False, "cpu"', "the product lies on cpu"),
        ("1024.0", "1023.0", "AssertionError: 1023.0"),
        ("__version__", "raise ImportError('libcudart.so.13')\n__version__", "libcudart.so.13"),
    ],
)
def test_a_torch_that_is_wrong_fails_with_its_traceback(
    machine: Machine, old: str, new: str, part: str
) -> None:
    machine.knows("torch", TORCH.replace(old, new))
    done = machine.verify("torch")
    assert done.returncode == 1
    assert "Traceback" in done.stdout
    assert part in done.stdout
    assert done.stderr.startswith("error: torch: ")


def test_a_cache_that_cannot_be_written_is_named(machine: Machine) -> None:
    (machine.root / "file").write_text("", encoding="ascii")
    done = machine.verify("caches", TRITON_CACHE_DIR=str(machine.root / "file/x"))
    assert done.returncode == 1
    assert f"TRITON_CACHE_DIR, {machine.root}/file/x, cannot be written" in done.stderr


def test_usage(machine: Machine) -> None:
    shown = machine.verify("--help")
    assert shown.returncode == 0
    assert all(f"  {name} " in shown.stdout for name in (*WITHOUT_EGL, "egl"))
    wrong = machine.verify("driver", "cuda")
    assert wrong.returncode == 2
    assert "no such check: cuda (expected: driver, toolkit" in wrong.stderr
    assert "===" not in wrong.stdout


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("verify_gpu_under_test", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_egl_draws_with_a_vendor_that_is_there(repository: Path) -> None:
    """In a process of its own: a driver may not survive what others loaded before."""
    program = repository / "harness/base/verify_gpu.py"
    call = f"import runpy; runpy.run_path({str(program)!r})['egl']('Mesa')"
    done = subprocess.run(
        [sys.executable, "-c", call], capture_output=True, text=True, timeout=120, check=False
    )
    if "cannot open shared object file" in done.stderr or "EGL offers nothing" in done.stderr:
        pytest.skip("Mesa's EGL is not installed")
    assert done.returncode == 0, done.stderr
    assert re.search(r"EGL of Mesa Project, OpenGL of \S+", done.stdout)


def test_the_file_that_egl_lacks_is_named(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = loaded(repository / "harness/base/verify_gpu.py")
    monkeypatch.setattr(module, "EGL_VENDORS", (tmp_path / "egl_vendor.d",))
    monkeypatch.setattr(module, "EGL_LIBRARY", "libEGL_nowhere.so.0")
    assert module.why_no_egl() == f"{tmp_path}/egl_vendor.d/10_nvidia.json is missing"
    (tmp_path / "egl_vendor.d").mkdir()
    (tmp_path / "egl_vendor.d/10_nvidia.json").write_text("{}", encoding="ascii")
    assert "libEGL_nowhere.so.0 is missing" in module.why_no_egl()
    monkeypatch.setattr(module, "EGL_LIBRARY", "libc.so.6")
    assert "agree?" in module.why_no_egl()


@pytest.mark.parametrize("part", ["SCENE", "ON_GPU", "DRAW", "ON_TORCH"])
def test_the_scripts_for_other_programs_are_python(repository: Path, part: str) -> None:
    """Run for real on Blender 5.0's module once; here at least they compile for every Python of ours."""
    module = loaded(repository / "harness/base/verify_gpu.py")
    compile(getattr(module, part), part, "exec")


def test_versions_are_those_of_the_images(repository: Path) -> None:
    module = loaded(repository / "harness/base/verify_gpu.py")
    build = (repository / "harness/base/Dockerfile").read_text(encoding="utf-8")
    assert f"nvidia/cuda:{module.CUDA}." in build
    pins = (repository / "harness/base/requirements.txt").read_text(encoding="utf-8")
    assert f"torch=={module.TORCH}\n" in pins
    assert os.access(repository / "harness/base/verify_gpu.py", os.X_OK)
