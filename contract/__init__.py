"""What the benchmark promises, as data: trees and names, metrics, states, constants, aggregation.

The lowest floor of the house: standard library only, and nothing of ours is imported here.
"""

__version__ = "0.1.0"

PROTOCOL = "4dcb-1"
"""Name of the scoring protocol. A change that would move a value goes under a new name."""
