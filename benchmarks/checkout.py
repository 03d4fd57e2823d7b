"""Puts the checkout on the path, installed or not. Imported before anything of ours; sorts before it, too."""

import os
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent

sys.path.insert(0, str(ROOT))
#: Children find it the same way.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
