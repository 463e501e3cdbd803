"""What all learned models share: the device, packages that may be missing, memory that runs out.

Torch is imported inside functions: naming an estimator must not load it.
"""

from __future__ import annotations

import gc
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from contract.errors import UserError

if TYPE_CHECKING:
    import torch

_MODELS_EXTRA = "pip install 'fourdcodebench[models]'"
_FROM_GIT = {
    "cotracker": "pip install --no-build-isolation "
    "git+https://github.com/facebookresearch/co-tracker@82e02e8029753ad4ef13cf06be7f4fc5facdda4d",
    "moge": "pip install --no-deps "
    "git+https://github.com/microsoft/MoGe@74fbce054ebed49800de42d0ad0e83495065719a",
}
"""Packages that no registry carries, at the commits that scores were made with."""


class Estimator(Protocol):
    """A learned model before it is loaded; every estimator module has one as a constant in capitals.

    name : as written to estimate files. directory : below the model store.
    requires : packages that must be importable.
    """

    name: str
    directory: str
    requires: tuple[str, ...]

    def load(self, device: torch.device, root: Path) -> Any:
        """The model on ``device``, from ``root / directory``: evaluation mode, float32, strict state dict.

        Raises ``UserError`` when files are missing or are not this model's.
        """
        ...


def pick_device(name: str | None = None) -> torch.device:
    """The device of that name (``cpu``, ``cuda``, ``cuda:1``); unnamed: CUDA where it is, else the CPU.

    Raises ``UserError`` when there is no such device here.
    """
    import torch

    available = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not name:
        return torch.device("cuda" if available else "cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, ValueError):
        device = None
    if device is None or device.type not in ("cpu", "cuda") or (device.type == "cpu" and device.index):
        raise UserError(f"no such device: {name}", expected="cpu, cuda or cuda:N")
    if device.type == "cuda" and (device.index or 0) >= available:
        found = f"{available} CUDA device(s)" if available else "no CUDA device"
        raise UserError(f"device {name} is not usable: PyTorch sees {found}", next_step="use --device cpu")
    return device


def package_fault(package: str) -> str | None:
    """None when ``package`` can be imported, else the sentence that says so and names the command to run.

    Only looked up, not imported. ``None`` in ``sys.modules`` counts as missing, as it does for ``import``.
    """
    try:
        found = package in sys.modules or importlib.util.find_spec(package) is not None
        found = found and sys.modules.get(package, found) is not None
    except (ImportError, ValueError):
        found = False
    if found:
        return None
    return f"package {package} is not installed; run: {_FROM_GIT.get(package, _MODELS_EXTRA)}"


def missing_packages(estimator: Estimator) -> list[str]:
    """A sentence for each package that ``estimator`` needs and that is not installed."""
    return [fault for package in estimator.requires if (fault := package_fault(package)) is not None]


def out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory ran out, on a device or on the host."""
    if isinstance(error, MemoryError):
        return True
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(error, RuntimeError):
        return False
    # The CPU's allocator raises a bare RuntimeError.
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


Batch = TypeVar("Batch", bound="Sequence[Any] | NDArray[Any]")
Result = TypeVar("Result")


def halved_on_oom(
    run: Callable[[Batch], Result], batch: Batch, join: Callable[[list[Any]], Any] = np.concatenate
) -> Result:
    """``run(batch)``; when memory runs out, the two halves of the batch, joined along the first axis.

    join : how to make one result of the halves' two, for results that are no arrays.
    Halved once: a network that cannot do half a batch does not fit beside what else is on the device.
    Raises ``MemoryError`` then, and for a batch of one, so that it counts as the machine's fault.
    """
    try:
        return run(batch)
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        if len(batch) < 2:
            raise MemoryError(f"out of memory on a batch of {len(batch)}: {_first_line(error)}") from error
    # Outside the handler: the exception's frames would keep the tensors of the failed attempt alive.
    release_memory()
    middle = (len(batch) + 1) // 2
    try:
        halves = [run(batch[:middle]), run(batch[middle:])]  # type: ignore[arg-type]
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        raise MemoryError(f"out of memory even on half a batch: {_first_line(error)}") from error
    joined: Result = join(halves)
    return joined


def release_memory() -> None:
    """Give back what is no longer referenced, on the host and on the GPU."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


@contextmanager
def released() -> Iterator[None]:
    """After the block, whatever its end, free the memory of a model that the block has let go of.

    A name that still refers to the model keeps it: load inside a function called in the block.
    """
    try:
        yield
    finally:
        release_memory()


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
