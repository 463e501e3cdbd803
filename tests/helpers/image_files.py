"""Fixture: our own images as files for Apptainer, converted from those that were built."""

from __future__ import annotations

from pathlib import Path

import pytest
from docker_engine import ask


@pytest.fixture(scope="session")
def our_image_files(docker_host: str) -> tuple[Path, Path]:
    """Files of the agent and the scorer image."""
    folder = Path(ask("sif-images").strip())
    return folder / "4dcb-agent-dev.sif", folder / "4dcb-scorer-dev.sif"
