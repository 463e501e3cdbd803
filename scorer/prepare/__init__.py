"""What learned models see in the reference videos, computed once a case: ``python -m scorer.prepare``."""
