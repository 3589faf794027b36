# %% [markdown]
# # Questions to heads
#
# *Who decides what “it” means?*
#
# *11 minutes and 3 of exercises. Afterwards you can ask a trained model which word and which head an
# answer comes from, and you know how such answers mislead.*
#
# > the cat drank milk because it was thirsty . so the **cat** …
#
# > the cat drank milk because it was sweet . so the **milk** …
#
# On the first page of this book, two heads answered this, and they were made by hand. The storyteller of
# [the last chapter](10_a_little_world.ipynb) has four heads, and nobody told them anything. In its world no cat drinks
# milk, so it has never met these sentences. And it is right about both.

# %% tags=["hide-input"]
import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import resources
from unittest import mock

import torch
from torch import Tensor, nn

from annotated_attention import MultiheadAttention
from annotated_attention.pretrained import attention_weights
from annotated_book import chapters, display

ten = chapters.load("10_a_little_world")
torch.set_num_threads(1)
model = ten.shipped(0)
second = ten.shipped(4)

# %% [markdown] name="ask-it"
# ## Press a head
#
# The framed *the* is about to name somebody. Under each word stands the weight that *the* gives to it, in heads
# 1.1 and 1.2<!-- setting --> of layer 1, then 2.1 and 2.2<!-- setting --> of layer 2. The two brightest lines: head
# 2.2<!-- setting --> gives 0.99 to *milk*, and head 1.1<!-- setting --> gives 0.94 to *sweet*. Silence one of these two, and
# the answer is *cat*. Which one? Choose, then press that head.
#
# <details name="silence"><summary>Head 2.2<!-- setting -->, which stares at the milk.</summary>
#
# No: it says *juice*. The name is gone, but it still wants a drink.
#
# </details>
# <details name="silence"><summary>Head 1.1<!-- setting -->, which reads “sweet”.</summary>
#
# Right: it says *cat*. The answer has changed sides.
#
# </details>


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


# %% tags=["hide-input"]
LINE = "the cat drank milk because it was {} . so the"
texts = {quality: LINE.format(quality) for quality in ("sweet", "thirsty")}
texts["feared"] = "the dog feared the cat because it was sweet . so the"
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
# Nothing in the picture tells you which of two bright lines settles who is meant. So question the heads as a court
# would. You will be misled more than once, and once by the questions themselves.

# %% [markdown]
# ## 192 questions and their twins
#
# One sentence is an anecdote. Six animals, eight things to eat or drink, and four qualities for each make 192 questions.
# Each has a **twin**, which differs in the quality alone, so that the other one is meant: *thirsty* and *sweet* above. The
# likeliest next word is the answer: the one meant, the other one, or a third word.
#
# Whoever cannot tell a question from its twin is right in one and wrong in the other. Then the other one is named as often as the one meant: below, blue and orange are equally long.


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


@torch.no_grad()
def answers(model: nn.Module, asked=ASKED) -> list[str]:
    """Give the likeliest next word after each question."""
    logits = model(ten.as_ids([text.split() for text, *_ in asked]))  # (b, n, v)
    return [ten.WORDS[i] for i in logits[:, -1].argmax(-1).tolist()]


# %% tags=["fold-input"]
def shares(answered: list[str], asked=ASKED) -> list[float]:
    """Give the shares of answers that name the one meant, the other, a third word."""
    found = []
    for word, (_, meant, other, _) in zip(answered, asked):
        found.append([word == meant, word == other, word not in (meant, other)])
    return torch.tensor(found).float().mean(0).tolist()


def named(model: nn.Module, asked=ASKED) -> list[float]:
    """Give these shares of a model's answers."""
    return shares(answers(model, asked), asked)


# %% tags=["fold-input"]
def who_acts(model: nn.Module, asked=ASKED) -> float:
    """Give the share of answers that name the one who acts."""
    pairs = zip(answers(model, asked), asked)
    same = [word == (meant if acts else rest) for word, (_, meant, rest, acts) in pairs]
    return sum(same) / len(same)


def twins(asked: list) -> Tensor:
    """Give the twin of each. Questions stand in fours: two qualities for each one meant."""
    return torch.arange(len(asked)).view(-1, 2, 2).flip(1).flatten()  # (b,)


@torch.no_grad()
def looks(model: nn.Module, asked=ASKED) -> Tensor:
    """Give the weights of the last word of each question, (layers * h, b, n)."""
    with attention_weights(model) as collected:
        model(ten.as_ids([text.split() for text, *_ in asked]))
    return torch.cat([weights[:, :, -1].transpose(0, 1) for weights in collected])


of_the_book = [each for each in ASKED if "cat drank milk" in each[0]]

# %% tags=["proof"]
assert len(ASKED) == 192 == 6 * 8 * 4 == len(ten.ANIMALS) * 8 * 4
assert named(model)[0] == 1
assert not any("cat drank milk" in " ".join(story.words) for story in ten.HELD_OUT)
seen = looks(model, of_the_book[2:3])[:, 0]  # (layers * h, n), with sweet
assert sorted(seen.flatten().tolist())[-2:] == [seen[0, 8], seen[3, 4]]
assert seen[0, 4] < 0.05
assert [each[0].split()[-4] for each in of_the_book[::2]] == ["thirsty", "sweet"]
print("✓ All 192 answers name the one meant.")

# %% [markdown] name="blank-it"
# ## First witness: *it*
#
# The obvious suspect is the word *it*. **To blank a word** is to put the average vector of all words in its place, where
# it enters the first layer. Press all three. Which word is missed?


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


def blanked(model: nn.Module, place: int, asked=ASKED) -> list[float]:
    """Say what is named with a word blanked by the mean of all words held out."""
    mean = entering(model, ten.TESTED, 0)[ten.TESTED != 0].mean(0)  # (e,)
    with put(model, 0, place, mean):
        return named(model, asked)


# %% tags=["fold-input"]
PLACES = {"“it”": -6, "“so”": -2, "the quality": -4}


def pressed(lines: dict[str, dict], asked: list, plain: list[float]) -> display.Runs:
    """Give, for a figure, what is named without each word or head."""
    swaps = {
        line: [display.Swap(name, "", row) for name, row in rows.items()]
        for line, rows in lines.items()
    }
    return display.Runs(len(asked), "", [], [], "", plain, swaps)


bars = {what: blanked(model, place) for what, place in PLACES.items()}
run = pressed({"First model": bars}, ASKED, named(model))
display.exchange({"about a thing": run}, name="blanked-words")

# %% tags=["proof"]
assert bars["“it”"][0] == bars["“so”"][0] == 1
assert bars["the quality"] == [0.5, 0.5, 0]
print("✓ Without “it” every answer stays right; without the quality, half of them.")

# %% [markdown]
# *It* has an alibi: this word stands in every question, whoever is meant. The quality is missed; blanked, it leaves
# question and twin the same text. [The causal mask](06_masks.ipynb#cell-id=the-causal-mask) said so in Part I: the row of
# *it* cannot know who is meant, and a later row can. Which one does?

# %% [markdown] name="patch-it"
# ## Where the answer is between the layers
#
# **To patch a row** (*activation patching*) is to run the twin, and to put one of its rows in the same place of the
# question's run. If the model then names the other one, that row carried the answer:


# %%
def patched_rows(model: nn.Module, layer: int, place: int, asked=ASKED) -> list[str]:
    """Answer with a row that comes from the twin."""
    ids = ten.as_ids([text.split() for text, *_ in asked])      # (b, n)
    rows = entering(model, ids[twins(asked)], layer)[:, place]  # (b, e)
    with put(model, layer, place, rows):
        return answers(model, asked)


# %% [markdown]
# Each box is a row of the run of *thirsty*; press it, and it comes from the run of *sweet*. The box then shows how often the
# other one is named, in all 192 questions. **Before layer 2, which one would you press first?**


# %% tags=["fold-input"]
def runs_of(model: nn.Module, asked: list, text: str) -> display.Runs:
    """Exchange each row of all questions with their twins."""
    number = next(i for i, each in enumerate(asked) if text in each[0])
    own, twin = (asked[i][0].split() for i in (number, twins(asked)[number]))
    ids, plain = ten.as_ids([each[0].split() for each in asked]), answers(model, asked)

    def swap(name: str, found: list[str]) -> display.Swap:
        answer = found[number] if found else ""
        return display.Swap(name, answer, shares(found or plain, asked))

    lines = {}
    for layer in (1, 0):
        entered = entering(model, ids, layer)  # (b, n, e)
        differ = (entered != entered[twins(asked)]).any(-1).any(0)
        lines[f"before layer {layer + 1}"] = [
            swap(own[i], patched_rows(model, layer, i, asked) if differ[i] else [])
            for i in range(-6, 0)
        ]
    before, answer = "… " + " ".join(own[2:-6]), plain[number]
    numbers = shares(plain, asked)
    return display.Runs(len(asked), before, own[-6:], twin[-6:], answer, numbers, lines)


# %% tags=["fold-input"]
twin = of_the_book[2]
runs = {"about a thing": runs_of(model, ASKED, "cat drank milk because it was thirsty")}
caption = "First model. No row sees a later word, so up to “was” both runs are alike."
display.exchange(runs, name="activation-patching", caption=caption)

# %% tags=["proof"]
AFTER = {"the quality": -4, "“.”": -3, "“so”": -2, "“the”": -1}
for what, place in AFTER.items():
    for layer, carries in enumerate(("the quality", "“the”")):
        found = shares(patched_rows(model, layer, place))
        assert found == ([0, 1, 0] if what == carries else [1, 0, 0])
print("✓ Before each layer one row turns all 192 answers, and no other row turns any.")

# %% [markdown]
# It is that of the last *the*, about to name somebody. So layer 1 has brought the news from the quality to *the*. By which
# head?

# %% [markdown] name="take-it-away"
# ## Take it away
#
# **To silence a head** (the field says *ablate*) is to let it hand on its own mean over all words of the held-out
# stories, whatever it reads.
#
# Four heads are under suspicion. Press each:


# %% tags=["fold-input"]
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
HEADS = ["1.1", "1.2", "2.1", "2.2"]  # layer.head


def without(model: nn.Module, *heads: str, values: Tensor | None = None):
    """Silence heads by their names, each by its mean or another value."""
    values, chosen = means_of(model) if values is None else values, []
    for layer, head in ([int(x) - 1 for x in name.split(".")] for name in heads):
        chosen.append((model.layers.layers[layer].self_attn, head, values[layer, head]))
    return silenced(*chosen)


def without_each(model: nn.Module, asked: list = ASKED) -> dict[str, list[float]]:
    """Say what is named with each head silenced."""
    rows = {}
    for name in HEADS:
        with without(model, name):
            rows[name] = named(model, asked)
    return rows


# %% tags=["hide-input"]
bars = without_each(model)
run = pressed({"First model": bars}, ASKED, named(model))
display.exchange({"about a thing": run}, name="silenced-heads")

# %% tags=["proof"]
KINDS = [{*kind} for kind in (ten.ANIMALS, ten.DRINKS, ten.FOODS)]


def of_the_kind(model: nn.Module) -> list[bool]:
    """Say of each third word whether it is of the kind of the one meant."""
    found = zip(answers(model), ASKED)
    third = [
        {word, meant} for word, (_, meant, rest, _) in found if word not in (meant, rest)
    ]
    return [any(pair <= kind for kind in KINDS) for pair in third]


assert bars["1.1"] == [0.5, 0.5, 0]
assert (looks(model)[0].argmax(-1) == 8).all()  # the quality
assert bars["2.2"][2] > 0.15 > 0.05 > bars["2.2"][1]
with without(model, "1.1"):
    assert who_acts(model) == 1
    assert answers(model, of_the_book[2:3]) == ["cat"]  # with sweet
with without(model, "2.2"):
    assert answers(model, of_the_book[2:3]) == ["juice"]
    assert len(of_the_kind(model)) > 30
    assert all(of_the_kind(model))
print("✓ Without that head, each third word is of the right kind: a drink for a drink.")

# %% [markdown]
# Without 1.1, which reads the quality, all 192 answers are the one who acts. Without 2.2 the
# answer hardly ever changes sides. Three in four stay right. Where one fails, a third word comes instead, always of the right kind: *juice* for *milk*.
#
# So 1.1 **decides**, and 2.2 only **names**, like the *name movers* in the best known study of this kind, of GPT-2 (**IOI**,
# indirect object identification) [[Wang et al. 2022](../docs/references.md#wang-2022)]. A good story. But were the questions fair?

# %% [markdown] name="leading-questions"
# ## Leading questions
#
# All of my 192 questions are *about a thing*: one of the two is an animal, the other is food or a drink. Whoever knows that
# a drink is meant has nothing left to choose! And without 2.2 the model still knows the kind. Is 2.2 innocent, or could
# these **leading questions** not convict it?
#
# This world has questions *about two animals*, too: the first chases, fears or carries the second. Silence 2.2 where the
# **first** animal is meant. What will the model say most often? Choose, then press.
#
# <details name="fair"><summary>A third animal, as it said “juice” for “milk”.</summary>
#
# It happens, but seldom.
#
# </details>
# <details name="fair"><summary>The second animal, the wrong one.</summary>
#
# Right. It comes more often than the one meant.
#
# </details>

# %% tags=["fold-input"]
BETWEEN = ("chased", "feared", "carried")
FAIR = questions(*BETWEEN)
sets = {"a thing": ASKED, "two animals": FAIR}


def by_who_is_meant(model: nn.Module, asked: list, lines: list[str]) -> display.Runs:
    """Silence each head, apart for those who act and for the others."""
    halves = [[each for each in asked if each[3] == acts] for acts in (True, False)]
    rows = {line: without_each(model, half) for line, half in zip(lines, halves)}
    return pressed(rows, halves[0], named(model, halves[0]))


run = by_who_is_meant(model, FAIR, ["the first is meant", "the second is meant"])
caption = "First model, questions about two animals."
display.exchange({"": run}, name="leading-and-fair", caption=caption)

# %% tags=["proof"]
first, second_meant = ([x.shares for x in row][3] for row in run.lines.values())
assert first[1] > 0.5 > 0.3 > max(first[0], first[2])
assert first[1] > 4 * second_meant[1]
with without(model, "1.1"):
    assert named(model, FAIR) == [0.5, 0.5, 0]
print("✓ Where the first animal is meant, mostly the second is named now.")

# %% [markdown]
# The second animal comes in 0.63 of these questions. A third word I could have laid to a lost name, but not the wrong one of
# two. So without 2.2 the model *chooses* badly, too, and my first questions could not show it.

# %% [markdown] name="patch-a-head"
# ## One choice, handed on?
#
# Silencing shows what is **needed**. To see what is **enough**, patch a head: at every word it hands on what it hands on
# in the twin. Patch 1.1, and every answer turns, in both sets.
#
# So I suspected **one choice, handed on**: 1.1 reads the quality and tells 2.2 where to look, and whoever 2.2 looks at is
# named. If this is the way, I can block it: patch 1.1, but keep 2.2's *look*, its weights, as it was in the untouched run.
# (To let a change through on one way and not on another is **path patching**.) Between two animals, how many answers stay
# right?
#
# <details name="way"><summary>None: 1.1 turned them all.</summary>
#
# It did, but not past 2.2. Press the fourth row.
#
# </details>
# <details name="way"><summary>About half.</summary>
#
# More. Press the fourth row.
#
# </details>
# <details name="way"><summary>Nearly all.</summary>
#
# Right: press the fourth row.
#
# </details>


# %% tags=["fold-input"]
def said(model: nn.Module, asked: list) -> Tensor:
    """Note what each head hands on at each place of each question, (layers, h, b, n, d)."""
    ids = ten.as_ids([text.split() for text, *_ in asked])
    parts = [layer.self_attn for layer in model.layers.layers]
    return torch.stack([handed_on(model, part, ids) for part in parts]).movedim(3, 1)


def patched_heads(model: nn.Module, *heads: str, asked: list = ASKED):
    """Let heads hand on what they hand on in the twin."""
    return without(model, *heads, values=said(model, asked)[:, :, twins(asked)])


@contextmanager
def looking(model: nn.Module, *heads: str, weights: Tensor) -> Iterator[None]:
    """Let heads of layer 2 look with other weights at the last word, (layers * h, b, n)."""
    attention = model.layers.layers[1].self_attn
    plain = attention.attend

    def attend(q: Tensor, k: Tensor, v: Tensor, **settings) -> tuple[Tensor, Tensor]:
        mixed, own = plain(q, k, v, **settings | {"need_weights": True})
        for place in map(HEADS.index, heads):
            own[:, place - 2, -1] = weights[place]
            mixed[:, place - 2, -1] = (weights[place][:, None] @ v[:, place - 2])[:, 0]
        return mixed, own

    with mock.patch.object(attention, "attend", attend):
        yield


# %% tags=["fold-input"]
def gaze(model: nn.Module, asked: list) -> list[float]:
    """Give 2.2's mean weights of the last word for the one meant, the other, all else."""
    places = [[text.split().index(word) for word in two] for text, *two, _ in asked]
    found = looks(model, asked)[3].gather(1, torch.tensor(places)).mean(0).tolist()
    return [*found, max(0, 1 - sum(found))]


def on_the_way(model: nn.Module, asked: list) -> display.Runs:
    """Patch 1.1 and keep looks of layer 2; or take 2.2's look alone from the twin."""
    own, plain, lines = looks(model, asked), named(model, asked), {}
    for name, patch, kept, weights in (
        ("untouched", [], [], own),
        ("1.1 patched", ["1.1"], [], own),
        ("1.1, 2.1’s look kept", ["1.1"], ["2.1"], own),
        ("1.1, 2.2’s look kept", ["1.1"], ["2.2"], own),
        ("2.2’s look alone", [], ["2.2"], own[:, twins(asked)]),
    ):
        patched = patched_heads(model, *patch, asked=asked)
        with patched, looking(model, *kept, weights=weights):
            found = {"2.2’s look": gaze(model, asked), "named": named(model, asked)}
        lines[name] = found
    return pressed(lines, asked, plain)._replace(joined=": ")


# %% tags=["fold-input"]
runs = {f"about {what}": on_the_way(model, sets[what]) for what in reversed(sets)}
caption = "First model. A look: the mean weights that the last word gives."
display.exchange(runs, name="one-choice", caption=caption)

# %% tags=["proof"]
for run, (right, other) in zip(runs.values(), [(0.95, 0.1), (0.5, 0.2)]):
    (_, plain), (there, free), (_, two_one), (back, two_two), (_, alone) = (
        [x.shares for x in row] for row in run.lines.values()
    )
    assert plain == [1, 0, 0]
    assert free == [0, 1, 0]
    assert two_one[0] < other
    assert there[1] > 0.9 < back[0]
    assert two_two[0] > right
assert alone[1] > 0.3 > two_two[1] > 0.1
with patched_heads(model, "1.1"), without(model, "2.2"):
    found = zip(answers(model), ASKED)
    turned = [
        any({word, rest} <= kind for kind in KINDS) for word, (_, _, rest, _) in found
    ]
assert sum(turned) > 0.8 * len(turned)
print("✓ With the first patched, the second silenced, most words are of the other’s kind.")

# %% [markdown]
# Between two animals this is the way. With 2.2's look kept, 0.99 stay right; with 2.1's kept, 0.03. And 2.2's look alone,
# from the twin, leaves 0.02. In IOI, too, other heads tell the name movers where to look.
#
# Now press the same rows *about a thing*. With 2.2's look kept, only 0.63 stay right: something has gone round it. There 1.1
# also tells which *kind* of word must come, and that needs no 2.2: silence it, patch 1.1, and more than eight words in ten are
# of the other's kind. So my sentence holds in one set of two.


# %% tags=["fold-input"]
seen, acts = looks(model, FAIR), torch.tensor([acts for *_, acts in FAIR])
WHO, OTHER, QUALITY = 2, 5, 9  # their places between two animals
goal = torch.where(acts, WHO, OTHER)
hops = [
    (0, 4, f"1.1 reads: {seen[0][:, QUALITY].mean():.2f}", "m"),
    (1, 0, f"2.2 looks: {seen[3].gather(1, goal[:, None]).mean():.2f}", "d"),
]
words = ["fox", "chased", "dog", "…", "hungry", ".", "so", "the"]
caption = "First model, between two animals. Mean weights of the last word."
display.way_of_an_answer(words, hops, "fox", name="first-way", caption=caption)

# %% [markdown] name="another-seed"
# ## Another seed, another way
#
# One model may be luck. The book brings a second storyteller: the same code, stories drawn from another seed, other first
# numbers, and as low a loss. (Of five that I trained, I chose two whose ways differ.) It misses two of the 192
# questions: the cat's milk, of all things. Press the rows before layer 2 again. Where is the answer now?

# %% tags=["fold-input"]
example = "dog drank milk because it was thirsty"
runs = {"about a thing": runs_of(second, ASKED, example)}
display.exchange(runs, name="second-model-s-rows", caption="Second model.")

# %% tags=["proof"]
rows = {what: shares(patched_rows(second, 1, place)) for what, place in AFTER.items()}
assert rows["the quality"][1] > 0.9
assert rows["“the”"] == rows["“so”"] == rows["“.”"] == named(second)
missed = {each[0] for one, each in zip(answers(second), ASKED) if one != each[1]}
assert missed == {each[0] for each in of_the_book[2:]}
low, lowest = (ten.judge(each, 200)["loss"] for each in (model, second))
assert abs(low - lowest) < 0.005
print("✓ Before layer 2 the news is in the row of the quality, and in no later one.")

# %% [markdown]
# Still at the quality, where it came in. Then what does *the* do in layer 1? Take a head from a question that differs in
# one *name*. How often does the new name come?


# %% tags=["fold-input"]
def renamed(model: nn.Module, head: str, thing: bool) -> list[float]:
    """Take a head from questions with another name: how often does that come?"""
    kinds = [[*kind] for kind in (ten.ANIMALS, ten.DRINKS, ten.FOODS)]
    after = {word: kind[i - 1] for kind in kinds for i, word in enumerate(kind)}
    place, found, texts = 4 if thing else 2, {True: [], False: []}, []
    for text, *_ in ASKED:
        words = text.split()
        texts.append(" ".join([*words[:place], after[words[place]], *words[place + 1 :]]))
    there = said(model, [(text,) for text in texts])
    with without(model, head, values=there):
        for word, text, (*_, acts) in zip(answers(model), texts, ASKED):
            found[acts].append(word == text.split()[place])
    return [sum(each) / len(each) for each in found.values()]


rows = {
    "1.1, another animal": renamed(second, "1.1", False),
    "2.2, another thing": renamed(second, "2.2", True),
}
columns = ["who acts is meant", "the thing is meant"]
display.show(rows, columns=columns, corner="the new name comes")

# %% tags=["proof"]
(one, one_thing), (name, name_thing) = rows.values()
assert min(one, name_thing) > 0.9
assert max(one_thing, name) < 0.05
for head, thing in itertools.product(HEADS[:2], (False, True)):
    assert max(renamed(model, head, thing)) < 0.3
assert renamed(model, "1.1", False) == renamed(model, "1.1", True) == [0, 0]
assert renamed(second, "2.1", False) == renamed(second, "2.1", True) == [0, 0]
with without(second, "2.1"):
    assert who_acts(second) == who_acts(second, FAIR) == 1
with patched_heads(second, "2.1"):
    assert named(second)[0] < 0.05
seen, acts = looks(second), torch.tensor([acts for *_, acts in ASKED])
WHO, THING, QUALITY, SO = 2, 4, 8, 10  # their places, if a thing is in question
assert (seen[0].argmax(-1) == WHO).all()
assert seen[0][:, QUALITY].max() < 0.1
assert seen[2].argmax(-1).equal(torch.where(acts, SO, QUALITY))
print(
    "✓ Without the first head of layer 2 it always names who acts; "
    "with the twin’s, no answer is right."
)

# %% [markdown]
# So 1.1 fetches the *name* of whoever acts, whatever the quality: this model begins with a **favourite**. 2.2 brings the
# thing's. And 2.1 reads the quality and **objects**, if the thing is meant: without it, the favourite is always the answer.
# (In the first model 1.1 hands on the choice; no new name ever comes from it.)

# %% tags=["fold-input"]
hops = [
    (0, 0, f"1.1 fetches: {seen[0][:, WHO].mean():.2f}", "d"),
    (1, 4, f"2.1 objects: {seen[2][~acts, QUALITY].mean():.2f}", "m"),
    (1, 2, f"2.2 names: {seen[3][~acts, THING].mean():.2f}", "d"),
]
caption = (
    "Second model. Mean weights of the last word; of layer 2, where the thing is meant."
)
words = ["dog", "drank", "milk", "…", "sweet", ".", "so", "the"]
display.way_of_an_answer(words, hops, "milk", name="second-way", caption=caption)

# %% [markdown]
# Yet the two models give the same answers to all but two of these questions.

# %% [markdown] name="outside"
# ## What no loss could have told
#
# In this world *sweet* is said only of what somebody eats or drinks: it has always meant *the other one*. Let somebody be
# feared because of it, as no story can tell. Press *feared* in [the first figure](#cell-id=ask-it), and choose the
# **second model**. The dog feared the cat because it was sweet, so the …?
#
# <details name="sweet"><summary>The cat: “sweet” has always meant the other one.</summary>
#
# So I thought. Press it.
#
# </details>
# <details name="sweet"><summary>The dog, this model's favourite.</summary>
#
# No, but it is when you silence 2.1.
#
# </details>
# <details name="sweet"><summary>Somebody or something else.</summary>
#
# Right: *soup*. Nobody has mentioned soup.
#
# </details>


# %% tags=["fold-input"]
def strange(verb: str, quality: str) -> list[tuple[str, str, str, bool]]:
    """List questions about two animals with a quality that no story brings there."""
    acts, found = quality in ten.REASONS["drank"][0], []
    assert quality not in itertools.chain(*ten.REASONS[verb])
    for pair in itertools.permutations(ten.ANIMALS, 2):
        text = "{} the {} {} the {} because it was {} . so the"
        text = text.format(ten.EDGE, pair[0], verb, pair[1], quality)
        found.append((text, *(pair if acts else pair[::-1]), acts))
    return found


rows = {
    f"{verb} … {quality}": [
        named(each, strange(verb, quality))[0] for each in (model, second)
    ]
    for quality in ("tired", "sweet")
    for verb in BETWEEN
}
display.show(rows, columns=["first model", "second model"], corner="keeps its sense")

# %% tags=["proof"]
assert all(first > 0.9 for what, (first, _) in rows.items() if what != "feared … sweet")
assert rows["feared … sweet"][0] < 0.6
assert max(rows[what][1] for what in ("feared … tired", "carried … tired")) < 0.1
assert max(rows[what][1] for what in ("chased … sweet", "feared … sweet")) < 0.1
said_of = {
    quality: {
        (verb, side)
        for verb, two in ten.REASONS.items()
        for side in (0, 1)
        if quality in two[side]
    }
    for quality in ("tired", "sweet")
}
assert said_of == {"tired": {("drank", 0)}, "sweet": {("drank", 1), ("ate", 1)}}
with without(model, "1.1"):
    assert all(who_acts(model, strange(verb, "tired")) > 0.9 for verb in BETWEEN)
    assert all(named(model, strange(verb, "sweet"))[0] < 0.05 for verb in BETWEEN)
feared = [(f"{ten.EDGE} {texts['feared']}",)]
assert answers(second, feared) == ["soup"]
assert "soup" not in texts["feared"].split()
with without(second, "2.1"):
    assert answers(second, feared) == ["dog"]
    assert who_acts(second, strange("feared", "sweet")) == 1
kinds = {"sweet": ten.FOODS, "fresh": ten.DRINKS, "warm": ten.FOODS}
for quality, kind in kinds.items():
    found = [word in kind for word in answers(second, strange("feared", quality))]
    assert sum(found) > 27
print("✓ Said of who is feared, “sweet” calls up food, “fresh” a drink, “warm” food.")

# %% [markdown]
# So often a word keeps its sense, in all 30 pairs of animals. With *tired*, which has always meant the one who acts,
# the first model would have persuaded me. But silence 1.1, which reads the quality, and it nearly always names who acts
# all the same: a leading question, again. (*Sweet* it does read: without 1.1, not one keeps its sense.) Where somebody is
# feared, the second model hears *something to eat or drink*, and names it. No story holds such a text, so no loss could have warned you.

# %% [markdown] name="three-more"
# ## Five models
#
# So far I counted winners, the likeliest words. A **lead** tells more: how far the one meant is ahead of the other, in logits.
# On average over a set, a mere liking for one of the two cancels, for in the twin it counts the other way.
#
# `make seeds` has trained three more models. In each of the five, silence the head without which least of the lead is left. In
# how many is that less than a tenth, in both sets?
#
# <details name="lead"><summary>In all five.</summary>
#
# No, in one: the first.
#
# </details>
# <details name="lead"><summary>In two: 1.1 decides in the first, 2.1 in the second.</summary>
#
# So it seems while you count winners. It is one: the first.
#
# </details>
# <details name="lead"><summary>In one.</summary>
#
# Right, in the first.
#
# </details>


# %% tags=["fold-input"]
@torch.no_grad()
def lead(model: nn.Module, asked=ASKED) -> float:
    """Give how far the one meant is ahead of the other in logits, on average."""
    logits = model(ten.as_ids([text.split() for text, *_ in asked]))[:, -1]  # (b, v)
    two = torch.tensor([[ten.WORDS.index(word) for word in each[1:3]] for each in asked])
    return (logits.gather(1, two) @ torch.tensor([1.0, -1.0])).mean().item()


def leads(model: nn.Module, asked=ASKED) -> dict[str, float]:
    """Give which part of the lead is left without each head."""
    found, whole = {}, lead(model, asked)
    for head in HEADS:
        with without(model, head):
            found[head] = lead(model, asked) / whole
    return found


def kept_looks(model: nn.Module, asked=ASKED) -> dict[str, list[float]]:
    """Patch layer 1 and keep looks of layer 2; at last, patch these looks alone."""
    own, found = looks(model, asked), {}
    for name in ("none", "2.1", "2.2", "both"):
        kept = {"none": [], "both": HEADS[2:]}.get(name, [name])
        patched = patched_heads(model, *HEADS[:2], asked=asked)
        with patched, looking(model, *kept, weights=own):
            found[name] = named(model, asked)
    with looking(model, *HEADS[2:], weights=own[:, twins(asked)]):
        return found | {"alone": named(model, asked)}


# %% tags=["hide-input"]
file = resources.files("annotated_book").joinpath("data/heads.json")
# Seeds 0 and 4 are those of the two models above, which may have been trained elsewhere.
kept = json.loads(file.read_text())["questions"]
five = {
    f"{name} model": {
        what: {"lead": leads(each, asked), "looks": kept_looks(each, asked)}
        for what, asked in sets.items()
    }
    for name, each in (("First", model), ("Second", second))
}
more = [run for run in kept if run["seed"] not in (0, 4)]
five |= {f"{name} model": run for name, run in zip(("Third", "Fourth", "Fifth"), more)}
rows, most = {}, {}
for name, run in five.items():
    left = {head: [run[what]["lead"][head] for what in sets] for head in HEADS}
    most[name] = min(left, key=lambda head: max(left[head]))
    rows[f"{name}, without {most[name]}"] = left[most[name]]
display.show(rows, columns=[f"about {what}" for what in sets], corner="of the lead is left")

# %% tags=["proof"]
assert len(five) == 5
first, *others = (max(left) for left in rows.values())
assert first < 0.1 < 0.2 < min(others)
assert [*most.values()][:2] == ["1.1", "2.1"]
whole = {what: lead(second, asked) for what, asked in sets.items()}
for values in (0 * means_of(second), said(second, ASKED).mean(2)):
    with without(second, "2.1", values=values):
        assert lead(second) > 0.2 * whole["a thing"]
for each, head in ((model, "1.1"), (second, "2.1")):
    for asked in sets.values():
        with without(each, head):
            assert len({*named(each, asked)[:2]}) == 1
print("✓ In both, without that head, the other one is named as often as the one meant.")

# %% [markdown]
# About a thing, the second model without 2.1 keeps a quarter of its lead. It still prefers the one meant, but whoever acts by more: the
# winners hid it.
#
# So what do all five share? Between two animals, patch *both* heads of layer 1, and keep looks of layer 2: none, one,
# or both. **What will you see in the last column?**

# %% tags=["fold-input"]
asked = sets["two animals"]
lines = {}
for name, run in five.items():
    found = run["two animals"]["looks"]
    lines[name] = {what: row for what, row in found.items() if what != "alone"}
run = pressed(lines, asked, named(model, asked))._replace(joined=", look kept: ")
caption = "Between two animals. The heads of a layer are numbered by chance."
display.exchange({"": run}, name="five-models", caption=caption)

# %% tags=["proof"]
for run in five.values():
    found = run["two animals"]["looks"]
    assert found["both"][0] > 0.9
    assert found["none"][0] < 0.4
    assert found["alone"][0] < 0.1
    assert found["alone"][1] > 0.9
for run, what in itertools.product(kept, sets):
    assert run[what]["right"] > 0.97
    assert run[what]["it blanked"] > 0.9
    assert 0.4 < run[what]["quality blanked"] < 0.6
for run in kept:
    turned = run["a thing"]["rows that turn it"]
    carries = max(turned, key=turned.get)
    assert turned[carries] > 0.9
    assert carries == ("the quality" if run["seed"] == 4 else "“the”")
for each, asked in itertools.product((model, second), sets.values()):
    assert blanked(each, -6, asked)[0] > 0.97
    assert blanked(each, -4, asked)[0] < 0.55
print(
    "✓ With both looks of the twin, and nothing else, nearly all answers turn, in all five."
)

# %% [markdown]
# In all five, the answer between two animals hangs on where layer 2 looks: keep both looks, and nearly all stay right, although
# both heads of layer 1 come from the twin. In four, one head's look is enough, though not always that of 2.2. The fourth needs both.
#
# And *it* has its alibi in all five: blank it, and more than nine answers in ten stay right. About a thing, one row before
# layer 2 turns as many: in four models that of *the*, in one that of the quality.

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
# > **In short.** Five questions, from weak to strong:
# >
# > - **Where does it look?** The weights, `(b, h, n, m)`. A number, not a reason.
# > - **Is this word needed?** *Blank* it: the average row in its place.
# > - **Where is the answer now?** *Patch* a row, `(b, e)`, from the twin's run: does the answer change sides?
# > - **Is this head needed, and is it enough?** *Silence* it by its mean, before `out_proj`: is the other named as often as
# >   the one meant? *Patch* what it hands on: does the answer change sides?
# > - **By which way?** Patch one head and keep another's look as it was: does the answer stay?
# >
# > ```python
# > heads = merged.unflatten(-1, (h, -1)).clone()  # (b, n, h, d)
# > heads[..., head, :] = mean[head]
# > merged = heads.flatten(-2)                      # (b, n, h * d)
# > ```
# >
# > Three things mislead: a bright line, leading questions, and the likeliest word, which hides what is left. Ask a
# > second set, and more seeds than two.
#
# *It* never knew what it meant. Asked about a thing, the word that speaks looked it up at the quality: in four models in
# layer 1, in one only in layer 2.
#
# The storyteller reads and writes one text. [Training](12_training.ipynb) goes back to a model that reads
# one and writes another, and to a loss that looks perfect while the output is garbage.
