"""Nothing outside the trees, no links, no other hosts, no writing, no script of others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from viewer_lab import RIGID, add_run, session

from contract.errors import UserError
from viewer.app import make_app
from viewer.files import Unsatisfiable, wanted
from viewer.readjson import Broken, read_record, shown
from viewer.server import listen
from viewer.trees import Absent, Trees, checked, listing, open_file

VIDEO = f"/video/case/{RIGID}/reference.mp4"


@pytest.fixture
def hostile(tmp_path: Path) -> TestClient:
    """A run whose files are links out of the tree, and secrets beside the trees."""
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "secret.mp4").write_bytes(b"secret")
    for name in ("cases", "data", "runs"):
        (tmp_path / name).mkdir()
    run = add_run(tmp_path / "runs", "real/a/s/1")
    for folder in ("logs", "viz", "workspace/world"):
        (run / folder).mkdir(parents=True)
    (run / "logs/agent.log").symlink_to(tmp_path / "secret.txt")
    (run / "viz/flow.mp4").symlink_to(tmp_path / "secret.mp4")
    (run / "viz/page.html").write_text("<script>alert(1)</script>")
    (run / "workspace/world/render.mp4").symlink_to(tmp_path / "secret.mp4")
    os.mkfifo(run / "logs/pipe.log")
    linked = add_run(tmp_path / "elsewhere", "real/a/s/2")
    (tmp_path / "runs/real/a/s/2").symlink_to(linked)
    return TestClient(
        make_app(Trees.of(*(tmp_path / name for name in ("cases", "data", "runs")))),
        base_url="http://localhost",
    )


@pytest.mark.parametrize(
    "path",
    [
        "/api/text/real/a/s/1?path=logs/agent.log",
        "/api/text/real/a/s/1?path=logs/pipe.log",
        "/api/text/real/a/s/1?path=logs/../run.json",
        "/api/text/real/a/s/1?path=logs/../../../../../../secret.txt",
        "/api/text/real/a/s/1?path=/etc/passwd",
        "/api/text/real/a/s/1?path=run.json",
        "/api/text/real/a/s/1?path=logs/%00",
        "/api/text/real/a/s/1?path=",
        "/api/transcript/real/a/s/1?path=logs/agent.log",
        "/api/transcript/real/a/s/1?path=session/../../../../../secret.txt",
        "/api/image/real/a/s/1?path=logs/agent.log&at=0&n=0",
        "/api/run/real/a/s/2",
        "/api/run/real/a/s/..%2F..",
        "/video/viz/real/a/s/1/flow.mp4",
        "/video/viz/real/a/s/1/page.html",
        "/video/viz/real/a/s/1/..%2Frun.json",
        "/video/world/runs/real/a/s/1/render.mp4",
        "/video/world/runs/real/a/s/..%2F..%2F/render.mp4",
        "/video/world/cases/real/a/render.mp4",
        "/video/world/data/../x/render.mp4",
        "/video/case/../secret.mp4/reference.mp4",
        "/api/mesh/runs/real/a/s/1/index",
        "/api/mesh/runs/real/../../x/index",
        "/static/../server.py",
        "/static/..%2Fserver.py",
        "/static/%2Fetc%2Fpasswd",
        "/runs/real/a/s/1/run.json",
    ],
)
def test_what_lies_elsewhere_is_not_found(hostile: TestClient, path: str) -> None:
    answer = hostile.get(path)
    assert answer.status_code == 404
    assert "error" in answer.json()
    assert b"secret" not in answer.content


def test_links_are_neither_listed_nor_counted(hostile: TestClient) -> None:
    assert [row[0] for row in hostile.get("/api/runs").json()["rows"]] == ["real/a/s/1"]
    view = hostile.get("/api/run/real/a/s/1").json()
    assert (view["viz"], view["texts"], view["render"]) == ([], [], None)


def test_no_route_writes(client: TestClient) -> None:
    for path in ("/", "/api/runs", f"/api/run/{RIGID}/self/1", VIDEO, "/static/style.css"):
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            assert client.request(method, path).status_code == 405


@pytest.mark.parametrize(
    "path", ["/", "/api/runs", VIDEO, "/static/js/app.js", "/api/run/no/such/run/1", "/nothing"]
)
def test_every_answer_carries_the_policy(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    rules = dict(rule.split(" ", 1) for rule in headers["content-security-policy"].split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"].startswith("'self' 'sha256-")
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8130", 200),
        ("localhost", 200),
        ("[::1]:8130", 200),
        ("evil.example", 400),
        ("127.0.0.1.evil.example:8130", 400),
        ("", 400),
    ],
)
def test_other_host_names_are_refused(client: TestClient, host: str, status: int) -> None:
    assert client.get("/api/health", headers={"Host": host}).status_code == status


@pytest.mark.parametrize(
    ("header", "span"),
    [
        (None, None), ("bytes=0-1", (0, 2)), ("bytes=5-", (5, 10)), ("bytes=-3", (7, 10)),
        ("bytes=-99", (0, 10)), ("bytes=3-99", (3, 10)), ("bytes=9-9", (9, 10)), ("bytes=5-2", None),
        ("bytes=a-b", None), ("bytes=-", None), ("bytes=0-1,4-5", None), ("lines=0-1", None),
        ("bytes=" + "9" * 40 + "-", None),
    ],
)  # fmt: skip
def test_ranges(header: str | None, span: tuple[int, int] | None) -> None:
    assert wanted(header, 10) == span


@pytest.mark.parametrize("header", ["bytes=10-", "bytes=11-12", "bytes=-0"])
def test_ranges_behind_the_end(header: str) -> None:
    with pytest.raises(Unsatisfiable):
        wanted(header, 10)


def test_videos_are_sent_in_ranges(client: TestClient, trees: Trees) -> None:
    whole = (trees.cases / RIGID / "reference.mp4").read_bytes()
    full = client.get(VIDEO)
    assert (full.status_code, full.content, full.headers["accept-ranges"]) == (200, whole, "bytes")
    part = client.get(VIDEO, headers={"Range": "bytes=10-19"})
    assert (part.status_code, part.content) == (206, whole[10:20])
    assert part.headers["content-range"] == f"bytes 10-19/{len(whole)}"
    assert client.get(VIDEO, headers={"Range": "bytes=-7"}).content == whole[-7:]
    assert client.get(VIDEO, headers={"Range": f"bytes={len(whole) - 2}-"}).content == whole[-2:]
    beyond = client.get(VIDEO, headers={"Range": f"bytes={len(whole)}-"})
    assert (beyond.status_code, beyond.headers["content-range"]) == (416, f"bytes */{len(whole)}")
    head = client.head(VIDEO)
    assert (head.content, head.headers["content-length"]) == (b"", str(len(whole)))
    assert client.get(VIDEO, headers={"If-None-Match": full.headers["etag"]}).status_code == 304
    stale = client.get(VIDEO, headers={"Range": "bytes=0-1", "If-Range": '"old"'})
    assert (stale.status_code, len(stale.content)) == (200, len(whole))


def test_descriptors_are_given_back(client: TestClient) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for header in ("bytes=0-9", "bytes=99999999-", "bytes=-5"):
        for _ in range(20):
            client.get(VIDEO, headers={"Range": header})
            client.get("/api/text/real/clip/late/1?path=logs/x")
    assert len(os.listdir("/proc/self/fd")) <= before + 4


def test_records_that_are_broken_say_how(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "deep.json").write_text("[" * 200_000)
    (tmp_path / "big.json").write_text('{"a": "' + "x" * 100 + '"}')
    assert read_record(tmp_path, ("none.json",)) is None
    for name, words in (
        ("list.json", "no object"),
        ("deep.json", "nested too deeply"),
        ("big.json", "at most 50"),
    ):
        with pytest.raises(Broken, match=words):
            read_record(tmp_path, (name,), 50 if name == "big.json" else 1 << 20)


def test_values_that_json_cannot_hold() -> None:
    deep: object = 1
    for _ in range(100):
        deep = [deep]
    assert shown({"a": float("nan"), "b": 1 << 60, "c": "\ud800"}) == {"a": None, "b": str(1 << 60), "c": "?"}
    assert "…" in str(shown(deep))


@pytest.mark.parametrize("part", ["", ".", "..", "a/b", "a\0b", "x" * 256])
def test_levels_that_lead_elsewhere(part: str) -> None:
    with pytest.raises(Absent):
        checked(["real", part])


def test_directories_that_are_links_are_not_entered(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert listing(tmp_path, ("link",)) == []
    with pytest.raises(Absent):
        open_file(tmp_path, ("link", "file"))
    os.close(open_file(tmp_path, ("real", "file")))


def test_a_hostile_transcript_is_shown_as_text(tmp_path: Path) -> None:
    for name in ("cases", "data"):
        (tmp_path / name).mkdir()
    run = add_run(tmp_path / "runs", "real/a/s/1")
    deep = '{"type":' * 50_000
    session(
        run,
        "x.jsonl",
        "not json",
        deep,
        '{"type": "assistant", "message": {"content": {"a": [1, null]}}}',
        '{"message": 5, "type": ["x"]}',
        '{"role": "assistant", "content": null, "tool_calls": [7, {"function": 3}]}',
        '{"type": "assistant", "turn": 1, "message": {"tool_calls": "x"}}',
        "\x00\x01",
    )
    client = TestClient(
        make_app(Trees.of(tmp_path / "cases", tmp_path / "data", tmp_path / "runs")),
        base_url="http://localhost",
    )
    page = client.get("/api/transcript/real/a/s/1?path=session/x.jsonl").json()
    assert page["total"] >= 6
    assert page["steps"][0]["role"] == "raw"
    assert page["steps"][0]["cut"] == len("not json\n") + 20_000 - 20_000


def test_a_port_that_is_taken_is_a_fault_of_one_line() -> None:
    with listen("127.0.0.1", 0) as taken:
        taken.listen()
        with pytest.raises(UserError, match="give another --port"):
            listen("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(UserError, match="0 to 65535"):
        listen("127.0.0.1", 70_000)


def test_a_root_that_is_missing_is_a_fault_of_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--data"):
        Trees.of(tmp_path, tmp_path / "none", tmp_path)
