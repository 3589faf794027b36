"""Wrong versions that run: each a class or a function named after its mistake.

Each differs from the right version by the mistake alone, keeps every shape, and says in its
docstring what it computes instead and why nobody notices. They are here to be run, seen to fail,
and caught.
"""

from annotated_attention.mistakes.reshapes import MergeWithoutTranspose, SplitWithoutTranspose

__all__ = ["MergeWithoutTranspose", "SplitWithoutTranspose"]
