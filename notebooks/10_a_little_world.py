# %% [markdown]
# # A little world
#
# *How low can a loss go?*
#
# *15 minutes and 8 of exercises. Afterwards you can train a language model, say how far its loss is
# from the best one, and know a loss that is too good.*
#
# > tom had a fox and a dog . the dog chased the fox because it was slow . so the fox hid .
#
# Whenever you train a model, a number falls, and you never know how far it still could. Nobody knows
# exactly how surprising English is. So a loss of 2.9<!-- invented --> may be poor work or close to perfect, and you cannot tell
# from the number.
#
# In this chapter you can. You build a language of your own, small enough to know every chance in it.
# Such a language has a floor: a loss that no honest reader of it can get below. Then you train a model
# on its stories, made of the parts of the last two chapters, and watch it learn to write. At the end
# three models get far *below* the floor, and not one of them can write.

# %% tags=["hide-input"]
import copy
import json
import math
import random
from collections import Counter
from importlib import resources

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention import (
    MultiheadAttention,
    PositionalEncoding,
    TransformerEncoder,
    TransformerEncoderLayer,
)
from annotated_book import display, world
from attention_doctor.mistakes.reshapes import MergeWithoutTranspose

torch.set_num_threads(1)  # makes the sums repeatable; more gain little here

# %% [markdown] name="the-world"
# ## A world in one table
#
# Someone does something to somebody or something, *because it was …* Who is *it*? You know the
# question from the first page. Here the world answers it in one table: the verb and the quality decide
# together. In *the fox chased the dog because it was hungry*, the fox is hungry; in *the fox feared the
# dog because it was hungry*, it is the dog.

# %% tags=["fold-input"]
NAMES = {"anna": "she", "mia": "she", "lena": "she", "tom": "he", "ben": "he", "max": "he"}
ANIMALS = ["cat", "dog", "horse", "mouse", "fox", "duck"]
DRINKS, FOODS = ["milk", "water", "juice", "tea"], ["bread", "cheese", "cake", "soup"]
TAKES = {"drank": DRINKS, "ate": FOODS} | dict.fromkeys(
    ["chased", "feared", "carried"], ANIMALS
)
REASONS = {  # it was …: who acts, and the other one
    "drank": (["thirsty", "tired"], ["sweet", "fresh"]),
    "ate": (["hungry", "greedy"], ["sweet", "warm"]),
    "chased": (["hungry", "brave"], ["slow", "loud"]),
    "feared": (["small", "shy"], ["hungry", "loud"]),
    "carried": (["strong", "brave"], ["small", "weak"]),
}
ENDS = {  # so the …: who acts, and the other one
    "drank": (["felt better", "wanted more"], ["was gone", "tasted good"]),
    "ate": (["felt better", "fell asleep"], ["was gone", "smelled good"]),
    "chased": (["caught the", "ran fast"], ["ran away", "hid"]),
    "feared": (["ran away", "hid"], ["looked at the", "laughed"]),
    "carried": (["was proud", "laughed"], ["thanked the", "fell asleep"]),
}
table = {verb: [", ".join(each) for each in reasons] for verb, reasons in REASONS.items()}
display.show(table, columns=["who acts", "the other"], corner="because it was …")

# %% [markdown]
# The grammar is a function that tells a `story`: `say` adds words that have to come, and `pick` adds one of several
# options, all equally likely. Here is its heart, from *the dog* to the end of *so the fox hid*.


# %%
def what_happens(story: world.Story, own: list[str]) -> str:
    """Say who did what to whom, why, and so what; give the one who was meant by *it*."""
    actor, verb = story.pick(own), story.pick([*TAKES])
    if TAKES[verb] is ANIMALS:
        story.say("the")
    them = own if TAKES[verb] is ANIMALS else TAKES[verb]
    other = story.pick([x for x in them if x != actor and (actor, x) != ("cat", "milk")])
    story.say("because it was")
    quality = story.pick([x for each in REASONS[verb] for x in each])
    meant, rest = (actor, other) if quality in REASONS[verb][0] else (other, actor)
    story.say(". so the")
    return so_what(story, ENDS[verb][meant != actor], meant, rest)


# %% tags=["fold-input"]
EDGE = "/"  # stands before and after each story


def so_what(story: world.Story, ends: list[str], meant: str, rest: str) -> str:
    """Say what became of the one who was meant, and note the question."""
    story.facts |= {"asked": len(story.words), "meant": meant, "rest": rest}
    story.say(meant)
    end = story.pick(ends)
    if end.endswith(" the"):
        story.say(rest)
    story.say(".")
    return meant


# %% tags=["fold-input", "words"]
def grammar(story: world.Story) -> None:
    """Tell a story: who is there, what happens, and perhaps what someone does then."""
    story.say(EDGE)
    who, own = story.pick([*NAMES, "the", "the"]), ANIMALS
    if who in NAMES:
        story.say("had a")
        first = story.pick(ANIMALS)
        story.say("and a")
        own = [first, story.pick([x for x in ANIMALS if x != first])]
        story.say(". the")
    meant = what_happens(story, own)
    if story.pick(["then", "then", EDGE]) == "then":
        if who in NAMES:
            story.say(NAMES[who])
        else:
            story.pick([*NAMES])
        story.pick(
            ["called the", "fed the"] if meant in ANIMALS else ["bought more", "hid the"]
        )
        story.say(f"{meant} . {EDGE}")


for seed in (5, 1, 8):
    print(*world.tell(grammar, random.Random(seed)).words)

# %% [markdown]
# <!-- deeper: one grammar that tells, and judges -->
# ### Going deeper: one grammar that tells, and judges
#
# `world.tell` lets a random generator choose at each `pick`, and a `story` notes how surprising the choice
# was. `world.possible` follows a text through the same grammar: at each `pick` it takes the option that
# begins with the next word of the text, and where there is none, the world has no such story.

# %% tags=["fold-input"]
display.source(world.Story.pick, docstrings=False)

# %% tags=["fold-input"]
display.source(world.tell, docstrings=False)

# %% tags=["fold-input"]
display.source(world.possible, docstrings=False)

# %% tags=["fold-input"]
display.source(world._follow, docstrings=False)

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="surprise"
# ## How surprised must a perfect reader be?
#
# Imagine a reader who knows this world by heart, and reads a story word by word. Before each word, the
# reader knows the chance p of every word that can come. The **surprise** of the word that does come is
# $-\log p$, here in nats (natural logarithms). A word that had to come has p = 1 and surprises by 0.
# One of four equally likely drinks surprises by log 4, which is 1.39<!-- quoted -->.
#
# Below is one story, and the surprise of each of its words. The bold word, after *so the*, says who was meant. How
# much does a perfect reader pay for it?
#
# <details><summary>What do you expect?</summary>
#
# Nothing. The verb and the quality have decided, so the word has to come.
#
# </details>

# %% tags=["hide-input"]
story = world.tell(grammar, random.Random(8))
TRUE, OTHER = display.COLOURS["n"], display.COLOURS["h"]


def draw_surprise(words, series, name: str, alt: str, caption: str = ""):
    """Draw the surprise of each word of a story, of one reader or of two."""
    drawing, axes = display.panels(610, 250, columns=2)
    half = len(words) // 2
    for first, ax in zip((0, half), axes):
        part = words[first : first + half]
        for place, (label, (nats, colour)) in enumerate(series.items()):
            width = 0.8 / len(series)
            at = [i + place * width for i in range(half)]
            high = nats[first : first + half]
            ax.bar(at, high, width, align="edge", color=colour, label=label, alpha=0.8)
        ax.set_xticks([i + 0.4 for i in range(half)], part, rotation=60, ha="right")
        ax.set(ylabel="surprise in nats", xlim=(0, half), ylim=(0, 2.2))
        if 0 <= (asked := words.index("so") + 2 - first) < half:
            ax.get_xticklabels()[asked].set(fontweight="bold", color=OTHER)
    if len(series) > 1:
        where = {"loc": "lower left", "bbox_to_anchor": (-0.1, 1)}
        axes[0].legend(frameon=False, ncols=2, handlelength=1, fontsize=12, **where)
    return display.finish(drawing, name=name, alt=alt, caption=caption)


told = ", ".join(f"{word} {x:.2f}" for word, x in zip(story.words, story.nats) if x)
draw_surprise(
    story.words[1:],
    {"a perfect reader": (story.nats[1:], TRUE)},
    name="surprise-of-words",
    alt=f"The surprise of each word of a story: {told}; all others 0.",
    caption="A story; its second half stands beside it or below. It begins in one of eight "
    "ways: with one of six names or, twice, with <i>the</i>. "
    f"So <i>max</i> costs log 8 = {math.log(8):.2f}.",
)

# %% [markdown]
# The story costs something where the world makes a choice, and is free elsewhere. Now tell a thousand
# stories, and average over all of their words. These stories are **held out**: no model will be trained
# on this draw, and every loss in this chapter is measured on it. ([More than half turn up in training all the
# same](#cell-id=deeper-have-they-been-seen), by chance.)


# %%
def stories(count: int, seed: int) -> list[world.Story]:
    """Tell ``count`` stories."""
    rng = random.Random(seed)
    return [world.tell(grammar, rng) for _ in range(count)]


HELD_OUT = stories(1000, seed=999)
NATS = [x for story in HELD_OUT for x in story.nats[1:]]  # all begin with the same word
FLOOR = sum(NATS) / len(NATS)
row = [len(NATS), len(NATS) / len(HELD_OUT), FLOOR]
display.show([row], ["held out"], ["words", "words a story", "nats a word"], decimals=3)

# %% [markdown]
# That is the floor: 0.421 nats a word. It is called the **entropy** of the language, and the mean
# surprise of a model on the same words is the **cross-entropy**, the loss that you train with. Gibbs
# proved that the second is never below the first, on average over endless stories. A thousand stories estimate both
# to a few thousandths.
#
# ## A storyteller from your own parts
#
# To the model a word is a number. The vocabulary has every word of the world, the full stop, `·` for padding, and
# `/`, which stands at both edges of a story.

# %%
WORDS = ["·", *sorted({word for story in stories(3000, seed=0) for word in story.words})]
NUMBER = {word: number for number, word in enumerate(WORDS)}
LONGEST = 34


def as_ids(texts: list[list[str]]) -> Tensor:
    """Write texts as numbers, padded with 0."""
    rows = [torch.tensor([NUMBER[word] for word in words]) for words in texts]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True)  # (b, n)


# %% [markdown]
# A model that only writes needs no encoder and no cross-attention. What is left of a decoder layer
# without them is an [encoder layer](08_transformer_layers.ipynb) with a causal mask. So the whole model
# is embeddings and positional encodings as in [The Transformer](09_transformer.ipynb), two pre-LN layers of two heads,
# and a logit for each next word. GPT is built like
# this, with more of everything.


# %%
class Storyteller(nn.Module):
    """Words and places in, two causal layers, a logit for each next word out."""

    def __init__(self, attention=MultiheadAttention, e: int = 48, h: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(WORDS), e)
        self.positions = PositionalEncoding(e, 0.0, max_len=LONGEST, batch_first=True)
        settings = {"batch_first": True, "norm_first": True, "attention": attention}
        layer = TransformerEncoderLayer(e, h, 2 * e, 0.0, **settings)
        self.layers = TransformerEncoder(layer, 2, nn.LayerNorm(e), reset_parameters=True)
        self.project = nn.Linear(e, len(WORDS))
        nn.init.normal_(self.embed.weight, std=e**-0.5)

    def forward(self, ids: Tensor) -> Tensor:
        """Score each word as the next one, at each place.

        Args:
            ids: (b, n), numbers of words.
        """
        x = self.positions(self.embed(ids) * self.embed.embedding_dim**0.5)  # (b, n, e)
        return self.project(self.layers(x, is_causal=True))                  # (b, n, v)


# %% [markdown]
# Before any training you can say what the loss must be. A model that knows nothing gives each of v words
# the same chance, and pays log v. If a fresh model pays much more, something in it is drawn too wide.


# %% tags=["fold-input"]
def surprise(model: nn.Module, ids: Tensor) -> Tensor:
    """Measure how much each word but the first surprises a model, in nats.

    Args:
        ids: (b, n), numbers of words.
    """
    logits = model(ids[:, :-1])                                      # (b, ..., v)
    return F.cross_entropy(logits.mT, ids[:, 1:], reduction="none")  # (b, ...)


def loss_on(model: nn.Module, ids: Tensor) -> Tensor:
    """Average the surprise over all words that are no padding."""
    return surprise(model, ids)[ids[:, 1:] != 0].mean()


def begin(seed: int = 0, attention=MultiheadAttention) -> Storyteller:
    """Make a model whose numbers are drawn from a seed."""
    torch.manual_seed(seed)
    return Storyteller(attention)


# %% tags=["fold-input"]
TESTED = as_ids([story.words for story in HELD_OUT])  # (1000, ...)
model = begin()
size = sum(parameter.numel() for parameter in model.parameters())
with torch.no_grad():
    numbers = [size, math.log(len(WORDS)), loss_on(model, TESTED)]
display.show([numbers], ["storyteller"], ["parameters", "log v", "first loss"])

# %% [markdown] name="training-it"
# ## Training it
#
# Each step takes 64 fresh stories. The learning rate rises for fifty steps and then falls along a
# cosine, and a gradient longer than 1 is shortened to 1, which is called **clipping**.

# %% tags=["fold-input"]
STEPS = 1000


def learning_rate(step: int) -> float:
    """Rise, then fall along half a cosine to a twentieth of the highest rate."""
    return min(1, (step + 1) / 50) * (0.525 + 0.475 * math.cos(math.pi * step / STEPS))


# %% tags=["fold-input"]
def train(model: nn.Module, seed: int = 0):
    """Train, and stop for a look after every hundred steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.006, betas=(0.9, 0.99))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, learning_rate)
    rng = random.Random(seed)
    for done in range(STEPS):
        if done % 100 == 0:
            yield done
        texts = [world.tell(grammar, rng).words for _ in range(64)]
        optimizer.zero_grad()
        loss_on(model, as_ids(texts)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    yield STEPS


# %% [markdown]
# What does a model write whose loss is nearly down? Let it: begin with `/`, draw each next word by
# its chance, and go on from there. (Dividing the logits by a **temperature** makes the chances sharper,
# below 1, or flatter, above 1, and **top-k** draws among the k likeliest words only.)


# %% tags=["fold-input"]
def chances(logits: Tensor, temperature: float = 1.0, k: int = len(WORDS)) -> Tensor:
    """Turn logits into chances, of the k likeliest words."""
    last = logits.topk(k).values[..., -1:]
    return (logits.masked_fill(logits < last, -math.inf) / temperature).softmax(-1)


@torch.no_grad()
def write(model: nn.Module, count: int, *how, seed: int = 0) -> list[list[str]]:
    """Let a model write stories by itself."""
    source = torch.Generator().manual_seed(seed)
    ids = torch.full((count, 1), NUMBER[EDGE])
    while ids.size(1) < LONGEST:
        drawn = chances(model(ids)[:, -1], *how).multinomial(1, generator=source)
        ids = torch.cat([ids, drawn], 1)
    texts = []
    for words in ([WORDS[i] for i in row] for row in ids.tolist()):
        end = words.index(EDGE, 1) + 1 if EDGE in words[1:] else LONGEST
        texts.append(words[:end])
    return texts


# %% [markdown]
# Because the world is known, a judge can be exact. `world.possible` follows a story through the
# grammar and says whether the world can tell it. A second judge asks for one word:
# after *so the*, how often is the likeliest word the one who was meant?


# %% tags=["fold-input"]
def possible(texts: list[list[str]]) -> float:
    """Give the share of texts that the world can tell."""
    return sum(world.possible(grammar, text) for text in texts) / len(texts)


@torch.no_grad()
def judge(model: nn.Module, count: int = 100) -> dict[str, float]:
    """Measure the loss, the share of *so the …* that is right, and the share of stories."""
    asked = torch.tensor([story.facts["asked"] - 1 for story in HELD_OUT])      # (b,)
    meant = torch.tensor([NUMBER[story.facts["meant"]] for story in HELD_OUT])  # (b,)
    logits = model(TESTED[:, :-1])
    loss = F.cross_entropy(logits.mT, TESTED[:, 1:], ignore_index=0).item()
    best = logits[torch.arange(len(asked)), asked].argmax(-1)  # (b,)
    right = (best == meant).float().mean().item()
    return {"loss": loss, "so the": right, "possible": possible(write(model, count))}


# %% tags=["fold-input"]
judged, looks = {}, {}
asked = story.words[: story.facts["asked"]]  # a story up to “so the”
JUDGED = (100, 200, 300, 500, STEPS)


def look(model: nn.Module, asked: list[str]) -> tuple[float, list[str], dict[str, float]]:
    """Give the loss, a story, and how likely each word is after *so the*."""
    with torch.no_grad():
        loss = loss_on(model, TESTED).item()
        best = model(as_ids([asked]))[0, -1].softmax(-1).sort(descending=True)
    likeliest = {WORDS[i]: x for x, i in zip(best.values.tolist(), best.indices)}
    return loss, write(model, 1, seed=5)[0], likeliest


training = train(model)
for done in training:
    looks[done] = look(model, asked)
    if done in JUDGED:
        judged[done] = judge(model, 200)
    if done == 100:
        early = copy.deepcopy(model)

# %% [markdown] name="watch-it-learn"
# Now move the slider. The bar is the loss, and the line in it the floor. Below stands a story that the model writes by
# itself, and then its next word in the story from above, *max had a dog and a horse. the horse drank tea because it was
# fresh. so the …* After how many hundred steps is most of the way done? And what does the model say then?

# %% tags=["fold-input"]
display.learns(
    looks,
    floor=FLOOR,
    asked="… the horse drank tea because it was fresh . so the",
    meant=story.facts["meant"],
    name="learns-to-tell",
)

# %% tags=["proof"]
first, young, grown = (looks[done] for done in (0, 100, STEPS))
assert (first[0] - young[0]) / (first[0] - FLOOR) > 0.95
three = [*young[2]][:3]
assert {*three} < {*DRINKS}
assert three[0] != "tea"
assert grown[2]["tea"] > 0.95
assert all("a cat and a cat" in " ".join(looks[done][1]) for done in (200, 300))
print("✓ After 100 steps it knows that a drink is meant, and names one that was not there.")

# %% [markdown]
# The first hundred steps take the loss nearly all of the way, and after them the model says *juice*. It has found out
# that a drink was meant. That there was only tea, it has not. From 200 steps on, what it writes sounds right. But it
# gives max *a cat and a cat*, which nobody in this world has. Push the slider on until that stops.

# %% [markdown]
# ## Nearly down, and the point missed
#
# *Way down* is the share of the way from the fresh model's loss to the floor. The last column is the share of possible
# stories among 200<!-- setting --> that the model wrote. Could you have known it from the loss alone? Without a floor, no.
# With one you know *at least* how many there are.

# %% tags=["fold-input"]
rows = {}
for done in judged:
    found = judged[done]
    way = (looks[0][0] - found["loss"]) / (looks[0][0] - FLOOR)
    excess = (found["loss"] - FLOOR) * len(NATS) / len(HELD_OUT)  # nats a story
    sure = math.exp(-excess)
    rows[done] = [found["loss"], f"{way:.1%}", found["so the"], sure, found["possible"]]
columns = ["loss", "way down", "“so the” right", "at least", "possible"]
display.show(rows, columns=columns, decimals=3, corner="step")

# %% tags=["proof"]
assert abs(looks[0][0] - math.log(len(WORDS))) < 0.4
assert 0.35 < judged[100]["so the"] < 0.7
assert judged[STEPS]["so the"] > 0.97
assert FLOOR - 0.002 < judged[STEPS]["loss"] < FLOOR + 0.02
assert all(sure <= share for *_, sure, share in rows.values())
assert rows[100][-1] < 0.3 < 0.9 < rows[STEPS][-2]
print(
    "✓ At every look the share of possible stories is at least what the floor guarantees."
)

# %% [markdown]
# What a model pays above the floor, times the 26.882 words of a story, is its **excess** in nats a story. With an excess
# of x, at least the share $e^{-x}$ of what it writes is possible: at the end more than nine stories in ten, and you know
# it before one is written.
#
# <details><summary>Why at least so many?</summary>
#
# Say that the possible stories have the share s of the model's chance. Now forbid the model all others, and share their
# chance out in proportion. Each possible story is then 1/s times as likely, and costs log(1/s) less. Even so the model pays
# the floor or more, as every reader does. So its excess x was at least log(1/s), and s is at least $e^{-x}$. (All this
# is an average over the world's stories, estimated from a thousand.)
#
# </details>
#
# After 100 steps 96.6 % of the way is done, and the one word that needs understanding is right in half of the stories.
# How much is nearly all of the way? Ask two readers who know next to nothing: one only how often each word
# comes in this world, the other only which words follow the last one, and how often.

# %% tags=["fold-input"]
pairs = Counter(x for told in stories(3000, 0) for x in zip(told.words, told.words[1:]))
came, left = Counter(), Counter()
for (one, following), times in pairs.items():
    came[following] += times
    left[one] += times
rare = 0.01  # for a pair that never came
rows = {}
for name, chance in {
    "how often each word comes": lambda one, word: came[word] / pairs.total(),
    "which words follow the last one": lambda one, word: (
        (pairs[one, word] + rare) / (left[one] + rare * len(WORDS))
    ),
}.items():
    read = [x for told in HELD_OUT for x in zip(told.words, told.words[1:])]
    loss = sum(-math.log(chance(*x)) for x in read) / len(read)
    way = (looks[0][0] - loss) / (looks[0][0] - FLOOR)
    rows[name] = [loss, f"{way:.1%}"]
display.show(
    rows, columns=["loss", "way down"], decimals=3, corner="a reader who knows only"
)

# %% [markdown]
# The second reader never looks back further than one word, and pays little enough to have come 79 % of the way. The long
# way down is cheap, and understanding waits in the last few percent.
#
# How can nearly everything be learned and the point be missed? Because the loss is an average, and most
# words are cheap. Look at them one by one.

# %% tags=["hide-input"]
ids = as_ids([story.words])
with torch.no_grad():
    paid = {
        "after 100 steps": surprise(early, ids)[0],
        "after 1,000": surprise(model, ids)[0],
    }
series = {"a perfect reader": (story.nats[1:], TRUE)}
series |= {
    name: (nats.tolist(), display.COLOURS[c]) for (name, nats), c in zip(paid.items(), "hm")
}
at = story.facts["asked"] - 1
cost = (
    f"a perfect reader pays {story.nats[at + 1]:.2f}, the model "
    f"{paid['after 100 steps'][at]:.2f} after 100 steps "
    f"and {paid['after 1,000'][at]:.2f} after 1,000"
)
draw_surprise(
    story.words[1:],
    series,
    name="surprise-of-three",
    alt=f"What each word of the story costs three readers. At “so the …”: {cost}.",
    caption=f"The story from above. For <i>tea</i> {cost}. A model that leans to one "
    "word can pay less than a perfect reader where it comes, and pays more elsewhere.",
)

# %% tags=["fold-input"]
floors = nn.utils.rnn.pad_sequence(
    [torch.tensor(x.nats[1:]) for x in HELD_OUT], batch_first=True
)
real = TESTED[:, 1:] != 0
asked = torch.tensor([[story.facts["asked"] - 1] for story in HELD_OUT])  # (b, 1)
place = torch.arange(real.size(1)) - asked                                # (b, ...)
with torch.no_grad():
    above = [(surprise(each, TESTED) - floors) * real for each in (early, model)]
parts = {"before it": place < 0, "“so the …”": place == 0, "after it": place > 0}
rows = {}
for name, part in parts.items():
    young, grown = (x[part].sum() / len(real) for x in above)
    words = (part & real).sum() / len(real)
    rows[name] = [words, young, grown, young * len(real) / real.sum()]
columns = ["words", "100 steps", "1,000 steps", "100 steps, in nats a word"]
display.show(rows, columns=columns, corner="excess, in nats a story", decimals=3)

# %% tags=["proof"]
before, young, after = (row[1] for row in rows.values())
assert math.log(2) < young < 1.3
assert before < after > young > 0.15 * (before + young + after)
print("✓ This word costs the young model more than a coin, and what follows it costs more.")

# %% [markdown]
# Where a perfect reader pays nothing, the young model pays about a nat, more than the log 2 of a coin. Spread over the
# words of a story, that is 0.035 in a loss of 0.555: nobody sees it there. The largest part comes
# after it, since how a story ends also depends on who was meant: tea *was gone* or *tasted good*, and who drank it *felt
# better*. The grown model pays nearly what the world charges.
#
# > **Pitfall.** Nobody has a floor for English. What you can do there is the same: pick the words that
# > need what the model should have learned, and look at their loss alone.

# %% [markdown] name="temperature"
# ## Colder, warmer
#
# How should the next word be drawn? The lower the temperature, the more often it is the likeliest. So the colder, the
# safer? Ask a storyteller that the book brings. It was trained like yours, and its numbers are kept in a file of
# 50 kB, a **checkpoint**. It writes 200<!-- setting --> stories at 0.1, and the first of those that are still impossible is:


# %%
def shipped(seed: int = 0) -> Storyteller:
    """Load a storyteller that the book brings."""
    file = resources.files("annotated_book").joinpath(f"data/storyteller-{seed}.bin")
    model = begin()
    model.load_state_dict(world.unpack(file.read_bytes(), model.state_dict()))
    return model


brought = shipped()
written = write(brought, 200, 0.1)
cold = [text for text in written if not world.possible(grammar, text)]
print(*cold[0])

# %% tags=["proof"]
assert len(world.pack(brought.state_dict())) < 55_000
with torch.no_grad():
    assert abs(loss_on(brought, TESTED) - loss_on(model, TESTED)) < 0.01
assert all(text[2] == text[5] for text in cold)
assert possible(write(shipped(4), 200, 0.1)) > 0.97
with torch.no_grad():
    next_one = brought(as_ids([cold[0][:5]]))[0, -1].softmax(-1)
    first = brought(as_ids([[EDGE]]))[0, -1]
assert (
    (first / 0.1).softmax(-1)[NUMBER["the"]] > 0.95 > 0.3 > first.softmax(-1)[NUMBER["the"]]
)
assert {text[1] for text in cold} == {"the"}
others = [next_one[NUMBER[animal]].item() for animal in ANIMALS]
assert next_one[NUMBER[cold[0][2]]] > 0.8 / 6 > 0.6 / 6 < min(others) < sum(others) < 1.01
print("✓ To fear itself is as likely for the duck as to fear any other animal.")

# %% [markdown]
# In every impossible one an animal does something to itself, which nobody in this world does. In a story that
# names no owner and no two animals, this storyteller has not learned that. (One from another seed has, and hardly ever
# tells an impossible story at 0.1.) Cold mends accidents. It does not mend what a model believes, and here it asks for it: at 0.1 nearly
# every story begins with *the*, the likeliest first word, and it is there that this storyteller errs.

# %% tags=["fold-input"]
rows = {}
for how in ((0.1,), (1.0,), (1.5,), (2.0,), (2.0, 3)):
    texts = written if how == (0.1,) else write(brought, 200, *how)
    name = f"temperature {how[0]}" + (f", top-{how[1]}" if how[1:] else "")
    rows[name] = [possible(texts), len({" ".join(text) for text in texts})]
display.show(rows, columns=["possible", "different, of 200"])

# %% tags=["proof"]
shares = {name: row[0] for name, row in rows.items()}
assert min(shares[f"temperature {each}"] for each in (0.1, 1.0)) > 0.85
assert rows["temperature 0.1"][1] < 190 < 195 < rows["temperature 1.0"][1]
assert shares["temperature 2.0"] < 0.2 < 0.5 < shares["temperature 2.0, top-3"]
print(
    "✓ The coldest repeat a few; of the hottest hardly one is possible; top-3 saves most."
)

# %% [markdown]
# And warmer? At 2 hardly a story is left, since one wrong word of twenty-seven spoils it. Top-3 mends most of that: it
# cuts off the long tail of words that are each unlikely and together are not. The next chapter begins with [this storyteller in the
# page](11_questions_to_heads.ipynb#cell-id=ask-it): let it write at 0.1, at 1 and at 2.

# %% [markdown] name="below-the-floor"
# ## Below the floor
#
# Now break the model, three times. **Mask forgotten**: the attention sees the whole story.
# **Mask one late**: `triu(2)` instead of `triu(1)`. And the **wrong merge** of [The reshape
# trick](04_reshape_trick.ipynb#cell-id=two-mistakes-that-keep-every-shape): the heads are not moved behind the words
# before they are merged, so early rows get what belongs to words further on. Nothing raises an error, and every shape
# is right.


# %%
class Unmasked(MultiheadAttention):
    """Forgets the causal mask."""

    def forward(self, *given, **options):
        """Attend to everything."""
        return super().forward(*given, **options | {"is_causal": False})


class OneLate(MultiheadAttention):
    """Begins the causal mask a diagonal too late."""

    def forward(self, query, *given, **options):
        """Attend to everything up to the next word."""
        late = torch.ones(query.size(1), query.size(1), dtype=torch.bool).triu(2)
        masks = {"is_causal": False, "attn_mask": late}
        return super().forward(query, *given, **options | masks)


LEAKS = {
    "mask forgotten": Unmasked,
    "mask one late": OneLate,
    "wrong merge": MergeWithoutTranspose,
}

# %% [markdown]
# Each was trained from five seeds for the first 500 steps of the same schedule, and so was the right model;
# `make seeds` in the book's repository does it. One mistake shows the whole story, one in each layer a single word too many, one mixes
# rows. Which of the three comes nearest to a loss of zero?

# %% tags=["fold-input"]
file = resources.files("annotated_book").joinpath("data/world.json")
kept = json.loads(file.read_text())["runs"]


def span(runs: list[dict], what: str, done: int = 500) -> str:
    """Write the lowest and the highest value of some runs."""
    values = [run[f"{done}"][what] for run in runs]
    decimals = 4 if what == "loss" else 2
    return f"{min(values):.{decimals}f} to {max(values):.{decimals}f}"


runs = {
    setup: [run for run in kept if run["setup"] == setup] for setup in ("right", *LEAKS)
}

# %% tags=["hide-input"]
drawing, (ax,) = display.panels(310, 180)
for place, (setup, of) in enumerate(runs.items()):
    values = [run["500"]["loss"] for run in of]
    ax.plot(
        values,
        [place] * len(values),
        "o",
        color=TRUE if setup == "right" else OTHER,
        alpha=0.7,
    )
ax.axvline(FLOOR, color=display.COLOURS["m"], linestyle="--")
ax.text(
    FLOOR - 0.005, -0.75, "the floor", ha="right", fontsize=12, color=display.COLOURS["m"]
)
ax.set_yticks(range(4), [*runs])
ax.set(xlim=(-0.01, 0.5), ylim=(3.5, -1.2), xlabel="loss on held-out stories")
display.finish(
    drawing,
    name="below-the-floor",
    alt="Losses of five seeds each: the right model just above the floor, "
    + "; ".join(f"{name} {span(runs[name], 'loss')}" for name in LEAKS)
    + ", all below it.",
    caption="Five seeds each. "
    + " ".join(f"{name.capitalize()}: {span(runs[name], 'loss')}." for name in LEAKS),
)

# %% [markdown]
# Two come equally near: one word too many is as good as all of them, since the next word is all that is asked for. The
# wrong merge stops at about 0.05, since just behind the middle of a text it hides the next word from a few rows. But
# all fifteen models, of three mistakes and five seeds, lie far below the floor. On the same words nobody can on average be
# less surprised than a reader who knows every chance, unless the answer lies open. So a loss below the floor is
# not a triumph. It is an alarm. What do the two judges say?

# %% tags=["fold-input"]
rows = {}
for setup, of in runs.items():
    rows[setup] = [span(of, what) for what in ("so the", "possible")]
columns = ["“so the …” right", "possible"]
display.show(rows, columns=columns, corner="after 500 steps")

# %% [markdown]
# The judge of *so the …* is fooled, too, since it shows the model the rest of the story. Only writing is not.
# When a model writes, there is no later word to read, and not one of the broken models' stories is possible.
# This is how they write, from the first seed:

# %% tags=["hide-input", "words"]
written = {
    setup: [" ".join(runs[setup][0]["sample"].split()[:18]) + " …"] for setup in LEAKS
}
display.show(written, columns=["writes"], decimals="<")

# %% tags=["proof"]
for run in kept:
    found = run["500"]
    if run["setup"] in LEAKS:
        assert found["loss"] < (0.002 if run["setup"].startswith("mask") else 0.2 * FLOOR)
        assert found["possible"] < 0.05
    else:
        assert FLOOR < found["loss"] < 1.15 * FLOOR
        assert found["possible"] > 0.4
wrong, ids, blind = begin(attention=MergeWithoutTranspose), TESTED[:1, :30], []
with torch.no_grad():
    for row in range(29):
        other = ids.clone()
        other[0, row + 1] += 1  # another word
        if torch.equal(wrong(ids)[0, row], wrong(other)[0, row]):
            blind.append(row)
assert blind == [15, 16, 17, 18, 19]
print("✓ All fifteen lie below the floor, those with a wrong mask next to zero.")

# %% [markdown]
# Before you look for a leak, look at what is counted. Once a story has ended, the rest of its row is padding and
# surprises nobody. Leave the padding in the mean, and a perfect reader pays:

# %% tags=["hide-input"]
print(f"{sum(NATS) / TESTED[:, 1:].numel():.3f} nats a place, if padding is counted")

# %% [markdown]
# That is why `F.cross_entropy` has an `ignore_index`.
#
# And a leak need not raise an alarm: on its way down each of the three passes a loss like that of an honest model. Where no
# floor is known, [change a later word and see whether an earlier row
# moves](12_training.ipynb#cell-id=what-teacher-forcing-does-not-see). That needs no training at all.

# %% [markdown] name="deeper-have-they-been-seen"
# <!-- deeper: has it seen the test? -->
# ### Going deeper: has it seen the test?
#
# The held-out stories are another draw from the same world, so some of them were told in training, too,
# word for word. Is the loss on the others as near to their floor?

# %%
rng = random.Random(0)
told = {tuple(world.tell(grammar, rng).words) for _ in range(64 * STEPS)}
seen = torch.tensor([tuple(story.words) in told for story in HELD_OUT])
with torch.no_grad():
    nats = surprise(model, TESTED)
rows = {}
for name, which in {"told in training, too": seen, "never told": ~seen}.items():
    real = TESTED[which, 1:] != 0
    gap = (nats[which] - floors[which])[real].mean()
    rows[name] = [which.sum(), floors[which][real].mean(), gap]
display.show(rows, columns=["stories", "floor", "above it"], decimals=3)

# %% [markdown]
# It is. Every batch was drawn anew, so there was little to learn by heart. And one pair is in no story: in this world no
# cat drinks milk. The [next chapter](11_questions_to_heads.ipynb) asks about it.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Exercises
#
# ### A smaller world
#
# *Easy, 2 minutes.* A world tells stories of four words: *the*, one of two animals, one of four verbs,
# and a full stop. All choices are equally likely. How many nats does a whole story cost a perfect reader,
# and how many does a word, on average over the four? Formulas will do.

# %% tags=["exercise"]
my_floor = [
    None,  # a story
    None,  # a word
]

# %%
from annotated_book import exercises

exercises.a_little_world.check_floor(my_floor)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The first and the last word are free. One of two costs log 2.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `math.log(2) + math.log(4)` is the whole story.
#
# </details>

# %% tags=["solution"]
my_floor = [math.log(2 * 4), math.log(2 * 4) / 4]

exercises.a_little_world.check_floor.folded(my_floor)

# %% [markdown]
# ### Only the likeliest
#
# *Medium, 6 minutes.* Turn logits, `(b, v)`, into chances of the k likeliest words of each row; all
# other words get exactly 0, and each row still sums to 1.


# %% tags=["exercise"]
def top(logits: Tensor, k: int) -> Tensor:
    """Return the chances of the k likeliest words of each row."""
    ...  # your code here


# %%
exercises.a_little_world.check_top(top)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `logits.topk(k).values` has the k largest logits of each row, the largest first.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# What the softmax must not see is set to minus infinity, as under a [mask](06_masks.ipynb).
#
# </details>


# %% tags=["solution"]
def top(logits: Tensor, k: int) -> Tensor:
    """Return the chances of the k likeliest words of each row.

    Args:
        logits: (b, v), a score for each word.
        k: how many words are left.
    """
    last = logits.topk(k).values[:, -1:]                             # (b, 1)
    return logits.masked_fill(logits < last, -math.inf).softmax(-1)  # (b, v)


exercises.a_little_world.check_top.folded(top)

# %% [markdown]
# ## What you have now
#
# > **In short.** A language has a floor, its entropy: the mean surprise of a reader who knows every
# > chance. A model's loss on held-out text is its own mean surprise, and honestly it cannot be lower on average:
# >
# > $$\begin{aligned}
# > &-\frac{1}{T} \sum_t \log p_{\text{model}}(w_t \mid w_{<t}) \\
# > \ge\; &-\frac{1}{T} \sum_t \log p_{\text{true}}(w_t \mid w_{<t})
# > \end{aligned}$$
# >
# > Ids `(b, n)` go in, logits `(b, n, v)` come out. A model that only writes is a stack of causal encoder
# > layers:
# >
# > ```python
# > x = positions(embed(ids) * e**0.5)
# > y = layers(x, is_causal=True)
# > logits = project(y)
# > loss = F.cross_entropy(
# >     logits[:, :-1].mT, ids[:, 1:],
# >     ignore_index=0,
# > )
# > ```
# >
# > At least $e^{-\text{excess}}$ of what a model writes is possible, its excess over the floor taken per text. But an
# > average hides the word that matters: measure it alone. A loss that is too good is an alarm. Let the model write,
# > and judge that.
#
# The storyteller knows who was meant by *it*. Where in the model is that decided, at which word and by which head?
# [Questions to heads](11_questions_to_heads.ipynb) finds out.
