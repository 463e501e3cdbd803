"""The Apptainer (or SingularityCE) program: what it is, which instances it has, how one is stopped.

Plain subprocesses: spython knows one fixed program name and writes its errors to the terminal.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from contract.errors import UserError, one_line
from harness.runtime.backends.sif_spec import Engine, program_environment

ANSWER_S = 120.0
"""Longest wait for an answer of the program; a first look at a large image on a slow disk takes a while."""
PROGRAMS = ("apptainer", "singularity")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NOISE = re.compile(r"(INFO|WARNING|VERBOSE|DEBUG): ")


class EngineError(RuntimeError):
    """The program did not answer, or failed."""


@dataclass(frozen=True)
class Instance:
    """A running instance of this user on this machine. ``pid``: its first process."""

    name: str
    pid: int
    logs: tuple[Path, ...]


def find(executable: str) -> Engine:
    """The engine behind ``executable``, or behind the first known name that is installed.

    Raises ``UserError`` when there is none or it does not answer.
    """
    names = (executable,) if executable else PROGRAMS
    program = next(filter(None, map(shutil.which, names)), None)
    if program is None:
        raise UserError(
            f"no program {' or '.join(repr(name) for name in names)} was found",
            next_step="install Apptainer 1.1 or SingularityCE 3.10, or newer, or name it in [sif] executable",
        )
    try:
        version = ask(program, "--version")
    except EngineError as error:
        raise UserError(f"{program} cannot be used: {error}") from error
    return Engine(program, "APPTAINERENV_" if "apptainer" in version.lower() else "SINGULARITYENV_")


def ask(*words: str) -> str:
    """Standard output of the program. Raises ``EngineError`` with its own words when it fails."""
    try:
        done = subprocess.run(
            words,
            env=program_environment(os.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ANSWER_S,
            check=False,
            cwd="/",
        )
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"{words[0]} did not answer within {ANSWER_S:g} s") from error
    except OSError as error:
        raise EngineError(f"{words[0]} cannot be started: {error}") from error
    if done.returncode != 0:
        said = complaint(done.stderr.decode(errors="replace"))
        raise EngineError(said or f"{words[0]} ended with status {done.returncode}")
    return done.stdout.decode(errors="replace")


def instances(program: str) -> dict[str, Instance]:
    """What runs, by name. Raises ``EngineError``."""
    answer = ask(program, "instance", "list", "--json")
    try:
        listed = json.loads(answer).get("instances") or []
        found = [
            Instance(
                entry["instance"], int(entry["pid"]), _logs(entry.get("logErrPath"), entry.get("logOutPath"))
            )
            for entry in listed
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EngineError(f"the list of instances cannot be read: {one_line(answer)[:200]}") from error
    return {instance.name: instance for instance in found}


def kill(program: str, name: str) -> None:
    """SIGKILL to an instance by its name. Raises ``EngineError``; one that is gone is an error too."""
    ask(program, "instance", "stop", "--signal", "SIGKILL", name)


def complaint(text: str) -> str:
    """The errors among what the program said, on one line of at most 300 characters."""
    lines = [_COLOUR.sub("", line).strip() for line in text.splitlines()]
    errors = [line for line in lines if line and not _NOISE.match(line)]
    return one_line(" ".join(re.sub(r"^(FATAL|ERROR): +", "", line) for line in errors))[:300]


def _logs(*paths: str | None) -> tuple[Path, ...]:
    return tuple(Path(path) for path in paths if path)
