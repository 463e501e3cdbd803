"""Every rule of a world, for the agent's checker and the scorer alike.

``check_world`` gives the verdict; ``examine`` gives the verdict and advice from one pass; ``check_reference``
holds a case's own world to what scores rest on. Files of a world come from agents: nothing in them is
believed, every failure to read is one line, and memory stays bounded.
"""

from world.validation.check import Examination, advice, check_reference, check_world, examine
from world.validation.links import check_links
from world.validation.violation import Violation

__all__ = [
    "Examination",
    "Violation",
    "advice",
    "check_links",
    "check_reference",
    "check_world",
    "examine",
]
