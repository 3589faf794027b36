"""Outputs for notebooks: the map, figures, source code and changes in source code."""

from typing import TYPE_CHECKING

from annotated_attention._lazy import import_lazily

if TYPE_CHECKING:
    from annotated_attention.display._live import live as live
    from annotated_attention.display.annotation import annotated as annotated
    from annotated_attention.display.code import diff as diff
    from annotated_attention.display.code import excerpts as excerpts
    from annotated_attention.display.code import source as source
    from annotated_attention.display.data_flow import flow as flow
    from annotated_attention.display.live_figures.cache_filling import (
        cache_filling as cache_filling,
    )
    from annotated_attention.display.live_figures.calculator import calculator as calculator
    from annotated_attention.display.live_figures.clocks import clocks as clocks
    from annotated_attention.display.live_figures.first_look import first_look as first_look
    from annotated_attention.display.live_figures.heads_at_work import (
        heads_at_work as heads_at_work,
    )
    from annotated_attention.display.live_figures.mask_merger import mask_merger as mask_merger
    from annotated_attention.display.live_figures.norm_place import norm_place as norm_place
    from annotated_attention.display.live_figures.rotation import rotation as rotation
    from annotated_attention.display.live_figures.saturation import saturation as saturation
    from annotated_attention.display.live_figures.tiles_visited import (
        tiles_visited as tiles_visited,
    )
    from annotated_attention.display.look_up import one_query as one_query
    from annotated_attention.display.look_up import soft_look_up as soft_look_up
    from annotated_attention.display.many_heads import heads_map as heads_map
    from annotated_attention.display.many_heads import heads_table as heads_table
    from annotated_attention.display.map import chapter_map as chapter_map
    from annotated_attention.display.map import whole_map as whole_map
    from annotated_attention.display.plots import COLOURS as COLOURS
    from annotated_attention.display.plots import attention_lines as attention_lines
    from annotated_attention.display.plots import attention_map as attention_map
    from annotated_attention.display.plots import finish as finish
    from annotated_attention.display.plots import panels as panels

import_lazily(__name__, extra="book")
