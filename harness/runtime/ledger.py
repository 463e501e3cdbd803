"""What a batch has spent, and whether a bound of ``[budget]`` is reached."""

from __future__ import annotations

from collections.abc import Iterable

from harness.runtime.agentconfig import Budget
from harness.runtime.attempts import Spent
from harness.runtime.going import Going


class Ledger:
    """Spending of the runs of one jobs file. Used from the launcher's main thread only.

    Runs of earlier launches count: a batch that is started again goes on with the same budget. What they used
    without a known price is left out of the dollars, and told apart.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self._settled: dict[int, Spent] = {}
        self._before: set[int] = set()

    def before(self, index: int, spent: Spent) -> None:
        """What run ``index`` had used when this launch began."""
        self._settled[index] = spent
        self._before.add(index)

    def settle(self, index: int, spent: Spent) -> None:
        """What run ``index`` has used in all its attempts, now that one has ended."""
        self._settled[index] = spent
        self._before.discard(index)

    def total(self, going: Iterable[tuple[int, Going]] = ()) -> Spent:
        """Everything so far, with what the runs that go on have used up to now."""
        current = {index: run.spent() for index, run in going}
        total = Spent()
        for index in {*self._settled, *current}:
            # A run that starts again counts its earlier attempts itself, once it knows of them.
            known = self._settled.get(index, Spent())
            now = current.get(index, Spent())
            total += now if now.tokens >= known.tokens and now.usd >= known.usd else known
        return total

    def over_batch(self, going: Iterable[tuple[int, Going]] = ()) -> str:
        """Why no further run may start, one clause; empty when it may."""
        budget = self.budget
        if budget.max_tokens is None and budget.max_usd is None:
            return ""
        total = self.total(going)
        if budget.max_tokens is not None and total.tokens >= budget.max_tokens:
            return f"{total.tokens} tokens used, max_tokens = {budget.max_tokens}"
        if budget.max_usd is None:
            return ""
        if total.usd >= budget.max_usd:
            return f"{total.usd:.2f} dollars spent, max_usd = {budget.max_usd:g}"
        unknown = sum(spent.unpriced for i, spent in self._settled.items() if i not in self._before)
        if unknown:
            return f"max_usd = {budget.max_usd:g} cannot be kept: {unknown} attempt(s) cost nobody knows what"
        return ""

    def over_run(self, run: Going) -> str:
        """Why a run that goes on has to end, one clause; empty when it need not.

        Only its present attempt counts, as for its time limit: what the infrastructure spoilt is no fault of
        the agent.
        """
        usd, budget = run.usd or 0.0, self.budget
        if budget.max_tokens_per_run is not None and run.tokens >= budget.max_tokens_per_run:
            return f"{run.tokens} tokens used, max_tokens_per_run = {budget.max_tokens_per_run}"
        if budget.max_usd_per_run is not None and usd >= budget.max_usd_per_run:
            return f"{usd:.2f} dollars spent, max_usd_per_run = {budget.max_usd_per_run:g}"
        return ""
