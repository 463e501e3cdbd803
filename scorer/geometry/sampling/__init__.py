"""Comparable samples of two worlds' materials, and their paths.

``prepare_sampling`` puts both worlds' materials in the reference's frame and finds the voxel edge,
``frame_samples`` samples a frame, ``drawn_paths`` follows what is born until it dies.
"""

from scorer.geometry.sampling.paths import Paths, draw_rows, paths, visible
from scorer.geometry.sampling.prepare import Sampling, drawn_paths, prepare_sampling
from scorer.geometry.sampling.sampler import FrameSamples, frame_samples

__all__ = [
    "FrameSamples",
    "Paths",
    "Sampling",
    "draw_rows",
    "drawn_paths",
    "frame_samples",
    "paths",
    "prepare_sampling",
    "visible",
]
