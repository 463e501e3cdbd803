"""The helper program on OpenVDB (``scorer/vdb.cpp``): one process serves a whole bake."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

NAME = "scorer-vdb"
VARIABLE = "FOURDCB_SCORER_VDB"
"""Names the helper's file, where it is neither beside Python nor on the path."""
_TEXT_LIMIT = 2000
_MEMORY, _CELL_MEMORY = 8 << 30, 128
"""Bytes of address space that the helper may have: so many, and so many for each cell."""


class HelperUnavailable(RuntimeError):
    """The helper is missing or cannot work here: the machine's failing, not a submission's."""

    infrastructure = True


def find_helper() -> Path:
    """The compiled helper. Raises ``HelperUnavailable``."""
    named = os.environ.get(VARIABLE)
    beside = Path(sys.executable).with_name(NAME)
    found = named or (str(beside) if beside.exists() else shutil.which(NAME))
    if found is None or not os.access(found, os.X_OK):
        where = f" at {found} ({VARIABLE})" if named else ""
        raise HelperUnavailable(
            f"{NAME}, which liquids without identity need, is not installed{where}; "
            "build it with scripts/build_vdb.sh"
        )
    return Path(found)


class Helper:
    """A running helper for one grid; use as a context manager. It ends with us, however we end: its standard
    input does.

    Ask, then read the answer; in between the caller may do something else. One thread in the helper: the
    order in which threads meet could decide the sign of a cell on the surface.
    """

    def __init__(self, dims: tuple[int, int, int]) -> None:
        """Start. Raises ``HelperUnavailable``."""
        program = find_helper()
        self._complaints = tempfile.TemporaryFile(prefix="4dcb-vdb-")  # noqa: SIM115 - closed by close()
        try:
            self._process = subprocess.Popen(
                [program, "serve", *map(str, dims)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._complaints,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        except OSError as error:
            self._complaints.close()
            raise HelperUnavailable(f"{program}: cannot be started: {error.strerror or error}") from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        # A file that unpacks to more than any grid of this size needs is the file's fault, not the machine's.
        cells = dims[0] * dims[1] * dims[2]
        with suppress(OSError):
            resource.prlimit(self._process.pid, resource.RLIMIT_AS, (_MEMORY + _CELL_MEMORY * cells,) * 2)
        if self._output.read(4) != bytes(4):
            reason = self._end()
            self.close()
            raise HelperUnavailable(f"{program}: does not work here: {reason}; try scripts/build_vdb.sh")

    def __enter__(self) -> Helper:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process and wait for it."""
        self._process.kill()
        self._process.wait()
        with suppress(BrokenPipeError):
            self._input.close()
        self._output.close()
        self._complaints.close()

    def ask_surface(self, vertices: NDArray[np.float32], faces: NDArray[np.int32]) -> None:
        """Ask for the signed distance of a mesh; (V, 3) in cells, whose centres are whole, and (T, 3)."""
        counts = np.array([len(vertices), len(faces)], "<i4")
        self._ask(b"surface\0", counts, vertices.astype("<f4"), faces.astype("<i4"))

    def ask_velocity(self, path: Path) -> None:
        """Ask for the velocity in a VDB file."""
        self._ask(b"velocity\0" + os.fsencode(path) + b"\0")

    def answer(self, out: NDArray[np.float32], source: object) -> None:
        """Wait for the answer and write it to ``out`` (C-contiguous, as large as the answer).

        Raises ``ValueError`` "<source>: <the helper's words>", ``HelperUnavailable`` when it was killed.
        """
        length = int.from_bytes(self._exactly(4, source), "little")
        if length:
            words = self._exactly(length, source).decode("utf-8", "replace")
            raise ValueError(f"{source}: {words[:_TEXT_LIMIT]}")
        target = memoryview(out.reshape(-1).view(np.uint8).data)
        if self._output.readinto(target) != len(target):  # type: ignore[attr-defined]
            raise self._lost(source)

    def _ask(self, *parts: bytes | NDArray[Any]) -> None:
        # A helper that is gone is noticed when the answer is read.
        with suppress(BrokenPipeError):
            for part in parts:
                self._input.write(part if isinstance(part, bytes) else np.ascontiguousarray(part).data)
            self._input.flush()

    def _exactly(self, size: int, source: object) -> bytes:
        data = self._output.read(size)
        if len(data) != size:
            raise self._lost(source)
        return data

    def _lost(self, source: object) -> Exception:
        reason = self._end()
        if self._process.returncode == -signal.SIGKILL:
            return HelperUnavailable(f"{source}: {NAME} {reason}; is there enough memory?")
        return ValueError(f"{source}: {reason}")

    def _end(self) -> str:
        """Why the helper, whose output has ended, is gone."""
        code = self._process.wait()
        self._complaints.seek(0)
        words = " ".join(self._complaints.read(_TEXT_LIMIT).decode("utf-8", "replace").split())
        if code < 0:
            return f"was ended by signal {signal.Signals(-code).name}"
        return words or f"ended with status {code}"
