"""The HDF5 container's writer: layout, and a disk that is full at any byte."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np

from contract.record import replacing
from scorer.dense import writing


def test_layout(tmp_path: Path) -> None:
    path = tmp_path / "flow.h5"
    rng = np.random.default_rng(0)
    flow = rng.normal(size=(5, 6, 7, 2)).astype(np.float16)
    with replacing(path) as stream, writing(stream) as file:
        file.frames("flow", flow.shape, np.float16)
        file.frames("valid", (5, 6, 7), np.bool_, fill=True)
        for index in range(5):
            file.frame("flow", index, flow[index])
        file.put("whole", flow)
        file.put("stride", np.int64(2))
        file.put("shape", np.array([5, 6, 7]))
        file.put("model", "raft – large")
        file.put("nothing", np.zeros((0, 3, 4)))
        file.note("provenance", "{}")
    with h5py.File(path, "r") as file:
        for name in ("flow", "whole"):
            assert (file[name][:] == flow).all()
            assert (file[name].chunks, file[name].compression, file[name].shuffle) == (
                (1, 6, 7, 2),
                "lzf",
                True,
            )
        assert file["valid"].dtype == np.bool_
        assert file["valid"][:].all()
        assert file["valid"][3].all()
        assert file["valid"].id.get_storage_size() == 0
        assert file["valid"].compression == "lzf"
        assert (file["stride"][()], file["stride"].dtype, file["shape"].chunks) == (2, np.int64, None)
        assert file["model"].asstr()[()] == "raft – large"
        assert file["nothing"].shape == (0, 3, 4)
        assert dict(file.attrs) == {"provenance": "{}"}


_FULL = """
import errno, os, resource, sys
from pathlib import Path
import numpy as np
from contract.record import replacing
from scorer.dense import writing

directory, hard = Path(sys.argv[1]), resource.getrlimit(resource.RLIMIT_FSIZE)[1]
frames = np.random.default_rng(0).random((12, 40, 40, 2)).astype(np.float16)
failures = 0
for limit in [*range(0, 9000, 211), *range(9000, 90000, 7001), 10**6]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))  # the error is EFBIG; a full disk's is ENOSPC
    try:
        with replacing(directory / "flow.h5") as stream, writing(stream) as file:
            file.frames("flow", frames.shape, np.float16)
            for index, frame in enumerate(frames):
                file.frame("flow", index, frame)
            file.put("stride", np.int64(1))
            file.note("provenance", "x" * 5000)
    except OSError as error:
        assert error.errno == errno.EFBIG, error
        assert list(directory.iterdir()) == [], limit
        failures += 1
open_files = [os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if name > "2"
              and os.path.lexists(f"/proc/self/fd/{name}")]
assert not [name for name in open_files if "flow" in name], open_files
assert failures > 50, failures
"""


def test_a_full_disk_is_an_error_and_nothing_more(tmp_path: Path, repository: Path) -> None:
    """HDF5 itself would leave the file open and crash at the end of the process."""
    directory = tmp_path / "estimates"
    directory.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", _FULL, str(directory)],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    with h5py.File(directory / "flow.h5", "r") as file:
        expected = np.random.default_rng(0).random((12, 40, 40, 2)).astype(np.float16)
        assert (file["flow"][:] == expected).all()
