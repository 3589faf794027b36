# %% [markdown]
# # Questions to heads
#
# *Who decides what “it” means?*
#
# *18 minutes and 3 of exercises. Afterwards you can ask a trained model which word and which head an
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
from annotated_book import chapters, display, world
from attention_doctor.mistakes.reshapes import (
    MergeWithoutTranspose,
    merge_without_transpose,
)

ten = chapters.load("10_a_little_world")
torch.set_num_threads(1)
model = ten.shipped(0)


# %% tags=["fold-input"]
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
# Each animal, each food or drink, and each quality make a question, and the likeliest next word is the
# answer. Each question has a **twin**, which differs in the quality alone, so that the other one is meant:
# *thirsty* and *sweet* above. If an answer changes when something is exchanged for what the twin has there,
# it **flips**. How many answers flip will be the measure of nearly everything here. First exchange the quality
# itself:


# %%
@torch.no_grad()
def answers(model: nn.Module, asked=ASKED) -> list[str]:
    """Give the likeliest next word after each question."""
    logits = model(ten.as_ids([text.split() for text, *_ in asked]))  # (b, n, v)
    return [ten.WORDS[i] for i in logits[:, -1].argmax(-1).tolist()]


def flip(before: list[str], after: list[str]) -> float:
    """Give the share of answers that are another word than before."""
    return sum(one != two for one, two in zip(before, after)) / len(before)


# %% tags=["fold-input"]
def twins(asked: list) -> Tensor:
    """Give the twin of each. Questions stand in fours: two qualities for each one meant."""
    return torch.arange(len(asked)).view(-1, 2, 2).flip(1).flatten()  # (b,)


def still_flips(model: nn.Module, asked=ASKED) -> float:
    """Exchange the quality, and give the share of answers that flip."""
    found = answers(model, asked)
    return flip(found, [found[i] for i in twins(asked).tolist()])


def named(model: nn.Module, asked=ASKED) -> list[float]:
    """Give the shares that name the one meant, the other, a third word; and who acts."""
    found = []
    for word, (_, meant, other, acts) in zip(answers(model, asked), asked):
        actor = meant if acts else other
        found.append(
            [word == meant, word == other, word not in (meant, other), word == actor]
        )
    return torch.tensor(found).float().mean(0).tolist()


# %%
of_the_book = [each for each in ASKED if "cat drank milk" in each[0]]
rows = {
    name: [len(asked), named(model, asked)[0], still_flips(model, asked)]
    for name, asked in {"all": ASKED, "the book's own, never told": of_the_book}.items()
}
display.show(rows, columns=["questions", "right", "flip with the quality"])

# %% [markdown]
# All right, the book's own, too. And what has it never been told at all? In this world *tired* is said
# only of those who drink. So let somebody be carried because of it. How likely is each of the two to come next?


# %% tags=["fold-input"]
def says(model: nn.Module, text: str, *words: str) -> list[float]:
    """Give the chances of some words to come next."""
    with torch.no_grad():
        shares = model(ten.as_ids([[ten.EDGE, *text.split()]]))[0, -1].softmax(-1)  # (v,)
    return [shares[ten.NUMBER[word]].item() for word in words]


text = "the dog carried the cat because it was {} . so the"
rows = {
    f"… it was {quality} . so the": says(model, text.format(quality), "dog", "cat")
    for quality in ("weak", "tired")
}
display.show(rows, columns=["dog", "cat"], corner="the dog carried the cat")

# %% [markdown]
# You would say that the tired one is carried. The storyteller says the opposite, and is sure. No wonder:
# in its world *tired* has always meant the one who acts. That sounds like an explanation. Keep it in mind.

# %% [markdown] name="blank-it"
# ## First witness: *it*
#
# The obvious suspect is the word *it*. If that word holds the answer, then erasing it must hurt.
#
# **To blank a word** is to put the average vector of all words in its place, where it enters the first layer.
#
# A hook does that, a function that PyTorch calls before a module runs. Blank *it* in each question and in its
# twin. Then exchange the quality: how many of the 192 answers still flip, half, or fewer?
#
# <details><summary>What do you expect?</summary>
#
# All of them. Nothing in the model needs this word. It stands in every question, whoever is meant, and
# under the causal mask it cannot see the quality. Whoever settles the matter can do without it.
#
# </details>


# %%
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


def blank(model: nn.Module, place: int):
    """Blank a word by the mean of all words of the held-out stories."""
    return put(model, 0, place, entering(model, ten.TESTED, 0)[ten.TESTED != 0].mean(0))


def blanked(model: nn.Module, place: int, asked=ASKED) -> list[float]:
    """Say what a model names with a word blanked."""
    with blank(model, place):
        return named(model, asked)


# %%
PLACES = {"“it”": -6, "“so”": -2, "quality": -4}
row = []
for place in PLACES.values():
    with blank(model, place):
        row.append(still_flips(model))
display.flips({"": {"blanked: still flip": row}}, [*PLACES], name="blanked-words")

# %% tags=["proof"]
assert blanked(model, -6)[0] == blanked(model, -2)[0] == 1
assert blanked(model, -4)[0] == 0.5
print("✓ Without “it” every answer stays right; without the quality, half of them.")

# %% [markdown]
# *It* has an alibi. You can blank this word, and every answer stays right. The quality is what counts: blanked,
# it leaves question and twin the same text.
#
# So the answer is worked out somewhere after the quality. This is what [the causal
# mask](06_masks.ipynb#cell-id=the-causal-mask) left open in Part I: the row of *it* cannot know, and a
# later row can.

# %% [markdown] name="patch-it"
# ## Where the answer is between the layers
#
# Between the two layers, every word has a row, and the answer must be on its way in one of them. In which?
#
# **To patch a row** (*activation patching*) is to run the twin, and to put one of its rows in the same place of
# the question's run.
#
# If the answer flips, that row carried it. Here the row of the last word is carried over:

# %% tags=["fold-input"]
question, twin = of_the_book[0], of_the_book[2]
ids = ten.as_ids([each[0].split() for each in (twin, question)])
entered = [entering(model, ids, layer) for layer in (0, 1)]
differ = torch.stack([(x[0] != x[1]).any(-1)[-6:] for x in entered])
plain = answers(model, [twin, question])
with put(model, 1, -1, entered[1][:1, -1]):
    (patched_answer,) = answers(model, [question])
assert (*plain, patched_answer) == ("milk", "cat", "milk")
parts = tuple(each[0].split()[-6:] for each in (twin, question))
caption = "Grey: the same in both runs. Under the causal mask, no row sees a later word."
display.two_runs(
    parts, (*plain, patched_answer), differ, name="activation-patching", caption=caption
)

# %% [markdown]
# Do this with each row of all 192 questions, before either layer. How many answers flip?


# %%
def flipped(model: nn.Module, layer: int, place: int, asked=ASKED) -> float:
    """Give the share of answers that flip when a row comes from the twin."""
    ids = ten.as_ids([text.split() for text, *_ in asked])      # (b, n)
    rows = entering(model, ids[twins(asked)], layer)[:, place]  # (b, e)
    before = answers(model, asked)
    with put(model, layer, place, rows):
        return flip(before, answers(model, asked))


# %% tags=["fold-input"]
AFTER = {"“it”": -6, "“was”": -5, "quality": -4, "“.”": -3, "“so”": -2, "“the”": -1}
rows = {
    f"before layer {layer + 1}": [flipped(model, layer, i) for i in AFTER.values()]
    for layer in (1, 0)
}
display.flips(
    {"": rows}, [*AFTER], name="patched-rows", caption="Patched: share that flips."
)

# %% [markdown]
# Before layer 1 it is the quality, of course: twins differ nowhere else. Before layer 2 four rows differ, and
# only one of them counts: that of the last *the*, the one that is about to name somebody. So the first layer has
# carried the news from the quality to *the*, and the second looks for the name.

# %% [markdown] name="the-head-that-points"
# ## The head that points
#
# Then one of the two heads of layer 2, called 2.1<!-- setting --> and 2.2<!-- setting --> here, must look from
# *the* at the one who was meant. Does it?


# %% tags=["fold-input"]
@torch.no_grad()
def looks(model: nn.Module, asked=ASKED) -> Tensor:
    """Give the weights of the last word of each question, (layers * h, b, n)."""
    with attention_weights(model) as collected:
        model(ten.as_ids([text.split() for text, *_ in asked]))
    return torch.cat([weights[:, :, -1].transpose(0, 1) for weights in collected])


# %%
HEADS = ["1.1", "1.2", "2.1", "2.2"]  # layer.head
seen = looks(model, of_the_book)[2:, [0, 2]]  # (2, 2, n)
words = of_the_book[0][0].replace("thirsty", "…").split()
rows = [f"head {name}, {end}" for name in HEADS[2:] for end in ("thirsty", "sweet")]
display.show(seen.flatten(0, 1), rows, words, heat=True, corner="“the” looks at")

# %% tags=["proof"]
WHO, OTHER = 2, -8  # their places
acts = torch.tensor([acts for *_, acts in ASKED])
first, *_, pointing = looks(model)
assert pointing.argmax(-1).equal(torch.where(acts, WHO, pointing.size(1) + OTHER))
assert (first[:, -4] > 0.5).float().mean() > 0.9
assert first[:, [WHO, OTHER]].amax(-1).mean() < 0.2
print("✓ In all 192 questions, the second head of layer 2 looks most at the one meant.")

# %% [markdown] name="take-it-away"
# There is the picture of [chapter 1](01_one_head.ipynb), and this time nobody drew it. With *thirsty*, head
# 2.2<!-- setting --> gives *cat* nearly everything; with *sweet*, *milk*. Case closed? It looks like the whole
# explanation: this head finds the one who was meant, and hands the name over. So take it away.
#
# ## Take it away
#
# **To silence a head** (the field says *ablate*) is to put its own mean, over all words of the held-out stories,
# in its slice of the merged heads, before `out_proj`.
#
# Not zero: the later layers may never have met a zero there, and then a model fails because it is given something
# strange. Now an answer can go wrong in two ways: it names the other one of the two, or a third word. Which will
# it be, without head 2.2<!-- setting -->?
#
# <details><summary>What do you expect?</summary>
#
# The other one, if this head finds out who was meant. Measured: hardly ever. Three answers in four stay
# right, and nearly all the rest are a third word. The head without which the model names the wrong one is
# head 1.1<!-- setting -->, which looks at the quality, and hardly at the two.
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


# %% tags=["fold-input"]
def without(model: nn.Module, *heads: str, values: Tensor | None = None):
    """Silence heads by their names, each by its mean or another value."""
    values, chosen = means_of(model) if values is None else values, []
    for layer, head in ([int(x) - 1 for x in name.split(".")] for name in heads):
        chosen.append((model.layers.layers[layer].self_attn, head, values[layer, head]))
    return silenced(*chosen)


def without_each(model: nn.Module, asked: list) -> dict[str, list[float]]:
    """Say what is named with each head silenced: the one meant, the other, a third word."""
    rows = {"none": named(model, asked)[:3]}
    for name in HEADS:
        with without(model, name):
            rows[f"head {name}"] = named(model, asked)[:3]
    return rows


# %%
about_a_thing = without_each(model, ASKED)
display.kinds_of_answers(
    {"answers, with a head silenced": about_a_thing}, name="silenced-heads"
)

# %% tags=["proof"]
assert about_a_thing["none"][0] == 1
assert about_a_thing["head 2.2"][0] > 0.65
assert about_a_thing["head 2.2"][2] > 0.12 > 0.05 > about_a_thing["head 2.2"][1]
with without(model, "1.1"):
    assert named(model)[3] > 0.95
print("✓ Without the first head of layer 1, the model always names the one who acts.")

# %% [markdown]
# Two heads, two jobs, it seems. Without head 2.2 the choice stands and the name is lost: hardly an answer
# is the other one, and a third word comes in 0.22 of the questions. So the head with the bright line only
# **names**: a *name mover*, as in the best known study of this kind, which asked GPT-2 who gets the drink in *When Mary
# and John went to the store, John gave a drink to* (**IOI**, indirect object identification) [[Wang et al.
# 2022](../docs/references.md#wang-2022)]. Without head 1.1 a third word never comes, but every answer is the one who
# acts, whatever the quality. So this head, which looks at the quality, **decides**. One failure of the
# choice alone, one of the name alone: neurologists call this a **double dissociation**.
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

# %% tags=["proof"]
KINDS = [{*kind} for kind in (ten.ANIMALS, ten.DRINKS, ten.FOODS)]
with without(model, "2.2"):
    found = zip(answers(model), ASKED)
third = [
    {word, meant} for word, (_, meant, other, _) in found if word not in (meant, other)
]
assert third
assert all(any(pair <= kind for kind in KINDS) for pair in third)
print(
    "✓ All third words are of the right kind: an animal for an animal, a drink for a drink."
)

# %% [markdown]
# The kind survives without head 2.2, by another path. And in all of my questions one of the two is an animal and
# the other is not. Whoever knows the kind cannot name the other one! So *hardly ever the other* may mean no more
# than *hardly ever the wrong kind*. In court these are **leading questions**: half of the answer stands in
# them.
#
# This world has questions that do not lead. Animals chase, fear and carry each other, and there the kind
# says nothing. Ask these, too: questions about *two animals*, where the first were about an animal and *a thing*. If
# head 2.2 only named, a third animal would come with it silenced, one that was not in question.

# %%
FAIR = questions("chased", "feared", "carried")
sets = {"a thing": ASKED, "two animals": FAIR}
bars = {name: without_each(model, asked) for name, asked in sets.items()}
display.kinds_of_answers(bars, name="leading-and-fair")

# %% [markdown]
# It is the other one, in 0.34 of the questions. The head that "only names" has taken the choice with it. My
# questions had let one job look like two.
#
# So what passes between the two? Silence head 1.1 once more. Do not look at the answers this time, but at
# whether head 2.2 still looks elsewhere when the quality is exchanged:

# %% tags=["proof"]
for asked in sets.values():
    before = looks(model, asked)[3].argmax(-1)  # (b,)
    assert (before != before[twins(asked)]).float().mean() > 0.97
    with without(model, "1.1"):
        after = looks(model, asked)[3].argmax(-1)  # (b,)
        assert min(named(model, asked)[3] for asked in sets.values()) > 0.95
    assert (after != after[twins(asked)]).float().mean() < 0.1
with without(model, "2.2"):
    fair = named(model, FAIR)
assert fair[1] > 0.2 > 0.12 > fair[2]
print("✓ Without the first, the second points at the same word, whatever the quality.")

# %% [markdown] name="patch-a-head"
# It still points, but the quality has lost its say in where. So these look like two steps of one job.
#
# Silencing shows what is **needed**: exchange the quality with a head silenced, and see what *still* flips. To see
# what is **enough**, patch a head: it alone hands on what it hands on in the twin. Which head flips the answer by
# itself?


# %% tags=["fold-input"]
def said(model: nn.Module, asked: list) -> Tensor:
    """Note what each head hands on at each place of each question, (layers, h, b, n, d)."""
    ids = ten.as_ids([text.split() for text, *_ in asked])
    parts = [layer.self_attn for layer in model.layers.layers]
    return torch.stack([handed_on(model, part, ids) for part in parts]).movedim(3, 1)


GROUPS = {name: [name] for name in HEADS} | {"layer 1": HEADS[:2], "layer 2": HEADS[2:]}


def needed_and_enough(model: nn.Module, sets: dict) -> dict[str, dict]:
    """Silence and patch each head, and both of a layer; give the shares that flip."""
    shares = {"silenced: still flips": {}, "patched alone: flips": {}}
    for name, asked in sets.items():
        needed, enough = (each.setdefault(name, []) for each in shares.values())
        plain, theirs = answers(model, asked), said(model, asked)[:, :, twins(asked)]
        for heads in GROUPS.values():
            with without(model, *heads):
                needed.append(still_flips(model, asked))
            with without(model, *heads, values=theirs):
                enough.append(flip(plain, answers(model, asked)))
    return shares


# %%
of_first = needed_and_enough(model, sets)
display.flips(of_first, [*GROUPS], name="first-model-s-heads")

# %% tags=["proof"]
needed, enough = of_first.values()
for name in sets:
    assert needed[name][0] < 0.02 < 0.98 < enough[name][0]  # the first head of layer 1
    assert max(enough[name][1:3]) < 0.2
assert enough["two animals"][3] > 0.95 > 0.8 > enough["a thing"][3] > 0.5
assert enough["a thing"][5] > 0.9
print("✓ One head alone flips every answer, and without it, no answer flips.")

# %% [markdown]
# Head 1.1 alone flips every answer, and without it none flips: it carries the whole choice. Head 2.2 alone flips
# nearly all about two animals, and 0.68 of those about a thing (some to a third word). There 2.1 has a share, which
# silencing it did not show: together the two flip 0.94. So there are not two jobs but one, in two steps. (In GPT-2,
# too, silencing name movers costs little, since others take over, *backup heads*. So what silencing does not show
# may still be there.)
#
# One column seems to say the opposite: with all of layer 2 silenced, most answers still flip. To which word?

# %% tags=["fold-input"]
rows = {}
with without(model, *HEADS[2:]):
    for name, asked in sets.items():
        found = answers(model, asked)
        words = zip(found, [found[i] for i in twins(asked).tolist()], asked)
        swaps = [
            one != two and {one, two} == {meant, other}
            for one, two, (_, meant, other, _) in words
        ]
        rows[name] = [still_flips(model, asked), sum(swaps) / len(asked)]
        assert rows[name][1] < 0.2
display.show(
    rows, columns=["still flips", "to the other in question"], corner="layer 2 silenced"
)

# %% [markdown]
# To a third word, mostly: only 0.07 and 0.13 change from one of the two in question to the other. Without layer 2
# nothing names them, whatever has been chosen.

# %% [markdown] name="another-seed"
# ## Another seed, another way
#
# One model may be luck. The book brings a second storyteller: the same code, stories drawn from another
# seed, other first numbers, and as low a loss. Where is its answer between the layers?

# %% tags=["fold-input"]
second = ten.shipped(4)
both = {"first": model, "second": second}
patches = {
    f"{name} model, before layer 2": {
        what: [flipped(each, 1, place, asked) for place in [*AFTER.values()][2:]]
        for what, asked in sets.items()
    }
    for name, each in both.items()
}
display.flips(
    patches, [*AFTER][2:], name="both-models-rows", caption="Patched: share that flips."
)

# %% [markdown]
# In the first model the row of *the* carries the answer, whatever is asked, and in the second it hardly ever does.
# About a thing, the answer still sits in the row of the quality; about two animals, that row carries some answers
# and the row of *so* others. So who decides in the second?

# %%
of_second = needed_and_enough(second, sets)
display.flips(of_second, [*GROUPS], name="second-model-s-heads")

# %% tags=["proof"]
needed, enough = of_second.values()
for name in sets:
    assert needed[name][2] < 0.02 < 0.98 < enough[name][2]  # the first head of layer 2
assert enough["a thing"][4] < 0.15 < 0.55 < enough["two animals"][4] < 0.9
print("✓ In the second model it is a head of layer 2, and layer 1 has a share.")

# %% [markdown]
# Once more there is one head without which no answer flips, and which is enough: 2.1, a layer later than in the
# first. Two models, two sets of questions, one finding: *one head decides*? Look at the column *layer 1*. Between
# two animals, its heads flip 0.72 of the answers by themselves. Much of the choice is made there, and 2.1
# reads it. It is the head that everything passes through; it is not the only one that decides.
#
# And what did you keep in mind? The first model said that the *tired* one is the one who acts, *no wonder*.
# Ask both, with each verb and of all pairs of animals: how often is the one who acts the likelier word?

# %% tags=["fold-input"]
rows = {}
for verb in ("chased", "feared", "carried"):
    row = rows[f"… {verb} … it was tired"] = []
    for each in both.values():
        acts = []
        for who, other in itertools.permutations(ten.ANIMALS, 2):
            text = f"the {who} {verb} the {other} because it was tired . so the"
            first, rest = says(each, text, who, other)
            acts.append(first > rest)
        row.append(sum(acts) / len(acts))
display.show(rows, columns=["first model", "second model"], corner="says: who acts")

# %% tags=["proof"]
assert all(one > 0.9 for one, _ in rows.values())
chased, feared, carried = (other for _, other in rows.values())
assert chased > 0.8 > 0.2 > max(feared, carried)
for asked in sets.values():
    assert min(blanked(each, -6, asked)[0] for each in both.values()) > 0.97
    assert max(blanked(each, -4, asked)[0] for each in both.values()) < 0.55
    assert flipped(model, 1, -1, asked) > 0.9 > 0.15 > flipped(second, 1, -1, asked)
    for each, head in ((model, "1.1"), (second, "2.1")):
        with without(each, head):
            assert still_flips(each, asked) < 0.05
        for other in {*HEADS} - {head}:
            with without(each, other):
                assert still_flips(each, asked) > 0.25
print("✓ Without one head of each, nothing flips; what tired means depends on the model.")

# %% [markdown]
# The second model was told the same kind of stories, and goes by the verb: tired is who chased, and who was feared
# or carried. My explanation fits one model of two. No story of this world holds such a text, so no loss could
# have warned you. Two models that agree on every test may not agree outside.
#
# So "head 2.2 resolves pronouns" is a sentence about one file of numbers, and about one set of questions. And is
# *there is a head without which no answer flips* a sentence about more? `make seeds` has trained three more models, the
# third to the fifth here. For each, silence the head that both sets of questions need most. How many answers still flip?

# %% tags=["fold-input"]
file = resources.files("annotated_book").joinpath("data/heads.json")
# Seeds 0 and 4 are the two models above.
more = [
    run for run in json.loads(file.read_text())["questions"] if run["seed"] not in (0, 4)
]
rows = {}
for name_of, run in zip(["third", "fourth", "fifth"], more, strict=True):
    left = {head: [run[name]["turns"][head] for name in sets] for head in HEADS}
    head = min(left, key=lambda name: max(left[name]))
    rows[f"{name_of}, {head}"] = left[head]
    assert all(max(flips) >= 0.3 for flips in left.values())
    for name in sets:
        assert run[name]["it blanked"] > 0.9
        assert 0.4 < run[name]["quality blanked"] < 0.6
rows["third, 1.2"] = [more[0][name]["turns"]["1.2"] for name in sets]
display.flips(
    {"": rows},
    [*sets],
    name="three-more-models",
    caption="Silenced: share that still flips.",
)

# %% [markdown]
# It is not. Whichever head of these three you silence, in one set or the other at least 0.30 of the answers still
# flip. One set alone can mislead once more: without head 1.2 of the third model hardly an answer between two animals
# flips, 0.03, and 0.80 do if a thing is in question. The choice has no single seat: other models took this story from
# us, too. (All of this with one filler, the mean over all words; [another one](#cell-id=deeper-another-value) leaves more.)
#
# What is left, in all five? Blank *it*, and more than nine answers in ten stay right; blank the quality, and
# about half do. What the world says of its words came out alike in every model. Which head does the work did
# not. That is less than I hoped to tell you, and it has held.

# %% [markdown] name="deeper-another-value"
# <!-- deeper: another value in the place of a head, or of a word -->
# ### Going deeper: another value in the place of a head, or of a word
#
# A silenced head still says something, so choose what, and report it. How many answers flip if the head on which
# the choice hangs says zero, its mean over all words as above, or its mean at the same place of the same questions,
# which keeps what it always says there?

# %% tags=["fold-input"]
rows = {}
for (name, each), head in zip(both.items(), ("1.1", "2.1")):
    mean = means_of(each)
    for what in ("zero", "mean", "mean at its place"):
        row = rows[f"{name}, {head}: {what}"] = []
        for asked in sets.values():
            here = said(each, asked).mean(2) if "place" in what else mean
            with without(each, head, values=here * (what != "zero")):
                row.append(still_flips(each, asked))
display.show(rows, columns=[*sets], corner="still flips")

# %% [markdown]
# Between two animals hardly any choice is left, whatever you put in. If a thing is in question, some of it survives
# the mean at the head's place: 0.21 of the answers flip in the first model, 0.38 in the second.
#
# The same holds for a word. Blank the quality by the mean of all words, or by the mean of the qualities that stand
# in its place. Whom does the first model name?

# %% tags=["fold-input"]
ids = ten.as_ids([text.split() for text, *_ in ASKED])
rows = {"the mean of all words": blanked(model, -4)}
with put(model, 0, -4, entering(model, ids, 0)[:, -4].mean(0)):
    rows["the mean of the qualities"] = named(model)
display.show(
    rows,
    columns=["the one meant", "the other", "a third word", "who acts"],
    corner="blanked by",
)

# %% [markdown]
# With the mean of all words, always the one who acts; with the mean of the qualities, nearly always the other. That
# the model cannot choose is a fact about the model. What it says instead is a fact about the filler.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="ask-it"
# ## Now you
#
# Here are both models, with all of their numbers, as they came from training. Begin with a text, or add words:
# what comes next follows the framed word. Under each word stands what the four heads of the framed one give
# to it, 1.1, 1.2, 2.1 and 2.2 from the left; press another word to frame it. Press a head to silence it, by its mean
# over all words. A new beginning undoes everything but the choice of the model. Four things to try:
#
# 1. Take *sweet*, and silence 1.1. Take it again, and silence 2.2, then 2.1 as well.
# 2. Take *chased*, a fair question, and silence 2.2. Then ask the second model.
# 3. Take *milk first*. Does the order decide who drinks?
# 4. Take *thirsty*, and press *wrong merge*. The cat still comes first. Is the merge harmless? Write on. Then take
#    *sweet*, and press *wrong merge* again.

# %% tags=["hide-input"]
LINE = "the cat drank milk because it was {} . so the"
texts = {quality: LINE.format(quality) for quality in ("thirsty", "sweet")}
texts |= {
    verb: f"the fox {verb} the dog because it was hungry . so the"
    for verb in ("chased", "feared")
}
texts["milk first"] = "the milk drank the cat because it was thirsty . so the"
texts["a story"] = "tom had a"
display.storyteller(
    {
        "first model": (model, means_of(model)),
        "second model": (second, means_of(second)),
    },
    ten.WORDS,
    texts,
    longest=ten.LONGEST,
    edge=ten.EDGE,
    name="ask-the-storyteller",
    temperatures=(1, 0, 0.1, 2),
)

# %% [markdown]
# <!-- deeper: what comes out -->
# ### Going deeper: what comes out

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
assert says(model, texts["milk first"], "cat")[0] > 0.8
print("✓ They come out as the text below says.")

# %% [markdown]
# Without 1.1 the sweet milk turns into the cat. Without 2.2 it turns into another drink: the kind survives,
# and the name does not. In this sentence, without 2.1 as well, the kind is lost, too: *cheese* gets 0.33, *duck*
# 0.15. In the fair question, head 2.2 takes the choice with it, and the one who was chased comes first. And in
# the milk that drank the cat, the order does not decide, at least for this model: animals drink in its world, so
# the cat is thirsty wherever it stands.

# %% tags=["fold-input"]
crossed = ten.begin(attention=MergeWithoutTranspose)
crossed.load_state_dict(model.state_dict())
rows = {"as trained": named(model), "wrong merge": named(crossed)}
with without(model, "1.1"):
    rows["without 1.1"] = named(model)
columns = ["the one meant", "the other", "a third word", "who acts"]
display.show(rows, columns=columns, corner="192 questions")

# %% tags=["fold-input"]
found = []
for length in range(1, 24):  # words that are read before the next
    told = [story.words for story in ten.HELD_OUT[:100] if len(story.words) > length]
    ids = ten.as_ids([words[:length] for words in told])
    for each in (model, crossed):
        with torch.no_grad():
            best = [ten.WORDS[i] for i in each(ids)[:, -1].argmax(-1).tolist()]
        options = [world.chances(ten.grammar, words[:length]) for words in told]
        possible = [word in can for word, can in zip(best, options)]
        found.append(sum(possible) / len(possible))
every = torch.tensor(found).view(-1, 2).mean(0)
display.show([every], ["possible"], ["as trained", "wrong merge"], corner="next word")

# %% tags=["proof"]
heads = torch.randn(2, 5, 3)  # (2, n, 3)
last = merge_without_transpose(heads)[-1]
assert last.equal(torch.cat([heads[1, -2], heads[1, -1]]))
assert rows["wrong merge"][3] > 0.95
assert every[0] > 0.97 > 0.92 > every[1] > 0.8
print("✓ In the last row, the wrong merge puts head 2 into its place, and head 1’s.")

# %% [markdown]
# The wrong merge is not harmless: after *sweet*, too, the cat comes first. In the last row of a text it leaves the second
# head where it belongs, and what stands in the first head's place is the second's word before. So 2.2 still finds
# a name, and what 1.1 has read is lost: nearly always the one who acts comes, as without 1.1, and for *thirsty* that
# happens to be right. What ruins the writing is that every word is drawn like this. After a text without a
# slip, about one likeliest word in eight is impossible, and the next word is asked after a text that has the slip in it.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Exercises
#
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
from annotated_book import exercises

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
# > - **Is this word needed?** *Blank* it: the average row in its place.
# > - **Where is the answer now?** *Patch* a row, `(b, e)`, from the twin's run. If the answer flips, this row carries
# >   it between two layers.
# > - **Is this head needed, and is it enough?** *Silence* it by its mean, before `out_proj`, exchange the quality, and
# >   see what still flips. *Patch* what it hands on, and see what flips.
# >
# > ```python
# > heads = merged.unflatten(-1, (h, -1)).clone()  # (b, n, h, d)
# > heads[..., head, :] = mean[head]
# > merged = heads.flatten(-2)                      # (b, n, h * d)
# > ```
# >
# > Three things mislead: a bright line, what stands in the silenced head's place, and questions that give
# > away half of the answer. Ask a second set of questions, and more seeds than two.
#
# *It* was never the witness. In a model that writes, the row of *it* cannot know what it means, and it is hardly
# needed. The matter is settled from the quality on: in the word that speaks, or partly on the way there.
#
# The storyteller reads and writes one text. [Training](12_training.ipynb) goes back to a model that reads
# one and writes another, and to a loss that looks perfect while the output is garbage.
