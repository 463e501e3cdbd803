"""PersistBench: do video and 4D models remember what left the view?

A model derives from :class:`BaseModel` and returns a :class:`ModelOutput` for each :class:`ModelInput`.
Importing this package loads NumPy only.
"""

from .api import BaseModel, ModelInput, ModelOutput
from .version import __version__

__all__ = ["BaseModel", "ModelInput", "ModelOutput", "__version__"]
