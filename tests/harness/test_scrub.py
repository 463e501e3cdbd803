"""Masking known secrets in a finished run."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from urllib.parse import quote

import pytest

from harness.runtime import scrub
from harness.runtime.scrub import mask_texts, patterns, scrub_tree

SECRET = 'sk-"quoted"\\ümläut-0123456789'


@pytest.mark.parametrize(
    "form",
    [
        SECRET.encode(),
        json.dumps({"key": SECRET}).encode(),
        json.dumps({"key": SECRET}, ensure_ascii=False).encode(),
        base64.b64encode(SECRET.encode()),
        base64.urlsafe_b64encode(SECRET.encode()),
        quote(SECRET, safe="").encode(),
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


@pytest.mark.parametrize("before", ["", "u", "us", "user:"])
@pytest.mark.parametrize("after", ["", "x", ":tail"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_base64_of_a_text_that_holds_the_secret(tmp_path: Path, before: str, after: str, encode) -> None:
    text = encode(f"{before}{SECRET}{after}".encode())
    (tmp_path / "log").write_bytes(b"Authorization: Basic " + text + b"\n")
    assert scrub_tree(tmp_path, [SECRET]) == ["log"]
    left = (tmp_path / "log").read_bytes()
    assert b"***" in left
    kept = left.removeprefix(b"Authorization: Basic ").rstrip().split(b"***")
    # What is left besides the mask spells at most two of the secret's characters on either side.
    assert len(kept[0]) <= len(encode(before.encode())) + 4
    assert len(kept[-1]) <= len(encode(after.encode())) + 8


def test_names_lose_secrets_too_and_none_is_lost(tmp_path: Path) -> None:
    name = "sk-0123456789abcdef"
    (tmp_path / f"d-{name}").mkdir()
    (tmp_path / f"d-{name}" / name).write_text("one", encoding="utf-8")
    (tmp_path / name).write_text(name, encoding="utf-8")
    (tmp_path / "***").write_text("in the way", encoding="utf-8")
    assert scrub_tree(tmp_path, [name]) == ["***"]
    texts = {p.relative_to(tmp_path).as_posix(): p.read_text() for p in tmp_path.rglob("*") if p.is_file()}
    assert texts == {"***": "in the way", "***-2": "***", "d-***/***": "one"}


def test_a_sparse_file_costs_nothing_and_keeps_its_holes(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as stream:
        stream.write(b"x" * 10_000)
        stream.seek(4 << 30)
        stream.write(SECRET.encode())
        stream.truncate(10 << 30)
    assert scrub_tree(tmp_path, [SECRET]) == ["log"]
    assert path.stat().st_blocks * 512 < 1 << 20
    with path.open("rb") as stream:
        stream.seek(4 << 30)
        assert stream.read(5) == b"***\0\0"
    assert path.stat().st_size == (10 << 30) - len(SECRET.encode()) + 3


def test_a_file_that_cannot_be_cleaned_does_not_spare_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(SECRET, encoding="utf-8")
    real = scrub._scrub

    def refuse(path: Path, wanted: list[bytes]) -> bool:
        if path.name == "b":
            raise PermissionError(13, "no")
        return real(path, wanted)

    monkeypatch.setattr(scrub, "_scrub", refuse)
    with pytest.raises(PermissionError):
        scrub_tree(tmp_path, [SECRET])
    assert [(tmp_path / name).read_text() for name in ("a", "b", "c")] == ["***", SECRET, "***"]


def test_files_without_a_right_to_read_are_opened_up(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(SECRET, encoding="utf-8")
    path.chmod(0)
    assert scrub_tree(tmp_path, [SECRET]) == ["log"]
    assert path.stat().st_mode & 0o400 or os.geteuid() == 0


def test_texts_of_a_record_are_masked_at_every_level() -> None:
    record = {"a": [f"x {SECRET}", 1, None], "b": {"c": SECRET}, "d": 2.5}
    assert mask_texts(record, patterns([SECRET])) == {"a": ["x ***", 1, None], "b": {"c": "***"}, "d": 2.5}
