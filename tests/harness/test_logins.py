"""Login files: existence, permissions, and when they end."""

from __future__ import annotations

import base64
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from contract.errors import UserError
from harness.runtime.logins import (
    Validity,
    check_login,
    last_use,
    parse,
    read_login,
    secret_texts,
    validity_of,
)

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp()
HOUR = 3600.0


def jwt(**claims: Any) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"eyJhbGciOiJub25lIn0.{body}.c2lnbmF0dXJl"


def claude(end: float, refresh: str = "sk-ant-ort01-0123456789") -> dict[str, Any]:
    return {"claudeAiOauth": {"accessToken": "sk-ant-oat01-0123456789", "refreshToken": refresh,
            "expiresAt": int(end * 1000), "scopes": ["user"], "subscriptionType": "max"}}  # fmt: skip


def codex(end: float, refresh: str = "rt-0123456789abcdef") -> dict[str, Any]:
    return {"OPENAI_API_KEY": None, "last_refresh": "2026-11-30T08:00:00.123456789Z",
            "tokens": {"id_token": jwt(exp=NOW - 9 * HOUR, sub="me"), "access_token": jwt(exp=end, sub="me"),
                       "refresh_token": refresh, "account_id": "acc"}}  # fmt: skip


def antigravity(end: float, refresh: str = "1//0123456789abcdef") -> dict[str, Any]:
    text = datetime.fromtimestamp(end, UTC).strftime("%Y-%m-%dT%H:%M:%S.123456789Z")
    return {"token": {"access_token": "ya29.0123456789abcdef", "token_type": "Bearer",
            "refresh_token": refresh, "expiry": text}, "auth_method": "consumer"}  # fmt: skip


def gemini(end: float, refresh: str = "1//0123456789abcdef") -> dict[str, Any]:
    return {"access_token": "ya29.0123456789abcdef", "refresh_token": refresh,
            "expiry_date": int(end * 1000), "scope": "openid"}  # fmt: skip


FORMS = [claude, codex, antigravity, gemini]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("left", [-5 * HOUR, 0.5 * HOUR, 90 * HOUR])
def test_the_end_of_each_known_form_is_found(form: Any, left: float) -> None:
    validity = validity_of(form(NOW + left), NOW)
    assert validity.expires == pytest.approx(NOW + left, abs=1.0)
    assert validity.refreshable
    assert not validity_of(form(NOW + left, refresh=""), NOW).refreshable


@pytest.mark.parametrize(
    "document",
    [None, [], {}, {"OPENAI_API_KEY": "sk-0123456789abcdef"}, {"token": "x"}, {"expiresAt": "soon"},
     {"access_token": "a.b.c", "expiry": None}, {"access_token": 5, "expiresAt": True}, "text", 5],
)  # fmt: skip
def test_what_says_nothing_of_an_end_has_none(document: Any) -> None:
    assert validity_of(document, NOW) == Validity()


@pytest.mark.parametrize(
    "end",
    ["1e308", "1" + "0" * 400, "-1", "Infinity", "NaN", '"0001-01-01T00:00:00Z"',
     '"0001-01-01T00:00:00+14:00"', '"9999-12-31T23:59:59-14:00"'],
)  # fmt: skip
def test_an_end_that_no_calendar_holds_is_none(tmp_path: Path, end: str) -> None:
    source = tmp_path / "login.json"
    source.write_text(f'{{"access_token": "0123456789abcdef", "expires_at": {end}}}', encoding="utf-8")
    source.chmod(0o600)
    assert check_login(source, "claude", 60, NOW) == []
    assert last_use(parse(source.read_bytes())) is None


def test_a_refresh_token_that_has_ended_refreshes_nothing() -> None:
    document = claude(NOW - HOUR)
    document["claudeAiOauth"]["refreshTokenExpiresAt"] = int((NOW - 1) * 1000)
    assert not validity_of(document, NOW).refreshable


def put(tmp_path: Path, document: Any, mode: int = 0o600) -> Path:
    path = tmp_path / "login.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    path.chmod(mode)
    return path


@pytest.mark.parametrize("form", FORMS)
def test_an_expired_login_without_a_way_to_refresh_is_refused(tmp_path: Path, form: Any) -> None:
    path = put(tmp_path, form(NOW - HOUR, refresh=""))
    with pytest.raises(UserError, match=r"expired at 2026-11-30 11:00 UTC.*log in"):
        check_login(path, "x", 60, NOW)


@pytest.mark.parametrize("form", FORMS)
def test_one_that_ends_before_the_run_does_is_a_warning_unless_it_can_be_refreshed(
    tmp_path: Path, form: Any
) -> None:
    path = put(tmp_path, form(NOW + HOUR, refresh=""))
    (warning,) = check_login(path, "x", 21_600, NOW)
    assert "2026-11-30 13:00 UTC" in warning
    assert check_login(path, "x", 3_000, NOW) == []
    assert check_login(put(tmp_path, form(NOW - HOUR)), "x", 21_600, NOW) == []


@pytest.mark.parametrize("mode", [0o640, 0o644, 0o604])
def test_a_login_that_others_can_read_is_a_warning(tmp_path: Path, mode: int) -> None:
    (warning,) = check_login(put(tmp_path, {}, mode), "x", 60)
    assert f"{mode:04o}" in warning
    assert "chmod 600" in warning


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_login_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(UserError, match="written by others"):
        check_login(put(tmp_path, {}, mode), "x", 60)


def test_permissions_of_the_file_behind_a_link_count(tmp_path: Path) -> None:
    real = put(tmp_path, {}, 0o644)
    link = tmp_path / "link.json"
    link.symlink_to(real)
    (warning,) = check_login(link, "x", 60)
    assert str(real) in warning


def test_what_is_no_usable_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        read_login(tmp_path / "none", "x")
    with pytest.raises(UserError, match="does not exist"):
        (tmp_path / "dangling").symlink_to("nowhere")
        read_login(tmp_path / "dangling", "x")
    with pytest.raises(UserError, match="no file"):
        read_login(tmp_path, "x")
    with pytest.raises(UserError, match="is empty"):
        read_login(put(tmp_path, " \n"), "x")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="no file"):
        read_login(tmp_path / "pipe", "x")
    with (tmp_path / "huge").open("wb") as stream:
        stream.truncate(10 << 30)
    with pytest.raises(UserError, match="at most"):
        read_login(tmp_path / "huge", "x")


def test_the_newer_of_two_logins_speaks_of_a_later_moment() -> None:
    for form in FORMS:
        old, new = last_use(form(NOW)), last_use(form(NOW + HOUR))
        assert old is not None
        assert new is not None
        assert new > old
    assert last_use({"a": [1, {"b": "text"}]}) is None


def test_secret_texts_are_the_long_texts_or_the_whole() -> None:
    content = json.dumps({"a": ["x" * 16, "short"], "b": {"c": "y" * 20, "d": 5}}).encode()
    assert sorted(secret_texts(content)) == ["x" * 16, "y" * 20]
    assert secret_texts(b" plain-token-0123456789\n") == ["plain-token-0123456789"]
    assert secret_texts(json.dumps("z" * 30).encode()) == ["z" * 30]
    assert parse(b"[" * 100_000) is None
