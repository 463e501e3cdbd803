"""Small datasets, generators and fixture cases for the tests of PersistBench. Runs on Python 3.9 too."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import numpy as np
from PIL import Image

FIXTURE = Path(__file__).parents[1] / "fixtures" / "persistbench.json"
FRAMES, HEIGHT, WIDTH = 9, 48, 64
VISIBILITY = [0.5, 1, 1, 0.5, 0, 0, 0.5, 1, 0.0]
CAMERA = {"view_0": 100.0, "center": 200.0}


def cases(group):
    """The fixture's cases whose id is ``group`` and a number."""
    everything = json.loads(FIXTURE.read_text(encoding="utf-8"))["cases"]
    return [case for case in everything if case["id"].rpartition("-")[0] == group]


def rgb(t, h, w):
    y, x = np.mgrid[:h, :w]
    planes = (7 * x + 3 * y + 11 * t, x * y + 5 * t, 13 * x + 29 * y + 17 * t)
    return np.stack([plane % 256 for plane in planes], -1).astype(np.uint8)


def smooth(t, h, w):
    y, x = np.mgrid[:h, :w]
    waves = (
        np.sin(0.05 * x + 0.03 * y + 0.2 * t),
        # The fixture writes "etc."; these two follow from its appearance values to 1e-7.
        np.cos(0.04 * x - 0.06 * y + 0.1 * t),
        np.sin(0.02 * x + 0.07 * y - 0.15 * t),
    )
    return np.stack([np.floor(127.5 * (1 + wave)) for wave in waves], -1).astype(np.uint8)


def feat(h, w, c, seed):
    y, x, k = np.mgrid[:h, :w, :c]
    value = np.sin(0.37 * (y + 1) * (k + 1 + seed) + 0.73 * (x + 1) * (k + 2)) + 0.1 * k
    return value.astype(np.float32)


def rect(h, w, box):
    mask = np.zeros((h, w), bool)
    if box is not None:
        x0, y0, x1, y1 = box
        mask[y0:y1, x0:x1] = True
    return mask


def poses(count):
    """Camera t stands at (t, 0, -t)."""
    result = np.tile(np.eye(4), (count, 1, 1))
    result[:, 0, 3] = np.arange(count)
    result[:, 2, 3] = -np.arange(count)
    return result


def save_dict(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, np.array(value, dtype=object), allow_pickle=True)


def save_frames(folder, frames):
    folder.mkdir(parents=True, exist_ok=True)
    for index, frame in enumerate(frames):
        Image.fromarray(frame).save(folder / f"frame_{index:05d}.png")


def intrinsic(dtype=np.float64):
    return np.array([[300, 0, 160], [0, 310, 120], [0, 0, 1]], dtype)


def make_case(folder, k=0, frames=FRAMES):
    """One case of the fixture's dataset: slow colours, a rectangle that moves right."""
    views = {"view_0": 3 * k, "center": 20 + 3 * k}
    for view, shift in views.items():
        save_frames(folder / view / "frames", [smooth(t + shift, HEIGHT, WIDTH) for t in range(frames)])
        save_dict(
            folder / view / "camera_params.npy",
            {"cam_poses": poses(frames), "cam_intrinsic": intrinsic()},
        )
    masks = [rect(HEIGHT, WIDTH, (20 + t, 12, 34 + t, 24 + k)).astype(np.uint8) * 255 for t in range(frames)]
    save_frames(folder / "center" / "masks", masks)
    save_dict(folder / "visibility_dict.npy", {"view_0_visibility": np.array(VISIBILITY[:frames])})


def row(subset, case, **changed):
    return {
        "success": 1,
        "uid": case,
        "obj_id": "obj_0001",
        "output_dir": "unused",
        "visibility_dict_path": f"{subset}/{case}/visibility_dict.npy",
        "fov": 90.0,
        "use_stationary": int(subset == "static"),
        "overlap_mode": "m",
        "window_ratio": 0.5,
        "window_move_ratio": 0.25,
        "subset": subset,
        "object_dir": f"{subset}/{case}",
        **changed,
    }


def write_index(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    names = list(rows[0])
    with sqlite3.connect(path) as connection:
        connection.execute(f"CREATE TABLE data ({', '.join(names)})")
        marks = ", ".join("?" * len(names))
        connection.executemany(
            f"INSERT INTO data VALUES ({marks})", [tuple(r[name] for name in names) for r in rows]
        )
    connection.close()


def make_dataset(root, frames=FRAMES):
    """Two cases, ``static/c1`` and ``dynamic/c1``, and their index."""
    make_case(root / "static" / "c1", 0, frames)
    make_case(root / "dynamic" / "c1", 2, frames)
    write_index(root / "data.db", [row("static", "c1"), row("dynamic", "c1")])
    return root


MODELS = '''
import numpy as np
from persistbench import BaseModel, ModelOutput

class Copy(BaseModel):
    def predict(self, sample):
        return ModelOutput(sample.input_frames.copy())

class Fixed(Copy):
    num_frames = 4
    resolution = (32, 32)

class Fragile(Copy):
    """Fails on the dynamic case."""
    def predict(self, sample):
        if sample.uid.startswith("dynamic"):
            raise AttributeError("no such thing")
        return super().predict(sample)

class NoModel:
    pass
'''
