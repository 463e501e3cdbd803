"""What estimators share: devices, packages, memory, checkpoints that are not what they should be."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from contract.errors import UserError
from scorer.estimators import base, weights

GIBIBYTE = "CUDA out of memory. Tried to allocate 1 GiB\nmore lines"


def test_the_device_is_the_one_given_or_the_best_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert base.pick_device("cpu") == torch.device("cpu")
    for count, chosen in ((0, "cpu"), (2, "cuda")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda count=count: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda count=count: count)
        assert base.pick_device(None) == base.pick_device("") == torch.device(chosen)
    assert base.pick_device("cuda:1") == torch.device("cuda", 1)


@pytest.mark.parametrize("name", ["cuda", "cuda:2", "gpu", "cpu:1", "mps", "cuda:x", "cuda:-1", "meta"])
def test_a_device_that_cannot_be_used(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: name != "cuda")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(UserError, match=r"device"):
        base.pick_device(name)


def test_missing_packages_name_their_command(monkeypatch: pytest.MonkeyPatch) -> None:
    assert base.package_fault("torch") is None
    monkeypatch.setitem(sys.modules, "transformers", None)
    fault = base.package_fault("transformers")
    assert fault == "package transformers is not installed; run: pip install 'fourdcodebench[models]'"
    for package, commit in (("cotracker", "82e02e8029753ad4ef13cf06be7f4fc5facdda4d"),
                            ("moge", "74fbce054ebed49800de42d0ad0e83495065719a")):  # fmt: skip
        monkeypatch.setitem(sys.modules, package, None)
        assert commit in (base.package_fault(package) or "")

    class Needs:
        name, directory, requires = "n", "d", ("torch", "transformers", "no_such_package_at_all")

    assert [fault.split()[1] for fault in base.missing_packages(Needs())] == [  # type: ignore[arg-type]
        "transformers", "no_such_package_at_all",
    ]  # fmt: skip


ERRORS: list[Callable[[], Exception]] = [
    lambda: torch.OutOfMemoryError(GIBIBYTE),
    lambda: RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
    lambda: MemoryError("Unable to allocate 3. GiB"),
]


@pytest.mark.parametrize("error", ERRORS, ids=["cuda", "cpu", "numpy"])
def test_a_batch_that_does_not_fit_is_halved_once(error: Callable[[], Exception]) -> None:
    sizes: list[int] = []

    def run(batch: Any, limit: int = 4) -> Any:
        sizes.append(len(batch))
        if len(batch) > limit:
            raise error()
        return np.asarray(batch) * 2

    assert base.halved_on_oom(run, np.arange(7)).tolist() == list(range(0, 14, 2))
    assert sizes == [7, 4, 3]
    assert base.halved_on_oom(run, range(8)).tolist() == list(range(0, 16, 2))
    sizes.clear()
    with pytest.raises(MemoryError, match="even on half a batch"):
        base.halved_on_oom(lambda batch: run(batch, limit=3), np.arange(8))
    assert sizes == [8, 4]
    with pytest.raises(MemoryError, match="on a batch of 1: "):
        base.halved_on_oom(lambda batch: run(batch, limit=0), np.arange(1))


def test_the_message_is_one_line() -> None:
    def run(batch: Any) -> Any:
        raise torch.OutOfMemoryError(GIBIBYTE)

    with pytest.raises(MemoryError) as caught:
        base.halved_on_oom(run, [1])
    assert str(caught.value) == f"out of memory on a batch of 1: {GIBIBYTE.splitlines()[0]}"


def test_other_errors_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def run(batch: Any) -> Any:
        calls.append(len(batch))
        raise RuntimeError("shape mismatch")

    with pytest.raises(RuntimeError, match="shape mismatch"):
        base.halved_on_oom(run, [1, 2])
    assert calls == [2]


def test_released_frees_whatever_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    freed: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: freed.append(1))
    with base.released():
        assert freed == []
    with pytest.raises(ZeroDivisionError), base.released():
        raise ZeroDivisionError
    assert freed == [1, 1]


class Evil:
    """Runs code when it is unpickled without restriction."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (builtins.exec, ("raise SystemExit('code of a checkpoint was run')",))


@pytest.mark.parametrize("damage", ["cut", "text", "empty", "code"])
def test_a_damaged_or_hostile_checkpoint_is_one_line(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "net.pth"
    torch.save({"a": torch.zeros(1000)}, path)
    if damage == "code":
        torch.save({"a": Evil()}, path)
    else:
        path.write_bytes({"cut": path.read_bytes()[:1500], "text": b"<html>", "empty": b""}[damage])
    with pytest.raises(UserError, match="not a usable checkpoint") as caught:
        weights.load_pickled(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_loading_is_strict(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 3)
    path = tmp_path / "x.pt"
    good = {"weight": torch.ones(3, 2), "bias": torch.ones(3)}
    weights.load_strict(model, good, path)
    assert model.weight.sum() == 6
    with pytest.raises(UserError, match=r"tensors 1 missing \(bias\) and 1 unknown \(extra\)"):
        weights.load_strict(model, {"weight": good["weight"], "extra": good["bias"]}, path)
    with pytest.raises(UserError, match=r"weight is \(2, 3\), expected \(3, 2\)"):
        weights.load_strict(model, good | {"weight": torch.ones(2, 3)}, path)
    with pytest.raises(UserError, match="bias is int"):
        weights.load_strict(model, good | {"bias": 3}, path)


def test_a_missing_file_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=rf"run python scripts/download_checkpoints.py {tmp_path} --only raft-large"
    ):
        weights.checkpoint_file(tmp_path, "raft-large", "x.pth")
