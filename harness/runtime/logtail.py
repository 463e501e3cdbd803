"""Copying a growing log file to the terminal."""

from __future__ import annotations

import codecs
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

_PAUSE = 0.2
_PIECE = 1 << 16


@contextmanager
def streamed(log: Path, target: TextIO, prefix: str | None = None) -> Iterator[None]:
    """While the block runs, whatever is appended to ``log`` is written to ``target``; the rest follows at
    its end. With a ``prefix``, in front of each line, only whole lines are written, so that several logs can
    share a target.
    """
    ended = threading.Event()
    thread = threading.Thread(target=_copy, args=(log, target, ended, prefix), name="log")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _copy(log: Path, target: TextIO, ended: threading.Event, prefix: str | None) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    position, cut = 0, ""
    while True:
        last = ended.is_set()
        if log.exists():
            with log.open("rb") as stream:
                stream.seek(position)
                while piece := stream.read(_PIECE):
                    position += len(piece)
                    text = decoder.decode(piece)
                    if prefix is not None:
                        *lines, cut = (cut + text).split("\n")
                        text = "".join(f"{prefix}{line}\n" for line in lines)
                    if not _write(target, text):
                        return
        if last:
            if cut:
                _write(target, f"{prefix or ''}{cut}\n")
            return
        ended.wait(_PAUSE)


def _write(target: TextIO, text: str) -> bool:
    """Write what is printable; False once the reader of our output has left."""
    kept = "".join(c if c.isprintable() or c in "\n\t" else "�" for c in text)
    try:
        target.write(kept)
        target.flush()
    except (BrokenPipeError, ValueError):
        return False
    return True
