"""From ``--model`` to a class: ``package.module:Class`` or ``path/to/file.py:Class`` (spec 70 §2.4)."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from .api import BaseModel
from .store import sha256_of

_USER_MODULE = "persistbench_user_model"


@contextlib.contextmanager
def importable(spec: str) -> Iterator[None]:
    """Keep the model's directory first on ``sys.path``; lazy imports work in ``predict`` too."""
    where, _ = _parts(spec)
    before = list(sys.path)
    sys.path.insert(0, str(Path(where).resolve().parent if where.endswith(".py") else Path.cwd()))
    try:
        yield
    finally:
        sys.path[:] = before


def _parts(spec: str) -> tuple[str, str]:
    where, separator, name = spec.rpartition(":")
    if not (separator and where and name):
        raise ValueError(f"--model must be package.module:Class or path/to/file.py:Class, not {spec!r}")
    return where, name


def load_class(spec: str) -> type[BaseModel]:
    """The class that ``spec`` names; call it inside :func:`importable`.

    Errors: ``ValueError``, ``ImportError``, ``FileNotFoundError``, ``TypeError``, and what the
    user's module raises.
    """
    where, name = _parts(spec)
    module = _from_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)
    if not hasattr(module, name):
        known = [n for n, value in vars(module).items() if inspect.isclass(value) and _is_model(value)]
        raise ValueError(f"{where} has no class {name}; models in it: {', '.join(known) or 'none'}")
    found = getattr(module, name)
    if not (inspect.isclass(found) and _is_model(found)):
        raise TypeError(f"{spec} must be a class that derives from persistbench.BaseModel")
    return found


def _is_model(found: type) -> bool:
    return issubclass(found, BaseModel) and found is not BaseModel


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FileNotFoundError(f"Model file not found: {path}")
    description = importlib.util.spec_from_file_location(_USER_MODULE, path)
    if description is None or description.loader is None:
        raise ImportError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(description)
    sys.modules[_USER_MODULE] = module
    description.loader.exec_module(module)
    return module


def source_hash(found: type[BaseModel]) -> str:
    """SHA-256 of the file that defines the class. Errors: ``ValueError`` where there is no such file."""
    try:
        path = inspect.getsourcefile(found)
    except TypeError:
        path = None
    if path is None:
        raise ValueError(f"the source file of {found.__name__} was not found")
    return sha256_of(Path(path))
