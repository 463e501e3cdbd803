"""What a worker of a model pass does when called: one model, loaded once, measures world after world."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from scorer import arrays
from scorer.messages import CaseFault, Measured
from scorer.subject import Subject
from scorer.tasks import plain, require_owned

TASKS = "scorer.model_tasks.ModelTasks"


@dataclass(frozen=True)
class ModelChoice:
    """Which model a worker is to hold.

    estimator : dotted name of the estimator object. root : the model store.
    """

    estimator: str
    root: Path


class ModelTasks:
    """Calls on one worker, which holds one loaded model."""

    def __init__(self) -> None:
        self._model: Any = None

    def select(self, choice: ModelChoice) -> None:
        """Load the model, on CUDA where there is one, else on the CPU."""
        from scorer.estimators.base import pick_device

        self._model = named(choice.estimator).load(pick_device(), choice.root)

    def measure(self, subject: Subject, module: str, directory: Path) -> Measured | CaseFault:
        """Measure one world; arrays are staged in ``directory``.

        An estimate that cannot be right is returned, not raised: the model need not be loaded again. Raises
        ``MemoryError`` when memory runs out on the device: the machine's fault, as it is on the host.
        """
        from scorer.estimates import EstimateError
        from scorer.estimators.base import out_of_memory

        try:
            measurement = import_module(module).measure(subject, self._model)
        except EstimateError as error:
            return CaseFault(f"{type(error).__name__}: {error}")
        except RuntimeError as error:
            if out_of_memory(error):
                raise MemoryError(str(error)) from error
            if device_failed(error):
                raise DeviceFault(str(error)) from error
            raise
        detail = plain(measurement.detail)
        require_owned(subject.unit, detail)
        staged = arrays.stage(directory, subject.unit, measurement.arrays)
        return Measured(detail, staged, measurement.vouched, dict(measurement.causes))


class DeviceFault(Exception):
    """The GPU failed. Nothing that this process asks of it from now on will work."""

    infrastructure = True


def device_failed(error: RuntimeError) -> bool:
    """Whether PyTorch says that the GPU, its driver or a library on it failed."""
    text = str(error)
    return type(error).__name__ == "AcceleratorError" or any(
        mark in text for mark in ("CUDA error", "CUBLAS_STATUS", "CUDNN_STATUS", "cuDNN error", "CUDA driver")
    )


def named(dotted: str) -> Any:
    """The object of a dotted name, its module imported."""
    module, _, name = dotted.rpartition(".")
    return getattr(import_module(module), name)
