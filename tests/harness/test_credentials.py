"""A run's private copy of a login, and what comes back of it."""

from __future__ import annotations

import copy
import json
import multiprocessing
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from test_logins import HOUR, NOW, claude, codex, jwt

from harness.runtime.credentials import clear_temporaries, copy_login, read_copy, write_back

TAKEN = "the agent refreshed its login, and the new one was taken over"


def put(tmp_path: Path, document: Any) -> Path:
    path = tmp_path / "login.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    path.chmod(0o600)
    return path


def text(document: Any) -> bytes:
    return json.dumps(document, indent=1).encode()


@pytest.mark.parametrize("form", [claude, codex])
def test_a_refreshed_login_comes_back(tmp_path: Path, form: Any) -> None:
    source, new = put(tmp_path, form(NOW)), text(form(NOW + HOUR, refresh="another-refresh-token"))
    assert write_back(source, new, text(form(NOW))) == TAKEN
    assert source.read_bytes() == new
    assert stat.S_IMODE(source.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["login.json"]
    assert write_back(source, new) == ""


def test_the_file_behind_a_link_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    home, auth = tmp_path / "home", tmp_path / "auth"
    home.mkdir()
    auth.mkdir()
    real = put(home, claude(NOW))
    link = auth / "claude.json"
    link.symlink_to(real)
    assert write_back(link, text(claude(NOW + HOUR))) == TAKEN
    assert link.is_symlink()
    assert json.loads(real.read_text()) == claude(NOW + HOUR)
    assert os.listdir(home) == ["login.json"]


def changed(document: dict[str, Any], *path: str, value: Any) -> dict[str, Any]:
    result = copy.deepcopy(document)
    place = result
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return result


LATER = claude(NOW + HOUR)
CODEX = codex(NOW + HOUR)


@pytest.mark.parametrize(
    ("old", "left"),
    [
        (claude(NOW), b"not json"),
        (claude(NOW), b"[]"),
        (claude(NOW), b""),
        (claude(NOW), text(claude(NOW - HOUR))),
        (claude(NOW), text(claude(NOW, refresh="other-refresh-token"))),
        (claude(NOW), text({})),
        (claude(NOW), text(changed(LATER, "claudeAiOauth", "subscriptionType", value="free"))),
        (claude(NOW), text(changed(LATER, "claudeAiOauth", "scopes", value=["everything"]))),
        (claude(NOW), text(changed(LATER, "claudeAiOauth", "accessToken", value={"$ref": "x"}))),
        (claude(NOW), text(changed(LATER, "claudeAiOauth", "accessToken", value=""))),
        (claude(NOW), text(changed(LATER, "claudeAiOauth", "accessToken", value="line\nbreak"))),
        (claude(NOW), text(changed(LATER, "command", value="rm -rf /"))),
        (claude(NOW), text(changed(LATER, "helperToken", value={"a": 1}))),
        (codex(NOW), text(changed(CODEX, "tokens", "account_id", value="somebody else"))),
        (codex(NOW), text(changed(CODEX, "OPENAI_API_KEY", value="sk-of-somebody-else"))),
        (codex(NOW), text(changed(CODEX, "tokens", "access_token", value=jwt(exp=NOW + 9e6, sub="other")))),
        (codex(NOW), text(changed(CODEX, "tokens", "access_token", value="opaque"))),
        ([1], text(claude(NOW))),
    ],
)
def test_nothing_else_comes_back(tmp_path: Path, old: Any, left: bytes) -> None:
    source = put(tmp_path, old)
    before = source.read_bytes()
    assert "not taken over" in write_back(source, left)
    assert source.read_bytes() == before
    assert os.listdir(tmp_path) == ["login.json"]


@pytest.mark.parametrize("end", ["1e308", "1" + "0" * 400, "Infinity", "NaN"])
def test_an_agent_that_writes_an_impossible_end_harms_nobody(tmp_path: Path, end: str) -> None:
    old = {"access_token": "0123456789abcdef", "expires_at": NOW}
    source = put(tmp_path, old)
    left = json.dumps(old).replace(str(NOW), end).encode()
    assert left != text(old)
    assert "was not taken over" in write_back(source, left)
    assert json.loads(source.read_bytes()) == old


def test_an_untouched_copy_is_nobodys_refresh(tmp_path: Path) -> None:
    source = put(tmp_path, claude(NOW + 9 * HOUR))
    given = text(claude(NOW))
    assert write_back(source, given, given) == ""
    assert write_back(source, None) == ""


def test_a_login_that_the_operator_renewed_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    source = put(tmp_path, claude(NOW + 9 * HOUR))
    before = source.read_bytes()
    assert "not newer" in write_back(source, text(claude(NOW + HOUR)), text(claude(NOW)))
    assert source.read_bytes() == before


def test_a_login_that_was_removed_meanwhile_stays_removed(tmp_path: Path) -> None:
    assert "could not be taken over" in write_back(tmp_path / "gone.json", text(claude(NOW)))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", ["link", "pipe", "directory", "missing", "huge"])
def test_a_copy_that_became_something_else_is_not_read(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "copy"
    if kind == "link":
        (tmp_path / "shadow").write_text("secret", encoding="utf-8")
        place.symlink_to("shadow")
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "directory":
        place.mkdir()
    elif kind == "huge":
        with place.open("wb") as stream:
            stream.truncate(10 << 30)
    assert read_copy(place) is None


def test_a_copy_is_private_from_its_first_moment(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        copy_login(b"secret", tmp_path / "copy")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o600
    assert read_copy(tmp_path / "copy") == b"secret"


def _write(source: Path, hours: int) -> None:
    write_back(source, text(claude(NOW + hours * HOUR)))


def test_of_many_at_once_the_newest_stays(tmp_path: Path) -> None:
    source = put(tmp_path, claude(NOW))
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_write, args=(source, hours)) for hours in (3, 1, 5, 2, 4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0] * 5
    assert json.loads(source.read_text()) == claude(NOW + 5 * HOUR)
    assert os.listdir(tmp_path) == ["login.json"]


def test_what_a_killed_writer_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    source = put(tmp_path, claude(NOW))
    for name in (".login.json.abcd_123.tmp", ".other.json.abcd_123.tmp", ".login.json.toolong99.tmp"):
        (tmp_path / name).write_text("x", encoding="utf-8")
    clear_temporaries(source)
    assert sorted(os.listdir(tmp_path)) == [
        ".login.json.toolong99.tmp",
        ".other.json.abcd_123.tmp",
        "login.json",
    ]
    clear_temporaries(tmp_path / "nowhere" / "login.json")
