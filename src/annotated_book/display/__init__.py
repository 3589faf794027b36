"""Outputs for notebooks: the map, figures, tables, source code and changes in source code."""

from importlib import import_module
from typing import Any

from annotated_attention._extras import brought_by

# Each is imported when it is first asked for, so that a chapter depends on the figures that it
# shows: a change in one figure runs the chapters again that show it, and no other.
_HOMES = {
    "COLOURS": "plots",
    "aloud": "live_figures.aloud",
    "all_sheets": "way_through",
    "annotated": "annotation",
    "attention_lines": "plots",
    "beside": "tables",
    "budget": "live_figures.budget",
    "by_hand": "live_figures.by_hand",
    "cache_filling": "live_figures.cache_filling",
    "call_bytes": "live_figures.call_bytes",
    "Given": "live_figures.call_race",
    "call_race": "live_figures.call_race",
    "calculator": "live_figures.calculator",
    "chapter_map": "computation",
    "clocks": "live_figures.clocks",
    "collects": "live_figures.collects",
    "diff": "code",
    "dots_in_front": "live_figures.dots_in_front",
    "divided": "live_figures.divided",
    "doors": "behind_doors",
    "duel": "live_figures.duel",
    "excerpts": "code",
    "Fate": "behind_doors",
    "erases": "live_figures.erases",
    "exchange": "live_figures.exchange",
    "finish": "plots",
    "glasses": "live_figures.glasses",
    "first_look": "live_figures.first_look",
    "flow": "data_flow",
    "Handed": "behind_doors",
    "hands": "live_figures.hands",
    "heads_at_work": "live_figures.heads_at_work",
    "heads_map": "many_heads",
    "heads_table": "many_heads",
    "layers": "layer_drawings",
    "learns": "live_figures.learns",
    "live": "_live",
    "margin": "margins",
    "let_in": "behind_doors",
    "lukewarm": "live_figures.lukewarm",
    "mask_merger": "live_figures.mask_merger",
    "masked_map": "mask_figures",
    "merged_masks": "mask_figures",
    "more_or_less": "live_figures.more_or_less",
    "needle": "live_figures.needle",
    "one_query": "look_up",
    "Choice": "live_figures.strips",
    "Strip": "live_figures.strips",
    "strips": "live_figures.strips",
    "Model": "live_figures.blocks",
    "blocks": "live_figures.blocks",
    "Asked": "live_figures.one_word",
    "one_word": "live_figures.one_word",
    "Frame": "live_figures.own_sentence",
    "own_sentence": "live_figures.own_sentence",
    "panels": "plots",
    "reach": "live_figures.reach",
    "Runs": "live_figures.exchange",
    "rooms": "house",
    "who_hears": "house",
    "rotation": "live_figures.rotation",
    "rounds": "live_figures.rounds",
    "shelf": "memory",
    "show": "tables",
    "shares": "mask_figures",
    "soft_look_up": "look_up",
    "source": "code",
    "staircase": "mask_figures",
    "stories": "tales",
    "storyteller": "live_figures.storyteller",
    "Swap": "live_figures.exchange",
    "Told": "tales",
    "tiles_visited": "live_figures.tiles_visited",
    "Trial": "on_trial",
    "torn": "on_trial",
    "trials": "on_trial",
    "tune": "live_figures.tune",
    "unfolds": "live_figures.unfolds",
    "two_forms": "latents",
    "way_of_an_answer": "patching",
    "way_by_fill": "mask_figures",
    "way_of_the_nan": "mask_figures",
    "where_the_nan_stops": "mask_figures",
    "ways_to_cut": "way_through",
    "whole_map": "computation",
    "whole_transformer": "layer_drawings",
    "who_chases": "live_figures.who_chases",
    "whole_way": "way_through",
    "wrong_merge": "way_through",
}
__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with brought_by("book"):
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
