"""Launchers of the benchmark: ``infer.py`` and ``score.py`` and what they are made of."""
