# %% [markdown]
# # Questions to heads
#
# *Who decides what “it” means?*
#
# *17 minutes and 5 of exercises. Afterwards you can ask a trained model which word and which head an
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
# So somewhere in it the matter is settled. Where? You question it like a witness, and you will see that
# the witness who looks most suspicious is not the one who did it.

# %% tags=["hide-input"]
import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
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
def questions() -> list[tuple[str, str, str, bool]]:
    """List all questions: a text, who is meant, who else, whether the first is who acts."""
    found = []
    for verb in ("drank", "ate"):
        for who, thing in itertools.product(ten.ANIMALS, ten.TAKES[verb]):
            for acts in (True, False):
                pair = (who, thing) if acts else (thing, who)
                for quality in ten.REASONS[verb][not acts]:
                    text = f"the {who} {verb} {thing} because it was {quality} . so the"
                    found.append((f"{ten.EDGE} {text}", *pair, acts))
    return found


ASKED = questions()
ACTS = torch.tensor([acts for *_, acts in ASKED])  # whether who acts is meant
print(len(ASKED), "questions, such as:", ASKED[2][0], "->", ASKED[2][1])

# %% [markdown]
# Each verb, each animal, each food or drink, and each quality make a question. The cat and its milk are
# among them. The storyteller answers with its likeliest next word.


# %%
@torch.no_grad()
def right(model: nn.Module, asked=ASKED) -> Tensor:
    """Say of each question whether the likeliest next word is the one meant."""
    ids = ten.as_ids([text.split() for text, *_ in asked])               # (b, n)
    meant = torch.tensor([ten.NUMBER[word] for _, word, _, _ in asked])  # (b,)
    return model(ids)[:, -1].argmax(-1) == meant                         # (b,)


def share(found: Tensor) -> float:
    """Give the share of what is true."""
    return found.float().mean().item()


def halves(found: Tensor) -> list[float]:
    """Give the share where who acts is meant, and where the other one is."""
    return [share(found[ACTS]), share(found[~ACTS])]


of_the_book = torch.tensor(["cat drank milk" in text for text, *_ in ASKED])
rows = {"all questions": [len(ASKED), share(right(model))]}
rows["the book's own, never told"] = [of_the_book.sum(), share(right(model)[of_the_book])]
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
# You would say that the tired one is carried. The storyteller says the opposite, and is sure: *tired* has
# always meant the one who acts. It knows its table, and combines what stands there. It does not know what
# being tired is.

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
# All of them. Nothing in the model needs this word. It stands in every sentence, in the same place, and
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


def blanked(model: nn.Module, place: int, layer: int = 0) -> list[float]:
    """Give the share of right answers with a word blanked, of all and of each half."""
    rows = entering(model, ten.TESTED, layer)[ten.TESTED != 0]  # (..., e)
    with put(model, layer, place, rows.mean(0)):
        found = right(model)
    return [share(found), *halves(found)]


# %%
PLACES = {"“it”": -6, "“was”": -5, "the quality": -4, "“.”": -3, "“so”": -2}
rows = {word: blanked(model, place) for word, place in PLACES.items()}
columns = ["right", "if who acts is meant", "if the other is"]
display.show(rows, columns=columns, corner="blanked")

# %% [markdown]
# *It* has an alibi. You can take this word out, and every answer stays right. Without the quality, half
# of them are, and look which half: the model tosses no coin, it always names the one who acts. So the
# answer needs the quality, and it is worked out somewhere after it. This is what [the causal
# mask](06_masks.ipynb#cell-id=the-causal-mask) left open in Part I: the row of *it* cannot know, and a
# later row can.

# %% [markdown] name="patch-it"
# ## Where the answer is at noon
#
# Between the two layers, every word has a row, and the answer must be on its way in one of them. In which?
# **Patch** it (*activation patching*): take two stories that differ in the quality alone, so that different ones are meant. Run
# one, and put one row of the other in its place. If the answer flips, that row carried it.


# %%
OTHERS = [(text, other, meant, acts) for text, meant, other, acts in ASKED]


def flipped(model: nn.Module, layer: int, place: int) -> float:
    """Give the share of answers that flip when a row comes from the other story."""
    ids = ten.as_ids([text.split() for text, *_ in ASKED])                   # (b, n)
    other = torch.arange(len(ASKED)).view(-1, 4)[:, [2, 3, 0, 1]].flatten()  # (b,)
    rows = entering(model, ids[other], layer)[:, place]                      # (b, e)
    with put(model, layer, place, rows):
        return share(right(model, OTHERS))


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
def looks(model: nn.Module) -> Tensor:
    """Give the weights of the last word of each question, (layers * h, b, n)."""
    with attention_weights(model) as collected:
        model(ten.as_ids([text.split() for text, *_ in ASKED]))
    return torch.cat([weights[:, :, -1].transpose(0, 1) for weights in collected])


# %%
HEADS = ["1.1", "1.2", "2.1", "2.2"]  # layer.head
ENDS = [i for i, (text, *_) in enumerate(ASKED) if "cat drank milk" in text]
seen = looks(model)[:, ENDS]  # (4, 4, n)
words = ASKED[ENDS[0]][0].replace("thirsty", "…").split()
rows = [f"{name}, {end}" for name in ("2.1", "2.2") for end in ("thirsty", "sweet")]
display.show(
    seen[2:, [0, 2]].flatten(0, 1), rows, words, heat=True, corner="“the” looks at"
)

# %% [markdown]
# There is the picture of chapter 1, and this time nobody drew it. With *thirsty*, head 2.2 gives *cat*
# nearly everything; with *sweet*, *milk*. All 192 questions say the same:

# %%
WHO, OTHER = 2, 4  # their places


def on_the_meant(model: nn.Module) -> dict[str, list[float]]:
    """Average what the last word gives to the one meant, to the other, to the quality."""
    rows = {}
    for name, weights in zip(HEADS, looks(model)):
        meant = torch.where(ACTS, weights[:, WHO], weights[:, OTHER])
        rest = torch.where(ACTS, weights[:, OTHER], weights[:, WHO])
        rows[name] = [x.mean().item() for x in (meant, rest, weights[:, -4])]
    return rows


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
# **mean** in its place: what it says at the same place, averaged over the 192 questions. That keeps what
# it always says there, and takes away what depends on the question. Now an answer can go wrong in two
# ways: it names the other one of the two, or a third word. Which will it be, without head 2.2?
#
# <details><summary>What do you expect?</summary>
#
# The other one, if this head finds out who was meant. Measured: next to never. About three answers in
# four stay right, and nearly all the rest are a third word. The head without which the model names the
# wrong one is head 1.1, which never looks at the one meant.
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


def means_of(model: nn.Module) -> Tensor:
    """Average what each head says, over all words held out, (layers, h, d)."""
    parts = [layer.self_attn for layer in model.layers.layers]
    real = ten.TESTED != 0
    return torch.stack([mean_outputs(model, part, real, ten.TESTED) for part in parts])


# %%
def means_here(model: nn.Module) -> Tensor:
    """Average what each head says at each place of the questions, (layers, h, n, d)."""
    ids = ten.as_ids([text.split() for text, *_ in ASKED])
    parts = [layer.self_attn for layer in model.layers.layers]
    here = [handed_on(model, part, ids).mean(0) for part in parts]
    return torch.stack(here).transpose(1, 2)


# %% tags=["fold-input"]
def without(model: nn.Module, *heads: str, means=means_here) -> list[float]:
    """Say how a model answers without some heads.

    Give the shares of the one meant, of the other and of a third word, and then of what is
    right where who acts is meant, and where the other one is.
    """
    values, chosen = means(model), []
    for layer, head in ((int(x) - 1 for x in name.split(".")) for name in heads):
        chosen.append((model.layers.layers[layer].self_attn, head, values[layer, head]))
    with silenced(*chosen):
        found, other = right(model), right(model, OTHERS)
    return [share(found), share(other), share(~(found | other)), *halves(found)]


# %%
silent = [(), *((name,) for name in HEADS), ("2.1", "2.2")]
rows = {" and ".join(heads) or "none": without(model, *heads) for heads in silent}
rows["1.1, by all words"] = without(model, "1.1", means=means_of)
ANSWERS = ["the one meant", "the other", "a third word"]
ANSWERS += ["right if actor meant", "right if other meant"]
display.show(rows, columns=ANSWERS, corner="silenced")

# %% tags=["proof"]
weights = on_the_meant(model)
assert weights["2.2"][0] > 0.9 > 0.2 > weights["1.1"][0]
assert weights["1.1"][2] > 0.6
assert rows["none"][0] == 1
assert rows["2.2"][0] > 0.65 > rows["1.1"][0]
assert rows["2.2"][2] > 0.12 > 0.05 > rows["2.2"][1]
assert rows["1.1"][1] > 0.25 > 0.12 > rows["1.1"][2]
assert rows["2.1 and 2.2"][0] < 0.6
assert rows["1.1, by all words"][3] > 0.9 > 0.1 > rows["1.1, by all words"][4]
print("✓ Without the head that points, names are lost; without another, the choice is.")

# %% [markdown]
# Two heads, two jobs. Without head 1.1 nearly all answers still name one of the two, and which one is
# little better than a coin: 0.57 against 0.38. This head looks at the quality and **decides**, though it
# gives the one who was meant 0.04 of its weight. Without head 2.2 the choice stands and the name is lost:
# the other one is next to never named, and a third word comes in 0.22 of the questions. The head with the
# bright line only **names**. And it is not alone: head 2.1 looks at the same noun and stands in. Only
# without both does naming break down.
#
# The last row silences head 1.1 once more, by its mean over all words of the held-out stories. Now the
# model always names the one who acts. That is no coin but a prejudice, and it comes from the stand-in: a
# head always says something, so choose what, and report it.
#
# > **Pitfall.** A bright line in an attention map is a number, not a reason. It says where a head looks.
# > Whether the answer hangs on it, you learn by taking it away, and by looking at how the answers go
# > wrong.

# %% [markdown] name="another-seed"
# ## Another seed, another way
#
# One model may be luck. The book brings a second storyteller: the same code, stories drawn from another
# seed, other first numbers, and as low a loss. Question it in the same way, beside the first.

# %%
second = ten.shipped(4)
both = (model, second)
rows = {"right": [share(right(each)) for each in both]}
for word, place in (("“it”", -6), ("the quality", -4)):
    rows[f"right, {word} blanked"] = [blanked(each, place)[0] for each in both]
for word, place in (("the quality", -4), ("“the”", -1)):
    rows[f"flipped, {word} patched before layer 2"] = [
        flipped(each, 1, place) for each in both
    ]
display.show(rows, columns=["the first", "the second"], corner="share of all questions")

# %% [markdown]
# *It* has an alibi here, too, and the quality is needed. But look at the last two lines: they have changed
# places. In the second model the row of *the* carries nothing between the layers. What decides is still in
# the row of the quality, and *the* fetches it in layer 2. Where do its heads look, then? Head 1.2 is left
# out.


# %%
def resting(model: nn.Module) -> dict[str, list[float]]:
    """Average where three heads look from the last word, for both meanings."""
    rows = {}
    for name, weights in zip(("1.1", "2.1", "2.2"), looks(model)[[0, 2, 3]]):
        for which, meant in ((ACTS, "who acts is meant"), (~ACTS, "the other is meant")):
            rows[f"{name}, {meant}"] = [
                weights[which, at].mean() for at in (WHO, OTHER, -4, -2)
            ]
    return rows


columns = ["who acts", "the other", "the quality", "“so”"]
display.show(resting(second), columns=columns, corner="“the” looks at", heat=columns)

# %%
rows = {" and ".join(heads) or "none": without(second, *heads) for heads in silent}
display.show(rows, columns=ANSWERS, corner="silenced")

# %% tags=["proof"]
assert flipped(second, 1, -4) > 0.9 > 0.1 > flipped(second, 1, -1)
assert flipped(model, 1, -1) > 0.9 > 0.1 > flipped(model, 1, -4)
assert rows["2.1"][1] > 0.2 > 0.05 > rows["2.1"][2]
assert rows["1.1"][2] > 0.2 > 0.05 > rows["1.1"][1]
assert rows["1.1"][4] > 0.9 > 0.5 > rows["1.1"][3]
assert rows["2.2"][3] > 0.9 > 0.7 > rows["2.2"][4]
assert max(rows["2.2"][1], rows["1.1"][1]) < 0.05
print("✓ In the second model one head is missed for the choice, another for the name.")

# %% [markdown]
# Head 2.1 looks at no noun at all. It rests on *so* if the one who acts is meant, and goes to the quality
# if it is the other: a switch. Without it, every wrong answer names the other one of the two: this head
# decides. Head 1.1, which decided in the first model, is at the one who acts whatever the quality says.
# Without it the other one is never named wrongly. A third word comes instead, where the one who acts is
# meant: this head fetches that name, and head 2.2 fetches the other. So one failure is of the choice alone,
# one of the name alone. Neurologists call this a **double dissociation**, and it is the best evidence that
# silencing can give: neither failure is just a broken model.
#
# Two of the second model's 192 answers are wrong, by the way, and they are about the cat and its milk:

# %%
rows = {}
for name, each in zip(("the first", "the second"), both):
    for quality in ("thirsty", "sweet"):
        text = f"the cat drank milk because it was {quality} . so the"
        rows[f"{name}, {quality}"] = says(each, text, "cat", "milk")
display.show(rows, columns=["cat", "milk"])

# %% [markdown]
# After *sweet* it gives *milk* 0.11, and most of its chance to neither. The pair was never told to either
# model; one goes beyond what it was told, and the other does not, and no loss could have warned you, for the
# world holds no such story.
#
# So "head 2.2 resolves pronouns" is a sentence about one file of numbers, never about the task, and two
# models that agree on every test may not agree outside. `make seeds` has trained and questioned five:

# %% tags=["fold-input"]
file = resources.files("annotated_book").joinpath("data/world.json")
rows = {}
for run in json.loads(file.read_text())["questions"]:
    rows[run["seed"]] = [x for name, x in run.items() if name not in ("seed", "right")]
columns = ["“it” blanked", "quality blanked", "quality patched", "“the” patched"]
columns += ["brightest head", "without it"]
display.show(rows, columns=columns, corner="seed")

# %% [markdown]
# What holds in all five: *it* is not needed, and the quality is. Four carry the news to *the* in layer 1
# and one leaves it at the quality. How bright the brightest head is on the one meant, and how many answers
# stay right without it (by its mean over all words), is another matter in each.

# %% [markdown] name="ask-it"
# ## Now you
#
# Here is the first model, with all of its numbers, as it came from training. Begin with a text or type
# one; press a word to see what its four heads look at; press a head to silence it, by its mean over all
# words. Three things to try:
#
# 1. Take *sweet*, and silence 1.1. Give it back, and silence 2.2, then 2.1 as well.
# 2. Press *clear*, and add *the milk drank the cat because it was thirsty . so the*. Does the order
#    decide who drinks?
# 3. Press *wrong merge*, and let it write on. It was not trained with it, and each word changes what
#    the words before it meant.
#
# <details><summary>What comes out of the first two?</summary>
#
# Without 1.1 the sweet milk turns into the cat. Without 2.2 it turns into another drink: of this pair,
# which it was never told, the choice survives and the name does not. And the order does not decide. Animals
# drink in this world, so the cat is thirsty wherever it stands.
#
# </details>

# %% tags=["hide-input"]
LINE = "the cat drank milk because it was {} . so the"
texts = {quality: LINE.format(quality) for quality in ("thirsty", "sweet")}
texts |= {
    "hungry": "the fox feared the dog because it was hungry . so the",
    "a story": "tom had a",
}
display.storyteller(
    model,
    ten.WORDS,
    texts,
    means_of(model),
    longest=ten.LONGEST,
    edge=ten.EDGE,
    name="ask-the-storyteller",
)

# %% tags=["proof"]
assert says(model, "the milk drank the cat because it was thirsty . so the", "cat")[0] > 0.8
values, told = means_of(model), LINE.format("sweet")
for layer, head, word in ((0, 0, "cat"), (1, 1, "juice")):
    with silenced((model.layers.layers[layer].self_attn, head, values[layer, head])):
        assert says(model, told, word)[0] > 2 * says(model, told, "milk")[0]
print("✓ The first two come out as the answer says.")

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
# In the table of blanked words, the last two columns tell the two apart.
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
# > - **Is this head needed?** *Silence* it by its mean, before `out_proj`. It says whether this model uses
# >   the head, unless another stands in, and for what: the choice, or the name.
# >
# > ```python
# > heads = merged.unflatten(-1, (h, -1)).clone()  # (b, n, h, d)
# > heads[..., head, :] = mean[head]
# > merged = heads.flatten(-2)                      # (b, n, h * d)
# > ```
# >
# > Silence two heads and see one lose the choice, the other the name: that is hard to explain away. Then
# > ask another seed.
#
# *It* was never the witness. In a model that writes, the row of *it* cannot know what it means, and nobody
# asks it. The word that decides, and the word that has to speak, settle the matter between them.
#
# The storyteller reads and writes one text. [Training](12_training.ipynb) goes back to a model that reads
# one and writes another, and to a loss that looks perfect while the output is garbage.
