"""Completing images without learning: by the similarity of an image to itself, and by continuity."""

from lawful.inference.completion.by_patches import PatchCompletion
from lawful.inference.completion.filling import mean_fill, smooth_fill
from lawful.inference.completion.jigsaw import compatibility, neighbours_right, put_together, solved, tiles_of
from lawful.inference.completion.patch_match import Field, PatchMatch, voted

__all__ = [
    "Field",
    "PatchCompletion",
    "PatchMatch",
    "compatibility",
    "mean_fill",
    "neighbours_right",
    "put_together",
    "smooth_fill",
    "solved",
    "tiles_of",
    "voted",
]
