"""Read pickled ``.npy`` dictionaries without unpickling anything (spec 70 §14.11).

The dataset and the runs of the public tool keep cameras and visibility as a pickled dictionary in a 0-d
object array. A pickle is a program. Here it may build containers, numbers, text and records *about* arrays;
arrays are made from these records afterwards, by us, from checked shapes and types. No NumPy constructor sees
hostile input.
"""

from __future__ import annotations

import io
import math
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np

LARGEST = 64 << 20  # bytes of a file: cameras of 100 000 frames need 13 MiB
_NUMBER = re.compile(r"[<>|=]?(b1|\?|[iu][1248]|f[248])")
_DEPTH = 16


class Refused(ValueError):
    """The file holds something other than containers, numbers, text and arrays of numbers."""


class _Dtype:
    """What a pickle says of a dtype."""

    def __init__(self, code: object = None, *_: object) -> None:
        self.code = code
        self.order: object = "="

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) < 5 or any(part is not None for part in state[2:5]):
            raise Refused("an array type that is no plain number")
        self.order = state[1]

    def dtype(self) -> np.dtype:
        if not isinstance(self.code, str) or not _NUMBER.fullmatch(self.code):
            raise Refused(f"an array of {str(self.code)[:40]!r}")
        return np.dtype(self.code).newbyteorder(
            "<" if self.order == "<" else ">" if self.order == ">" else "="
        )


class _Array:
    """What a pickle says of an array."""

    def __init__(self, *_: object) -> None:
        self.state: tuple[Any, ...] = ()

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise Refused("an array without shape, type and data")
        self.state = state

    def array(self) -> np.ndarray:
        if not self.state:
            raise Refused("an array without shape, type and data")
        _, shape, dtype, fortran, data = self.state
        return _made(shape, dtype, data, "F" if fortran else "C")


def _made(shape: object, dtype: object, data: object, order: str) -> np.ndarray:
    if not isinstance(dtype, _Dtype) or not isinstance(data, (bytes, bytearray)):
        raise Refused("an array that is not of plain numbers")
    if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape) or len(shape) > 8:
        raise Refused("an array with a malformed shape")
    kind = dtype.dtype()
    if math.prod(shape) * kind.itemsize != len(data):
        raise Refused("an array whose data does not fill its shape")
    array = np.frombuffer(bytes(data), kind).reshape(shape, order=order)  # type: ignore[call-overload]
    return array.astype(kind.newbyteorder("="))


def _scalar(dtype: object, data: object) -> Any:
    return _made((), dtype, data, "C")[()]


def _from_buffer(data: object, dtype: object, shape: object, order: object) -> np.ndarray:
    return _made(shape, dtype, data, "F" if order == "F" else "C")


def _encode(text: object, codec: object) -> bytes:
    if not isinstance(text, str) or codec != "latin1":
        raise Refused("text in a foreign encoding")
    return text.encode("latin1")


def _no_bytes(*given: object) -> bytes:
    """Protocol 2 and older write empty data as a call of ``bytes``; ``bytes(10**12)`` is not answered."""
    if given:
        raise Refused("a call of bytes")
    return b""


class _NdarrayName:
    """Stands for the class ``numpy.ndarray``, which pickles name as an argument."""


_KNOWN: dict[tuple[str, str], Any] = {
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): _NdarrayName,
    ("_codecs", "encode"): _encode,
    ("__builtin__", "bytes"): _no_bytes,
}
for _core in ("numpy.core", "numpy._core"):
    _KNOWN[f"{_core}.multiarray", "_reconstruct"] = _Array
    _KNOWN[f"{_core}.multiarray", "scalar"] = _scalar
    _KNOWN[f"{_core}.numeric", "_frombuffer"] = _from_buffer


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _KNOWN[module, name]
        except KeyError:
            raise Refused(f"the name {module}.{name}"[:120]) from None


def load(path: Path) -> Any:
    """What a ``.npy`` file holds: an array of numbers, or the value of a pickled 0-d object array.

    Errors: ``OSError``; ``ValueError`` naming the file and what it holds that is not allowed.
    """
    if path.stat().st_size > LARGEST:
        raise ValueError(f"{path} is larger than {LARGEST >> 20} MiB: no camera or visibility file")
    data = path.read_bytes()
    try:
        return _parsed(data)
    except Refused as error:
        raise ValueError(f"{path} was not read: it holds {error}") from None
    # Whatever a damaged pickle makes the interpreter raise, the file is at fault.
    except Exception as error:
        raise ValueError(f"{path} is not a readable .npy file: {type(error).__name__}") from None


def _parsed(data: bytes) -> Any:
    stream = io.BytesIO(data)
    version = np.lib.format.read_magic(stream)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    shape, fortran, dtype = read[version](stream)
    rest = data[stream.tell() :]
    if dtype.hasobject:
        if shape != () or dtype != np.dtype(object):
            raise Refused("an array of objects")
        value = _Reader(io.BytesIO(rest)).load()
        # NumPy pickles the 0-d array itself: its one object stands in a list.
        if isinstance(value, _Array):
            value = _only(value)
        return _value(value, _DEPTH)
    if not _NUMBER.fullmatch(dtype.str):
        raise Refused(f"an array of {dtype.str}")
    if math.prod(shape) * dtype.itemsize != len(rest):
        raise Refused("an array whose data does not fill its shape")
    return np.frombuffer(rest, dtype).reshape(shape, order="F" if fortran else "C").copy()


def _only(array: _Array) -> Any:
    if len(array.state) != 5 or array.state[1] != () or not isinstance(array.state[4], list):
        return array
    if len(array.state[4]) != 1:
        raise Refused("an array of objects")
    return array.state[4][0]


def _value(value: Any, depth: int) -> Any:
    """``value`` with the records of arrays turned into arrays."""
    if depth == 0:
        raise Refused("containers nested too deeply")
    if isinstance(value, _Array):
        return value.array()
    if isinstance(value, dict):
        if not all(isinstance(key, (str, int, float)) for key in value):
            raise Refused("a dictionary with keys that are neither text nor numbers")
        return {key: _value(item, depth - 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_value(item, depth - 1) for item in value]
    if value is None or isinstance(value, (str, bytes, bool, int, float, np.ndarray, np.number, np.bool_)):
        return value
    raise Refused(f"a {type(value).__name__.strip('_')}")
