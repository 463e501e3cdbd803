"""A real Chromium for tests of pages: Debian's, driven by Playwright. Skipped by name where there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
# WebGL on the processor: test machines have no graphics card.
FLAGS = (
    "--no-sandbox",
    "--disable-background-networking",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
)
WAIT_MS = 60_000
"""Patience on a loaded machine; what is there is seen at once."""


def executable() -> str:
    """Path of the browser. Skips the test when there is none; with CI=true it fails."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        message = "no Chromium on this machine: apt-get install chromium"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return found


@contextmanager
def browser() -> Iterator[Any]:
    """A started browser."""
    path = executable()
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=list(FLAGS), timeout=WAIT_MS)
        try:
            yield started
        finally:
            started.close()
