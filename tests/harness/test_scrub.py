"""Masking known secrets in a finished run."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from harness.runtime import scrub
from harness.runtime.scrub import scrub_tree

SECRET = 'sk-"quoted"\\ümläut-0123456789'


@pytest.mark.parametrize(
    "form",
    [
        SECRET.encode(),
        json.dumps({"key": SECRET}).encode(),
        json.dumps({"key": SECRET}, ensure_ascii=False).encode(),
        base64.b64encode(SECRET.encode()),
        base64.urlsafe_b64encode(SECRET.encode()),
    ],
)
def test_each_form_is_masked(tmp_path: Path, form: bytes) -> None:
    path = tmp_path / "logs" / "agent.log"
    path.parent.mkdir()
    path.write_bytes(b"before " + form + b" after\n" + form)
    path.chmod(0o640)
    assert scrub_tree(tmp_path, [SECRET]) == ["logs/agent.log"]
    text = path.read_bytes()
    assert text.startswith(b"before ")
    assert form.rstrip(b"=") not in text
    assert text.count(b"***") == 2
    assert path.stat().st_mode & 0o777 == 0o640


def test_what_holds_no_secret_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "clean").write_bytes(b"nothing here")
    (tmp_path / "binary").write_bytes(b"\0" + SECRET.encode())
    (tmp_path / "link").symlink_to("clean")
    before = (tmp_path / "clean").stat().st_ino
    assert scrub_tree(tmp_path, [SECRET, "short", ""]) == []
    assert (tmp_path / "clean").stat().st_ino == before
    assert (tmp_path / "binary").read_bytes().endswith(SECRET.encode())


def test_short_values_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a local server", encoding="utf-8")
    assert scrub_tree(tmp_path, ["local", "a"]) == []


@pytest.mark.parametrize("offset", range(0, 40, 3))
def test_a_secret_across_the_border_of_two_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offset: int
) -> None:
    monkeypatch.setattr(scrub, "_CHUNK", 16)
    secret = "0123456789abcdefghijklmnop"
    path = tmp_path / "log"
    path.write_bytes(b"x" * offset + secret.encode() + b"y" * 50 + secret.encode())
    assert scrub_tree(tmp_path, [secret]) == ["log"]
    assert path.read_bytes() == b"x" * offset + b"***" + b"y" * 50 + b"***"
