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
# that, a function that PyTorch calls before a module runs. What is left of 188 right answers: half, since
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


def blanked(model: nn.Module, place: int, layer: int = 0) -> float:
    """Give the share of right answers with the word at a place blanked."""
    rows = entering(model, ten.TESTED, layer)[ten.TESTED != 0]  # (..., e)
    with put(model, layer, place, rows.mean(0)):
        return share(right(model))


# %%
PLACES = {"it": -6, "was": -5, "the quality": -4, ".": -3, "so": -2}  # from the end
rows = {word: [blanked(model, place)] for word, place in PLACES.items()}
display.show(rows, columns=["right"], corner="blanked")

# %% [markdown]
# *It* has an alibi. You can take this word out, and every answer stays right. Without the quality, half
# of them are: no information, a coin. So the answer needs the quality, and it is worked out somewhere
# after it. This is what [the causal mask](06_masks.ipynb#cell-id=the-causal-mask) left open in Part I: the
# row of *it* cannot know, and a later row can.

# %% [markdown] name="patch-it"
# ## Where the answer is at noon
#
# Between the two layers, every word has a row, and the answer must be on its way in one of them. In which?
# **Patch** it (*activation patching*): take two stories that differ in the quality alone, so that different ones are meant. Run
# one, and put one row of the other in its place. If the answer flips, that row carried it.


# %%
def flipped(model: nn.Module, layer: int, place: int) -> float:
    """Give the share of answers that flip when a row comes from the other story."""
    ids = ten.as_ids([text.split() for text, *_ in ASKED])                   # (b, n)
    other = torch.arange(len(ASKED)).view(-1, 4)[:, [2, 3, 0, 1]].flatten()  # (b,)
    rows = entering(model, ids[other], layer)[:, place]                      # (b, e)
    with put(model, layer, place, rows):
        flips = [(text, there, here, acts) for text, here, there, acts in ASKED]
        return share(right(model, flips))


AFTER = {"the quality": -4, ".": -3, "so": -2, "the": -1}
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
display.show(seen[2:, [0, 2]].flatten(0, 1), rows, words, heat=True, corner="the looks at")

# %% [markdown]
# There is the picture of chapter 1, and this time nobody drew it. With *thirsty*, head 2.2 gives *cat*
# nearly everything; with *sweet*, *milk*. All 192 questions say the same:

# %%
ACTS = torch.tensor([acts for *_, acts in ASKED])  # whether who acts is meant
WHO, OTHER = 2, 4  # their places


def on_the_meant(model: nn.Module) -> dict[str, list[float]]:
    """Average what the last word gives to the one meant, and to the other one."""
    rows = {}
    for name, weights in zip(HEADS, looks(model)):
        meant = torch.where(ACTS, weights[:, WHO], weights[:, OTHER])
        rest = torch.where(ACTS, weights[:, OTHER], weights[:, WHO])
        rows[name] = [meant.mean().item(), rest.mean().item()]
    return rows


display.show(on_the_meant(model), columns=["the one meant", "the other"], corner="head")

# %% [markdown] name="take-it-away"
# Case closed? It looks like the whole explanation: head 2.2 finds the one who was meant, and hands the
# name over. So take this head away.
#
# ## Take it away
#
# To **silence** a head, replace its slice of the merged heads before `out_proj`, so that nothing that it
# found reaches $W_O$. Replace it by what? Zero is the usual value, but the later layers may never have met
# a zero there, and then a model fails because it is given something strange. So put the head's own
# **mean** over many texts in its place. That keeps what the head always says, and takes away what depends
# on the text. How many of the 192 answers are left without head 2.2?
#
# <details><summary>What do you expect?</summary>
#
# Half, if it is this head that finds the name. Measured: about three in four, and between the two who
# could be meant the model still picks the right one nearly always. Head 1.2, which looks at the same two
# places whatever the quality says, costs a few answers, and head 1.1, which never looks at the one meant,
# costs half.
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


# %%
@torch.no_grad()
def mean_outputs(model, attention, counts: Tensor, *inputs: Tensor) -> Tensor:
    """Average what each head of an attention hands on, over the places that count."""
    noted = []
    hook = attention.out_proj.register_forward_pre_hook(lambda _, x: noted.append(x[0]))
    model(*inputs)
    hook.remove()
    heads = noted[0].unflatten(-1, (attention.num_heads, -1))  # (b, n, h, d)
    return heads[counts].mean(0)                               # (h, d)


# %% tags=["fold-input"]
def means_of(model: nn.Module) -> Tensor:
    """Average what each head says, over the words of the held-out stories."""
    parts = [layer.self_attn for layer in model.layers.layers]
    real = ten.TESTED != 0
    return torch.stack([mean_outputs(model, part, real, ten.TESTED) for part in parts])


def without(model: nn.Module, *heads: str) -> list[float]:
    """Give the share of right answers without some heads: all, actor meant, other meant."""
    values, chosen = means_of(model), []
    for layer, head in ((int(x) - 1 for x in name.split(".")) for name in heads):
        chosen.append((model.layers.layers[layer].self_attn, head, values[layer, head]))
    with silenced(*chosen):
        found = right(model)
    return [share(found), share(found[ACTS]), share(found[~ACTS])]


# %%
silent = [(), *((name,) for name in HEADS), ("2.1", "2.2")]
rows = {" and ".join(heads) or "none": without(model, *heads) for heads in silent}
display.show(rows, columns=["right", "actor meant", "other meant"], corner="silenced")

# %% tags=["proof"]
weights, left = on_the_meant(model), {name: row[0] for name, row in rows.items()}
assert weights["2.2"][0] > 0.9 > 0.2 > weights["1.1"][0]
assert left["none"] == 1
assert left["2.2"] > 0.65
assert left["1.1"] < 0.6
print("✓ The head with the bright line is missed less than one that never looks there.")

# %% [markdown]
# The head with the bright line is missed less than head 1.1, and head 1.1 gives the one who was meant
# 0.04 of its weight. Without it the model does not stammer. It always names the one who acts, and is
# right by that in half of the questions: this head brings *the* the news of the quality, and without
# news the model has a favourite. Without head 2.2, three answers in four are still right, because head
# 2.1 looks at the same noun and stands in. Only without both does naming break down.
#
# > **Pitfall.** A bright line in an attention map is a number, not a reason. It says where a head looks.
# > Whether the answer hangs on it, you learn by taking it away; and if the answer stays, look for the one
# > who stands in.

# %% [markdown] name="another-seed"
# ## Another seed, another way
#
# One model may be luck. The book brings a second storyteller: the same code, stories drawn from another
# seed, other first numbers, and as low a loss. Question it in the same way, beside the first.

# %%
second = ten.shipped(4)
both = (model, second)
rows = {"right": [share(right(each)) for each in both]}
for word, place in (("it", -6), ("the quality", -4)):
    rows[f"right, {word} blanked"] = [blanked(each, place) for each in both]
for word, place in (("the quality", -4), ("the", -1)):
    rows[f"flipped, {word} patched before layer 2"] = [
        flipped(each, 1, place) for each in both
    ]
display.show(rows, columns=["the first", "the second"], corner="share of all questions")

# %% [markdown]
# *It* has an alibi here, too, and the quality is needed. But look at the last two lines: they have changed
# places. In the second model the row of *the* carries nothing between the layers. What decides is still in
# the row of the quality, and *the* fetches it in layer 2. Where do its heads look, then?


# %%
def resting(model: nn.Module) -> dict[str, list[float]]:
    """Average where the heads of layer 2 look from the last word, for both meanings."""
    rows = {}
    for name, weights in list(zip(HEADS, looks(model)))[2:]:
        for which, meant in ((ACTS, "who acts is meant"), (~ACTS, "the other is meant")):
            rows[f"{name}, {meant}"] = [
                weights[which, at].mean() for at in (WHO, OTHER, -4, -2)
            ]
    return rows


columns = ["who acts", "the other", "the quality", "so"]
display.show(resting(second), columns=columns, corner="the looks at", heat=columns)

# %%
rows = {" and ".join(heads) or "none": without(second, *heads) for heads in silent}
display.show(rows, columns=["right", "actor meant", "other meant"], corner="silenced")

# %% tags=["proof"]
assert flipped(second, 1, -4) > 0.9 > 0.1 > flipped(second, 1, -1)
assert flipped(model, 1, -1) > 0.9 > 0.1 > flipped(model, 1, -4)
assert rows["2.1"][1] > 0.9 > 0.2 > rows["2.1"][2]
assert rows["1.1"][2] > 0.9 > 0.3 > rows["1.1"][1]
print("✓ In the second model each of two heads is missed in its own half of the questions.")

# %% [markdown]
# Head 2.1 looks at no noun at all. It rests on *so* if the one who acts is meant, and goes to the quality
# if it is the other: a switch. Take it away, and the model names the one who acts, always. Take head 1.1
# away instead, and it names the other nearly always. Each loses exactly what the first keeps. Neurologists
# call this a **double dissociation**, and it is the best evidence that silencing can give: neither head is
# needed for everything, and neither failure is just a broken model.
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
    rows[run["seed"]] = list(run.values())[1:]
columns = ["right", "it blanked", "quality blanked", "quality patched", "the patched"]
columns += ["most weight on the one meant", "right without that head"]
display.show(rows, columns=columns, corner="seed")

# %% [markdown]
# What holds in all five: *it* is not needed, and the quality is. Four carry the news to *the* in layer 1
# and one leaves it at the quality. Which head looks where, and how many answers hang on it, is another
# matter in each.

# %% [markdown] name="ask-it"
# ## Now you
#
# Here is the first model, with all of its numbers, as it came from training. Begin with a text or type
# one; press a word to see what its four heads look at; press a head to silence it. Three things to try:
#
# 1. Take *thirsty*, and silence 1.1, then 2.2, then 2.1 as well.
# 2. Type *the milk drank the cat because it was thirsty . so the*. Does the order decide who drinks?
# 3. Press *wrong merge*, and let it write on. It was not trained with it, and each word changes what
#    the words before it meant.

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

# %% [markdown]
# In this figure a silenced head says its mean over the words of the held-out stories, as above.

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
# In the table of silenced heads, *actor meant* and *other meant* tell the two apart.
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
# >   the head, unless another stands in.
# >
# > ```python
# > heads = merged.unflatten(-1, (h, -1)).clone()  # (b, n, h, d)
# > heads[..., head, :] = mean[head]
# > merged = heads.flatten(-2)                      # (b, n, h * d)
# > ```
# >
# > Silence two heads and see each lose its own half: that is hard to explain away. Then ask another seed.
#
# *It* was never the witness. In a model that writes, the row of *it* cannot know what it means, and nobody
# asks it. The word that decides, and the word that has to speak, settle the matter between them.
#
# The storyteller reads and writes one text. [Training](12_training.ipynb) goes back to a model that reads
# one and writes another, and to a loss that looks perfect while the output is garbage.
