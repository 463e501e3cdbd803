"""Every rule of a world, for the agent's checker and the scorer alike.

``check_world`` gives the verdict; ``examine`` gives the verdict and advice from one pass. Files of a world
come from agents: nothing in them is believed, every failure to read is one line, and memory stays bounded.
"""

from world.validation.check import Examination, advice, check_world, examine
from world.validation.links import check_links
from world.validation.violation import Violation

__all__ = ["Examination", "Violation", "advice", "check_links", "check_world", "examine"]
