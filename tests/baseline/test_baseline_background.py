"""Learning the background from made-up pictures."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
import pytest

from harness.baseline.background import Background, learn
from harness.baseline.observe import Footage, shrink

SHAPE = (90, 160)
ROWS, COLUMNS = np.mgrid[: SHAPE[0], : SHAPE[1]] + 0.5


@dataclass
class Reel:
    """Frames in memory that look like footage."""

    images: list[np.ndarray]

    @property
    def frames(self) -> int:
        return len(self.images)

    def pictures(self, step: int = 1) -> Iterator[np.ndarray]:
        for image in self.images[::step]:
            yield image.astype(np.float32)


def taught(images: list[np.ndarray]) -> Background:
    return learn(cast(Footage, Reel(images)))


def scenery(seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    tiles = generator.uniform(70, 130, (SHAPE[0] // 10, SHAPE[1] // 10, 3))
    return tiles.repeat(10, axis=0).repeat(10, axis=1)


def disc(column: float, row: float, radius: float = 10) -> np.ndarray:
    mask: np.ndarray = np.hypot(COLUMNS - column, ROWS - row) < radius
    return mask


def painted(base: np.ndarray, mask: np.ndarray, colour: tuple[int, int, int] = (230, 60, 40)) -> np.ndarray:
    image = base.copy()
    image[mask] = colour
    return image


def agreement(background: Background, image: np.ndarray, mask: np.ndarray) -> float:
    found = background.pieces(image.astype(np.float32))[0] > 0
    return float((found & mask).sum() / max(1, (found | mask).sum()))


def with_noise(images: list[np.ndarray], sigma: float) -> list[np.ndarray]:
    generator = np.random.default_rng(5)
    return [np.clip(image + generator.normal(0, sigma, image.shape), 0, 255) for image in images]


@pytest.mark.parametrize("sigma", [0.0, 2.0, 8.0])
def test_a_passing_disc_is_found_on_noise(sigma: float) -> None:
    masks = [disc(10 + 3 * t, 45) for t in range(48)]
    images = with_noise([painted(scenery(), mask) for mask in masks], sigma)
    background = taught(images)
    scores = [agreement(background, image, mask) for image, mask in zip(images, masks, strict=True)]
    assert np.mean(scores) > 0.85
    assert min(scores) > 0.7


@pytest.mark.parametrize("share", [0.3, 0.6, 0.85])
@pytest.mark.parametrize("first", [True, False])
def test_a_disc_that_rests_for_most_of_the_time_is_still_a_thing(share: float, first: bool) -> None:
    moving = round(60 * (1 - share))
    places = [120.0] * (60 - moving) + [120.0 - 100.0 * (k + 1) / moving for k in range(moving)]
    masks = [disc(column, 45) for column in (places if first else places[::-1])]
    images = with_noise([painted(scenery(), mask) for mask in masks], 1.5)
    background = taught(images)
    assert np.abs(background.plate - scenery()).max(axis=2)[disc(120, 45, 9)].mean() < 15
    assert (
        np.mean([agreement(background, image, mask) for image, mask in zip(images, masks, strict=True)]) > 0.8
    )


def test_nothing_moves() -> None:
    images = with_noise([scenery()] * 20, 3.0)
    background = taught(images)
    assert sum(background.pieces(image.astype(np.float32))[1] for image in images) == 0
    assert background.noise.mean() == pytest.approx(3.0, rel=0.5)


def test_one_frame_is_its_own_background() -> None:
    background = taught([scenery()])
    np.testing.assert_allclose(background.plate, np.rint(scenery()))
    assert background.pieces(scenery().astype(np.float32))[1] == 0


def test_two_frames_show_the_disc_in_both() -> None:
    masks = [disc(40, 45), disc(110, 45)]
    for colour in ((240, 240, 240), (10, 10, 10)):
        images = [painted(scenery(), mask, colour) for mask in masks]
        background = taught(images)
        for image, mask in zip(images, masks, strict=True):
            assert agreement(background, image, mask) > 0.85


def test_flicker_of_the_light_is_no_motion() -> None:
    generator = np.random.default_rng(2)
    images = [np.clip(scenery() + generator.uniform(-25, 25), 0, 255) for _ in range(30)]
    background = taught(images)
    assert sum(background.pieces(image.astype(np.float32))[1] for image in images) <= 2


def test_shade_is_told_from_things() -> None:
    base, shadow, thing = scenery(), disc(40, 45), disc(110, 45)
    image = painted(base, thing)
    image[shadow] *= 0.7
    background = Background(base.astype(np.float32), np.ones(SHAPE, dtype=np.float32))
    shaded = background.shaded(image.astype(np.float32))
    assert shaded[shadow].mean() > 0.95
    assert shaded[thing].mean() < 0.05
    assert shaded[~shadow & ~thing].mean() < 0.05


def test_a_thing_with_a_shadow_loses_it_and_a_lone_shadow_stays() -> None:
    def images(thing: bool) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
        discs = [disc(15 + 3 * t, 30) for t in range(40)]
        shadows = [disc(25 + 3 * t, 60) for t in range(40)]
        made = []
        for body, shadow in zip(discs, shadows, strict=True):
            image = scenery()
            image[shadow] *= 0.6
            made.append(painted(image, body) if thing else image)
        return made, discs, shadows

    made, discs, _ = images(thing=True)
    background = taught(made)
    assert (
        np.mean([agreement(background, image, mask) for image, mask in zip(made, discs, strict=True)]) > 0.85
    )
    made, _, shadows = images(thing=False)
    background = taught(made)
    assert (
        np.mean([agreement(background, image, mask) for image, mask in zip(made, shadows, strict=True)])
        > 0.85
    )


@pytest.mark.parametrize("leaves", [True, False])
def test_boxes_side_by_side_that_rest_are_taken_out_of_the_plate(leaves: bool) -> None:
    clean = scenery(3)
    made = []
    for t in range(60):
        image = clean.copy()
        # Three boxes in a row sink in one after the other and then rest, touching each other.
        for k, colour in enumerate(((200, 40, 40), (40, 150, 60), (50, 60, 200))):
            top = min(50, -20 + 5 * (t - 4 * k))
            image[max(0, top) : max(0, top + 20), 50 + 18 * k : 68 + 18 * k] = colour
        made.append(image)
    if leaves:
        made.reverse()
    plate = taught(with_noise(made, 1.0)).plate
    assert np.abs(plate - clean).max(axis=2)[50:70, 50:104].mean() < 12


def test_shrinking_is_the_mean_over_blocks() -> None:
    image = np.random.default_rng(0).integers(0, 256, (7, 11, 3), dtype=np.uint8)
    small = shrink(image, 3)
    assert small.shape == (3, 4, 3)
    assert small.dtype == np.float32
    np.testing.assert_allclose(small[0, 0], image[:3, :3].reshape(-1, 3).mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(small[2, 0], image[6, :3].mean(axis=0), rtol=1e-6)
    np.testing.assert_array_equal(shrink(image, 1), image)
