"""One item ahead, never more; errors and ends where they belong."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from scorer_lab import eventually

from scorer.prefetch import Prefetch


class Source:
    """A generator that notes what it was asked for, in which thread, and that it was closed."""

    def __init__(self, count: int, fails_at: int | None = None) -> None:
        self.count, self.fails_at = count, fails_at
        self.begun: list[int] = []
        self.threads: set[str] = set()
        self.closed = False

    def items(self) -> Iterator[int]:
        try:
            for index in range(self.count):
                self.threads.add(threading.current_thread().name)
                self.begun.append(index)
                if index == self.fails_at:
                    raise ValueError(f"frame {index} is damaged")
                yield index
        finally:
            self.closed = True


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_order_and_end(count: int) -> None:
    source = Source(count)
    with Prefetch(source.items()) as ahead:
        assert list(ahead) == list(range(count))
        assert list(ahead) == []
    assert source.closed
    assert all(name.startswith("video-decode") for name in source.threads)


def test_exactly_one_ahead() -> None:
    source = Source(10)
    with Prefetch(source.items()) as ahead:
        assert eventually(lambda: source.begun == [0])
        for index in ahead:
            expected = list(range(min(index + 2, 10)))
            assert eventually(lambda expected=expected: source.begun == expected)
            # The thread is idle now: what it has not begun it will not begin before the next item is taken.
            assert source.begun == expected


def test_the_next_item_is_made_while_the_caller_works() -> None:
    met = threading.Barrier(2, timeout=60)

    def items() -> Iterator[int]:
        yield 0
        met.wait()  # only passes while the caller works on item 0
        yield 1

    with Prefetch(items()) as ahead:
        assert next(ahead) == 0
        met.wait()
        assert next(ahead) == 1


def test_an_error_surfaces_where_its_item_would_have_been() -> None:
    source = Source(5, fails_at=2)
    with Prefetch(source.items()) as ahead:
        assert [next(ahead), next(ahead)] == [0, 1]
        with pytest.raises(ValueError, match="frame 2 is damaged"):
            next(ahead)
        assert list(ahead) == []
    assert source.closed


def test_an_error_that_nobody_takes_is_no_error_of_the_block() -> None:
    source = Source(5, fails_at=1)
    with Prefetch(source.items()) as ahead:
        assert next(ahead) == 0
    assert source.closed


@pytest.mark.parametrize("error", [RuntimeError("of the caller"), KeyboardInterrupt()])
def test_leaving_early_closes_the_source_and_ends_the_thread(error: BaseException) -> None:
    source = Source(100)
    before = threading.active_count()
    with pytest.raises(type(error)):
        with Prefetch(source.items()) as ahead:
            next(ahead)
            raise error
    assert source.closed
    assert len(source.begun) <= 2
    assert threading.active_count() == before


def test_an_iterator_without_close() -> None:
    with Prefetch([3, 4]) as ahead:
        assert list(ahead) == [3, 4]
