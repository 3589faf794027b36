"""Outputs for notebooks: the map, figures, source code and changes in source code."""

from typing import TYPE_CHECKING

from annotated_attention._lazy import import_lazily

if TYPE_CHECKING:
    from annotated_attention.display._live import live
    from annotated_attention.display.annotation import annotated
    from annotated_attention.display.code import diff, excerpts, source
    from annotated_attention.display.data_flow import flow
    from annotated_attention.display.live_figures.cache_filling import cache_filling
    from annotated_attention.display.live_figures.calculator import calculator
    from annotated_attention.display.live_figures.clocks import clocks
    from annotated_attention.display.live_figures.first_look import first_look
    from annotated_attention.display.live_figures.heads_at_work import heads_at_work
    from annotated_attention.display.live_figures.mask_merger import mask_merger
    from annotated_attention.display.live_figures.norm_place import norm_place
    from annotated_attention.display.live_figures.rotation import rotation
    from annotated_attention.display.live_figures.saturation import saturation
    from annotated_attention.display.look_up import one_query, soft_look_up
    from annotated_attention.display.many_heads import heads_map, heads_table
    from annotated_attention.display.map import chapter_map, whole_map
    from annotated_attention.display.plots import (
        COLOURS,
        attention_lines,
        attention_map,
        finish,
        panels,
    )

__all__ = [
    "COLOURS",
    "annotated",
    "attention_lines",
    "attention_map",
    "cache_filling",
    "calculator",
    "chapter_map",
    "clocks",
    "diff",
    "excerpts",
    "finish",
    "first_look",
    "flow",
    "heads_at_work",
    "heads_map",
    "heads_table",
    "live",
    "mask_merger",
    "norm_place",
    "one_query",
    "panels",
    "rotation",
    "saturation",
    "soft_look_up",
    "source",
    "whole_map",
]

import_lazily(__name__)
