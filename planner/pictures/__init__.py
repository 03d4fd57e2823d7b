"""Pictures of one `fit` (extra ``plot``): memory, the map of context and batch, speedup, tokens lost to the draft.

``draw`` makes them, ``svg_text`` puts one into a page, ``write_pictures`` puts all into one file, ``left_out``
says which are missing and why. Nothing else of specplan knows matplotlib.
"""

from planner.pictures.drawing import draw, left_out
from planner.pictures.files import ENDINGS, svg_text, write_pictures
from planner.pictures.page import Picture

__all__ = ["ENDINGS", "Picture", "draw", "left_out", "svg_text", "write_pictures"]
