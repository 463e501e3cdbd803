"""Reading the prepare stage's files: faults are named with file and dataset, and are the operator's."""

from __future__ import annotations

import errno
import os

import h5py
import numpy as np
import pytest
from estimates import exact_tracks, moving_world, write_dense, write_depth, write_flow, write_tracks
from real_scenes import memory_scene

from scorer import estimates_dense
from scorer.child import is_infrastructure
from scorer.estimates import EstimateError, depth_estimate, flow_estimate, track_estimate
from scorer.metrics import depth, flow, track2d


def flow_file(tmp_path, **changes) -> None:
    members = {
        "flow": np.zeros((2, 4, 6, 2), np.float16),
        "valid": np.ones((2, 4, 6), bool),
        "stride": np.int64(3),
    } | changes
    write_dense(tmp_path / "flow.h5", {name: value for name, value in members.items() if value is not None})


def refused(tmp_path, opened, *words: str) -> None:
    with pytest.raises(EstimateError) as caught, opened(tmp_path):
        pass
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)
    assert is_infrastructure(caught.value)


def test_what_is_written_is_read(tmp_path):
    field = np.random.default_rng(0).normal(size=(2, 4, 6, 2)).astype(np.float16)
    known = np.random.default_rng(1).random((2, 4, 6)) > 0.5
    write_flow(tmp_path, field, known, stride=3)
    with flow_estimate(tmp_path) as found:
        assert (found.flow_shape, found.valid_shape, found.stride) == (field.shape, known.shape, 3)
        vectors, given = found.step(1)
    assert vectors.dtype == np.float32
    assert (vectors == field[1]).all()
    assert (given == known[1]).all()
    assert given.dtype == np.bool_
    write_depth(tmp_path, field[..., 0], (9, 40, 60), stride=4, fps=29.97)
    with depth_estimate(tmp_path) as found:
        assert (found.shape, found.stored, found.stride, found.fps) == ((9, 40, 60), (2, 4, 6), 4, 29.97)
        assert (found.disparity(0) == field[0, ..., 0]).all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"flow": None}, ("'flow' is missing",)),
        ({"valid": None}, ("'valid' is missing",)),
        ({"stride": None}, ("'stride' is missing",)),
        ({"stride": np.arange(2)}, ("'stride'", "int64", "(2,)")),
        ({"stride": np.float64("nan")}, ("'stride'", "finite")),
        ({"stride": np.array("one")}, ("'stride'", "expected numbers")),
        ({"flow": np.zeros((2, 4, 6), np.float16)}, ("'flow'", "rank 4")),
        ({"flow": np.zeros((2, 4, 6, 2), np.int16)}, ("'flow'", "int16")),
        ({"valid": np.zeros((2, 4, 6), np.float32)}, ("'valid'", "float32")),
    ],
)
def test_a_wrong_member_is_named(tmp_path, changes, words):
    flow_file(tmp_path, **changes)
    refused(tmp_path, flow_estimate, str(tmp_path / "flow.h5"), *words)


def test_a_group_or_an_empty_dataset_is_no_array(tmp_path):
    flow_file(tmp_path, flow=None, valid=None)
    with h5py.File(tmp_path / "flow.h5", "a") as file:
        file.create_group("flow")
    refused(tmp_path, flow_estimate, "'flow' is missing")
    with h5py.File(tmp_path / "flow.h5", "a") as file:
        del file["flow"]
        file["flow"] = h5py.Empty("f2")
    refused(tmp_path, flow_estimate, "'flow' is missing")
    with h5py.File(tmp_path / "flow.h5", "a") as file:
        del file["flow"]
        file["flow"] = h5py.SoftLink("/nowhere")
    refused(tmp_path, flow_estimate, "'flow' is missing")


def test_a_stride_of_nothing_acts_as_one(tmp_path):
    flow_file(tmp_path, stride=np.int64(0))
    with flow_estimate(tmp_path) as found:
        assert found.stride == 1


@pytest.mark.parametrize("stride", [-1, 1.5])
def test_a_stride_that_is_none_is_refused(tmp_path, stride):
    flow_file(tmp_path, stride=np.float64(stride))
    refused(tmp_path, flow_estimate, str(tmp_path / "flow.h5"), "'stride'", "whole number")
    write_depth(tmp_path, np.ones((2, 4, 4)), (2, 48, 64), stride)
    if stride < 0:  # what is written as an integer keeps no fraction
        refused(tmp_path, depth_estimate, str(tmp_path / "depth.h5"), "'stride'", "whole number")
        write_tracks(tmp_path, **exact_tracks(moving_world(4), count=50), stride=stride)
        with pytest.raises(EstimateError, match=r"tracks\.npz: 'stride' is -1"):
            track_estimate(tmp_path)


@pytest.mark.parametrize(
    ("shape", "chunks"),
    [
        ((2, 1 << 20, 1 << 20), None),  # contiguous, never written: takes no room
        ((2, 1 << 20, 1 << 20), (1, 64, 64)),
        ((1 << 20, 64, 64), (1 << 19, 64, 64)),
    ],
)
def test_a_declaration_that_would_fill_the_memory_is_refused(tmp_path, shape, chunks):
    with h5py.File(tmp_path / "depth.h5", "w") as file:
        file.create_dataset("disparity", shape, "f2", chunks=chunks)
        file["shape"], file["stride"], file["fps"] = np.array([2, 48, 64]), 1, 24.0
    assert (tmp_path / "depth.h5").stat().st_size < 100_000
    refused(tmp_path, depth_estimate, str(tmp_path / "depth.h5"), "'disparity'", "expected at most 1024 MiB")


def test_types_that_numpy_does_not_know(tmp_path):
    flow_file(tmp_path, flow=None)
    with h5py.File(tmp_path / "flow.h5", "a") as file:
        space = h5py.h5s.create_simple((2, 4, 6, 2))
        h5py.h5d.create(file.id, b"flow", h5py.h5t.UNIX_D32LE, space)
    refused(tmp_path, flow_estimate, str(tmp_path / "flow.h5"), "'flow'")


NO_FILES = {
    "directory": lambda path: path.mkdir(),
    "named pipe": os.mkfifo,
    "leads nowhere": lambda path: path.symlink_to("nowhere"),
}


@pytest.mark.parametrize("kind", NO_FILES)
@pytest.mark.parametrize(
    ("metric", "name"), [(flow, "flow.h5"), (track2d, "tracks.npz"), (depth, "depth.h5")]
)
def test_what_is_no_file_is_the_operators_fault(tmp_path, kind, metric, name):
    NO_FILES[kind](tmp_path / name)
    with pytest.raises(EstimateError) as caught:
        metric.measure(memory_scene(moving_world(2), tmp_path))
    assert str(tmp_path / name) in str(caught.value)
    assert kind in str(caught.value)


@pytest.mark.parametrize(
    ("opened", "name"),
    [(flow_estimate, "flow.h5"), (depth_estimate, "depth.h5"), (track_estimate, "tracks.npz")],
)
def test_a_file_that_may_not_be_read_is_the_operators_fault(tmp_path, monkeypatch, opened, name):
    (tmp_path / name).write_bytes(b"anything")

    def forbidden(*_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(tmp_path / name))

    for function in ("h5py.File", "scorer.estimates.Archive.open"):
        monkeypatch.setattr(function, forbidden)
    with pytest.raises(EstimateError, match="Permission denied") as caught:
        opened(tmp_path).__enter__()
    assert str(caught.value).count(str(tmp_path / name)) == 1


def test_a_file_that_is_not_hdf5_or_is_cut_short(tmp_path):
    path = tmp_path / "flow.h5"
    path.write_bytes(b"certainly not")
    refused(tmp_path, flow_estimate, str(path), "HDF5")
    flow_file(tmp_path)
    path.write_bytes(path.read_bytes()[:-300])
    refused(tmp_path, flow_estimate, str(path), "HDF5")


def test_damage_inside_a_frame_names_the_frame(tmp_path):
    noise = np.random.default_rng(0).normal(size=(2, 40, 60, 2)).astype(np.float16)
    with h5py.File(tmp_path / "flow.h5", "w") as file:
        file.create_dataset("flow", data=noise, chunks=(1, 40, 60, 2), compression="gzip", fletcher32=True)
        file["valid"] = np.ones((2, 40, 60), bool)
        file["stride"] = 1
        offset = file["flow"].id.get_chunk_info(1).byte_offset
    data = bytearray((tmp_path / "flow.h5").read_bytes())
    data[offset + 100 : offset + 200] = bytes(100)
    (tmp_path / "flow.h5").write_bytes(bytes(data))
    with flow_estimate(tmp_path) as found:
        assert (found.step(0)[0] == noise[0]).all()
        with pytest.raises(EstimateError, match=r"'flow'\[1\] cannot be read"):
            found.step(1)


@pytest.mark.parametrize(
    ("number", "words"),
    [(32015, ("32015 (Zstandard)", "hdf5plugin")), (4, ("4 (szip)", "libaec")), (60000, ("60000",))],
)
def test_a_filter_that_is_not_there_is_named_before_anything_is_read(tmp_path, monkeypatch, number, words):
    if number != 32015:
        # A file with this filter cannot be written here; LZF, which the file does use, plays its part.
        known = estimates_dense._FILTERS.get(number)
        monkeypatch.setattr(estimates_dense, "_FILTERS", {32000: known} if known else {})
        monkeypatch.setattr("h5py.h5z.filter_avail", lambda code: code != 32000)
        flow_file(tmp_path)
        words = tuple(word.replace(str(number), "32000") for word in words)
    else:
        zstd_file(tmp_path)
    refused(tmp_path, flow_estimate, str(tmp_path / "flow.h5"), "'flow'", *words)


def zstd_file(tmp_path) -> None:
    """A dataset that declares filter 32015, which this h5py lacks: optional, so that it can be created."""
    if h5py.h5z.filter_avail(32015):
        pytest.skip("this installation decodes Zstandard")
    flow_file(tmp_path, flow=None)
    recipe = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    recipe.set_chunk((1, 4, 6, 2))
    recipe.set_filter(32015, h5py.h5z.FLAG_OPTIONAL, (3,))
    space = h5py.h5s.create_simple((2, 4, 6, 2))
    with h5py.File(tmp_path / "flow.h5", "a") as file:
        h5py.h5d.create(file.id, b"flow", h5py.h5t.IEEE_F16LE, space, recipe)


def test_depth_without_pixels_is_refused(tmp_path):
    write_depth(tmp_path, np.zeros((2, 0, 4)), (2, 48, 64))
    refused(tmp_path, depth_estimate, "'disparity'", "no pixels")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"visible": np.ones((5, 3), bool)}, ("'visible'", "(5, 3)")),
        ({"tracks": np.zeros((5, 3), np.float32)}, ("'tracks'", "(n, n, 2)")),
        ({"on_mask": np.zeros(7, bool)}, ("'on_mask'",)),
        ({"queries": np.zeros((5, 2), np.float32)}, ("'queries'", ", 3)")),
        ({"queries": np.zeros((5, 3), np.float32)}, ("'queries'", ", 3)")),
        ({"stride": np.arange(3)}, ("'stride'",)),
    ],
)
def test_a_wrong_member_of_tracks_is_named(tmp_path, more, words):
    exact = exact_tracks(moving_world(4), count=50)
    write_tracks(tmp_path, **(exact | {k: v for k, v in more.items() if k in exact}),
                 **{k: v for k, v in more.items() if k not in exact})  # fmt: skip
    with pytest.raises(EstimateError) as caught:
        track_estimate(tmp_path)
    for word in (str(tmp_path / "tracks.npz"), *words):
        assert word in str(caught.value)
    assert is_infrastructure(caught.value)


def test_tracks_that_are_no_archive_or_lack_a_member(tmp_path):
    path = tmp_path / "tracks.npz"
    path.write_bytes(b"no archive")
    with pytest.raises(EstimateError, match=r"tracks\.npz"):
        track_estimate(tmp_path)
    np.savez(path, tracks=np.zeros((1, 2, 2), np.float32))
    with pytest.raises(EstimateError, match="visible"):
        track_estimate(tmp_path)
    np.savez(path, tracks=np.array([{"a": 1}], object))
    with pytest.raises(EstimateError, match="tracks"):
        track_estimate(tmp_path)


def test_a_missing_file_is_not_found(tmp_path):
    for opened, name in ((flow_estimate, "flow.h5"), (depth_estimate, "depth.h5")):
        with pytest.raises(FileNotFoundError, match=name), opened(tmp_path):
            pass
    with pytest.raises(FileNotFoundError, match=r"tracks\.npz"):
        track_estimate(tmp_path)


@pytest.mark.parametrize(
    ("metric", "name"), [(flow, "flow.h5"), (track2d, "tracks.npz"), (depth, "depth.h5")]
)
def test_no_metric_blames_the_submission_for_a_damaged_estimate(tmp_path, metric, name):
    (tmp_path / name).write_bytes(b"damaged")
    with pytest.raises(EstimateError) as caught:
        metric.measure(memory_scene(moving_world(2), tmp_path))
    assert is_infrastructure(caught.value)
