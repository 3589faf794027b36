"""The checks behind the chapters' exercises: each prints a verdict with its reason.

    exercises.one_head.check_attend(my_attend)

A check never raises, whatever it is given, and returns None: a cell shows the verdict alone.
"""

from typing import TYPE_CHECKING

from annotated_attention._lazy import import_lazily

if TYPE_CHECKING:
    from annotated_attention.exercises import (
        batches,
        counting,
        from_memory,
        masks,
        masks_in_the_wild,
        multihead_attention,
        one_head,
        published_code,
        reshape_trick,
        speed,
        split_and_stack,
        testing_attention,
        trained_weights,
        training,
        transformer,
        transformer_layers,
        two_heads,
    )

__all__ = [
    "batches",
    "counting",
    "from_memory",
    "masks",
    "masks_in_the_wild",
    "multihead_attention",
    "one_head",
    "published_code",
    "reshape_trick",
    "speed",
    "split_and_stack",
    "testing_attention",
    "trained_weights",
    "training",
    "transformer",
    "transformer_layers",
    "two_heads",
]

import_lazily(__name__)
