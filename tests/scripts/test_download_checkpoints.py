"""The download of the model store, against a server that answers like the hub and misbehaves on request."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import checkpoint_sources
import download_checkpoints
import fetching
import pytest
from hub_server import Hub, Served, hub

from contract import checkpoint_store
from contract.checkpoints import HTTPS, Checkpoint, CheckpointFile
from contract.errors import UserError

REVISION = "0123456789abcdef0123456789abcdef01234567"
WEIGHTS = bytes(range(256)) * 4096  # 1 MiB
CONFIG = b'{"hidden_size": 4}'
MOVED = b"moved" * 1000
PLAIN = b"plain" * 1000


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


TABLE = {
    "open": Checkpoint(
        "open", "open", "owner/open", REVISION,
        (CheckpointFile("model.safetensors", sha(WEIGHTS)), CheckpointFile("config.json", "")),
        gated=False, licence="MIT",
    ),
    "gated": Checkpoint(
        "gated", "gated", "owner/gated", REVISION, (CheckpointFile("model.pt", sha(b"secret")),),
        gated=True, licence="Strict License",
    ),
    "moved": Checkpoint(
        "moved", "moved", "owner/zoo", REVISION,
        (CheckpointFile("model.pt", sha(MOVED), origin="modelzoo/moved/model.pt"),),
        gated=False, licence="MIT",
    ),
    "plain": Checkpoint(
        "plain", "plain", "", "", (CheckpointFile("net.pth", sha(PLAIN), origin="net-1234.pth"),),
        gated=False, licence="BSD", source=HTTPS, url="https://models.invalid/models/net-1234.pth",
    ),
}  # fmt: skip


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """The server with every file of the table, and the program's table and addresses set to it."""
    for module in (download_checkpoints, checkpoint_store):
        monkeypatch.setattr(module, "CHECKPOINTS", TABLE)
    monkeypatch.setattr(fetching, "FIRST_WAIT", 0.01)
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE", checkpoint_store.UNVERIFIED):
        monkeypatch.delenv(name, raising=False)
    with hub() as state:
        monkeypatch.setenv("HF_ENDPOINT", state.url)
        monkeypatch.setenv(checkpoint_sources.TORCH_ENDPOINT, state.url)
        fill(state)
        yield state


def fill(state: Hub) -> None:
    state.add("owner/open", REVISION, "model.safetensors", Served(WEIGHTS))
    state.add("owner/open", REVISION, "config.json", Served(CONFIG, large=False))
    state.add("owner/gated", REVISION, "model.pt", Served(b"secret"))
    state.add("owner/zoo", REVISION, "modelzoo/moved/model.pt", Served(MOVED))
    state.files["/models/net-1234.pth"] = Served(PLAIN)


def weights_of(state: Hub) -> Served:
    return state.files[f"/owner/open/resolve/{REVISION}/model.safetensors"]


def run(*arguments: object) -> int:
    return download_checkpoints.main([str(argument) for argument in arguments])


def tree(store: Path) -> dict[str, bytes]:
    """Contents of the store without its memory of hashes."""
    files = (path for path in store.rglob("*") if path.is_file() and path.name != checkpoint_store.MEMORY)
    return {str(path.relative_to(store)): path.read_bytes() for path in files}


EVERYTHING = {
    "open/model.safetensors": WEIGHTS,
    "open/config.json": CONFIG,
    "gated/model.pt": b"secret",
    "moved/model.pt": MOVED,
    "plain/net.pth": PLAIN,
}


def test_everything_lands_in_its_place_and_nothing_else(
    served: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "not" / "there"
    assert run(store) == 0
    assert tree(store) == EVERYTHING
    assert not (store / "moved/modelzoo").exists()
    assert not (store / ".partial").exists()
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == f"checkpoints ready in {store}"
    assert err == ""


def test_what_is_there_is_not_fetched_again(served: Hub, tmp_path: Path) -> None:
    assert run(tmp_path) == 0
    served.requests.clear()
    assert run(tmp_path) == 0
    assert served.requests == []


def test_only_names(served: Hub, tmp_path: Path) -> None:
    assert run(tmp_path, "--only", "plain,", "--only", "moved") == 0
    assert tree(tmp_path) == {key: EVERYTHING[key] for key in ("moved/model.pt", "plain/net.pth")}


@pytest.mark.parametrize("names", ["opn", ",", "open,opn"])
def test_only_with_a_name_that_does_not_exist(served: Hub, tmp_path: Path, names: str) -> None:
    with pytest.raises(UserError, match=r"--only .* expected open, gated, moved, plain"):
        run(tmp_path, "--only", names)
    assert list(tmp_path.iterdir()) == []


def test_a_cut_connection_goes_on_where_it_ended(served: Hub, tmp_path: Path) -> None:
    weights_of(served).cut_after = [300_000, 200_000]
    assert run(tmp_path, "--only", "open") == 0
    assert tree(tmp_path)["open/model.safetensors"] == WEIGHTS
    ranges = [wanted for _, wanted in served.gets("model.safetensors")]
    assert ranges == ["", "bytes=300000-", "bytes=500000-"]


def test_a_server_without_ranges_starts_over(served: Hub, tmp_path: Path) -> None:
    weights_of(served).cut_after, weights_of(served).ranges = [300_000], False
    assert run(tmp_path, "--only", "open") == 0
    assert tree(tmp_path)["open/model.safetensors"] == WEIGHTS
    assert [wanted for _, wanted in served.gets("model.safetensors")] == ["", "bytes=300000-"]


def test_a_dead_line_is_given_up_and_the_rest_goes_on(
    served: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights_of(served).cut_after = [1000] + [0] * fetching.ATTEMPTS
    assert run(tmp_path) == 1
    left = {key: content for key, content in EVERYTHING.items() if key != "open/model.safetensors"}
    left |= {".partial/open--model.safetensors": WEIGHTS[:1000], ".partial/.lock": b""}
    assert tree(tmp_path) == left
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 1
    assert "open: " in errors[0]
    assert "ended after 1000 of 1048576 bytes" in errors[0]
    assert run(tmp_path) == 0
    assert served.gets("model.safetensors")[-1][1] == "bytes=1000-"
    assert tree(tmp_path) == EVERYTHING


def test_a_transient_refusal_is_asked_again(served: Hub, tmp_path: Path) -> None:
    net = served.files["/models/net-1234.pth"]
    net.refuse = (503, "")
    asked = []

    def locate() -> fetching.Remote:
        asked.append(1)
        if len(asked) == 3:
            net.refuse = None
        return fetching.probe(f"{served.url}/models/net-1234.pth")

    fetching.fetch(locate, tmp_path / "part", lambda have, total: None)
    assert (tmp_path / "part").read_bytes() == PLAIN
    assert len(asked) == 3


def test_a_wrong_hash_is_refused_and_nothing_kept(
    served: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    served.files["/models/net-1234.pth"].content = b"other" * 1000
    assert run(tmp_path, "--only", "plain") == 1
    assert tree(tmp_path) == {}
    assert f"plain: net.pth: SHA-256 is {sha(b'other' * 1000)[:16]}…" in capsys.readouterr().err


def test_another_file_on_the_hub_is_seen_before_it_is_downloaded(
    served: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights_of(served).content = WEIGHTS + b"!"
    assert run(tmp_path, "--only", "open") == 1
    assert served.gets("model.safetensors") == []
    assert f"expected {sha(WEIGHTS)[:16]}" in capsys.readouterr().err


def test_a_small_file_is_compared_with_its_name_in_git(
    served: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = served.files[f"/owner/open/resolve/{REVISION}/config.json"]
    config.etag = config.name
    config.content = CONFIG.replace(b"4", b"5")
    assert run(tmp_path, "--only", "open") == 1
    assert set(tree(tmp_path)) == {"open/model.safetensors"}
    assert "not the one of the pinned revision" in capsys.readouterr().err


def test_a_damaged_beginning_is_thrown_away(served: Hub, tmp_path: Path) -> None:
    part = tmp_path / ".partial/plain--net.pth"
    part.parent.mkdir()
    part.write_bytes(b"garbage")
    assert run(tmp_path, "--only", "plain") == 0
    assert tree(tmp_path) == {"plain/net.pth": PLAIN}
    assert [wanted for _, wanted in served.gets()] == ["bytes=7-", ""]


def test_a_beginning_longer_than_the_file(served: Hub, tmp_path: Path) -> None:
    part = tmp_path / ".partial/plain--net.pth"
    part.parent.mkdir()
    part.write_bytes(PLAIN + b"more")
    assert run(tmp_path, "--only", "plain") == 0
    assert tree(tmp_path) == {"plain/net.pth": PLAIN}


def test_a_file_that_is_not_the_published_one_is_replaced(
    served: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain/net.pth").write_bytes(PLAIN[:-1] + b"!")
    assert run(tmp_path, "--only", "plain") == 0
    assert tree(tmp_path) == {"plain/net.pth": PLAIN}
    assert "not the published file" in capsys.readouterr().out


def test_a_download_by_hand_is_moved_out_of_the_zoo(served: Hub, tmp_path: Path) -> None:
    by_hand = tmp_path / "moved/modelzoo/moved/model.pt"
    by_hand.parent.mkdir(parents=True)
    by_hand.write_bytes(MOVED)
    assert run(tmp_path, "--only", "moved") == 0
    assert tree(tmp_path) == {"moved/model.pt": MOVED}
    assert not (tmp_path / "moved/modelzoo").exists()
    assert served.requests == []


@pytest.mark.parametrize(("status", "code"), [(403, "GatedRepo"), (401, "GatedRepo"), (401, ""), (403, "")])
def test_a_gated_model_names_its_licence_page(
    served: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str], status: int, code: str
) -> None:
    served.files[f"/owner/gated/resolve/{REVISION}/model.pt"].refuse = (status, code)
    assert run(tmp_path) == 1
    assert set(tree(tmp_path)) >= {"open/model.safetensors", "plain/net.pth", "moved/model.pt"}
    assert "gated/model.pt" not in tree(tmp_path)
    out, err = capsys.readouterr()
    assert len(err.splitlines()) == 1
    for part in (
        "gated: access is gated",
        "https://huggingface.co/owner/gated",
        "Strict License",
        "HF_TOKEN",
    ):
        assert part in err
    assert "ready" not in out


def test_a_missing_file_on_the_hub(served: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    del served.files[f"/owner/zoo/resolve/{REVISION}/modelzoo/moved/model.pt"]
    assert run(tmp_path, "--only", "moved") == 1
    assert "HTTP 404 for owner/zoo/modelzoo/moved/model.pt" in capsys.readouterr().err


def test_the_token_goes_to_the_hub_only(served: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert run(tmp_path) == 0
    assert {value for _, value in served.authorized} == {"Bearer hf_secret"}
    paths = [path for path, _ in served.authorized]
    assert f"/owner/gated/resolve/{REVISION}/model.pt" in paths
    assert not [path for path in paths if path.startswith(("/signed", "/models"))]


def test_offline_mode_is_explained(
    served: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert run(tmp_path, "--only", "moved") == 1
    assert "moved: HF_HUB_OFFLINE is set" in capsys.readouterr().err
    assert served.requests == []


def test_too_little_space_downloads_nothing(
    served: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1, 1, download_checkpoints.SPARE + 500_000))
    with pytest.raises(UserError, match="not enough space"):
        run(tmp_path)
    assert served.gets() == []
    assert run(tmp_path, "--only", "plain") == 0


def test_a_missing_package_is_named(served: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(
        UserError, match=r"huggingface_hub is not installed.*pip install 'fourdcodebench\[models\]'"
    ):
        run(tmp_path)
    assert run(tmp_path, "--only", "plain") == 0


def test_verify_downloads_nothing(served: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path) == 0
    served.requests.clear()
    capsys.readouterr()
    assert run(tmp_path, "--verify") == 0
    out = capsys.readouterr().out.splitlines()
    assert out == [*(f"{name}: ok" for name in TABLE), f"checkpoints ready in {tmp_path}"]
    (tmp_path / "plain/net.pth").write_bytes(PLAIN[:-1] + b"!")
    (tmp_path / "gated/model.pt").unlink()
    assert run(tmp_path, "--verify") == 1
    out, err = capsys.readouterr()
    assert "open: ok" in out
    assert "ready" not in out
    first, second = err.splitlines()
    assert f"gated: {tmp_path}/gated/model.pt is missing" in first
    assert f"{sha(PLAIN)[:16]}…" in second
    assert f"download_checkpoints.py {tmp_path} --only plain" in second
    assert served.requests == []


def test_verify_of_a_store_that_does_not_exist(served: Hub, tmp_path: Path) -> None:
    assert run(tmp_path / "none", "--verify") == 1
    assert not (tmp_path / "none").exists()


def test_a_store_that_is_a_file(served: Hub, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file.*exists|not a directory"):
        run(tmp_path / "file")


DRIVER = """
import sys
sys.path[:0] = [{scripts!r}, {here!r}, {helpers!r}]
import contract.checkpoints
import test_download_checkpoints as table
contract.checkpoints.CHECKPOINTS = table.TABLE
import contract.checkpoint_store, download_checkpoints
contract.checkpoint_store.CHECKPOINTS = download_checkpoints.CHECKPOINTS = table.TABLE
from contract.errors import run_program
run_program(download_checkpoints.main)
"""


def started(repository: Path, state: Hub, *arguments: object) -> subprocess.Popen[str]:
    """The program in a process of its own."""
    here = Path(__file__).parent
    code = DRIVER.format(
        scripts=str(repository / "scripts"), here=str(here), helpers=str(here.parent / "helpers")
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=repository, env=os.environ | {"HF_ENDPOINT": state.url}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_stopped_in_the_middle_and_started_again(
    repository: Path, served: Hub, tmp_path: Path, how: signal.Signals
) -> None:
    weights_of(served).hold_after = 400_000
    process = started(repository, served, tmp_path, "--only", "open")
    part = tmp_path / ".partial/open--model.safetensors"
    try:
        assert served.holding.wait(60)
        while not part.exists() or not part.stat().st_size:
            assert process.poll() is None
        process.send_signal(how)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    arrived = part.stat().st_size
    assert 0 < arrived <= 400_000
    assert not (tmp_path / "open/model.safetensors").exists()
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert err == "interrupted; run the same command again to continue\n"
    weights_of(served).hold_after = None
    served.resume.set()
    assert run(tmp_path, "--only", "open") == 0
    assert served.gets("model.safetensors")[-1][1] == f"bytes={arrived}-"
    assert tree(tmp_path) == {key: EVERYTHING[key] for key in ("open/model.safetensors", "open/config.json")}


def test_a_second_download_into_the_same_store_is_refused(
    repository: Path, served: Hub, tmp_path: Path
) -> None:
    weights_of(served).hold_after = 400_000
    process = started(repository, served, tmp_path, "--only", "open")
    try:
        assert served.holding.wait(60)
        with pytest.raises(UserError, match="another download"):
            run(tmp_path, "--only", "plain")
        served.resume.set()
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    assert out.splitlines()[-1] == f"checkpoints ready in {tmp_path}"


def test_the_old_name_is_the_same_program(repository: Path) -> None:
    script = repository / "scripts/download_checkpoints.sh"
    environment = os.environ | {"FOURDCB_PYTHON": sys.executable}
    done = subprocess.run(
        [script, "--only", "nothing"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "--only nothing: no such model" in done.stderr
