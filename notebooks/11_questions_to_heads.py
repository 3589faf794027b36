# %% [markdown]
# # Questions to heads
#
# *Who decides what “it” means?*
#
# *20 minutes and 5 of exercises. Afterwards you can ask a trained model which word and which head an
# answer comes from, and you know how such answers mislead.*
#
# > the cat drank milk because it was thirsty . so the **cat** …
#
# > the cat drank milk because it was sweet . so the **milk** …
#
# On the first page of this book, two heads answered this, and they were made by hand. The storyteller of
# [the last chapter](10_a_little_world.ipynb) has four heads, and nobody told them anything. It was never
# told these sentences either: in its world no cat drinks milk. And it is right about both.
#
# So somewhere in it the matter is settled. Where? Question its parts as a court would: one after the
# other, and each answer against another. You will be misled more than once, and at last by the questions.

# %% tags=["hide-input"]
import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import resources

import torch
from torch import Tensor, nn

from annotated_attention import MultiheadAttention
from annotated_attention.pretrained import attention_weights
from annotated_book import chapters, display

ten = chapters.load("10_a_little_world")
torch.set_num_threads(1)
model = ten.shipped(0)


# %%
def questions(*verbs: str) -> list[tuple[str, str, str, bool]]:
    """List questions: a text, who is meant, who else, whether it is who acts."""
    found = []
    for verb in verbs:
        the = "the " * (ten.TAKES[verb] is ten.ANIMALS)
        for who, other in itertools.product(ten.ANIMALS, ten.TAKES[verb]):
            for acts in (True, False) if who != other else ():
                pair = (who, other) if acts else (other, who)
                for quality in ten.REASONS[verb][not acts]:
                    text = (
                        f"the {who} {verb} {the}{other} because it was {quality} . so the"
                    )
                    found.append((f"{ten.EDGE} {text}", *pair, acts))
    return found


ASKED = questions("drank", "ate")
print(len(ASKED), "questions, such as:", ASKED[2][0], "->", ASKED[2][1])

# %% [markdown]
# Each animal, each food or drink, and each quality make a question. The cat and its milk are among them.
# The storyteller answers with its likeliest next word.


# %%
@torch.no_grad()
def answers(model: nn.Module, asked=ASKED) -> list[str]:
    """Give the likeliest next word after each question."""
    logits = model(ten.as_ids([text.split() for text, *_ in asked]))  # (b, n, v)
    return [ten.WORDS[i] for i in logits[:, -1].argmax(-1).tolist()]


def named(model: nn.Module, asked=ASKED) -> list[float]:
    """Give the shares that name the one meant, the other, a third word; and who acts."""
    found = []
    for word, (_, meant, other, acts) in zip(answers(model, asked), asked):
        actor = meant if acts else other
        found.append(
            [word == meant, word == other, word not in (meant, other), word == actor]
        )
    return torch.tensor(found).float().mean(0).tolist()


of_the_book = [each for each in ASKED if "cat drank milk" in each[0]]
rows = {
    name: [len(asked), named(model, asked)[0]]
    for name, asked in {"all": ASKED, "the book's own, never told": of_the_book}.items()
}
display.show(rows, columns=["questions", "right"])

# %% [markdown]
# All right, the book's own, too. And what has it never been told at all? In this world *tired* is said
# only of those who drink. So let somebody be carried because of it:


# %%
def says(model: nn.Module, text: str, *words: str) -> list[float]:
    """Give the chances of some words to come next."""
    with torch.no_grad():
        shares = model(ten.as_ids([[ten.EDGE, *text.split()]]))[0, -1].softmax(-1)  # (v,)
    return [shares[ten.NUMBER[word]].item() for word in words]


text = "the dog carried the cat because it was {} . so the"
rows = {
    quality: says(model, text.format(quality), "dog", "cat")
    for quality in ("weak", "tired")
}
display.show(rows, columns=["dog", "cat"], corner="it was …")

# %% [markdown]
# You would say that the tired one is carried. The storyteller says the opposite, and is sure. No wonder:
# in its world *tired* has always meant the one who acts. That sounds like an explanation. Keep it in mind.

# %% [markdown] name="blank-it"
# ## First witness: *it*
#
# The obvious suspect is the word *it*. If that word holds the answer, then erasing it must hurt. **Blank**
# it: as its vector enters the first layer, put the average vector of all words in its place. A hook does
# that, a function that PyTorch calls before a module runs. What is left of 192 right answers: half, since
# now the model must guess, or fewer?
#
# <details><summary>What do you expect?</summary>
#
# All of them. Nothing in the model needs this word. It stands in every question, whoever is meant, and
# under the causal mask it cannot see the quality. Whoever settles the matter can do without it.
#
# </details>


# %% tags=["fold-input"]
@contextmanager
def put(model: nn.Module, layer: int, place: int, rows: Tensor) -> Iterator[None]:
    """Let other rows enter a layer at one place."""

    def replace(_, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        x = given[0].clone()
        x[:, place] = rows
        return x, *given[1:]

    hook = model.layers.layers[layer].register_forward_pre_hook(replace)
    try:
        yield
    finally:
        hook.remove()


# %% tags=["fold-input"]
@torch.no_grad()
def entering(model: nn.Module, ids: Tensor, layer: int) -> Tensor:
    """Note the rows that enter a layer."""
    noted = []
    part = model.layers.layers[layer]
    hook = part.register_forward_pre_hook(lambda _, given: noted.append(given[0]))
    model(ids)
    hook.remove()
    return noted[0]  # (b, n, e)


# %% tags=["fold-input"]
def blanked(
    model: nn.Module, place: int, asked=ASKED, *, here: bool = False
) -> list[float]:
    """Say what a model names with a word blanked, by the mean word (here)."""
    if here:
        rows = entering(model, ten.as_ids([text.split() for text, *_ in asked]), 0)[
            :, place
        ]
    else:
        rows = entering(model, ten.TESTED, 0)[ten.TESTED != 0]
    with put(model, 0, place, rows.mean(0)):
        return named(model, asked)


# %%
ANSWERS = ["the one meant", "the other", "a third word", "who acts"]
PLACES = {"“it”": -6, "“was”": -5, "the quality": -4, "“.”": -3, "“so”": -2}
rows = {word: blanked(model, place) for word, place in PLACES.items()}
rows["the quality, by the mean quality"] = blanked(model, -4, here=True)
display.show(rows, columns=ANSWERS, corner="blanked")

# %% [markdown]
# *It* has an alibi. You can blank this word, and every answer stays right. Without the quality, half of them
# are. Which half? Put the mean of all words in its place, and the model always names the one who acts; put
# the mean quality there, and it nearly always names the other. That it cannot choose is the model's doing.
# What it says instead is yours. So the answer needs the quality, and it is worked out somewhere after it. This is what [the causal
# mask](06_masks.ipynb#cell-id=the-causal-mask) left open in Part I: the row of *it* cannot know, and a
# later row can.

# %% [markdown] name="patch-it"
# ## Where the answer is at noon
#
# Between the two layers, every word has a row, and the answer must be on its way in one of them. In which?
# **Patch** it (*activation patching*): take two stories that differ in the quality alone, so that
# different ones are meant. Run one, and put one row of the other in its place. If the answer flips, that
# row carried it.


# %%
def flipped(model: nn.Module, layer: int, place: int, asked=ASKED) -> float:
    """Give the share of answers that flip when a row comes from the other story."""
    ids = ten.as_ids([text.split() for text, *_ in asked])                   # (b, n)
    other = torch.arange(len(asked)).view(-1, 4)[:, [2, 3, 0, 1]].flatten()  # (b,)
    rows = entering(model, ids[other], layer)[:, place]                      # (b, e)
    with put(model, layer, place, rows):
        return named(model, asked)[1]


AFTER = {"the quality": -4, "“.”": -3, "“so”": -2, "“the”": -1}
rows = {
    word: [flipped(model, layer, place) for layer in (0, 1)]
    for word, place in AFTER.items()
}
display.show(rows, columns=["before layer 1", "before layer 2"], corner="patched")

# %% [markdown]
# Before layer 1 it is the quality, of course: the two stories differ nowhere else. Before layer 2 the
# quality does not matter any more. It is all in the row of the last *the*, the one that is about to name
# somebody. So the first layer has carried the news from the quality to *the*, and the second looks for
# the name.

# %% [markdown] name="the-head-that-points"
# ## The head that points
#
# Then one of the two heads of layer 2 must look from *the* at the one who was meant. Does it?


# %%
@torch.no_grad()
def looks(model: nn.Module, asked=ASKED) -> Tensor:
    """Give the weights of the last word of each question, (layers * h, b, n)."""
    with attention_weights(model) as collected:
        model(ten.as_ids([text.split() for text, *_ in asked]))
    return torch.cat([weights[:, :, -1].transpose(0, 1) for weights in collected])


# %%
HEADS = ["1.1", "1.2", "2.1", "2.2"]  # layer.head
seen = looks(model, of_the_book)  # (4, 4, n)
words = of_the_book[0][0].replace("thirsty", "…").split()
rows = [f"{name}, {end}" for name in ("2.1", "2.2") for end in ("thirsty", "sweet")]
display.show(
    seen[2:, [0, 2]].flatten(0, 1), rows, words, heat=True, corner="“the” looks at"
)

# %% [markdown]
# There is the picture of chapter 1, and this time nobody drew it. With *thirsty*, head 2.2 gives *cat*
# nearly everything; with *sweet*, *milk*. All 192 questions say the same:

# %% tags=["fold-input"]
WHO, OTHER = 2, -8  # their places


def on_the_meant(model: nn.Module, asked=ASKED) -> dict[str, list[float]]:
    """Average what the last word gives to the one meant, to the other, to the quality."""
    acts = torch.tensor([acts for *_, acts in asked])  # (b,)
    rows = {}
    for name, weights in zip(HEADS, looks(model, asked)):
        who, other = weights[:, WHO], weights[:, OTHER]  # (b,), (b,)
        meant, rest = who.where(acts, other), other.where(acts, who)
        rows[name] = [x.mean().item() for x in (meant, rest, weights[:, -4])]
    return rows


# %%
columns = ["the one meant", "the other", "the quality"]
display.show(on_the_meant(model), columns=columns, corner="head")

# %% [markdown] name="take-it-away"
# Case closed? It looks like the whole explanation: head 2.2 finds the one who was meant, and hands the
# name over. So take this head away.
#
# ## Take it away
#
# To **silence** a head, replace its slice of the merged heads before `out_proj`, so that nothing that it
# found reaches $W_O$. Replace it by what? Zero is the usual value, but the later layers may never have met
# a zero there, and then a model fails because it is given something strange. So put the head's own
# **mean** in its place, over all words of the held-out stories. Now an answer can go wrong in two ways: it
# names the other one of the two, or a third word. Which will it be, without head 2.2?
#
# <details><summary>What do you expect?</summary>
#
# The other one, if this head finds out who was meant. Measured: hardly ever. Three answers in four stay
# right, and nearly all the rest are a third word. The head without which the model names the wrong one is
# head 1.1, which gives the one meant next to none of its weight.
#
# </details>


# %%
@contextmanager
def silenced(*chosen: tuple) -> Iterator[None]:
    """Silence each chosen head: an attention, an index, and perhaps a value."""

    def silence(attention: MultiheadAttention, head: int, value: Tensor | float = 0.0):
        def replaced(_, given: tuple[Tensor]) -> Tensor:
            heads = given[0].unflatten(-1, (attention.num_heads, -1)).clone()
            heads[..., head, :] = value
            return heads.flatten(-2)  # (b, n, h * d)

        return attention.out_proj.register_forward_pre_hook(replaced)

    hooks = [silence(*each) for each in chosen]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


# %% tags=["fold-input"]
@torch.no_grad()
def handed_on(model, attention: MultiheadAttention, *inputs: Tensor) -> Tensor:
    """Note what each head of an attention hands on."""
    noted = []
    hook = attention.out_proj.register_forward_pre_hook(lambda _, x: noted.append(x[0]))
    model(*inputs)
    hook.remove()
    return noted[0].unflatten(-1, (attention.num_heads, -1))  # (b, n, h, d)


def mean_outputs(model, attention, counts: Tensor, *inputs: Tensor) -> Tensor:
    """Average what each head of an attention hands on, over the places that count."""
    return handed_on(model, attention, *inputs)[counts].mean(0)  # (h, d)


@cache
def means_of(model: nn.Module) -> Tensor:
    """Average what each head says, over all words held out, (layers, h, d)."""
    parts = [layer.self_attn for layer in model.layers.layers]
    real = ten.TESTED != 0
    return torch.stack([mean_outputs(model, part, real, ten.TESTED) for part in parts])


# %%
def without(model: nn.Module, *heads: str, values: Tensor | None = None):
    """Silence heads by their names, each by its mean or another value."""
    values, chosen = means_of(model) if values is None else values, []
    for layer, head in ([int(x) - 1 for x in name.split(".")] for name in heads):
        chosen.append((model.layers.layers[layer].self_attn, head, values[layer, head]))
    return silenced(*chosen)


rows = {"none": named(model)}
for name in HEADS:
    with without(model, name):
        rows[name] = named(model)
display.show(rows, columns=ANSWERS, corner="silenced")

# %% tags=["proof"]
weights = on_the_meant(model)
assert weights["2.2"][0] > 0.9 > 0.2 > weights["1.1"][0]
assert weights["1.1"][2] > 0.6
assert rows["none"][0] == 1
assert rows["2.2"][0] > 0.65
assert rows["2.2"][2] > 0.12 > 0.05 > rows["2.2"][1]
assert rows["1.1"][3] > 0.95
print("✓ Without the head that points, third words come; without another, who acts.")

# %% [markdown]
# Two heads, two jobs, it seems. Without head 2.2 the choice stands and the name is lost: hardly an answer
# is the other one, and a third word comes in 0.22 of the questions. So the head with the bright line only
# **names**. Without head 1.1 a third word never comes, but every answer is the one who acts. So this head,
# which looks at the quality and gives the one meant 0.04 of its weight, **decides**. One failure of the
# choice alone, one of the name alone: neurologists call this a **double dissociation**, and nothing better
# can come of taking things away.
#
# > **Pitfall.** A bright line in an attention map is a number, not a reason. It says where a head looks.
# > Whether the answer hangs on it, you learn by taking it away, and by looking at how the answers go
# > wrong.
#
# This chapter once ended here. It was a good story, and it was wrong.

# %% [markdown] name="leading-questions"
# ## Leading questions
#
# Look at the third words that come without head 2.2. What kind of words are they?

# %%
KINDS = [{*kind} for kind in (ten.ANIMALS, ten.DRINKS, ten.FOODS)]
with without(model, "2.2"):
    found = zip(answers(model), ASKED)
third = [
    {word, meant} for word, (_, meant, other, _) in found if word not in (meant, other)
]
same = sum(any(both <= kind for kind in KINDS) for both in third)
display.show([[len(third), same]], ["without 2.2"], ["third words", "of the right kind"])

# %% [markdown]
# All of them are of the right kind. Where an animal was meant, another animal comes, and where it was a
# drink, another drink. The kind survives without head 2.2, by another path. And in all of my questions one
# of the two is an animal and the other is not. Whoever knows the kind cannot name the other one! So *never
# the other* may mean no more than *never the wrong kind*. In court these are **leading questions**: half of
# the answer stands in them.
#
# This world has questions that do not lead. Animals chase, fear and carry each other, and there the kind
# says nothing. Ask these, without head 2.2: a third word again, or the other one?
#
# <details><summary>What do you expect?</summary>
#
# If head 2.2 only named, a third animal would come, one that was not in question. Measured: a third animal
# seldom comes. It is the other one.
#
# </details>

# %%
FAIR = questions("chased", "feared", "carried")
rows = {f"none, {len(FAIR)} questions": named(model, FAIR)}
for name in HEADS:
    with without(model, name):
        rows[name] = named(model, FAIR)
display.show(rows, columns=ANSWERS, corner="silenced")

# %% [markdown]
# Without head 2.2 little more than half of the answers are right, and 0.34 of all are the other one. The
# head that "only names" has taken the choice with it. My questions had let one job look like two. What
# about the head that decides? As before: without head 1.1 every answer is the one who acts.
#
# So what passes between the two? Silence head 1.1 once more. Do not look at the answers this time, but at
# where head 2.2 looks now:

# %%
rows = {}
for name, asked in {"a thing": ASKED, "two animals": FAIR}.items():
    acts = torch.tensor([acts for *_, acts in asked])
    before = looks(model, asked)[3]
    with without(model, "1.1"):
        after = looks(model, asked)[3]
    for meant, which in {"who acts": acts, "the other": ~acts}.items():
        row = [x[which, at].mean() for x in (before, after) for at in (WHO, OTHER)]
        rows[f"{name}; meant is {meant}"] = row
columns = ["who acts", "the other", "who acts, without 1.1", "the other, without 1.1"]
display.show(rows, columns=columns, corner="head 2.2 looks at", heat=columns)

# %% tags=["proof"]
with without(model, "2.2"):
    fair, leading = named(model, FAIR), named(model)
assert third
assert same > 0.95 * len(third)
assert fair[1] > 0.2 > 0.12 > fair[2]
assert leading[2] > 0.12 > 0.05 > leading[1]
with without(model, "1.1"):
    assert min(named(model, asked)[3] for asked in (ASKED, FAIR)) > 0.95
for one, two in (list(rows.values())[i : i + 2] for i in (0, 2)):
    assert one[0] > 0.9 > 0.1 > two[0]
    assert abs(one[2] - two[2]) < 0.05 < 0.5 < one[2]
print("✓ Without the first, where the second looks no longer depends on who is meant.")

# %% [markdown]
# It still points, but the quality has lost its say in where. Whoever is meant, its weights are the same. So
# these are not two heads with a job each. They look like two steps of one: the first reads the quality, and
# where the second looks depends on the first.

# %% [markdown]
# <!-- deeper: another value in the head's place -->
# ### Going deeper: another value in the head's place
#
# A silenced head still says something, so choose what, and report it. Here are the two heads again, by
# zero, by the mean over all words as above, and by the mean at the same place of the same questions, which
# keeps what a head always says there.


# %% tags=["fold-input"]
def means_here(model: nn.Module, asked: list) -> Tensor:
    """Average what each head says at each place of the questions, (layers, h, n, d)."""
    ids = ten.as_ids([text.split() for text, *_ in asked])
    parts = [layer.self_attn for layer in model.layers.layers]
    here = [handed_on(model, part, ids).mean(0) for part in parts]  # (n, h, d) each
    return torch.stack(here).transpose(1, 2)


rows, mean = {}, means_of(model)
for name, asked in {"a thing": ASKED, "two animals": FAIR}.items():
    values = {"zero": torch.zeros_like(mean), "mean": mean}
    for head in ("1.1", "2.2"):
        for what, value in (
            values | {"mean at its place": means_here(model, asked)}
        ).items():
            with without(model, head, values=value):
                rows[f"{name}: {head} by {what}"] = named(model, asked)
display.show(rows, columns=ANSWERS, corner="silenced")

# %% [markdown]
# With all three values at most a little of the choice is left without head 1.1, and hardly a third word comes; and
# without head 2.2 the wrong answers are third words where a thing is in question, and the other one where it is two animals. But
# *which* answer a model without head 1.1 falls back on depends on the value: who acts, or between two animals
# the other, or some of both: as with the blanked quality, what it says instead is a fact about what you put
# in.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="another-seed"
# ## Another seed, another way
#
# One model may be luck. The book brings a second storyteller: the same code, stories drawn from another
# seed, other first numbers, and as low a loss. Question it in the same way, beside the first.

# %%
second = ten.shipped(4)
both = {"the first": model, "the second": second}
sets = {"a thing": ASKED, "two animals": FAIR}
pairs = [(each, asked) for each in both.values() for asked in sets.values()]
rows = {"right": [named(*pair)[0] for pair in pairs]}
for word, place in (("“it”", -6), ("the quality", -4)):
    rows[f"right, {word} blanked"] = [
        blanked(each, place, asked)[0] for each, asked in pairs
    ]
for word, place in (("the quality", -4), ("“so”", -2), ("“the”", -1)):
    rows[f"flipped, {word} patched before layer 2"] = [
        flipped(each, 1, place, asked) for each, asked in pairs
    ]
columns = [f"{name}, {which}" for name in both for which in sets]
display.show(rows, columns=columns, corner="share of the questions")

# %% [markdown]
# *It* has an alibi in both, and the quality is needed. The rest is different. In the first model the row of
# *the* carries the answer between the layers, whatever is asked. In the second it hardly ever does. If a thing is in
# question, the answer still sits in the row of the quality. If it is two animals, that row carries some
# answers and the row of *so* others. So how does the second model fall apart?

# %%
rows = {}
for head, (name, asked) in itertools.product(HEADS, sets.items()):
    with without(second, head):
        rows[f"{head}, {name}"] = named(second, asked)
display.show(rows, columns=ANSWERS, corner="silenced in the second")

# %% [markdown]
# Ask for things alone, and you would find two jobs again, in other hands: without head 2.1 the choice is
# lost, without 1.1 or 2.2 the name. Ask for animals as well, and one of the two is gone. Without 2.1 every
# answer is still the one who acts, but without 1.1 the other one comes nearly as often as a third word, at
# least in questions of this short form, and 2.2 is not needed at all.
#
# So one finding is left in these two files, in both sets: with one head at its mean, the answer no longer changes
# with the quality. It is head 1.1 in one and 2.1 in the other. (That the answer is then the one who acts is
# the work of the mean in the head's place. It says nothing of other seeds, either.)
#
# And what did you keep in mind? The first model said that the *tired* one is the one who acts, *no wonder*.
# Ask the second, and ask it about the cat and its milk, too.

# %%
texts = {
    "cat drank milk, sweet": ("the cat drank milk because it was sweet", "cat", "milk"),
    "dog carried cat, tired": (
        "the dog carried the cat because it was tired",
        "dog",
        "cat",
    ),
}
rows = {}
for what, (text, *two) in texts.items():
    for name, each in both.items():
        rows[f"{what}: {name}"] = says(each, f"{text} . so the", *two)
display.show(rows, columns=["who acts", "the other"])

# %% tags=["proof"]
sweet, tired = list(rows.values())[:2], list(rows.values())[2:]
assert sweet[0][1] > 0.9 > 0.5 > sweet[1][1]
assert tired[0][0] > 0.9 > 0.1 > tired[1][0]
assert tired[1][1] > 0.9
for asked in (ASKED, FAIR):
    assert min(blanked(each, -6, asked)[0] for each in (model, second)) > 0.97
    assert max(blanked(each, -4, asked)[0] for each in (model, second)) < 0.55
    assert flipped(model, 1, -1, asked) > 0.9 > 0.15 > flipped(second, 1, -1, asked)
    with without(second, "2.1"):
        assert named(second, asked)[3] > 0.95
with without(second, "2.2"):
    assert named(second, FAIR)[0] > 0.95 > 0.85 > named(second)[0]
with without(second, "1.1"):
    assert named(second)[1] < 0.05 < 0.15 < named(second, FAIR)[1]
print("✓ In both models one head is missed for the choice, in both sets of questions.")

# %% [markdown]
# It says that the carried one is tired. It was told the same kind of stories, in which *tired* never meant the
# other, so my explanation fits one model of two. With the sweet milk it is the other way round: the second
# model names neither. No story of this world holds either text, so no loss could have warned you.
# Two models that agree on every test may not agree outside.
#
# So "head 2.2 resolves pronouns" is a sentence about one file of numbers, and about one set of questions.
# `make seeds` has trained five anew (rows 0 and 4 are not the two models above) and questioned each by the
# head that looks most at the one meant:

# %% tags=["fold-input"]
file = resources.files("annotated_book").joinpath("data/world.json")
rows = {}
for run in json.loads(file.read_text())["questions"]:
    thing, animals = run["a thing"], run["two animals"]
    row = [min(x["it blanked"] for x in (thing, animals)), run["head"], run["weight"]]
    rows[run["seed"]] = [*row, *thing["without"][1:3], *animals["without"][1:3]]
columns = ["right, “it” blanked", "brightest head", "weight"]
columns += [f"{x}: {y}" for x in sets for y in ANSWERS[1:3]]
display.show(rows, columns=columns, corner="seed")

# %% [markdown]
# In all five *it* can go, and at least 0.93 of the answers stay right. In all five the questions lead: without
# the head that looks most at the one meant, hardly an answer is the other one if a thing is in question, and
# at least 0.19 of them are if it is two animals. Which head that is, how bright, and how much of the choice is
# left without it, is another matter in each.

# %% [markdown] name="ask-it"
# ## Now you
#
# Here is the first model, with all of its numbers, as it came from training. Begin with a text or type
# one; press a word to see what its four heads look at; press a head to silence it, by its mean over all
# words. Four things to try:
#
# 1. Take *sweet*, and silence 1.1. Give it back, and silence 2.2, then 2.1 as well.
# 2. Take *chased*, a fair question, and silence 2.2 alone.
# 3. Press *clear*, and add *the milk drank the cat because it was thirsty . so the*. Does the order
#    decide who drinks?
# 4. Press *wrong merge*, and let it write on. It was not trained with it, and each word changes what
#    the words before it meant.

# %% tags=["hide-input"]
LINE = "the cat drank milk because it was {} . so the"
texts = {quality: LINE.format(quality) for quality in ("thirsty", "sweet")}
texts |= {
    verb: f"the fox {verb} the dog because it was hungry . so the"
    for verb in ("chased", "feared")
}
texts["a story"] = "tom had a"
display.storyteller(
    model,
    ten.WORDS,
    texts,
    means_of(model),
    longest=ten.LONGEST,
    edge=ten.EDGE,
    name="ask-the-storyteller",
)

# %% [markdown]
# <!-- deeper: what comes out of the first three -->
# ### Going deeper: what comes out of the first three

# %% tags=["fold-input"]
rows = {}
for name, heads in (
    ("sweet", ("1.1",)),
    ("sweet", ("2.2",)),
    ("sweet", ("2.1", "2.2")),
    ("chased", ("2.2",)),
):
    with without(model, *heads), torch.no_grad():
        logits = model(ten.as_ids([[ten.EDGE, *texts[name].split()]]))[0, -1]  # (v,)
    most = logits.softmax(-1).topk(3)
    best = [f"{ten.WORDS[i]} {share:.2f}" for share, i in zip(*map(Tensor.tolist, most))]
    rows[f"{name}, without {' and '.join(heads)}"] = best
display.show(rows, columns=["the likeliest", "second", "third"])

# %% tags=["proof"]
first = [best[0].split()[0] for best in rows.values()]
assert first == ["cat", "juice", "cheese", "dog"]
drank = "the milk drank the cat because it was thirsty . so the"
assert says(model, drank, "cat")[0] > 0.8
print("✓ They come out as the text below says.")

# %% [markdown]
# Without 1.1 the sweet milk turns into the cat. Without 2.2 it turns into another drink: the kind survives,
# and the name does not. In this sentence, without 2.1 as well, the kind is lost, too: *cheese* gets 0.33, *duck*
# 0.15. In the
# fair question, head 2.2 takes the choice with it, and the one who was chased comes first. And in
# a leading question the order does not decide: animals drink in this world, so the cat is thirsty wherever it
# stands.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Exercises
#
# ### What a guess is worth
#
# *Easy, 2 minutes.* A share of right answers means something only beside what a guess would get. What
# share of the 192 questions does a model get right that knows only that one of the two was meant? And one
# that always names the one who acts, if the one who acts is meant in half of them?

# %% tags=["exercise"]
my_guesses = [
    None,  # one of the two, at random
    None,  # always who acts
]

# %%
from annotated_book import exercises

exercises.questions_to_heads.check_guesses(my_guesses)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# In the table of blanked words, the last column tells the two apart.
#
# </details>

# %% tags=["solution"]
my_guesses = [1 / 2, 1 / 2]

exercises.questions_to_heads.check_guesses.folded(my_guesses)

# %% [markdown]
# ### Put in another row
#
# *Medium, 3 minutes.* The heart of patching: given the rows of two runs, `(b, n, e)`, return those of the
# first with the row at one place, counted from the end if it is negative, taken from the second. Neither
# of the two may change.


# %% tags=["exercise"]
def patched(rows: Tensor, other: Tensor, place: int) -> Tensor:
    """Return ``rows`` with the row at ``place`` from ``other``."""
    ...  # your code here


# %%
exercises.questions_to_heads.check_patched(patched)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# An assignment to `rows[:, place]` changes `rows` itself. Begin with `rows.clone()`.
#
# </details>


# %% tags=["solution"]
def patched(rows: Tensor, other: Tensor, place: int) -> Tensor:
    """Return ``rows`` with the row at ``place`` from ``other``.

    Args:
        rows: (b, n, e), of one run.
        other: (b, n, e), of another.
        place: of a word.
    """
    mixed = rows.clone()  # (b, n, e)
    mixed[:, place] = other[:, place]
    return mixed  # (b, n, e)


exercises.questions_to_heads.check_patched.folded(patched)

# %% [markdown]
# ## What you have now
#
# > **In short.** Four questions, from weak to strong, and what each answer is worth:
# >
# > - **Where does it look?** The weights, `(b, h, n, m)`. A number, not a reason.
# > - **Is this word needed?** *Blank* it: the average row in its place. It says whether the answer uses
# >   the word.
# > - **Where is the answer now?** *Patch* a row, `(b, e)`, from another run. It says which row carries the
# >   answer between two layers.
# > - **Is this head needed, and what for?** *Silence* it by its mean, before `out_proj`. See how the answers
# >   go wrong, and where the other heads look then.
# >
# > ```python
# > heads = merged.unflatten(-1, (h, -1)).clone()  # (b, n, h, d)
# > heads[..., head, :] = mean[head]
# > merged = heads.flatten(-2)                      # (b, n, h * d)
# > ```
# >
# > Three things mislead: a bright line, what stands in the silenced head's place, and questions that give
# > away half of the answer. Ask a second set of questions, and a second seed.
#
# *It* was never the witness. In a model that writes, the row of *it* cannot know what it means, and it is hardly
# needed. The matter is settled from the quality on: in the word that speaks, or partly on the way there.
#
# The storyteller reads and writes one text. [Training](12_training.ipynb) goes back to a model that reads
# one and writes another, and to a loss that looks perfect while the output is garbage.
