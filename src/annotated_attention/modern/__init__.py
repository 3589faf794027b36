"""Attention today: what models since 2017 have changed, one file per idea, on the final class."""

from typing import TYPE_CHECKING

from annotated_attention._lazy import import_lazily

if TYPE_CHECKING:
    from annotated_attention.modern.grouped import (
        GroupedQueryAttention,
        group_heads,
        repeat_heads,
    )

__all__ = [
    "GroupedQueryAttention",
    "group_heads",
    "repeat_heads",
]

import_lazily(__name__)
