"""From the dataset's frames to the shape that a model wants (spec 70 §5)."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from .api import KEEP, ShapePolicy
from .cameras import Cameras, cropped_and_scaled
from .images import frames_of, open_rgb

_THREADS = 8


def sample_indices(count: int, length: int) -> list[int]:
    """Indices of ``length`` frames spread evenly over ``count``: a linear ramp, rounded half to even (§5.1).

    Frames repeat where ``length`` exceeds ``count``; -1 keeps all. Errors: ``ValueError``.
    """
    if count <= 0:
        raise ValueError("num_frames must be positive")
    if length == KEEP:
        return list(range(count))
    if length <= 0:
        raise ValueError("the number of sampled frames must be positive")
    return [int(i) for i in np.rint(np.linspace(0, count - 1, length))]


@dataclass(frozen=True)
class Crop:
    """A centred crop of the target's aspect. box : (left, top, right, bottom). scale : (x, y)."""

    box: tuple[int, int, int, int]
    scale: tuple[float, float]


def centre_crop(source: tuple[int, int], target: tuple[int, int]) -> Crop:
    """The crop of a (height, width) ``source`` for a (height, width) ``target``; sides are floored (§5.2).

    Errors: ``ValueError`` where nothing would be left of the source.
    """
    (height, width), (target_height, target_width) = source, target
    aspect = target_width / target_height
    if width / height < aspect:
        crop_width, crop_height = width, int(width / aspect)
    else:
        crop_width, crop_height = int(height * aspect), height
    if crop_width < 1 or crop_height < 1:
        raise ValueError(
            f"frames of {width} x {height} cannot be cropped to {target_width} x {target_height}"
        )
    left, top = (width - crop_width) // 2, (height - crop_height) // 2
    box = (left, top, left + crop_width, top + crop_height)
    return Crop(box, (target_width / crop_width, target_height / crop_height))


@dataclass(frozen=True)
class Plan:
    """How a view is brought to a policy's shape. indices : frames taken. crop : None keeps sizes."""

    policy: ShapePolicy
    files: tuple[Path, ...]
    indices: tuple[int, ...]
    crop: Crop | None

    def names(self) -> list[str]:
        """File names of the frames; the dataset's own where the shape is the dataset's (§5.3)."""
        if self.policy.native:
            return [path.name for path in self.files]
        return [f"{index:05d}.png" for index in range(len(self.indices))]

    def cameras(self, cameras: Cameras, where: Path) -> Cameras:
        """Cameras sampled, shifted and scaled as the frames are.

        Errors: ``ValueError`` naming ``where`` if the number of poses is not that of the frames.
        """
        if len(cameras.poses) != len(self.files):
            raise ValueError(f"{where} has {len(cameras.poses)} poses for {len(self.files)} frames")
        intrinsic = cameras.intrinsic
        if self.crop is not None:
            intrinsic = cropped_and_scaled(intrinsic, self.crop.box[:2], self.crop.scale)
        return Cameras(cameras.poses[list(self.indices)], intrinsic)


def plan_view(folder: Path, policy: ShapePolicy) -> Plan:
    """Plan the view whose frames lie in ``folder``. Errors: ``FileNotFoundError``, ``ValueError``."""
    files = frames_of(folder)
    crop = None
    if not isinstance(policy.resolution, int):
        width, height = open_rgb(files[0]).size
        crop = centre_crop((height, width), policy.resolution)
    return Plan(policy, tuple(files), tuple(sample_indices(len(files), policy.length)), crop)


def write_frames(plan: Plan, destination: Path) -> list[Path]:
    """Write the frames of a view to ``destination``, byte for byte where their size is kept.

    Errors: ``OSError``, ``ValueError`` naming the file.
    """
    destination.mkdir(parents=True)
    targets = [destination / name for name in plan.names()]
    jobs = [(plan.files[index], target) for index, target in zip(plan.indices, targets)]
    with ThreadPoolExecutor(min(_THREADS, len(jobs))) as pool:
        list(pool.map(lambda job: _write(plan, *job), jobs))
    return targets


def _write(plan: Plan, source: Path, target: Path) -> None:
    if plan.crop is None or isinstance(plan.policy.resolution, int):
        shutil.copyfile(source, target)
        return
    height, width = plan.policy.resolution
    resized(open_rgb(source), plan.crop, (width, height), Image.BILINEAR).save(target)


def resized(image: Image.Image, crop: Crop, size: tuple[int, int], filter_: int) -> Image.Image:
    """The crop of an image at (width, height) ``size``."""
    return image.crop(crop.box).resize(size, filter_)


def resized_masks(plan: Plan, files: list[Path]) -> list[Image.Image]:
    """Masks sampled and cropped as the frames of ``plan`` are; nearest pixel, 8-bit grey."""
    masks = []
    for index in plan.indices:
        with Image.open(files[index]) as image:
            grey = image.convert("L")
        if plan.crop is not None and not isinstance(plan.policy.resolution, int):
            height, width = plan.policy.resolution
            grey = resized(grey, plan.crop, (width, height), Image.NEAREST)
        masks.append(grey)
    return masks
