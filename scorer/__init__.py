"""Scores worlds against reference videos and reference worlds: ``python -m scorer``."""

from scorer.cachedir import use_kernel_directory

__version__ = "0.1.0"
"""Goes up whenever a value or a detail field changes: results of another version are computed again."""

use_kernel_directory()
