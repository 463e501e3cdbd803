"""A laboratory for the launchers: small case trees, configuration files, real child processes."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
INFER = REPOSITORY / "harness" / "runtime" / "infer.py"
SCORE = REPOSITORY / "harness" / "runtime" / "score.py"


def box(kind: bytes, body: bytes = b"") -> bytes:
    """One box of an MP4 file."""
    return (8 + len(body)).to_bytes(4) + kind + body


VIDEO = box(b"ftyp", b"isom\0\0\0\0") + box(b"moov", b"x" * 24) + box(b"mdat", b"y" * 64)
"""The least that passes for an MP4 file; no decoder would find a picture in it."""

DELIVER = "mkdir -p {world} {solution}; echo made > {world}/a; echo '#!/bin/sh' > {solution}/build.sh; "


class Lab:
    """Trees and configuration files below one directory."""

    def __init__(self, root: Path, cases: tuple[str, ...] = ("synthetic/B_01", "real/clip")) -> None:
        self.root = root
        self.cases, self.data, self.runs, self.auth = (root / n for n in ("cases", "data", "runs", ".auth"))
        self.image = ""
        self.runtime_path, self.jobs_path = root / "runtime.toml", root / "jobs.toml"
        for case in cases:
            (self.cases / case).mkdir(parents=True)
            (self.cases / case / "reference.mp4").write_bytes(VIDEO)

    def runtime(
        self,
        agents: str = "",
        top: str = "",
        agent: str = "timeout_sec = 60\ngrace_sec = 0.5\nretry_wait_sec = 0.05",
    ) -> None:
        """Write the runtime file: tables of agents, keys at the top, keys under [agent]."""
        roots = "".join(
            f'{name}_root = "{path}"\n'
            for name, path in (
                ("cases", self.cases),
                ("data", self.data),
                ("runs", self.runs),
                ("auth", self.auth),
            )
        )
        self.runtime_path.write_text(f"{roots}{top}\n[agent]\n{agent}\n{agents}\n", encoding="utf-8")

    def shell_agent(self, script: str, name: str = "tester", extra: str = "") -> str:
        """A table that defines an agent as a shell script (placeholders are filled in)."""
        return f"[agent.{name}]\ncommand = {json.dumps(['sh', '-c', script])}\n{extra}\n"

    def jobs(self, *jobs: dict[str, Any], trials: int = 1) -> None:
        """Write the jobs file; each job is filled up with defaults."""
        text = f"trials = {trials}\n"
        for job in jobs or ({},):
            full = {"case": "B_01", "agent": "tester", "model": "m", "effort": "none", **job}
            text += "\n[[job]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in full.items())
        self.jobs_path.write_text(text, encoding="utf-8")

    def command(self, *flags: str, program: Path = INFER) -> list[str]:
        return [
            sys.executable, str(program), "--jobs", str(self.jobs_path), "--runtime",
            str(self.runtime_path), *flags,
        ]  # fmt: skip

    def environment(self, **extra: str) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(REPOSITORY), "COLUMNS": "200", **extra}

    def infer(self, *flags: str, program: Path = INFER, **extra: str) -> subprocess.CompletedProcess[str]:
        """Run a launcher to its end."""
        return subprocess.run(
            self.command(*flags, program=program),
            env=self.environment(**extra), capture_output=True, text=True, timeout=300, cwd=self.root,
        )  # fmt: skip

    def score(self, *flags: str, **extra: str) -> subprocess.CompletedProcess[str]:
        return self.infer(*flags, program=SCORE, **extra)

    def start(self, *flags: str, program: Path = INFER) -> subprocess.Popen[str]:
        """Start a launcher in a session of its own."""
        return subprocess.Popen(
            self.command(*flags, program=program),
            env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True, cwd=self.root,
        )  # fmt: skip

    def place(self, case: str = "synthetic/B_01", system: str = "tester-m-none", trial: int = 1) -> Path:
        return self.runs / case / system / str(trial)

    def record(self, **where: Any) -> dict[str, Any]:
        """A run's record."""
        record: dict[str, Any] = json.loads((self.place(**where) / "run.json").read_text(encoding="utf-8"))
        return record

    def leftovers(self) -> list[Path]:
        """Whatever dot-files lie in the runs tree: locks, staging directories, temporary files."""
        return sorted(path for path in self.runs.rglob(".*") if "session" not in path.parts)

    def processes(self) -> list[int]:
        """Living processes whose environment or command line mentions this laboratory, launchers included."""
        return mentioning(str(self.root))


def mentioning(text: str) -> list[int]:
    """Pids of living processes, besides this one, with ``text`` in command line or environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            state = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
            words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if state not in "ZX" and text.encode() in words:
            found.append(int(entry.name))
    return found


def snapshot(root: Path) -> dict[str, str]:
    """Every path below ``root`` with its kind or the hash of its content."""
    found = {}
    for path in sorted(root.rglob("*")):
        kind = "link" if path.is_symlink() else "directory" if path.is_dir() else "special"
        if path.is_file() and not path.is_symlink():
            kind = hashlib.sha256(path.read_bytes()).hexdigest()
        found[str(path.relative_to(root))] = kind
    return found


def eventually(condition: Callable[[], object], seconds: float = 30.0) -> bool:
    """Wait until ``condition`` holds; False when it does not within ``seconds``."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.02)
    return bool(condition())


def end(process: subprocess.Popen[str]) -> None:
    """Kill a process of ours that a failed test may have left."""
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
