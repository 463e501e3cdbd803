"""Decoding and inference side by side: the next item is fetched while the caller works on the current one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")
_END: Any = object()


class Prefetch(Generic[T], Iterator[T]):
    """An iterator over ``items`` that a thread of its own keeps exactly one item ahead.

    A context manager, to be iterated inside its block only; fetching begins when the block does. What
    ``items`` raises is raised where its item would have been taken. When the block ends, however it ends, the
    fetch under way is waited for and a generator is closed, so that its file is. Two items are held at a
    time: the caller's, and the next one.
    """

    def __init__(self, items: Iterable[T]) -> None:
        self._items = iter(items)
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="video-decode")
        self._next: Future[T] | None = None

    def __enter__(self) -> Self:
        self._fetch()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._next = None
        self._pool.shutdown(wait=True, cancel_futures=True)
        close = getattr(self._items, "close", None)
        if close is not None:
            close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        if self._next is None:
            raise StopIteration
        future, self._next = self._next, None  # after an exception there is nothing more
        item = future.result()
        if item is _END:
            raise StopIteration
        self._fetch()
        return item

    def _fetch(self) -> None:
        self._next = self._pool.submit(next, self._items, _END)
