"""From scored runs to tables: found, averaged, with intervals. Shared by ``python -m scorer.report`` and the
viewer, so that both show the same numbers.
"""
