"""Found by a Python that was started with ``torchvision_cpu.environment()``."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

import torchvision_cpu

sys.meta_path.insert(0, torchvision_cpu.OnImport())
