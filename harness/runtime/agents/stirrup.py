"""The Stirrup loop for OpenAI-compatible endpoints."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from contract.errors import one_line
from harness.runtime.agents.base import Agent, Context

TARGET = "/opt/stirrup"
RUNNER = "runner.py"
PACKAGE = "stirrup"
TOOLS_PYTHON = (3, 12)
"""What the package needs."""
_TRY = f"""
import sys
if sys.version_info < {TOOLS_PYTHON}:
    sys.exit("is Python " + ".".join(map(str, sys.version_info[:3])))
try:
    import {PACKAGE}
except ImportError as error:
    sys.exit(f"cannot import {PACKAGE}: {{error}}")
"""
_TRY_S = 120.0


def command(context: Context) -> tuple[str, ...]:
    """The runner from ``harness/stirrup``, which reads the task from its file."""
    return (
        context.tools_python, f"{context.tools}/{RUNNER}", context.task, context.workspace,
        context.model, context.effort, str(context.timeout),
    )  # fmt: skip


@cache
def unfit_interpreter(python: str) -> str:
    """Why ``python`` (a path, or a name that is looked for as the host backend does) cannot run the loop on
    this machine; empty when it can. Takes as long as importing the package, seconds the first time.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    program = shutil.which(python, path=path)
    if program is None:
        return "was not found"
    try:
        done = subprocess.run(
            [program, "-c", _TRY],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=_TRY_S,
            check=False, cwd="/",
        )  # fmt: skip
    except OSError as error:
        return f"cannot be started: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"did not answer within {_TRY_S:g} s"
    said = one_line(done.stderr)[-200:]
    return "" if done.returncode == 0 else said or f"ended with status {done.returncode}"


AGENT = Agent("stirrup", command, ".stirrup", tools="harness/stirrup", tools_target=TARGET)
