"""The agent's shell and its view of images, in the workspace itself.

Stirrup's local provider works in a directory of its own that it deletes, and refuses absolute paths; the
container is the fence here, and what the agent makes stays where the harness collects it.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

from stirrup.tools.code_backends.base import CommandResult
from stirrup.tools.code_backends.local import LocalCodeExecToolProvider

AFTER_EXIT = 0.5
"""Seconds that output is still read after the command itself has ended: a server that it left running keeps
the pipes open for good.
"""
KEPT = 1 << 20
"""Bytes of each stream that are kept, from its beginning and from its end."""
DESCRIPTION = "Execute a bash command in the workspace. Returns exit code, stdout, and stderr as XML."
_ADVICE = "convert the image to PNG or JPG and try again"


class Workspace(LocalCodeExecToolProvider):
    """``code_exec`` and file access in one directory that is there before and after."""

    def __init__(self, directory: Path, shell_timeout: float) -> None:
        super().__init__(description=DESCRIPTION, shell_timeout=max(1, int(shell_timeout)))
        self._directory = directory.resolve()

    async def __aenter__(self) -> Any:
        self._temp_dir = self._directory
        return self.get_code_exec_tool(description=DESCRIPTION)

    async def __aexit__(self, *_: object) -> None:
        self._temp_dir = None

    async def run_command(self, cmd: str, *, timeout: int | None = None) -> CommandResult:
        """Run ``bash -c cmd``; what it printed is returned also when its time was up."""
        seconds = self._shell_timeout if timeout is None else timeout
        try:
            return await _run(cmd, self._directory, seconds)
        except Exception as error:
            return CommandResult(exit_code=1, stdout="", stderr=str(error))

    async def view_image(self, path: str) -> Any:
        """As Stirrup's, with every failure as a short text that says what to do."""
        try:
            image = await super().view_image(path)
            image.to_base64_url()
        except FileNotFoundError:
            raise
        except Exception as error:
            raise ValueError(f"{path} cannot be shown: {str(error)[:200]}; {_ADVICE}") from error
        return image


class _Stream:
    """What a command prints, its middle left out when there is too much."""

    def __init__(self) -> None:
        self._head, self._tail, self._left_out = bytearray(), bytearray(), 0

    async def read(self, pipe: asyncio.StreamReader) -> None:
        while chunk := await pipe.read(1 << 16):
            room = max(0, KEPT - len(self._head))
            self._head += chunk[:room]
            self._tail += chunk[room:]
            if len(self._tail) > 2 * KEPT:
                self._left_out += len(self._tail) - KEPT
                del self._tail[: len(self._tail) - KEPT]

    def text(self) -> str:
        gap = f"\n[{self._left_out} bytes left out]\n".encode() if self._left_out else b""
        return bytes(self._head + gap + self._tail).decode("utf-8", errors="replace")


async def _run(command: str, directory: Path, seconds: float) -> CommandResult:
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", command,
        cwd=directory,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    out, err = _Stream(), _Stream()
    readers = [asyncio.create_task(out.read(process.stdout)), asyncio.create_task(err.read(process.stderr))]
    timed_out = False
    try:
        await asyncio.wait_for(_ended(process), seconds)
        await asyncio.wait(readers, timeout=AFTER_EXIT)
    except TimeoutError:
        timed_out = True
        _kill(process.pid)
        await asyncio.wait(readers, timeout=AFTER_EXIT)
    except asyncio.CancelledError:
        _kill(process.pid)
        raise
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    if timed_out:
        note = f"Command timed out after {seconds:g} seconds"
        return CommandResult(
            exit_code=1, stdout=out.text(), stderr="\n".join(filter(None, [err.text(), note]))
        )
    return CommandResult(exit_code=process.returncode or 0, stdout=out.text(), stderr=err.text())


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Wait for the command itself; ``process.wait()`` waits for its pipes as well, which a child may hold."""
    pause = 0.005
    while process.returncode is None:
        await asyncio.sleep(pause)
        pause = min(0.2, pause * 1.5)


def _kill(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
