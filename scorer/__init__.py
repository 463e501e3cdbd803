"""Scores worlds against reference videos and reference worlds: ``python -m scorer``."""

import sys

if sys.argv[:1] == ["-m"]:  # what argv holds while python -m looks for one of our programs
    from contract.errors import end_on_interrupt

    end_on_interrupt()

from scorer.cachedir import use_kernel_directory

__version__ = "0.1.0"
"""Goes up whenever a value or a detail field changes: results of another version are computed again."""

use_kernel_directory()
