# %% [markdown]
# # Split and stack
#
# *All heads in one matrix: what keeps them apart?*
#
# *9 minutes and 7 of exercises. Afterwards you can keep all heads in one matrix, compute them all at
# once, and say what a wrong cut does.*
#
# > the cat drank milk because **it** was thirsty
#
# This book comes with a small model, the **storyteller**, which [has learned](10_a_little_world.ipynb) to tell stories word by
# word. It attends twice in a row, in two **layers**, with several heads each. Their matrices lie side by side: in a layer, $W_Q$,
# $W_K$, $W_V$ and $W_O$ are 48 × 48 each. How many heads are in there? No shape tells. The file of the weights loads with one head, with two,
# four or eight. Here all four go on with a sentence that stood in none of the stories from which the model learned.

# %% tags=["fold-input"]
import re

import torch
from torch import Tensor, nn

from annotated_book import chapters, display, measured

one = chapters.load("01_one_head")  # attend, the words and their features
two = chapters.load("02_two_heads")  # a pair of heads, and a list of any number


def cut_into(num_heads: int, above: int = 0, off: tuple[int, ...] = ()) -> nn.Module:
    """Load the storyteller, cut into heads; layer 2 perhaps into others, some off."""
    ten = chapters.load("10_a_little_world")
    model = ten.Storyteller(h=num_heads)
    model.load_state_dict(ten.shipped().state_dict())
    if above:
        model.layers.layers[1] = cut_into(above).layers.layers[1]
    w_o = model.layers.layers[1].self_attn.out_proj.weight.data  # transposed: (e, h * d)
    w_o.unflatten(1, (above or num_heads, -1))[:, list(off)] = 0
    return model


# %% tags=["hide-input"]
GO_ON = "the cat drank milk because it was {} . so the"
COUNTS = {"1 head, uncut": 1, "2 heads": 2, "4 heads": 4, "8 heads": 8}
SHAPES = {name: x.shape for name, x in cut_into(1).state_dict().items()}


def read_aloud():
    """Let storytellers go on with the sentences, each by its heads."""
    ten = chapters.load("10_a_little_world")
    return display.aloud(
        {name: cut_into(count) for name, count in COUNTS.items()},
        ten.WORDS,
        GO_ON,
        ["sweet", "thirsty"],
        shapes=SHAPES,
        layers=2,
        heads=[*COUNTS.values()],
        longest=ten.LONGEST,
        edge=ten.EDGE,
        inks="bnnn",  # grey is uncut
        name="how-many-heads",
    )


read_aloud()

# %% [markdown]
# With eight heads, it says *juice*, which nobody drank. The other three name what was sweet and who was thirsty, even
# the one that cuts nothing. So press *a story of their own* a few times, and watch who does what to whom.
#
# The table below counts 192 such questions, and 200 stories of each. A story is *possible* if
# the rules of its world can tell it: nobody chases himself, for one. *To itself* is the share of deeds that an animal does to itself.
# With how many heads was the storyteller trained?
#
# <details name="trained"><summary>One.</summary>
#
# It answers both sentences. But in its stories, the dog chases the dog, and fewer of its answers are right than with eight.
#
# </details>
# <details name="trained"><summary>Two.</summary>
#
# Right. Nearly all of its stories are possible.
#
# </details>
# <details name="trained"><summary>Four.</summary>
#
# It answers both sentences, too. But here, too, a dog may chase itself.
#
# </details>


# %% tags=["hide-input"]
def questions(world):
    """List questions about what an animal drank or ate, and whom it meant."""
    return {
        f"the {who} {verb} {what} because it was {quality} . so the": (who, what)[side]
        for verb in ("drank", "ate")
        for who in world.ANIMALS
        for what in world.TAKES[verb]
        for side, qualities in enumerate(world.REASONS[verb])
        for quality in qualities
    }


# %% tags=["hide-input"]
def examine(model: nn.Module) -> tuple[list, list[list[str]]]:
    """Ask a storyteller, let it write 200 stories, and count."""
    ten = chapters.load("10_a_little_world")
    meant = questions(ten)
    with torch.no_grad():
        logits = model(ten.as_ids([f"/ {text}".split() for text in meant]))[:, -1]  # (b, v)
        said = {text: ten.WORDS[i] for text, i in zip(meant, logits.argmax(-1))}
        told = ten.write(model, 200)
    right = sum(said[text] == answer for text, answer in meant.items())
    pairs = re.findall(r"the (\w+) \w+ the (\w+) because", " ".join(map(" ".join, told)))
    itself = sum(a == b for a, b in pairs)
    twins = [said[GO_ON.format(word)] for word in ("thirsty", "sweet")]
    return [*twins, right, ten.possible(told), itself, len(pairs)], told


# %% tags=["hide-input"]
cuts = {h: examine(cut_into(h)) for h in COUNTS.values()}
shares = {}
for name, count in COUNTS.items():
    *_, right, possible, itself, pairs = cuts[count][0]
    shares[name] = [f"{right}", f"{possible:.0%}", f"{itself / pairs:.0%}"]
display.show(shares, columns=["right answers of 192", "stories possible", "to itself"])

# %% [markdown]
# One of the stories that are told uncut:
#
# > anna had a dog and a cat . the **dog** chased the **dog** because it was slow . so the dog fell asleep . then he
# > called the dog .
#
# So a number that stands in no matrix keeps a dog and a cat apart. How?

# %% tags=["proof"]
for count, (facts, tales) in cuts.items():
    assert (facts[:2] == ["cat", "milk"]) == (count != 8)
    assert (facts[2] == 192) == (count == 2) == (facts[3] > 0.9)
    assert facts[4] / facts[5] < 0.05 if count == 2 else facts[3] < 0.65
    assert ("the dog chased the dog" in " ".join(tales[4])) == (count != 2)
uncut = "anna had a dog and a cat . the dog chased the dog because it was slow . "
uncut += "so the dog fell asleep . then he called the dog ."
assert " ".join(cuts[1][1][4][1:-1]) == uncut
assert cuts[1][0][4] / cuts[1][0][5] > 0.5
assert cuts[8][0][4] < 0.5 * (1 - cuts[8][0][3]) * 200
# Whoever loads this page does not load that one.
(ten,) = [chapters.load("10_a_little_world")]
tale = "/ anna had a dog and a cat . the dog chased the {} because it was slow ."
tale += " so the {} ran away . /"
for animal, can in (("cat", True), ("dog", False)):
    assert ten.possible([tale.format(animal, animal).split()]) == can
assert ten.possible([f"/ {GO_ON.format('thirsty')} cat wanted more . /".split()]) == 0
print("✓ Only with two heads are more than nine of ten stories possible.")

# %% [markdown] name="one-matrix-holds-every-head"
# ## One matrix holds every head
#
# Take heads small enough to follow each number: the pair of [Two heads](02_two_heads.ipynb). Head 1 looks for an animal,
# head 2 for a food. Column j of the product $XW$ depends on column j of $W$ and on no other. So put the matrices of all
# heads side by side, and multiply once:
#
# $$X\,[\,W_1 \; W_2 \; \cdots \; W_h\,] = [\,XW_1 \; XW_2 \; \cdots \; XW_h\,]$$

# %%
x, it = one.EMBEDDINGS, one.WORDS.index("it")
(q_1, k_1, v_1), (q_2, k_2, v_2) = two.HEADS
w_q = torch.cat([q_1, q_2], dim=1)          # (e, h * d)
w_k = torch.cat([k_1, k_2], dim=1)          # (e, h * d)
w_v = torch.cat([v_1, v_2], dim=1)          # (e, h * d)
q, k, v = (x @ w for w in (w_q, w_k, w_v))  # (n, h * d)

# %% tags=["hide-input"]
wide = {"Q": w_q, "K": w_k, "V": w_v}
display.all_sheets(x, wide, one.WORDS, one.FEATURES, name="all-sheets")

# %% [markdown]
# Under each matrix stands what it makes of X: a wide **sheet**. Look at the sheet K alone: does it hold two
# heads of width 2, four of width 1, or one of width 4? No number in K says so, and none in $W_K$. The number of heads has
# become a setting that says where to cut.
#
# ## Three ways to go on
#
# `pieces = k.split(d, dim=-1)` cuts a sheet into its strips, and `torch.stack` lays these along a new axis. (Here d = 2, the width of a head; q and v go the same way.) You could
# stack them in two ways, or leave the sheet uncut:
#
# ```python
# k                           # (n, h * d), uncut
# torch.stack(pieces)         # (h, n, d), the heads come first: dim=0, the default
# torch.stack(pieces, dim=1)  # (n, h, d), the words come first, as in (n, e)
# ```
#
# All three run, because `@` multiplies the last two axes and takes those before them for separate problems. And all
# three end in eight rows of four numbers, once the strips are back side by side. In how many of them does the word *it*
# learn who was thirsty? Choose, then press all three, and *sweet*.
#
# <details name="learns"><summary>In all three.</summary>
#
# All three shapes fit. But read the last row of the figure, *it gets*.
#
# </details>
# <details name="learns"><summary>In both that are cut.</summary>
#
# The cut is the same in both. But look at the frames: only what is in one frame is compared.
#
# </details>
# <details name="learns"><summary>In one.</summary>
#
# Right: the other two give the same number twice, each for a reason of its own.
#
# </details>

# %% tags=["hide-input"]
sheets = {
    last: [words @ w for w in (w_q, w_k, w_v)]
    for last, words in (("thirsty", x), ("sweet", one.SWEET_EMBEDDINGS))
}
answers = dict(zip(one.FEATURES, ("cat", "milk")))
display.ways_to_cut(sheets, two.W_O, one.WORDS, it, answers, name="ways-to-cut")

# %% [markdown]
# **Uncut**, each word gets one sum. *It* asks for an animal and a food in one breath, so *cat* and *milk* both get 6, and
# the weight 0.17. Both heads hand over the same, the *quality* of a word. So one set of weights brings the same number
# twice: 0.46 · 2 from *thirsty* and 0.17 · 1 from *it* make 1.09 of animal and 1.09 of food.
#
# **Cut, dim=0**, each word gets two sums: *cat* 6 and 0, *milk* 0 and 6. Two sets of weights bring two answers, with
# *thirsty* 0.97 and 0.19.
#
# **Cut, dim=1**, the answers are 1.00 and 1.00. The last two axes are h and d here. So each word is a problem of its own,
# in which two queries ask two keys. Both queries of *it* are 2 1, and both keys 1 1: four times 3, one half each. *It*
# hears no word but itself, whose *quality* is 1.


# %% tags=["proof"]
for word in (*one.WORDS, "sweet"):
    ending = one.embed([*one.WORDS[:-1], word])                      # (n, e)
    mixed, _ = one.attend(ending @ w_q, ending @ w_k, ending @ w_v)  # (n, h * d)
    animal, food, *_ = (mixed @ two.W_O)[it]
    torch.testing.assert_close(animal, food)
print("✓ Uncut, no last word tells animal from food.")

# %% [markdown]
# So two things are needed: **cut between the strips, and keep all words of a strip together.**


# %% tags=["proof"]
def cut_along(dim: int | None, words: Tensor, *matrices: Tensor) -> Tensor:
    """Attend uncut, or with two heads along an axis, and lay the strips side by side."""
    wide = [words @ w for w in matrices]  # (n, h * d)
    if dim is None:
        return one.attend(*wide)[0]
    stacks = [torch.stack(sheet.chunk(2, dim=-1), dim) for sheet in wide]
    return torch.cat(one.attend(*stacks)[0].unbind(dim), dim=-1)


changed = x.clone()
changed[0] += 1  # the first word
for dim, rows in {0: 8, 1: 1, None: 8}.items():
    before, after = (cut_along(dim, words, w_q, w_k, w_v) for words in (x, changed))
    assert (before != after).any(dim=-1).sum() == rows
    assert torch.allclose(before @ two.W_O, two.two_heads(x)[0]) == (dim == 0)
print("✓ With dim=1 a changed word moves only its own row; only dim=0 equals the list.")

# %% [markdown]
# ## The class
#
# Heads first, then, and the same axis on the way back:


# %%
def split_and_stack(x: Tensor, num_heads: int) -> Tensor:
    """Cut the features into heads, and stack the heads.

    Args:
        x: (n, h * d), one row per word.
        num_heads: h, the number of heads.
    """
    pieces = x.split(x.size(-1) // num_heads, dim=-1)  # h times (n, d)
    return torch.stack(pieces)                         # (h, n, d)


def unstack_and_concatenate(x: Tensor) -> Tensor:
    """Put the heads back side by side.

    Args:
        x: (h, n, d), one slice per head.
    """
    return torch.cat(x.unbind(0), dim=-1)  # (n, h * d)


# %% [markdown]
# Four matrices remain, and `forward` needs no loop. `attend` has not changed: it counts axes from the end, so the width
# that it finds is now that of a head.


# %%
class SplitAndStack(nn.Module):
    """Several heads at once, by splitting and stacking."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(f"num_heads ({num_heads}) must divide embed_dim ({embed_dim})")
        self.num_heads = num_heads
        raw = [nn.init.xavier_uniform_(torch.empty(embed_dim, embed_dim)) for _ in range(4)]
        self.w_q, self.w_k, self.w_v, self.w_o = [nn.Parameter(matrix) for matrix in raw]

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Attend from each query to every key."""
        wide = query @ self.w_q, key @ self.w_k, value @ self.w_v  # (n, e), (m, e), (m, e)
        mixed, weights = one.attend(*(split_and_stack(x, self.num_heads) for x in wide))
        return unstack_and_concatenate(mixed) @ self.w_o, weights  # (n, e), (h, n, m)


# %% [markdown]
# What is its last matrix for? Here is what *it* collects with *sweet* as the last word, before $W_O$ and after. Head 1 fills the
# first two columns, head 2 the last two:

# %% tags=["hide-input"]
pair = SplitAndStack(embed_dim=4, num_heads=2)
for parameter, matrix in zip(pair.parameters(), (w_q, w_k, w_v, two.W_O)):
    parameter.data = matrix
torch.testing.assert_close(pair(x, x, x), two.two_heads(x))
heads = [
    split_and_stack(sheet, 2) for sheet in sheets["sweet"]
]                                                         # (h, n, d), (h, n, d), (h, n, d)
merged = unstack_and_concatenate(one.attend(*heads)[0])   # (n, h * d)
rows = torch.stack([merged[it], (merged @ two.W_O)[it]])  # (2, e)
display.show(rows, ["side by side", "times W_O"], one.FEATURES)

# %% [markdown]
# Added to the row of *it* as they stand, the 0.97 that head 2 found about the food would be so much *action*. $W_O$ lets every
# head write into every feature. Ours moves the 0.97 under *food*.
#
# The list of the last chapter ran 41 products for eight heads, five for each and one for $W_O$. The stack runs six, and
# they multiply just as many numbers. On two cores of a CPU, with 512 or 2,048 words of 512 numbers, the list takes a
# twentieth to a third longer.

# %% tags=["proof"]
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode


class Products(TorchDispatchMode):
    """Counts the matrix products that run inside its ``with`` block."""

    calls = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.calls += operation in (torch.ops.aten.mm.default, torch.ops.aten.bmm.default)
        return operation(*args, **(kwargs or {}))


long, counts = torch.randn(64, 32), []
for kind in (two.Heads, SplitAndStack):
    module = kind(embed_dim=32, num_heads=8)
    with Products() as products, FlopCounterMode(display=False) as counter:
        module(long, long, long)
    counts.append((products.calls, counter.get_total_flops()))
(listed, work), (stacked_calls, same) = counts
assert work == same
races = measured.find("one by one")
times = [row["ratios"]["all heads at once"]["a list of heads"][1] for row in races]
assert {tuple(row["size"][1:]) for row in races} == {(512, 512, 8), (2048, 512, 8)}
assert 1.05 < min(times) < 1.1
assert 1.3 < max(times) < 1.4
print(f"✓ In {listed} products or in {stacked_calls}, as many numbers are multiplied.")

# %% tags=["proof"]
torch.manual_seed(3)
listed = two.Heads(embed_dim=24, num_heads=4).double()
stacked = SplitAndStack(embed_dim=24, num_heads=4).double()
for name in ("w_q", "w_k", "w_v"):
    side_by_side = torch.cat([getattr(head, name) for head in listed.heads], dim=1)
    getattr(stacked, name).data = side_by_side.detach()
stacked.w_o.data = listed.w_o.detach().clone()
asking = torch.randn(3, 24, dtype=torch.float64, requires_grad=True)  # (3, 24)
asked = torch.randn(5, 24, dtype=torch.float64, requires_grad=True)   # (5, 24)
ours = stacked(asking, asked, asked)                                  # (3, 24), (4, 3, 5)
mine = one.gradients(ours[0], [asking, asked, *stacked.parameters()])

theirs = listed(asking, asked, asked)  # (3, 24), (4, 3, 5)
torch.testing.assert_close(ours, theirs)
of_asking, of_asked, of_o, *of_heads = one.gradients(
    theirs[0], [asking, asked, *listed.parameters()]
)
together = [torch.cat(of_heads[part::3], dim=1) for part in range(3)]
torch.testing.assert_close(mine, (of_asking, of_asked, *together, of_o))

torchs = nn.MultiheadAttention(24, 4, bias=False, dtype=torch.float64)
packed = [torchs.in_proj_weight, torchs.out_proj.weight]  # PyTorch stores them transposed
packed[0].data = torch.cat([stacked.w_q, stacked.w_k, stacked.w_v], dim=1).mT.detach()
packed[1].data = stacked.w_o.mT.detach()
theirs = torchs(asking, asked, asked, average_attn_weights=False)  # (3, 24), (4, 3, 5)
torch.testing.assert_close(ours, theirs)
of_asking, of_asked, of_in, of_out = one.gradients(theirs[0], [asking, asked, *packed])
expected = (of_asking, of_asked, *(part.mT for part in of_in.chunk(3)), of_out.mT)
torch.testing.assert_close(mine, expected)
print("✓ The list and PyTorch's class give the same outputs, weights and gradients.")

# %% [markdown]
# ## The dog and the cat
#
# Back to the storyteller, which was trained with two heads. Whom the dog chases depends on who Anna's other animal is,
# and the word after *chased the* has to come from there. Which of the two heads of layer 2, switched off, lets animals
# chase themselves?
#
# <details name="knows"><summary>Head 1.</summary>
#
# Right. With head 1 off, 28 of 60 chasers chase themselves.
#
# </details>
# <details name="knows"><summary>Head 2.</summary>
#
# With head 2 off, none does. But 5 of 60 chase an animal that Anna never had.
#
# </details>
# <details name="knows"><summary>Either: it takes both.</summary>
#
# Head 1 alone is enough for that: with head 2 off, none does.
#
# </details>
#
# Choose, then switch, and let the dog chase and the cat. A head that is off gives 0. There are 60 such beginnings: two of six
# animals in either order are 30 pairs, and either of the two may chase.


# %% tags=["hide-input"]
CHASED = "anna had a {} and a {} . the {} chased the"
SWITCHES = {
    "both heads": (2, 2),
    "head 1 off": (2, 2, (0,)),
    "head 2 off": (2, 2, (1,)),
    "both off": (2, 2, (0, 1)),
    "uncut": (2, 1),
}


def had(pet: str, other: str, actor: str, verb: str = "chased") -> list[str]:
    """Begin a story of Anna's two animals, up to the one that something is done to."""
    begun = CHASED.format(pet, other, actor).replace("chased", verb)
    return ["/", *begun.split()]


# %% tags=["hide-input"]
def next_words(model: nn.Module, texts: list[list[str]]) -> list[str]:
    """Say how a storyteller goes on with each of these texts."""
    ten = chapters.load("10_a_little_world")
    with torch.no_grad():
        return [ten.WORDS[i] for i in model(ten.as_ids(texts))[:, -1].argmax(-1)]


def beginnings() -> list[tuple[str, str, str]]:
    """List 60 times Anna's two animals, and the one who chases."""
    animals = chapters.load("10_a_little_world").ANIMALS
    return [(a, b, who) for a in animals for b in animals if a != b for who in (a, b)]


def faults(model: nn.Module) -> list[int]:
    """Count in 60 stories: right, the chaser itself, an animal that Anna does not have."""
    begun = beginnings()
    said = next_words(model, [had(*each) for each in begun])
    itself = sum(word == who for word, (*_, who) in zip(said, begun))
    strange = sum(word not in (a, b) for word, (a, b, _) in zip(said, begun))
    return [len(begun) - itself - strange, itself, strange]


# %% tags=["hide-input"]
lost = {name: faults(cut_into(*cut)) for name, cut in SWITCHES.items()}
display.who_chases(
    lost,
    ten.WORDS,
    CHASED,
    animals=ten.ANIMALS,
    pets=["dog", "cat"],
    shapes=SHAPES,
    edge=ten.EDGE,
    name="who-chases",
)

# %% [markdown]
# Head 2 looks at the two that Anna has. Head 1 looks for *one* of them, here the dog. If it finds him chasing, the cat is left; if it
# finds him at Anna's, he is the one who is chased. Which of the two it looks for depends on the pair:
# with a cat and a horse, it is the cat. So head 1 does nearly all the work here: without head 2, 55 of 60 are still right.
#
# Then uncutting this layer, which takes nothing away, should do less harm than switching head 2 off. Press *uncut*, and then *dog* and *cat*:
# 30 are right. The two sums of each word have become one, and so there is one set of weights. In a softmax, adding a sum means
# multiplying a weight: the chaser gets nothing from head 2, and so nothing of what head 1 found in him is left. The single
# set goes to Anna's dog, whoever chases. Head 1 can do without head 2, but not against it. **That is what the cut is for:
# it gives each head weights of its own.**


# %% tags=["proof"]
def looks(text: list[str], count: int) -> Tensor:
    """Give the weights of the last word in layer 2, which is cut into so many heads."""
    model, heard = cut_into(2, count), []
    attention = model.layers.layers[1].self_attn
    attention.register_forward_pre_hook(lambda module, given: heard.append(given[0]))
    next_words(model, [text])
    wide = heard[0] @ attention.in_proj_weight.mT + attention.in_proj_bias
    q, k = (torch.stack(y[0].chunk(count, -1)) for y in wide.chunk(3, -1)[:2])
    return (q[:, -1:] @ k.mT / q.size(-1) ** 0.5).softmax(-1)[:, 0].detach()  # (h, n)


for a, b, _ in beginnings():
    sought = {had(a, b, who)[looks(had(a, b, who), 2)[0].argmax()] for who in (a, b)}
    assert len(sought) == 1
    assert sought < {a, b}
    assert sought == {"cat"} or {a, b} != {"cat", "horse"}
    assert sought == {"dog"} or {a, b} != {"cat", "dog"}
assert all(looks(had("dog", "cat", who), 1)[0, 4] > 0.9 for who in ("dog", "cat"))
print("✓ In each pair, head 1 looks for the same animal, whoever chases.")

# %% tags=["proof"]
assert [*lost.values()] == [[60, 0, 0], [32, 28, 0], [55, 0, 5], [21, 17, 22], [30, 30, 0]]
whole, one_set = cut_into(2), cut_into(2, 1)
for verb in ("chased", "feared", "carried"):
    for a, b, _ in beginnings():
        twins = [had(a, b, who, verb) for who in (a, b)]
        assert next_words(whole, twins) == [b, a]
        assert len({*next_words(one_set, twins)}) == 1
print("✓ With one set of weights, the storyteller names the same animal, whoever chases.")

# %% [markdown]
# ## Exercises
#
# ### Whose columns?
#
# *Easy, 2 minutes.* A wide $W_Q$ is (24, 24), trained with four heads of width 6. Somebody loads it with three. Each of the
# three has columns of several trained heads. Whose does the second one have? Write the indices of the first and the
# last head whose columns are among them, counted from 0.

# %% tags=["exercise"]
my_heads = (None, None)  # the first head, the last head

# %%
from annotated_book import exercises

exercises.split_and_stack.check_heads(my_heads)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# How wide is each of the three, and which columns does the second one have?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The first of the three has the columns 0 to 7. Columns 0 to 5 were trained as head 0, columns 6 to 11 as head 1.
#
# </details>

# %% tags=["solution"]
my_heads = (8 // 6, 15 // 6)

exercises.split_and_stack.check_heads.folded(my_heads)

# %% [markdown]
# ### Silence a head
#
# *Easy, 5 minutes.* To find out what a head is good for, people switch it off. Return a copy of
# `w_o`, `(h * d, e)`, that keeps one head from contributing anything to the output. `head` is its
# index, so the first head is 0. The other heads contribute as before. `w_o` itself stays as it is,
# and gradients still reach its other rows.


# %% tags=["exercise"]
def silence(w_o: Tensor, head: int, num_heads: int) -> Tensor:
    """Take one head out of the output."""
    return None  # your lines here


# %%
exercises.split_and_stack.check_silence(silence)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The merged heads stand side by side, and their feature i meets row i of $W_O$. Which rows does the
# first head meet?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Each head meets d rows. $W_O$ has $h \cdot d$ rows, so `num_heads` tells you d.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `w_o.clone()` is a copy that gradients flow through. Write zeros into the head's block of rows in
# this copy.
#
# </details>


# %% tags=["solution"]
def silence(w_o: Tensor, head: int, num_heads: int) -> Tensor:
    """Take one head out of the output.

    Args:
        w_o: (h * d, e), a block of d rows per head.
        head: its index, from 0.
        num_heads: how many there are.
    """
    d = w_o.size(0) // num_heads
    silent = w_o.clone()  # (h * d, e)
    silent[head * d : (head + 1) * d] = 0
    return silent


exercises.split_and_stack.check_silence.folded(silence)

# %% [markdown]
# ## What you have now
#
# > **In short.** Project once for all heads, cut the wide rows, and attend to the whole stack at once:
# >
# > - split: `pieces = q.split(d, dim=-1)`, h pieces of `(n, d)`
# > - stack: `torch.stack(pieces)`, `(h, n, d)`
# > - merge: `torch.cat(mixed.unbind(0), dim=-1)`, `(n, h * d)`
# >
# > The number of heads is a setting that says where to cut. Cut between the strips, and keep all words of a strip
# > together: heads first, because `@` multiplies the last two axes.
#
# `torch.stack` and `torch.cat` copy every number into new memory. The chapter
# [The reshape trick](04_reshape_trick.ipynb) splits the heads without such a copy.
