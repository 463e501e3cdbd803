"""A violation: which file, which field of it, and what is wrong, on one line."""

from __future__ import annotations

from dataclasses import dataclass, field
from reprlib import Repr

from contract.errors import one_line

_SHOWN = 3
"""Further faults of one archive that are spelt out; the rest are counted."""
_KEPT = 8
_TEXT_LIMIT = 2_000

_repr = Repr()
_repr.maxstring = _repr.maxother = 120
_repr.maxlong = 60
_repr.maxlist = _repr.maxdict = 8


@dataclass(frozen=True)
class Violation:
    """One broken rule.

    name : path below the world (``meshes/1.npz``), or below the workspace for links and the solution.
    field : member, key or aspect that breaks the rule; empty when the file as a whole does.
    text : what is wrong and what would be right.
    """

    name: str
    field: str
    text: str

    def __str__(self) -> str:
        """``<name>: <field> <text>`` with control characters escaped, so that a name cannot fake lines."""
        line = f"{self.name}: {self.field} {self.text}" if self.field else f"{self.name}: {self.text}"
        line = one_line(line)
        return line if len(line) <= _TEXT_LIMIT else f"{line[:_TEXT_LIMIT]}…"


@dataclass
class Faults:
    """The faults of one archive, of which only the first is the verdict.

    Archives of ten thousand frames can have ten thousand faults, so only the first few are kept and the rest
    counted. ``urgent`` faults (the archive cannot be read) come before all others.
    """

    name: str
    _urgent: list[tuple[str, str]] = field(default_factory=list)
    _kept: list[tuple[str, str]] = field(default_factory=list)
    _count: int = 0

    def __bool__(self) -> bool:
        return self._count > 0

    def add(self, field: str, text: str, *, urgent: bool = False) -> None:
        """Note a fault; call in the order of the rules."""
        self._count += 1
        kept = self._urgent if urgent else self._kept
        if len(kept) < _KEPT:
            kept.append((field, text))

    def violation(self) -> Violation:
        """The first fault, with the further ones in its text."""
        (first, text), *rest = self._urgent + self._kept
        shown = [f"{name} {fault}".strip() for name, fault in rest[:_SHOWN]]
        if shown:
            more = self._count - 1 - len(shown)
            tail = f", and {more} more" if more > 0 else ""
            text = f"{text}; also " + "; ".join(shown) + tail
        return Violation(self.name, first, text)


def shown(value: object) -> str:
    """``repr`` of a value from a file, cut to a length that a line can hold."""
    try:
        return _repr.repr(value)
    except ValueError:
        # An integer with more digits than Python converts.
        return f"a {type(value).__name__} too long to print"


def reason(error: BaseException) -> str:
    """What an exception says, without addresses and file names that change from run to run."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = str(error) or type(error).__name__
    return text if len(text) <= 300 else f"{text[:300]}…"
