"""The program that the baseline hands in: it builds a whole world from the numbers in ``measured.py``,
nothing else.

It is copied into ``solution/scene/`` as it stands here, so it imports only numpy, ``world`` and its own
modules.
"""
