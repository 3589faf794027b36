"""What notebooks show: the map, figures, source and what changed in it."""

from annotated_attention.display._calculator import calculator
from annotated_attention.display._heads import heads_at_work
from annotated_attention.display._live import live
from annotated_attention.display._merger import mask_merger
from annotated_attention.display._saturation import saturation
from annotated_attention.display.annotated import annotated
from annotated_attention.display.code import diff, source
from annotated_attention.display.figures import (
    COLOURS,
    attention_lines,
    attention_map,
    finish,
    panels,
)
from annotated_attention.display.flow import flow
from annotated_attention.display.look_up import one_query, soft_look_up
from annotated_attention.display.map import chapter_map, whole_map
from annotated_attention.display.progress import Progress
from annotated_attention.display.shapes import colour_shapes

__all__ = [
    "COLOURS",
    "Progress",
    "annotated",
    "attention_lines",
    "attention_map",
    "calculator",
    "chapter_map",
    "colour_shapes",
    "diff",
    "finish",
    "flow",
    "heads_at_work",
    "live",
    "mask_merger",
    "one_query",
    "panels",
    "saturation",
    "soft_look_up",
    "source",
    "whole_map",
]
