"""Scores worlds against reference videos and reference worlds: ``python -m scorer``."""

__version__ = "0.1.0"
