"""Where containers of a stage run side by side: a slot has one container at a time, on GPUs of its own."""

from __future__ import annotations

from dataclasses import dataclass

from harness.runtime.config import Runtime
from harness.runtime.gpus import Gpus, devices


@dataclass(frozen=True)
class Slot:
    """number : from 0. gpus : of its containers: () for none, None for all that there are."""

    number: int
    gpus: Gpus

    @property
    def label(self) -> str:
        """How lines for people call its GPUs."""
        return "all" if self.gpus is None else ",".join(self.gpus) or "none"


def scorer_slots(runtime: Runtime) -> list[Slot]:
    """One slot for each device of CUDA_VISIBLE_DEVICES, else a single one; or ``[scorer] slots``, which take
    the devices in turn.
    """
    section = runtime.file.scorer
    gpus = visible(section.environment.gpus)
    count = section.slots or max(1, len(gpus or ()))
    if gpus is None or gpus == ():
        return [Slot(number, gpus) for number in range(count)]
    return [Slot(number, (gpus[number % len(gpus)],)) for number in range(count)]


def visible(most: int | None) -> Gpus:
    """Devices for the stages: those of CUDA_VISIBLE_DEVICES, at most so many; 0 is none, None what there is.

    Where CUDA_VISIBLE_DEVICES names none although there are some, the first ``most``, or all, unnamed.
    """
    if most == 0:
        return ()
    found = devices("auto")
    if most is None or found == ():
        return found
    return tuple(str(index) for index in range(most)) if found is None else found[:most]
