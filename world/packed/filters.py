"""The filters of HDF5 datasets: whether they can be undone here, and which ones packing offers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from world.packed.layout import PackedError

_PLUGIN = "hdf5plugin"
_KNOWN = {
    1: ("deflate", "an HDF5 with zlib"),
    4: ("szip", "an HDF5 with libaec"),
    307: ("bzip2", _PLUGIN),
    32000: ("LZF", "h5py"),
    32001: ("Blosc", _PLUGIN),
    32004: ("LZ4", _PLUGIN),
    32008: ("Bitshuffle", _PLUGIN),
    32012: ("FciDecomp", _PLUGIN),
    32013: ("ZFP", _PLUGIN),
    32015: ("Zstandard", _PLUGIN),
    32017: ("SZ", _PLUGIN),
    32024: ("SZ3", _PLUGIN),
    32026: ("Blosc2", _PLUGIN),
    32028: ("Sperr", _PLUGIN),
    32035: ("HTJ2K", _PLUGIN),
}

CHOICES = ("zstd", "blosc-zstd", "blosc-lz4", "blosc2-zstd", "bitshuffle-lz4", "bzip2", "gzip", "lzf", "none")
"""Lossless filters for writing. ``zstd`` is what is published; ``blosc-lz4`` is read fastest."""


def load_plugins() -> None:
    """Make the filters of hdf5plugin known to HDF5, where it is installed."""
    with suppress(ImportError):
        __import__(_PLUGIN)


def require_filters(dataset: Any, path: str) -> None:
    """Raise ``PackedError`` that names the first filter of the dataset that cannot be undone here."""
    from h5py import h5z

    recipe = dataset.id.get_create_plist()
    for position in range(recipe.get_nfilters()):
        number, _, _, label = recipe.get_filter(position)
        if not h5z.filter_avail(number):
            text = (label or b"").decode("utf-8", "replace") or "unknown"
            known, package = _KNOWN.get(number, (text, _PLUGIN))
            raise PackedError(
                f"{path} is stored with HDF5 filter {number} ({known}), which this installation cannot "
                f"undo; install {package}: pip install 'fourdcodebench[data]'"
            )


def creation(choice: str, level: int | None = None) -> Mapping[str, Any]:
    """Arguments of ``create_dataset`` for one of ``CHOICES``. Raises ``PackedError``."""
    if choice == "none":
        return {}
    if choice in ("gzip", "lzf"):
        options = {"compression_opts": 4 if level is None else level} if choice == "gzip" else {}
        return {"compression": choice, "shuffle": True, **options}
    try:
        import hdf5plugin
    except ImportError as error:
        raise PackedError(f"filter {choice} needs {_PLUGIN}: pip install 'fourdcodebench[data]'") from error
    three = 3 if level is None else level
    if choice == "zstd":
        return {"shuffle": True, **hdf5plugin.Zstd(clevel=three)}
    if choice in ("blosc-zstd", "blosc-lz4"):
        return dict(
            hdf5plugin.Blosc(
                cname="zstd" if choice.endswith("zstd") else "lz4",
                clevel=three,
                shuffle=hdf5plugin.Blosc.SHUFFLE,
            )
        )
    if choice == "blosc2-zstd":
        return dict(hdf5plugin.Blosc2(cname="zstd", clevel=three, filters=hdf5plugin.Blosc2.SHUFFLE))
    if choice == "bitshuffle-lz4":
        return dict(hdf5plugin.Bitshuffle(cname="lz4"))
    if choice == "bzip2":
        return {"shuffle": True, **hdf5plugin.BZip2(blocksize=9 if level is None else level)}
    raise PackedError(f"there is no filter {choice!r}; expected {', '.join(CHOICES)}")
