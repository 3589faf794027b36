"""The list of all mistakes, which the doctor, the chapters and the tests share."""

from annotated_attention.mistakes import (
    cache,
    calls,
    groups,
    masks,
    projections,
    reshapes,
    rotation,
    scores,
    tiles,
    windows,
)
from annotated_attention.mistakes._registry import ENTERED, Mistake

# By module, so that the order does not depend on which of them somebody has imported first.
_ROOMS = (calls, masks, projections, reshapes, scores, rotation, cache, groups, tiles, windows)
MISTAKES: dict[str, Mistake] = {
    entry.code: entry
    for module in _ROOMS
    for entry in ENTERED
    if entry.version.__module__ == module.__name__
}
