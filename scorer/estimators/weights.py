"""Reading checkpoints: from the local store only, without running anything that lies in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contract.errors import UserError, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

_SHOWN = 4
"""Keys named in a message."""


def download_command(root: Path, directory: str) -> str:
    """The command that puts a model into the store."""
    return f"python scripts/download_checkpoints.py {root} --only {directory}"


def checkpoint_file(root: Path, directory: str, name: str) -> Path:
    """Path of a file of a model. Raises ``UserError`` when the store lacks it."""
    path = root / directory / name
    if not path.is_file():
        raise UserError(
            "no such checkpoint file", where=path, next_step=f"run {download_command(root, directory)}"
        )
    return path


def load_pickled(path: Path) -> Any:
    """What ``torch.save`` wrote, on the CPU; tensors and plain containers only, no code is run.

    Raises ``UserError`` when the file is damaged or holds anything else.
    """
    import torch

    with readable(path):
        return torch.load(path, map_location="cpu", weights_only=True)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn every way in which a damaged or foreign checkpoint fails into one ``UserError`` that names it."""
    try:
        yield
    except (UserError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the machine's fault: a full disk, a lost mount
        # A text file has no published hash: --verify would find nothing.
        again = _ANEW if path.suffix == ".json" else _AGAIN
        raise UserError(f"not a usable checkpoint: {_reason(error)}", where=path, next_step=again) from error


def _reason(error: Exception) -> str:
    """The first line of what a library says, or better words where it advises what must not be done."""
    text = str(error).strip()
    for part, words in _IN_OUR_WORDS.items():
        if part in text:
            return words
    return one_line(text.splitlines()[0]) if text else type(error).__name__


_IN_OUR_WORDS = {
    "Weights only load failed": "it is damaged, or holds more than tensors, of which nothing is run",
    "`ignore_mismatched_sizes`": "tensors of another shape than its configuration says",
}
_AGAIN = "run scripts/download_checkpoints.py DIR --verify"
_ANEW = "remove it and run scripts/download_checkpoints.py DIR"


def built(
    make: Callable[[], torch.nn.Module], state: Any, path: Path, device: torch.device
) -> torch.nn.Module:
    """The network that ``make`` makes, with exactly the weights ``state``: on ``device``, float32, frozen.

    Nothing is initialised on the way. Raises ``UserError`` as :func:`load_strict` does.
    """
    import torch

    with readable(path), torch.device("meta"):
        network = make()  # fails for sizes beyond any memory
    network.to_empty(device=device)
    load_strict(network, state, path)
    return network.eval().requires_grad_(False)


def load_strict(model: torch.nn.Module, state: Mapping[str, Any], path: Path) -> None:
    """Load exactly ``state`` into ``model``. Raises ``UserError`` naming keys and shapes that do not fit."""
    if not isinstance(state, Mapping):
        raise _foreign(path, "it holds no dictionary of tensors")
    wanted = model.state_dict()
    require_same_keys(wanted, state, path)
    for key, tensor in wanted.items():
        held = tuple(state[key].shape) if hasattr(state[key], "shape") else type(state[key]).__name__
        if held != tuple(tensor.shape):
            raise _foreign(path, f"{key} is {held}, expected {tuple(tensor.shape)}")
    model.load_state_dict(state, strict=True)


def require_same_keys(wanted: Iterable[str], held: Iterable[str], path: Path) -> None:
    """Raise ``UserError`` unless both name the same tensors."""
    missing, foreign = set(wanted) - set(held), set(held) - set(wanted)
    faults = [
        f"{len(keys)} {what} ({', '.join(sorted(keys)[:_SHOWN])}{', …' if len(keys) > _SHOWN else ''})"
        for keys, what in ((missing, "missing"), (foreign, "unknown"))
        if keys
    ]
    if faults:
        raise _foreign(path, f"tensors {' and '.join(faults)}")


def _foreign(path: Path, what: str) -> UserError:
    return UserError(f"not this model's checkpoint: {what}", where=path, next_step=_AGAIN)
