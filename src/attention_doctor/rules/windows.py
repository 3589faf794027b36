"""Windows whose width is said, and documents in one row."""

import torch

from attention_doctor.evidence import pairs, protocols
from attention_doctor.evidence.evidence import Evidence
from attention_doctor.rules.cache import cached
from attention_doctor.rules.masks import HIDING
from attention_doctor.rules.questions import WINDOW
from attention_doctor.rules.rule import Named, Rule, Sign, of_mistake, told


# In a window that is said.
def other_width(e: Evidence) -> Named | None:
    seen, may = e.of(pairs.behind)
    window = e.patient.window
    first = seen[-1].cumprod(0).bool()  # attention sinks are seen by all
    may = may if first.all() else may | first & torch.ones_like(may).tril()
    if torch.equal(seen, may):
        return None
    said = f"the last of {len(seen)} tokens sees {int(seen[-1].sum())}, itself among them, "
    said += f"and its window has {window}"
    if torch.equal(seen, may | torch.ones_like(may).tril(-window).triu(-window)):
        return "window-off-by-one", Sign("each token sees one more than its window", said)
    return "window-differs", Sign("tokens see others than those of their window", said)


def lost_with_padding(e: Evidence) -> Sign | None:
    if not e.of(pairs.brought_back).tril(-1).any():
        return None
    return Sign(
        "with a mask that blocks padding, tokens see farther back than without it",
        remedy="Join the two masks: neither stands in for the other.",
        cause="a mask of padding stands in the place of the window",
    )


RULES = (
    of_mistake(
        "documents-leak",
        signs={"packing": told(protocols.packing, "in one row, documents see each other", "leaks")},
        steps=HIDING,
    ),
    Rule(
        "packing-differs",
        "positions, or a number of keys, that go on from one document to the next",
        "Count positions within each document.",
        explanation="No document sees another, and each but the first gets other results than it "
        "gets alone.",
        signs={
            "packing": told(
                protocols.packing,
                "in one row with another, a document gets other results than alone",
                "differs",
            )
        },
        neighbours=("documents-leak",),
    ),
    of_mistake(
        "window-off-by-one",
        signs={WINDOW: other_width},
        steps=HIDING,
        neighbours=("window-differs",),
    ),
    Rule(
        "window-differs",
        "a window of another width, or one that is applied to the keys of a cache in another way",
        "Hide what is later, and what is `window` tokens back or more: "
        "`(keys > queries) | (keys <= queries - window)`, by places in the whole text.",
        signs={
            "past": lost_with_padding,
            WINDOW: other_width,
            "cache": cached,
        },
        steps=HIDING,
        neighbours=("window-off-by-one",),
        explanation="Texts up to the length of the window do not show it, and in longer ones "
        "most keys are the right ones.",
    ),
)
