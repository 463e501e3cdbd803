"""One set of trees for the tests that only read, and a client for it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("starlette")

from starlette.testclient import TestClient
from viewer_lab import make_trees

from viewer.app import make_app
from viewer.trees import Trees


@pytest.fixture(scope="session")
def trees(tmp_path_factory: pytest.TempPathFactory, fixture_worlds: Path) -> Trees:
    """Not to be changed by a test."""
    return make_trees(tmp_path_factory.mktemp("viewer"), fixture_worlds)


@pytest.fixture
def client(trees: Trees) -> TestClient:
    return client_of(trees)


def client_of(trees: Trees) -> TestClient:
    return TestClient(make_app(trees), base_url="http://127.0.0.1:8130")
