"""The download of the published cases: from a hub that misbehaves on request, and from a local copy."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import dataset_plan
import download_data
import fetching
import h5py
import numpy as np
import pytest
import unpack_slots
from hub_server import Hub, hub
from published_data import (
    COMMIT,
    FLOW,
    REAL,
    SYNTHETIC,
    Published,
    found,
    publish,
    serve,
)

from contract.errors import UserError

SECRET = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE", "HF_ENDPOINT")
MIXED = f"/datasets/{SYNTHETIC}/resolve/{COMMIT}/worlds/mixed.h5"
CLIP = f"/datasets/{REAL}/resolve/{COMMIT}/videos/clip_rigid.mp4"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory, fixture_worlds: Path) -> Published:
    return publish(tmp_path_factory.mktemp("published"), fixture_worlds)


@pytest.fixture
def copy(original: Published, tmp_path: Path) -> Published:
    """A copy that a test may spoil."""
    shutil.copytree(original.copy, tmp_path / "copy")
    return Published(tmp_path / "copy", original.fixtures)


@pytest.fixture
def served(original: Published, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setattr(fetching, "FIRST_WAIT", 0.01)
    for name in SECRET:
        monkeypatch.delenv(name, raising=False)
    with hub() as state:
        monkeypatch.setenv("HF_ENDPOINT", state.url)
        original.serve(state)
        yield state


def run(root: Path, *arguments: object) -> int:
    words = ["--cases-dir", root / "cases", "--data-dir", root / "data", "--jobs", 1, *arguments]
    return download_data.main([str(word) for word in words])


def test_everything_lands_in_its_place(
    served: Hub, original: Published, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "--estimates") == 0
    assert found(tmp_path) == original.expected(estimates=True)
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "4 case(s) to bring, 0.00 GB"
    assert [line.split("]")[0] for line in out[1:5]] == [f"[{number}/4" for number in range(1, 5)]
    assert any("synthetic/mixed: world, reference.mp4" in line for line in out)
    assert out[5:] == [
        "real: 2 cases", "real estimates: 1 cases", "synthetic: 2 cases", "synthetic estimates: 0 cases",
    ]  # fmt: skip
    assert not (tmp_path / "data/.partial").exists()
    assert {path.name for path in tmp_path.rglob("*.h5")} == {"flow.h5"}
    record = json.loads((tmp_path / "data/synthetic/mixed/download.json").read_text())
    source = record["files"]["world"]["source"]
    assert (source["dataset"], source["revision"], source["file"]) == (SYNTHETIC, COMMIT, "worlds/mixed.h5")


def test_a_second_run_asks_for_the_lists_only(served: Hub, original: Published, tmp_path: Path) -> None:
    assert run(tmp_path) == 0
    served.requests.clear()
    assert run(tmp_path) == 0
    assert {path for _, path, _ in served.requests} == {
        f"/api/datasets/{REAL}/tree/{COMMIT}", f"/api/datasets/{SYNTHETIC}/tree/{COMMIT}",
        f"/datasets/{REAL}/resolve/{COMMIT}/metadata.jsonl",
    }  # fmt: skip
    assert found(tmp_path) == original.expected()


def test_videos_only_then_the_rest(served: Hub, original: Published, tmp_path: Path) -> None:
    assert run(tmp_path, "--videos-only") == 0
    assert found(tmp_path) == original.expected(videos_only=True)
    assert not served.gets("worlds/")
    assert not served.gets("annotations/")
    served.requests.clear()
    assert run(tmp_path) == 0
    assert found(tmp_path) == original.expected()
    assert not served.gets("videos/")


def test_one_kind_and_some_cases(served: Hub, original: Published, tmp_path: Path) -> None:
    assert run(tmp_path, "--kind", "synthetic", "--cases", "mixed") == 0
    assert {path.split("/")[2] for path in found(tmp_path)} == {"mixed"}
    assert not [path for _, path, _ in served.requests if REAL in path]
    assert run(tmp_path, "--cases", "real/clip_rigid,cloth") == 0
    expected = {path: one for path, one in original.expected().items() if "clip_cloth" not in path}
    assert found(tmp_path) == expected


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("nothing", "--cases nothing: no such case; expected real/clip_rigid"),
        ("real/mixed", "no such case"),
        (",", "names no case"),
    ],
)
def test_cases_that_there_are_none_of(served: Hub, tmp_path: Path, names: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        run(tmp_path, "--cases", names)
    assert found(tmp_path) == {}


def test_a_broken_line_is_continued(served: Hub, original: Published, tmp_path: Path) -> None:
    served.files[MIXED].cut_after = [1000, 5000, 1]
    assert run(tmp_path, "--cases", "mixed") == 0
    ranges = [wanted for _, wanted in served.gets("worlds/mixed.h5")]
    assert ranges[-3:] == ["bytes=1000-", "bytes=6000-", "bytes=6001-"]
    assert found(tmp_path).items() <= original.expected().items()


def test_a_corrupted_piece_is_named_and_fetched_again(
    served: Hub, original: Published, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What lies there of an interrupted download has been spoilt since."""
    content = served.files[MIXED].content
    name = f"{hashlib.sha256(content).hexdigest()[:16]}--Dataset-Synthetic_worlds_mixed.h5"
    part = tmp_path / "data/.partial" / name
    part.parent.mkdir(parents=True)
    part.write_bytes(
        content[:20_000] + bytes(255 - byte for byte in content[20_000:20_064]) + content[20_064:40_000]
    )
    assert run(tmp_path, "--cases", "mixed") == 0
    out = capsys.readouterr().out
    assert f"{SYNTHETIC}/worlds/mixed.h5: SHA-256 is" in out
    assert "downloading it again" in out
    assert [wanted for path, wanted in served.gets("signed") if "mixed.h5" in path] == ["bytes=40000-", ""]
    assert found(tmp_path).items() <= original.expected().items()
    assert (tmp_path / "data/synthetic/mixed/world/camera.json").is_file()


def test_what_the_hub_holds_damaged_costs_that_case_only(
    served: Hub, original: Published, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = served.files[MIXED].content
    served.files[MIXED].content = whole[:5000] + b"\0" * 64 + whole[5064:]
    assert run(tmp_path) == 1
    out, err = capsys.readouterr()
    assert err.count("\n") == 1
    assert err.startswith(f"error: synthetic/mixed: world: {SYNTHETIC}/worlds/mixed.h5: SHA-256 is ")
    assert "twice; nothing was kept" in err
    assert out.splitlines()[-2:] == ["real: 2 cases", "synthetic: 1 of 2 cases"]
    expected = {path: one for path, one in original.expected().items() if "/mixed/world" not in path}
    assert found(tmp_path) == expected
    served.files[MIXED].content = whole
    assert run(tmp_path) == 0
    assert found(tmp_path) == original.expected()


def test_a_missing_file_costs_itself_only(
    served: Hub, original: Published, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = served.files.pop(CLIP)
    assert run(tmp_path) == 1
    assert "error: real/clip_rigid: reference.mp4: " in capsys.readouterr().err
    expected = original.expected()
    del expected["cases/real/clip_rigid/reference.mp4"]
    assert found(tmp_path) == expected
    served.files[CLIP] = gone
    assert run(tmp_path) == 0
    assert found(tmp_path) == original.expected()


def test_a_truncated_video_of_another_program_is_replaced(
    served: Hub, original: Published, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    video = tmp_path / "cases/real/clip_rigid/reference.mp4"
    video.parent.mkdir(parents=True)
    whole = original.expected()["cases/real/clip_rigid/reference.mp4"]
    video.write_bytes(whole[:1000])
    same = tmp_path / "cases/real/clip_cloth/reference.mp4"
    same.parent.mkdir(parents=True)
    same.write_bytes(original.expected()["cases/real/clip_cloth/reference.mp4"])
    assert run(tmp_path, "--kind", "real") == 0
    assert video.read_bytes() == whole
    assert (
        "real/clip_rigid: reference.mp4 is not what is published, bringing it again"
        in capsys.readouterr().out
    )
    assert not served.gets("videos/clip_cloth.mp4")


def test_a_world_from_elsewhere_is_kept_unless_asked(
    served: Hub, original: Published, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = tmp_path / "data/synthetic/mixed/world"
    world.mkdir(parents=True)
    (world / "mine").write_text("")
    assert run(tmp_path, "--cases", "mixed") == 0
    assert "was not checked; give --redo" in capsys.readouterr().out
    assert [path.name for path in world.iterdir()] == ["mine"]
    assert run(tmp_path, "--cases", "mixed", "--redo") == 0
    assert found(tmp_path).items() <= original.expected().items()
    assert not (world / "mine").exists()


def test_estimates_of_your_own_are_kept(
    served: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flow = tmp_path / "data/real/clip_rigid/estimates/flow.h5"
    flow.parent.mkdir(parents=True)
    flow.write_bytes(b"computed here")
    assert run(tmp_path, "--kind", "real", "--estimates", "--redo", "--videos-only") == 0
    assert flow.read_bytes() == b"computed here"
    assert "estimates/flow.h5 is yours; remove it to have the published one" in capsys.readouterr().out
    flow.unlink()
    assert run(tmp_path, "--kind", "real", "--estimates", "--videos-only") == 0
    assert flow.read_bytes() == FLOW


def test_verify_names_what_is_wrong_and_the_next_run_mends_it(
    served: Hub, original: Published, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path) == 0
    capsys.readouterr()
    assert run(tmp_path, "--verify") == 0
    labels = ("real/clip_cloth", "real/clip_rigid", "synthetic/cloth", "synthetic/mixed")
    assert capsys.readouterr().out == "".join(f"{label}: ok\n" for label in labels)
    mesh = tmp_path / "data/synthetic/mixed/world/meshes/1.npz"
    state, content = mesh.stat(), bytearray(mesh.read_bytes())
    content[100] ^= 1
    mesh.write_bytes(content)
    os.utime(mesh, ns=(state.st_atime_ns, state.st_mtime_ns))  # as a failing disk does it
    (tmp_path / "data/real/clip_cloth/annotation/dynamic_mask.npz").unlink()
    served.requests.clear()
    assert run(tmp_path, "--verify") == 1
    out, err = capsys.readouterr()
    assert out == "real/clip_rigid: ok\nsynthetic/cloth: ok\n"
    first, second = err.splitlines()
    assert first.startswith("error: real/clip_cloth: annotation/dynamic_mask.npz is missing; run the same")
    assert second.startswith("error: synthetic/mixed: world/meshes/1.npz SHA-256 is ")
    assert served.requests == []
    assert run(tmp_path) == 0
    assert found(tmp_path) == original.expected()
    assert {path.rsplit("/", 1)[1] for path, _ in served.gets("/signed/")} == {"dynamic_mask.npz", "mixed.h5"}
    assert run(tmp_path, "--verify") == 0


def test_verify_where_nothing_was_downloaded(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nothing was downloaded here"):
        run(tmp_path, "--verify")


def test_touched_files_are_read_and_believed(served: Hub, original: Published, tmp_path: Path) -> None:
    assert run(tmp_path) == 0
    for path in tmp_path.rglob("*"):
        os.utime(path)
    served.requests.clear()
    assert run(tmp_path) == 0
    assert not served.gets("/signed/")


def test_a_record_that_is_no_record(served: Hub, original: Published, tmp_path: Path) -> None:
    assert run(tmp_path) == 0
    record = tmp_path / "data/real/clip_rigid/download.json"
    outside = {"source": {}, "files": {"../../x": {"sha256": "", "size": 0, "mtime_ns": 0}}}
    for text in (
        "",
        "[]",
        '{"format": 1, "files": []}',
        json.dumps({"format": 1, "files": {"world": outside}}),
    ):
        record.write_text(text)
        assert run(tmp_path, "--kind", "real") == 0
    assert found(tmp_path) == original.expected()


def test_the_first_revision_is_kept_until_an_update(
    served: Hub, original: Published, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "--kind", "real") == 0
    newer = "f" * 40
    place = original.directory(REAL)
    files = {
        path.relative_to(place).as_posix(): path.read_bytes() for path in place.rglob("*") if path.is_file()
    }
    files["videos/clip_rigid.mp4"] = (original.directory(SYNTHETIC) / "videos/mixed.mp4").read_bytes()
    serve(served, REAL, files, newer)
    assert run(tmp_path, "--kind", "real") == 0
    video = tmp_path / "cases/real/clip_rigid/reference.mp4"
    assert video.read_bytes() != files["videos/clip_rigid.mp4"]
    capsys.readouterr()
    assert run(tmp_path, "--kind", "real", "--update") == 0
    assert "reference.mp4 is from another revision" in capsys.readouterr().out
    assert video.read_bytes() == files["videos/clip_rigid.mp4"]
    assert json.loads((tmp_path / "data/revisions.json").read_text()) == {REAL: newer}


def test_too_little_space_downloads_nothing(
    served: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1, 1, dataset_plan.SPARE + 300_000))
    with pytest.raises(UserError, match=r"not enough space: about .* GB needed.*--videos-only"):
        run(tmp_path)
    assert not served.gets("/signed/")
    assert run(tmp_path, "--videos-only") == 0


def test_an_unreachable_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fetching, "FIRST_WAIT", 0.001)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert run(tmp_path) == 1
    assert capsys.readouterr().err.startswith("error: 127.0.0.1:9: ")


def test_missing_packages_are_named_first(
    served: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = download_data.importlib.util.find_spec
    monkeypatch.setattr(
        download_data.importlib.util, "find_spec", lambda name: None if name == "hdf5plugin" else find(name)
    )
    with pytest.raises(UserError, match=r"hdf5plugin is not installed.*fourdcodebench\[data\]"):
        run(tmp_path)
    assert not served.gets("/signed/")
    assert run(tmp_path, "--videos-only") == 0


# From a local copy.


def test_offline_from_a_copy(original: Published, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in original.copy.rglob("*")}
    assert run(tmp_path, "--offline", original.copy, "--estimates") == 0
    assert found(tmp_path) == original.expected(estimates=True)
    assert {path: path.stat().st_mtime_ns for path in original.copy.rglob("*")} == before
    assert run(tmp_path, "--offline", original.copy) == 0
    assert run(tmp_path, "--verify") == 0


def test_offline_from_the_cache_of_the_hub(original: Published, tmp_path: Path) -> None:
    """Snapshots of links to blobs that are named by their hash."""
    cache = tmp_path / "hub" / f"datasets--{SYNTHETIC.replace('/', '--')}"
    snapshot = cache / "snapshots" / COMMIT
    (cache / "blobs").mkdir(parents=True)
    (cache / "refs").mkdir()
    (cache / "refs/main").write_text(COMMIT)
    for path in original.directory(SYNTHETIC).rglob("*.*"):
        blob = cache / "blobs" / hashlib.sha256(path.read_bytes()).hexdigest()
        shutil.copyfile(path, blob)
        link = snapshot / path.relative_to(original.directory(SYNTHETIC))
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blob)
    assert run(tmp_path, "--offline", tmp_path / "hub", "--kind", "synthetic") == 0
    expected = {path: one for path, one in original.expected().items() if "/synthetic/" in path}
    assert found(tmp_path) == expected
    record = json.loads((tmp_path / "data/synthetic/cloth/download.json").read_text())
    assert record["files"]["world"]["source"]["revision"] == COMMIT
    assert len(record["files"]["world"]["source"]["sha256"]) == 64


@pytest.mark.parametrize("sums", [False, True])
def test_offline_with_a_truncated_video_and_a_corrupted_chunk(
    copy: Published, tmp_path: Path, capsys: pytest.CaptureFixture[str], sums: bool
) -> None:
    for repo in (REAL, SYNTHETIC) if sums else ():
        words = "find . -type f | xargs sha256sum > ../sums && mv ../sums SHA256SUMS"
        subprocess.run(["sh", "-c", words], cwd=copy.directory(repo), check=True)
    video = copy.directory(REAL) / "videos/clip_rigid.mp4"
    video.write_bytes(video.read_bytes()[:-200])
    packed = copy.directory(SYNTHETIC) / "worlds/mixed.h5"
    with h5py.File(packed) as file:
        node = file["dynamics/cloth/pos"]
        chunk = node.id.get_chunk_info(node.id.get_num_chunks() - 1)
    with packed.open("r+b") as stream:
        stream.seek(chunk.byte_offset)
        stream.write(b"\xff" * chunk.size)
    assert run(tmp_path, "--offline", copy.copy) == 1
    clip, mixed = capsys.readouterr().err.splitlines()
    assert clip.startswith(f"error: real/clip_rigid: reference.mp4: {video}: ")
    if sums:
        assert "SHA-256" in clip
        assert "copy it again" in mixed
    else:
        assert "error: synthetic/mixed: world: /dynamics/cloth/pos: rows " in mixed
        assert "the file is damaged there" in mixed
    expected = {
        path: one
        for path, one in copy.expected().items()
        if "/mixed/world" not in path and path != "cases/real/clip_rigid/reference.mp4"
    }
    assert found(tmp_path) == expected
    assert not list((tmp_path / "data").rglob(".partial-*"))


def test_a_mask_that_is_none(copy: Published, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mask = copy.directory(REAL) / "annotations/clip_rigid/dynamic_mask.npz"
    np.savez(mask, other=np.zeros(3))
    assert run(tmp_path, "--offline", copy.copy, "--kind", "real") == 1
    assert "holds no array 'mask'" in capsys.readouterr().err


def test_offline_without_a_copy(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such directory"):
        run(tmp_path, "--offline", tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds no copy of 4DCodeBench/Dataset-Real-World"):
        run(tmp_path, "--offline", tmp_path / "empty")


@pytest.mark.parametrize("line", ["no json", '{"name": 1}', '{"case": "../up"}', '{"case": "a/b"}', "[1]"])
def test_metadata_that_names_no_case(copy: Published, tmp_path: Path, line: str) -> None:
    with (copy.directory(REAL) / "metadata.jsonl").open("a") as stream:
        stream.write(f"{line}\n")
    with pytest.raises(UserError, match=REAL):
        run(tmp_path, "--offline", copy.copy, "--kind", "real")
    assert found(tmp_path) == {}


def test_a_packed_world_that_kills_its_reader(
    copy: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The process dies at one world; the other is unpacked by a new one."""
    start, started = unpack_slots._start, []

    def fragile() -> subprocess.Popen[str]:
        worker = start()
        if not started:
            worker.send_signal(signal.SIGSTOP)
            worker.send_signal(signal.SIGKILL)
        started.append(worker)
        return worker

    monkeypatch.setattr(unpack_slots, "_start", fragile)
    assert run(tmp_path, "--offline", copy.copy, "--kind", "synthetic") == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "world: the process that unpacks it was killed (SIGKILL)" in err
    assert len(started) == 2
    assert run(tmp_path, "--offline", copy.copy, "--kind", "synthetic") == 0


def test_a_full_disk_stops_the_download(original: Published, tmp_path: Path, repository: Path) -> None:
    """A real refusal of the system: no file may grow beyond a bound, in the program and its workers."""
    words = [
        sys.executable,
        str(repository / "scripts/download_data.py"),
        "--jobs",
        "1",
        "--kind",
        "synthetic",
    ]
    words += ["--cases-dir", str(tmp_path / "cases"), "--data-dir", str(tmp_path / "data")]
    words += ["--offline", str(original.copy)]

    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    done = subprocess.run(words, capture_output=True, text=True, check=False, preexec_fn=bound)
    assert done.returncode == 1, done.stderr
    assert "file too large; free some space and run the same command again to continue" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.rglob(".partial-*"))
    assert not list(tmp_path.rglob("world"))
    assert run(tmp_path, "--offline", original.copy) == 0
    assert found(tmp_path) == original.expected()


# Videos that the data set does not hold.

SCRIPT = """
import argparse, pathlib, shutil
parser = argparse.ArgumentParser()
parser.add_argument("--downloads"); parser.add_argument("--out"); parser.add_argument("cases", nargs="+")
given = parser.parse_args()
for case in given.cases:
    shutil.copyfile({video!r}, pathlib.Path(given.out) / (case + ".mp4"))
"""


def test_the_script_of_the_data_set_runs_only_with_consent(
    copy: Published, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = copy.directory(REAL) / "videos/clip_cloth.mp4"
    kept = tmp_path / "kept.mp4"
    missing.rename(kept)
    script = copy.directory(REAL) / "scripts/prepare_videos.py"
    assert run(tmp_path, "--offline", copy.copy, "--kind", "real") == 1
    assert "holds neither the video nor scripts/prepare_videos.py" in capsys.readouterr().err
    script.parent.mkdir()
    script.write_text(SCRIPT.format(video=str(kept)))
    digest = hashlib.sha256(script.read_bytes()).hexdigest()
    assert run(tmp_path, "--offline", copy.copy, "--kind", "real") == 1
    err = capsys.readouterr().err
    assert f"read {script}, and if you trust it, give --allow-script {digest[:16]}" in err
    assert not (tmp_path / "cases/real/clip_cloth").exists()
    for wrong in ("0" * 16, digest[:4], "yes"):
        with pytest.raises(UserError, match="script is another one"):
            run(tmp_path, "--offline", copy.copy, "--kind", "real", "--allow-script", wrong)
    assert run(tmp_path, "--offline", copy.copy, "--kind", "real", "--allow-script", digest[:16]) == 0
    assert (tmp_path / "cases/real/clip_cloth/reference.mp4").read_bytes() == kept.read_bytes()
    assert run(tmp_path, "--offline", copy.copy, "--kind", "real") == 0
    assert run(tmp_path, "--verify") == 0


# Processes.


def test_a_second_download_into_the_same_tree_is_refused(
    served: Hub, original: Published, tmp_path: Path, repository: Path
) -> None:
    served.files[MIXED].hold_after = 10_000
    process = started(repository, served, tmp_path)
    try:
        assert served.holding.wait(60)
        with pytest.raises(UserError, match="another download"):
            run(tmp_path)
        served.resume.set()
        out, _ = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    assert out.splitlines()[-2:] == ["real: 2 cases", "synthetic: 2 cases"]
    assert found(tmp_path) == original.expected()


def test_interrupted_and_continued(
    served: Hub, original: Published, tmp_path: Path, repository: Path
) -> None:
    served.files[MIXED].hold_after = 10_000
    process = started(repository, served, tmp_path)
    try:
        assert served.holding.wait(60)
        while not [part for part in (tmp_path / "data/.partial").glob("*mixed.h5") if part.stat().st_size]:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert err == "interrupted; run the same command again to continue\n"
    served.files[MIXED].hold_after = None
    served.resume.set()
    assert run(tmp_path) == 0
    assert served.gets("mixed.h5")[-1][1].startswith("bytes=")
    assert found(tmp_path) == original.expected()


def started(repository: Path, state: Hub, root: Path) -> subprocess.Popen[str]:
    """The program in a process of its own."""
    words = ["--cases-dir", str(root / "cases"), "--data-dir", str(root / "data"), "--jobs", "1"]
    return subprocess.Popen(
        [sys.executable, str(repository / "scripts/download_data.py"), *words],
        env=os.environ | {"HF_ENDPOINT": state.url}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
