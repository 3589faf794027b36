# %% [markdown]
# # Questions to heads
#
# *Who decides what “it” means?*
#
# *12 minutes and 3 of exercises. Afterwards you can ask a trained model which word and which head an
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
# 1.1 and 1.2<!-- setting --> of layer 1, then 2.1 and 2.2<!-- setting --> of layer 2.
# Head 2.2<!-- setting --> gives *milk* 0.99: there is the picture of [chapter 1](01_one_head.ipynb), and this time
# nobody drew it. Head 1.1<!-- setting --> gives *milk* 0.04, too little to be
# printed. Without which of the two will the model take the cat to be
# meant? Choose, then press the head in the figure; that silences it.
#
# <details name="silence"><summary>Without 2.2<!-- setting -->, which stares at the milk.</summary>
#
# It says *juice*. The name is gone, but not the kind: it still wants a drink.
#
# </details>
# <details name="silence"><summary>Without 1.1<!-- setting -->, which hardly looks at the milk.</summary>
#
# It says *cat*. The answer has changed sides.
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
texts["chased"] = "the fox chased the dog because it was hungry . so the"
texts["tired"] = "the dog carried the cat because it was tired . so the"
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
# So a bright line is not where the matter is settled. Where is it? Question the parts as a court would. You will be misled
# more than once, and once by the questions themselves.

# %% [markdown]
# ## 192 questions and their twins
#
# One sentence is an anecdote. Each animal, each food or drink and each quality make 192 questions. Each has a **twin**,
# which differs in the quality alone, so that the other one is meant: *thirsty* and *sweet* above. The likeliest next
# word is the answer: the one meant, the other one, or a third word.
#
# What would be chance? Whoever cannot tell a question from its twin gives both the same answer, right in one and wrong in
# the other. Then **the other is named as often as the one meant**: in the bars below, blue and orange are equally long.


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


of_the_book = [each for each in ASKED if "cat drank milk" in each[0]]

# %% tags=["proof"]
assert len(ASKED) == 192
assert named(model)[0] == 1
assert [each[0].split()[-4] for each in of_the_book[::2]] == ["thirsty", "sweet"]
print("✓ All 192 answers name the one meant.")

# %% [markdown] name="blank-it"
# ## First witness: *it*
#
# The obvious suspect is the word *it*. If its row holds the answer, then erasing it must hurt. **To blank a word** is to
# put the average vector of all words in its place, where it enters the first layer. How many of the 192 answers stay
# right without *it*?
#
# <details name="blank"><summary>About half of them.</summary>
#
# That would be chance, and it is what happens when you blank the *quality*.
#
# </details>
# <details name="blank"><summary>All of them.</summary>
#
# Right. This word stands in every question, whoever is meant.
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


def blanked(model: nn.Module, place: int, asked=ASKED) -> list[float]:
    """Say what is named with a word blanked by the mean of all words held out."""
    mean = entering(model, ten.TESTED, 0)[ten.TESTED != 0].mean(0)  # (e,)
    with put(model, 0, place, mean):
        return named(model, asked)


# %% tags=["fold-input"]
PLACES = {"“it” blanked": -6, "“so” blanked": -2, "the quality blanked": -4}
bars = {what: blanked(model, place) for what, place in PLACES.items()}
caption = f"First model, {len(ASKED)} questions. Dashed: one half."
display.kinds_of_answers({"": bars}, name="blanked-words", caption=caption)

# %% tags=["proof"]
assert bars["“it” blanked"][0] == bars["“so” blanked"][0] == 1
assert bars["the quality blanked"] == [0.5, 0.5, 0]
print("✓ Without “it” every answer stays right; without the quality, half of them.")

# %% [markdown]
# *It* has an alibi. The quality is what counts: blanked, it leaves question and twin the same text. [The causal
# mask](06_masks.ipynb#cell-id=the-causal-mask) said so in Part I: the row of *it* cannot know who is meant, and a later
# row can. Which one does?

# %% [markdown] name="patch-it"
# ## Where the answer is between the layers
#
# **To patch a row** (*activation patching*) is to run the twin, and to put one of its rows in the same place of the
# question's run. If the model then names the other one, that row carried the answer. In code, with `put`, a hook that lets
# other rows enter a layer:


# %%
def patched_rows(model: nn.Module, layer: int, place: int, asked=ASKED) -> list[str]:
    """Answer with a row that comes from the twin."""
    ids = ten.as_ids([text.split() for text, *_ in asked])      # (b, n)
    rows = entering(model, ids[twins(asked)], layer)[:, place]  # (b, e)
    with put(model, layer, place, rows):
        return answers(model, asked)


# %% [markdown]
# Now find that row. Each box is a row of the run of *thirsty*; press it, and it comes from the twin's run, the one of
# *sweet*. The box then shows how often the other one is named, in all 192 questions. Before layer 1 the two runs differ
# in a single row. **Before layer 2, which one would you press first?**


# %% tags=["fold-input"]
def runs_of(model: nn.Module, asked: list, text: str, heads=(), rows=True) -> display.Runs:
    """Exchange each head, and each row, of all questions with their twins."""
    number = next(i for i, each in enumerate(asked) if text in each[0])
    own, twin = (asked[i][0].split() for i in (number, twins(asked)[number]))
    ids, plain = ten.as_ids([each[0].split() for each in asked]), answers(model, asked)

    def swap(name: str, found: list[str]) -> display.Swap:
        answer = found[number] if found else ""
        return display.Swap(name, answer, shares(found or plain, asked))

    lines = {}
    for layer in (1, 0):
        if heads:
            lines[f"layer {layer + 1}"] = [
                swap(head, patched_heads(model, head, asked=asked))
                for head in heads[2 * layer : 2 * layer + 2]
            ]
        if rows:
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
# Before layer 2 it is that of the last *the*, about to name somebody. So layer 1 has brought the news from the quality to
# *the*. By which head?

# %% [markdown] name="take-it-away"
# ## Take it away
#
# **To silence a head** (the field says *ablate*) is to let it hand on its own mean over all words of the held-out
# stories, whatever it reads.
#
# Two heads of layer 2 look at the milk: 2.2 gives it 0.99, and 2.1 gives it 0.73. What does losing each of them cost?
# And losing both? Press:


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


PAIRS = [" + ".join(pair) for pair in itertools.combinations(HEADS, 2)]


def without_each(model: nn.Module, asked: list = ASKED) -> dict[str, list[float]]:
    """Say what is named with each head silenced, and with each pair."""
    rows = {}
    for name in HEADS + PAIRS:
        with without(model, *name.split(" + ")):
            rows[name] = named(model, asked)
    return rows


def silence_of(lines: dict[str, dict], plain: list[float], asked: list, pair: str = ""):
    """Give, for a figure, what is named without each head and without the worst pair."""
    swaps = {}
    for line, rows in lines.items():
        pair_here = pair or min(PAIRS, key=lambda name: rows[name][0])
        swaps[line] = [display.Swap(name, "", rows[name]) for name in [*HEADS, pair_here]]
    return display.Runs(len(asked), "", [], [], "", plain, swaps)


# %% tags=["fold-input"]
bars = without_each(model)
run = silence_of({"First model": bars}, named(model), ASKED, "2.1 + 2.2")
display.exchange({"about a thing": run}, name="silenced-heads")

# %% tags=["proof"]
assert bars["1.1"] == [0.5, 0.5, 0]
assert bars["2.1"] == [1, 0, 0]
assert bars["2.2"][0] > 0.65 > 0.4 > bars["2.1 + 2.2"][0]
assert bars["2.2"][2] > 0.12 > 0.05 > bars["2.2"][1]
with without(model, "1.1"):
    assert who_acts(model) == 1
    assert answers(model, of_the_book[2:3]) == ["cat"]  # with sweet
with without(model, "2.2"):
    assert answers(model, of_the_book[2:3]) == ["juice"]
print("✓ Without the first head of layer 1, the model always names the one who acts.")

# %% [markdown]
# Without 2.1 every answer stays right. So it does nothing? Without 2.2 alone 0.76 are right, and without both only 0.32: 2.1
# does part of the same work, and it is missed where 2.2 is missing, too.
#
# Without 2.2 a third word comes in 0.22 of the questions, and hardly ever the other one: the choice stands, the name is
# lost. So 2.2 seems only to **name**, as the *name movers* do in the best known study of this kind, of GPT-2 (**IOI**,
# indirect object identification) [[Wang et al. 2022](../docs/references.md#wang-2022)].
#
# Without 1.1 blue and orange are equally long: no choice is left, and every answer is the one who acts. So 1.1, which looks
# at the quality, **decides**. One head decides, one names: a good story. It does not last.

# %% [markdown] name="leading-questions"
# ## Leading questions
#
# Which kind of third word comes without 2.2?

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
# So another part of the model knows the kind; I did not look for it. And all of my 192 questions are *about a thing*: one of the two is an
# animal, the other one food or drink. Whoever knows the kind cannot name the wrong one! In court these are **leading
# questions**.
#
# This world has questions *about two animals*, too: the first chases, fears or carries the second. Silence 2.2 again, where
# the **first** animal is meant. What will the model say most often?
#
# <details name="fair"><summary>A third animal, as it said “juice” for “milk”.</summary>
#
# That would be the name lost and the choice kept. It happens, but seldom.
#
# </details>
# <details name="fair"><summary>The second animal, the wrong one.</summary>
#
# Right. The choice itself is lost, and no kind of word is there to save it.
#
# </details>

# %% tags=["fold-input"]
FAIR = questions("chased", "feared", "carried")
sets = {"a thing": ASKED, "two animals": FAIR}
kinds = {"the first is meant": True, "the second is meant": False}
with without(model, "2.2"):
    bars = {
        name: named(model, [each for each in FAIR if each[3] == acts])
        for name, acts in kinds.items()
    }
    in_all = named(model, FAIR)
caption = f"First model without 2.2, {len(FAIR)} questions about two animals."
display.kinds_of_answers({"": bars}, name="leading-and-fair", caption=caption)

# %% tags=["proof"]
assert in_all[1] > 0.2 > 0.12 > in_all[2]
assert bars["the first is meant"][1] > 4 * bars["the second is meant"][1]
with without(model, "1.1"):
    assert named(model, FAIR) == [0.5, 0.5, 0]
print("✓ Most of its wrong answers name the second animal.")

# %% [markdown]
# Where the first animal is meant, the second one comes in 0.63 of the questions. So without 2.2 choices are lost, too,
# and questions about a thing could not show it. How an answer *can* go wrong is decided by your questions.

# %% [markdown] name="patch-a-head"
# ## Needed, and enough
#
# Silencing shows what is **needed**. To see what is **enough**, patch a head: it alone hands on what it hands on in the
# twin. If the other one is named now, this head turned the answer by itself. Press 1.1, then 2.2, and then both again
# between two animals:


# %% tags=["fold-input"]
def said(model: nn.Module, asked: list) -> Tensor:
    """Note what each head hands on at each place of each question, (layers, h, b, n, d)."""
    ids = ten.as_ids([text.split() for text, *_ in asked])
    parts = [layer.self_attn for layer in model.layers.layers]
    return torch.stack([handed_on(model, part, ids) for part in parts]).movedim(3, 1)


def patched_heads(model: nn.Module, *heads: str, asked: list = ASKED) -> list[str]:
    """Answer with heads that hand on what they hand on in the twin."""
    with without(model, *heads, values=said(model, asked)[:, :, twins(asked)]):
        return answers(model, asked)


@torch.no_grad()
def looks(model: nn.Module, asked=ASKED) -> Tensor:
    """Give the weights of the last word of each question, (layers * h, b, n)."""
    with attention_weights(model) as collected:
        model(ten.as_ids([text.split() for text, *_ in asked]))
    return torch.cat([weights[:, :, -1].transpose(0, 1) for weights in collected])


# %% tags=["fold-input"]
examples = {"a thing": "cat drank milk because it was thirsty"}
examples["two animals"] = "fox chased the dog because it was hungry"
runs = {
    f"about {what}": runs_of(model, asked, examples[what], HEADS, rows=False)
    for what, asked in sets.items()
}
pairs, split = list(zip(patched_heads(model, "2.2"), ASKED)), []
for actor in (True, False):
    split.append(shares(*zip(*(pair for pair in pairs if pair[1][3] == actor)))[1])
both = [
    shares(patched_heads(model, "2.1", "2.2", asked=asked), asked)[1]
    for asked in sets.values()
]
caption = (
    "First model. About a thing, 2.2 alone turns {:.2f} of the answers where the animal is "
    "meant, and {:.2f} where the thing is. 2.1 and 2.2 together turn {:.2f}, and between "
    "two animals {:.2f}."
).format(*split, *both)
display.exchange(runs, name="first-model-s-heads", caption=caption)

# %% tags=["proof"]
for asked in sets.values():
    assert shares(patched_heads(model, "1.1", asked=asked), asked) == [0, 1, 0]
    assert shares(patched_heads(model, "2.2", asked=asked), asked)[1] > 0.35
    before = looks(model, asked)[3].argmax(-1)  # (b,)
    assert (before != before[twins(asked)]).float().mean() > 0.97
    with without(model, "1.1"):
        after = looks(model, asked)[3].argmax(-1)  # (b,)
    assert (after != after[twins(asked)]).float().mean() < 0.1
WHO, OTHER, QUALITY, SO = 2, 4, 8, 10  # their places, if a thing is in question
acts = torch.tensor([acts for *_, acts in ASKED])
assert looks(model)[3].argmax(-1).equal(torch.where(acts, WHO, OTHER))
found = torch.tensor([x in ten.ANIMALS for x in patched_heads(model, "2.2")]).float()
assert min(found[acts].mean(), found[~acts].mean()) > 0.75  # 2.2 brings a thing; an animal
print("✓ Head 2 of layer 2 looks most at the one meant, if head 1 of layer 1 is there.")

# %% [markdown]
# 1.1 alone turns every answer, in both sets: it is enough. (The twins share their verb, so how the verb gets in was not asked.) 2.2 alone turns 0.98 between two animals. About a
# thing it turns only 0.47: mostly an animal comes, whoever is meant. So between two animals there are not two jobs but one, in two steps:
# 1.1 reads the quality; then 2.2 points at the one meant. About a thing, what 1.1 reads has other ways to the answer, too.


# %% tags=["fold-input"]
def in_short(text: str) -> list[str]:
    """Give the words of a question that count, for a picture."""
    words = text.split()
    return [*words[2:5], "…", *words[8:]]


seen, row = looks(model), torch.arange(len(ASKED))
reads = seen[0][:, QUALITY].mean()
goal = torch.where(acts, WHO, OTHER)
points = seen[3][row, goal].mean()
with without(model, "1.1"):
    astray = looks(model)[3][row, goal].mean()
hops = [
    (0, 4, f"1.1 reads: {reads:.2f}", "m"),
    (1, 2, f"2.2 points: {points:.2f}", "d"),
]
words = in_short(twin[0])
caption = (
    "First model. Weights of the last word, on average over the 192 questions. "
    f"Without 1.1, 2.2 gives the one meant {astray:.2f}."
)
display.way_of_an_answer(words, hops, "milk", name="first-way", caption=caption)

# %% [markdown] name="another-seed"
# ## Another seed, another way
#
# One model may be luck. The book brings a second storyteller: the same code, stories drawn from another seed, other first
# numbers, and as low a loss. (Not drawn by lot: of five that I trained, the book brings two whose ways differ.)
# The second is right in 190 of the 192 questions; the two that it misses are the cat's milk, of all things. Press the rows
# before layer 2 again. Which one carries the answer here? Then press the heads.

# %% tags=["fold-input"]
examples["a thing"] = "dog drank milk because it was thirsty"
runs = {
    f"about {what}": runs_of(second, asked, examples[what], HEADS)
    for what, asked in sets.items()
}
display.exchange(runs, name="second-model-s-rows", caption="Second model.")

# %% tags=["proof"]
rows = {what: shares(patched_rows(second, 1, place)) for what, place in AFTER.items()}
assert rows["the quality"][1] > 0.9
assert rows["“the”"] == rows["“so”"] == rows["“.”"] == named(second)
assert rows["“the”"][1] == 0
animals = {
    what: shares(patched_rows(second, 1, place, FAIR), FAIR)
    for what, place in AFTER.items()
}
assert min(animals["“so”"][1], animals["the quality"][1]) > 0.35 > 0.1 > animals["“the”"][1]
for asked in sets.values():
    assert shares(patched_heads(second, "2.1", asked=asked), asked)[0] < 0.1
    with without(second, "2.1"):
        one, two, _ = named(second, asked)
        assert one == two
        assert who_acts(second, asked) == 1
print("✓ Without the first head of layer 2, the second model always names who acts.")

# %% [markdown]
# About a thing, it is the row of the quality: the news is still where it came in. Between two animals there are two: the
# quality's row turns 0.42 of the answers, and that of *so* 0.52. And of the heads, 2.1 turns the most.
#
# So what has *the* done in layer 1? Send its row straight to the words, as if the model ended there (the *logit lens*): it
# names whoever acts. The first column counts that. The others count what is right where the one who acts is meant, and
# where the thing is:


# %% tags=["fold-input"]
def named_early(model: nn.Module, asked: list) -> float:
    """Give the share of questions in which the first layer alone names who acts."""
    rows = entering(model, ten.as_ids([each[0].split() for each in asked]), 1)[:, -1]
    with torch.no_grad():
        logits = model.project(model.layers.norm(rows))  # (b, v)
    pairs = zip((ten.WORDS[i] for i in logits.argmax(-1).tolist()), asked)
    return sum(word == each[1 if each[3] else 2] for word, each in pairs) / len(asked)


halves = [[each for each in ASKED if each[3] == actor] for actor in (True, False)]
costs = {}
for name in ("all heads", "without 1.1", "without 2.1", "without 2.2"):
    with without(second, *(head for head in HEADS if head in name)):
        right = [named(second, half)[0] for half in halves]
        costs[name] = [named_early(second, ASKED), *right]
columns = ["lens: who acts", "right: who acts", "right: the thing"]
display.show(costs, columns=columns, corner="second model, about a thing")

# %% tags=["proof"]
early, actor, thing = costs["all heads"]
assert early == actor == 1
assert thing > 0.95
assert max(costs["without 1.1"][:2]) < 0.1
assert costs["without 1.1"][2] > 0.95
assert costs["without 2.1"] == [1, 1, 0]
assert costs["without 2.2"][:2] == [1, 1]
assert costs["without 2.2"][2] < 0.4
assert named_early(second, FAIR) > 0.8
print("✓ Between two animals the lens mostly names who acts, too.")

# %% [markdown]
# Without 1.1 the one who acts is gone, and the thing still comes: 1.1 **fetches** who acts. Without 2.2 who acts still comes, and
# of the things 0.39. And without 2.1 the model never names the thing at all. So does 2.1 name it? Send what each head
# writes straight to the words (*direct logit attribution*). This is what it adds to their logits, compared with its mean,
# where the thing is meant; what the layers behind it make of that is not counted:


# %% tags=["fold-input"]
def votes(model: nn.Module, head: str, asked: list) -> Tensor:
    """Send what a head adds to its mean at the last word to the logits, (b, v)."""
    layer, number = (int(x) - 1 for x in head.split("."))
    part, norm, noted = model.layers.layers[layer].self_attn, model.layers.norm, []
    hook = norm.register_forward_pre_hook(lambda _, x: noted.append(x[0][:, -1]))
    heads = said(model, asked)[layer, number, :, -1]  # (b, d)
    hook.remove()
    merge = part.out_proj.weight.unflatten(1, (part.num_heads, -1))[:, number]  # (e, d)
    added = (heads - means_of(model)[layer, number]) @ merge.mT                 # (b, e)
    scale = noted[0].std(-1, correction=0, keepdim=True)                        # (b, 1)
    normed = norm.weight * (added - added.mean(-1, keepdim=True)) / scale
    logits = normed @ model.project.weight.mT  # (b, v)
    return (logits - logits.mean(-1, keepdim=True)).detach()


def groups_of(asked: list) -> Iterator[tuple[set, ...]]:
    """List who acts, other animals, the thing, others of its kind, and the other kind."""
    for _, thing, who, _ in asked:
        own, rest = sorted((KINDS[1], KINDS[2]), key=lambda kind: thing not in kind)
        yield {who}, KINDS[0] - {who}, {thing}, own - {thing}, rest


# %% tags=["hide-input"]
columns = ["who acts", "other animals", "the thing", "others of its kind"]
rows = {}
for head in ("1.1", "2.1", "2.2"):
    found = []
    for logits, kinds in zip(votes(second, head, halves[1]), groups_of(halves[1])):
        found.append([logits[[ten.NUMBER[x] for x in kind]].mean() for kind in kinds])
    rows[head] = torch.tensor(found).mean(0).tolist()
corner = "second model, the thing is meant"
display.show({head: row[:4] for head, row in rows.items()}, columns=columns, corner=corner)

# %% tags=["proof"]
who, animals, thing, kind, other_kind = rows["2.1"]
assert max(who, animals) < -1.5
assert min(thing, kind) > 2.5 > 1.5 > other_kind
assert kind > 0.8 * thing
assert rows["1.1"][0] > 1.5 > 0.7 > max(rows["1.1"][1:])
assert rows["2.2"][2] > 2 > 0 > rows["2.2"][3]
print("✓ Of the two kinds, food and drink, head 1 of layer 2 votes for the right one.")

# %% [markdown]
# No: 2.1 votes against the animals and for the **kind**, for its other words nearly as much as for the thing. It takes from who acts about
# what 1.1 gave: it **tips** the answer. And 2.2 picks the thing out of its kind.

# %% tags=["fold-input"]
seen = looks(second)
actor, other = seen[0][:, WHO].mean(), seen[3][~acts, OTHER].mean()
tips = seen[2][~acts, QUALITY].mean()
hops = [
    (0, 0, f"1.1 fetches who acts, always: {actor:.2f}", "d"),
    (1, 4, f"2.1 tips it: {tips:.2f}", "m"),
    (1, 2, f"2.2 looks at the thing: {other:.2f}", "d"),
]
words = next(text for text, *_ in ASKED if "dog drank milk" in text and "sweet" in text)
caption = (
    "Second model. Mean weights of the last word; of layer 2, where the thing is meant."
)
display.way_of_an_answer(in_short(words), hops, "milk", name="second-way", caption=caption)

# %% tags=["proof"]
missed = {each[0] for one, each in zip(answers(second), ASKED) if one != each[1]}
assert missed == {each[0] for each in of_the_book[2:]}
assert seen[0][:, WHO].min() > 0.3
assert seen[2:, :, WHO].max() < 0.1
assert seen[2].argmax(-1).equal(torch.where(acts, SO, QUALITY))
print("✓ About a thing, no head of layer 2 of the second model looks at the one who acts.")

# %% [markdown]
# The first model asks *who is meant?*, and then points. The second, about a thing, names whoever acts, unless 2.1 tips the
# answer. Yet both models give the same answers to all but two of these questions.

# %% [markdown] name="outside"
# ## What no loss could have told
#
# In this world *tired* is said only of those who drink. Let somebody be carried because of it, a sentence that no story
# can hold. Press *tired* in [the figure](#cell-id=ask-it): the first model names the one who carries, and is sure. I had an
# explanation: in its world *tired* has always meant the one who acts. Then choose the second model there: it says *cat*,
# who was carried. And without 2.1?
#
# <details name="tired"><summary>Still the cat.</summary>
#
# No: press 2.1. That head has tipped the answer, at a word that it had never met in such a sentence.
#
# </details>
# <details name="tired"><summary>The dog, who carries.</summary>
#
# Right. Layer 1 names whoever acts, and 2.1 is the head that tips it.
#
# </details>
#
# Here is how often each model finds the one who acts likelier, over all pairs of animals:


# %% tags=["fold-input"]
def likelier(model: nn.Module, verb: str) -> float:
    """Say in what share of the pairs the tired one is the one who acts."""
    pairs = list(itertools.permutations(ten.ANIMALS, 2))
    line = "{} the {} {} the {} because it was tired . so the"
    asked = [line.format(ten.EDGE, who, verb, other).split() for who, other in pairs]
    with torch.no_grad():
        logits = model(ten.as_ids(asked))[:, -1]  # (b, v)
    at = ten.NUMBER
    found = [row[at[who]] > row[at[other]] for row, (who, other) in zip(logits, pairs)]
    return sum(found) / len(found)


rows = {
    f"… {verb} … it was tired": [likelier(each, verb) for each in (model, second)]
    for verb in ("chased", "feared", "carried")
}
display.show(rows, columns=["first model", "second model"], corner="says: who acts")

# %% tags=["proof"]
assert all(one > 0.9 for one, _ in rows.values())
chased, feared, carried = (other for _, other in rows.values())
assert chased > 0.8 > 0.2 > max(feared, carried)
sentence = [(f"{ten.EDGE} {texts['tired']}",)]
assert answers(model, sentence) == ["dog"]
assert answers(second, sentence) == ["cat"]
with without(second, "2.1"):
    assert answers(second, sentence) == ["dog"]
print("✓ What tired means depends on the model.")

# %% [markdown]
# With *tired*, the second model goes by the verb: tired is who chased, and who was feared or carried. My explanation fits one model of
# two. No story of this world holds such a text, so no loss could have warned you.

# %% [markdown] name="three-more"
# ## Five models
#
# Each of the two models has a head without which no choice is left: 1.1 in the first, 2.1 in the second. `make seeds` has
# trained three more. In how many of them is there such a head, without which blue and orange are equally long, about things
# and between animals?
#
# <details name="seat"><summary>In all three.</summary>
#
# Two of two had one. But those two were chosen, for another reason, and two are few.
#
# </details>
# <details name="seat"><summary>In none.</summary>
#
# Right. In each of them some choice is left about a thing or about two animals, whichever head you silence.
#
# </details>
#
# Press your way through the five. The last place in a row silences two heads at once, those without which least is right:

# %% tags=["fold-input"]
file = resources.files("annotated_book").joinpath("data/heads.json")
# Seeds 0 and 4 are those of the two models above, which were trained on another processor.
kept = json.loads(file.read_text())["questions"]
more = [run for run in kept if run["seed"] not in (0, 4)]
lines = {what: {} for what in sets}
for what, asked in sets.items():
    lines[what]["First model"] = without_each(model, asked)
    lines[what]["Second model"] = without_each(second, asked)
    for name, run in zip(["Third", "Fourth", "Fifth"], more, strict=True):
        lines[what][f"{name} model"] = run[what]["silenced"]
runs = {
    f"about {what}": silence_of(lines[what], named(model, asked), asked)
    for what, asked in sets.items()
}
least = min(run[what]["right"] for run in kept for what in sets)
caption = (
    f"With all heads, {int(100 * least) / 100:.2f} or more are right. "
    "The heads of a layer are numbered by chance."
)
display.exchange(runs, name="five-models", caption=caption)

# %% tags=["proof"]
left = {}  # of the choice, where a head is away and more of it is left
for name, head in itertools.product(("Third", "Fourth", "Fifth"), HEADS):
    rows = [lines[what][f"{name} model"][head] for what in sets]
    left[name, head] = max(row[0] - row[1] for row in rows)
assert 0.04 < min(left.values()) == left["Fifth", "1.1"] < 0.2
meant, other, _ = lines["two animals"]["Third model"]["1.2"]
assert abs(meant - other) < 0.04
for run, what in itertools.product(kept, sets):
    assert run[what]["right"] > 0.97
    assert run[what]["it blanked"] > 0.9
    assert 0.4 < run[what]["quality blanked"] < 0.6
for run in kept:
    turned = run["a thing"]["rows that turn it"]
    carries = max(turned, key=turned.get)
    assert turned[carries] > 0.9
    assert carries == ("the quality" if run["seed"] == 4 else "“the”")
for (each, head), asked in itertools.product(
    [(model, "1.1"), (second, "2.1")], sets.values()
):
    assert blanked(each, -6, asked)[0] > 0.97
    assert blanked(each, -4, asked)[0] < 0.55
    with without(each, head):
        assert len({*named(each, asked)[:2]}) == 1
print("✓ In each of the three, no head has all the choice about things and about animals.")

# %% [markdown]
# In none: without 1.2 the third nearly loses the choice between two animals, 0.51 against 0.49, and about a thing 0.90 stay
# right. Nearest in both sets comes the fifth without 1.1, and keeps a little of each. So *one head decides* was a sentence about two files of numbers. ([Another filler](#cell-id=deeper-another-value) than the mean
# leaves more choice.)
#
# What holds in all five? Blank the word *it*, and more than nine answers in ten stay right; blank the quality, and about half do.
# And about a thing one row before layer 2 turns more than nine answers in ten: in four models that of *the*, in one that of
# the quality. Which head does the work is another story in each.

# %% [markdown] name="deeper-another-value"
# <!-- deeper: another value in the place of a head, or of a word -->
# ### Going deeper: another value in the place of a head, or of a word
#
# A silenced head still says something, so choose what, and report it: zero, its mean over all words as above, or its
# mean at the same place of the same questions, which keeps what it always says there. These are the questions about a
# thing, without the head on which the choice hangs:

# %% tags=["fold-input"]
groups = {}
for each, head, name in ((model, "1.1", "first"), (second, "2.1", "second")):
    bars = groups[f"{name} model, without {head}"] = {}
    mean = means_of(each)
    for what in ("zero", "mean", "mean at its place"):
        here = said(each, ASKED).mean(2) if "place" in what else mean
        with without(each, head, values=here * (what != "zero")):
            bars[what] = named(each)
display.kinds_of_answers(groups, name="other-fillers")

# %% tags=["proof"]
ids = ten.as_ids([text.split() for text, *_ in ASKED])
with put(model, 0, -4, entering(model, ids, 0)[:, -4].mean(0)):
    assert who_acts(model) < 0.2
with put(model, 0, -4, entering(model, ten.TESTED, 0)[ten.TESTED != 0].mean(0)):
    assert who_acts(model) == 1
print("✓ Blank the quality by the mean of the qualities: mostly the other one is named.")

# %% [markdown]
# With the mean at its place some of the choice survives. A blanked word is no different: with the mean of all words in the
# quality's place the first model always names the one who acts, and with the mean of the qualities nearly always the
# other. So what a silenced head or a blanked word leaves depends on the filler, too.

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
# > - **Where is the answer now?** *Patch* a row, `(b, e)`, from the twin's run. If the answer changes sides, this row
# >   carries it between two layers.
# > - **Is this head needed, and is it enough?** *Silence* it by its mean, before `out_proj`: is the other named as often as
# >   the one meant? *Patch* what it hands on: does the answer change sides?
# >
# > ```python
# > heads = merged.unflatten(-1, (h, -1)).clone()  # (b, n, h, d)
# > heads[..., head, :] = mean[head]
# > merged = heads.flatten(-2)                      # (b, n, h * d)
# > ```
# >
# > Three things mislead: a bright line, what stands in the silenced head's place, and leading questions. Ask a
# > second set, and more seeds than two.
#
# *It* was hardly a witness. The matter is settled from the quality on: in the word that speaks, or on the way there.
#
# The storyteller reads and writes one text. [Training](12_training.ipynb) goes back to a model that reads
# one and writes another, and to a loss that looks perfect while the output is garbage.
