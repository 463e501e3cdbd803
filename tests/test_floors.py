"""A room imports only rooms below it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOMS = (
    "contract",
    "world",
    "checker",
    "harness",
    "report",
    "scorer",
    "visualizer",
    "viewer",
    "vlm_judge",
    "persistbench",
)
BELOW: dict[str, set[str]] = {
    "contract": set(),
    "world": {"contract"},
    "checker": {"contract", "world"},
    "harness/runtime": {"contract"},
    # The baseline is an agent: it runs where agents run, and has what they have.
    "harness/baseline": {"contract", "world"},
    # Averages of rewards: the command line tool and the viewer show the same numbers.
    "report": {"contract"},
    "scorer": {"contract", "world", "report"},
    "visualizer": {"contract", "world", "scorer"},
    "viewer": {"contract", "world", "report"},
    # Renders are decoded by the project's one video reader.
    "vlm_judge": {"contract", "world"},
    "persistbench": set(),
}
HEAVY = {"numpy", "torch", "av", "scipy", "numba", "cv2"}


def imported(path: Path) -> set[str]:
    """Top-level names that a module imports anywhere, in functions too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            # A relative import stays in its room; only the baseline's solution program has any.
            names.add((node.module or "").split(".")[0])
    return names


def modules(repository: Path, room: str) -> list[Path]:
    return sorted((repository / room).rglob("*.py"))


@pytest.mark.parametrize("room", sorted(BELOW))
def test_room_imports_only_rooms_below(repository: Path, room: str) -> None:
    own = room.split("/")[0]
    for path in modules(repository, room):
        above = (imported(path) & set(ROOMS)) - BELOW[room] - {own}
        assert not above, f"{path.relative_to(repository)} imports {sorted(above)}"


def test_every_room_with_modules_is_listed(repository: Path) -> None:
    listed = {room.split("/")[0] for room in BELOW}
    assert {room for room in ROOMS if modules(repository, room)} <= listed


def test_contract_needs_the_standard_library_only(repository: Path) -> None:
    for path in modules(repository, "contract"):
        foreign = imported(path) - set(sys.stdlib_module_names) - {"contract"}
        assert not foreign, f"{path.name} imports {sorted(foreign)}"


def test_harness_computes_nothing(repository: Path) -> None:
    for path in modules(repository, "harness/runtime"):
        assert not imported(path) & HEAVY, f"{path.relative_to(repository)} imports {imported(path) & HEAVY}"


@pytest.mark.parametrize("program", ["harness.runtime.infer", "harness.runtime.score"])
def test_launchers_load_nothing_heavy(repository: Path, program: str) -> None:
    code = f"import sys, {program}; print(sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=repository, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_launcher_modules_shadow_nothing(repository: Path) -> None:
    """``python harness/runtime/infer.py`` puts that directory first on the path."""
    names = {path.stem for path in (repository / "harness/runtime").glob("*.py")}
    names |= {path.name for path in (repository / "harness/runtime").iterdir() if path.is_dir()}
    taken = set(sys.stdlib_module_names) | {"docker", "pydantic", "tomli", "rich", "numpy", "av"} | set(ROOMS)
    assert not names & taken
