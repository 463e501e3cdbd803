"""Models without learning, to compare with and to start from: ``--model persistbench.baselines:Static``."""

from __future__ import annotations

import numpy as np

from .api import BaseModel, ModelInput, ModelOutput


class Copy(BaseModel):
    """The input view as it is, frame by frame: as if the target camera were the input camera."""

    def predict(self, sample: ModelInput) -> ModelOutput:
        return ModelOutput(sample.input_frames.copy())


class Static(BaseModel):
    """The first input frame throughout: a memory that nothing enters after the beginning."""

    def predict(self, sample: ModelInput) -> ModelOutput:
        return ModelOutput(np.repeat(sample.input_frames[:1], len(sample.input_frames), axis=0))


class CopyLastFrame(BaseModel):
    """The last input frame throughout: no memory at all."""

    def predict(self, sample: ModelInput) -> ModelOutput:
        return ModelOutput(np.repeat(sample.input_frames[-1:], len(sample.input_frames), axis=0))
