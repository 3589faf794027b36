# %% [markdown]
# # Testing attention
#
# *How do you test attention that you cannot see into?*
#
# *18 minutes and 7 of exercises. Afterwards you can test attention that you did not write.*
#
# Somebody hands you an attention module. Its shapes are right and its loss falls, but the same was
# true of many mistakes in this book. Some properties hold for every attention with a plain softmax
# over the keys, and to check one, you only have to call the module. A function that does so is a
# **probe**.
#
# You write six probes here, and read the fingerprint that a wrong reshape leaves. What breaks no property
# needs an implementation that you trust, or a tool that looks inside.

# %%
import torch
from torch import Tensor, nn

from annotated_attention import MultiheadAttention
from annotated_book import display
from attention_doctor import assert_attention, examine
from attention_doctor.mistakes import MISTAKES

# %% [markdown]
# ## What must hold for all
#
# A probe calls a module and returns how far the results are from what must hold, so zero is right.
# All probes here use self-attention in float64, where rounding errors are far smaller than the
# effect of any mistake, and share three helpers. They are plain PyTorch: paste them without the package. If
# your module takes query and key apart, give them different lengths, too, as in
# [Batches](05_batches.ipynb#cell-id=one-test-for-the-walls).

# %%
WIDTH, HEADS = 24, 4


def attend(patient: nn.Module, x: Tensor, **masks) -> Tensor:
    """Let every token of ``x`` look at all of them."""
    return patient(x, x, x, **masks)[0]


def tokens(seed: int, n: int = 7, b: int = 2) -> Tensor:
    """Draw a batch of ``b`` sequences."""
    source = torch.Generator().manual_seed(seed)
    return torch.randn(b, n, WIDTH, generator=source, dtype=torch.float64)


def gap(found: Tensor, expected: Tensor) -> float:
    """Give the largest difference."""
    return (found - expected).abs().max().item()


# %% [markdown]
# If your module is called in another way, write its call into `attend`. Here is one for `forward(x, mask)`, where
# the mask is `(b, 1, n, n)` and True means allowed:


# %%
def attend_by_mask(patient, x: Tensor, key_padding_mask=None, is_causal=False) -> Tensor:
    """Let a module with one mask do what ``attend`` asks."""
    allowed = torch.ones(len(x), 1, x.size(1), x.size(1), dtype=torch.bool)
    if is_causal:
        allowed = allowed.tril()
    if key_padding_mask is not None:
        allowed = allowed & ~key_padding_mask[:, None, None]
    return patient(x, allowed)


# %% [markdown]
# A probe is worth something if it passes the right class and fails a wrong one. So each is tried on right
# code that was broken on purpose, which is called **mutation testing**. The package collects such mistakes:
# the right class with one thing changed, and a short name.


# %% tags=["fold-input"]
def build(version, **options) -> nn.Module:
    """Make a module, with the same parameters whatever its class."""
    torch.manual_seed(15)
    options = {"num_heads": HEADS, "batch_first": True, "dtype": torch.float64, **options}
    return version(WIDTH, **options).eval()


# Only mistakes made in MultiheadAttention; later chapters have their own.
LISTED = {
    code: mistake for code, mistake in MISTAKES.items() if mistake.of is MultiheadAttention
}
WRONG = {code: build(mistake.version) for code, mistake in LISTED.items()}
PATIENTS = {"right": build(MultiheadAttention), **WRONG}


def show(probe, *codes: str):
    """Show what a probe finds in the right class, and in wrong ones."""
    rows = {code: [probe(PATIENTS[code])] for code in ("right", *codes)}
    return display.show(rows, columns=[probe.__name__])


# %% tags=["proof"]
def foreign(x: Tensor, mask: Tensor) -> Tensor:
    per_head = ~mask.expand(-1, HEADS, -1, -1).flatten(0, 1)
    return PATIENTS["right"](x, x, x, attn_mask=per_head)[0]


ending = torch.arange(7) >= torch.tensor([[5], [7]])
for given in ({}, {"is_causal": True}, {"key_padding_mask": ending}):
    expected = attend(PATIENTS["right"], tokens(1), **given)
    torch.testing.assert_close(attend_by_mask(foreign, tokens(1), **given), expected)
print("✓ The two ways to call agree without a mask, with a causal one and with padding.")

# %% [markdown] name="leakage-what-does-it-react-to"
# ### Leakage: what does it react to?
#
# A blocked token must have no influence. The gradient shows whether its *content* has any, because nothing
# flows through a weight of zero. The probe pads the first sentence, and asks what the outputs of its real
# tokens react to; squared, they do not cancel in the sum.


# %%
def leakage(patient: nn.Module) -> float:
    """Measure how the real tokens react to padding."""
    x = tokens(2).requires_grad_()  # (2, 7, 24)
    padding = torch.zeros(2, 7, dtype=torch.bool)
    padding[0, 5:] = True
    copy = x * 1  # since one mistake changes its input in place
    output = attend(patient, copy, key_padding_mask=padding)[0, :5]  # (5, 24)
    (reaction,) = torch.autograd.grad(output.square().sum(), x)      # (2, 7, 24)
    return reaction[0, 5:].abs().max().item()


show(leakage, "padding-mask-on-queries", "mask-ignored", "mask-after-softmax")

# %% [markdown]
# Only the right class shows 0. `padding-mask-on-queries` fills the rows *of* the padding with zeros,
# which looks like success, but the real words still see the padding. `mask-after-softmax` hides the
# values of the padding, but its keys still take their share of the weights.

# %% [markdown] name="prefix-the-past-does-not-change"
# ### Prefix: the past does not change
#
# If the future is hidden, the results for the first words must not change when the sentence grows.
# This probe finds leaks from the future, and also a mistake that no gradient shows. (PyTorch's class
# refuses `is_causal=True` without an `attn_mask`; for it, let `attend` make one.)


# %%
def prefix(patient: nn.Module) -> float:
    """Compare the first five of seven tokens with the five alone."""
    x = tokens(3)
    longer = attend(patient, x, is_causal=True)[:, :5]  # (2, 5, 24)
    return gap(longer, attend(patient, x[:, :5], is_causal=True))


show(prefix, "causal-off-by-one", "scale-by-length")

# %% [markdown]
# `causal-off-by-one` lets each token see the next one. `scale-by-length` divides the scores by the
# square root of the *length*. Only the number of later tokens matters, not what they hold, so a
# gradient shows nothing.

# %% [markdown] name="permutation-the-order-says-nothing"
# ### Permutation: the order says nothing
#
# Without a mask, and without positions in the embeddings, attention treats the tokens as a set. If
# you shuffle the tokens, the results must come out shuffled in the same way.


# %%
def permutation(patient: nn.Module) -> float:
    """Compare the results of shuffled tokens with the shuffled results."""
    x, order = tokens(4), torch.tensor([3, 0, 5, 1, 6, 4, 2])
    return gap(attend(patient, x[:, order]), attend(patient, x)[:, order])


show(permutation, "causal-unasked")

# %% [markdown]
# `causal-unasked` hides the future although nobody asked for that, as in an encoder built from a
# decoder's parts.

# %% [markdown] name="convexity-the-weights-sum-to-one"
# ### Convexity: the weights sum to one
#
# Weights that are positive and sum to one give a result *between* the values, a **convex**
# combination. Seven equal tokens have seven equal values, so they must give the same result as one
# token alone. (The probe tests the sum only: it would miss a negative weight.)


# %%
def convexity(patient: nn.Module) -> float:
    """Compare seven equal tokens with one."""
    one = tokens(5, n=1)           # (2, 1, 24)
    seven = one.expand(-1, 7, -1)  # (2, 7, 24)
    return gap(attend(patient, seven), attend(patient, one).expand(-1, 7, -1))


show(convexity, "softmax-over-heads")

# %% [markdown]
# In `softmax-over-heads`, the weights sum to one over the heads instead of over the keys.
#
# ### Competition: one token's gain is another's loss
#
# Now test three modules that do not attend. One returns its input. One is an attention that has
# stopped attending: all its scores are 0, so it takes the mean of all tokens that it may see. One is
# a small network applied to each token by itself. Which of the four probes does each of them fail?
#
# <details><summary>What do you expect?</summary>
#
# None. They leak nothing, leave the past unchanged, ignore the order, and map equal tokens to equal
# results. So far the probes test only what attention must *not* do.
#
# </details>


# %% tags=["fold-input"]
class PerToken(nn.Sequential):
    """Give each token to the layers by itself."""

    def forward(self, x: Tensor, *others: Tensor, **masks) -> tuple[Tensor, None]:
        return super().forward(x), None


mean = build(MultiheadAttention)
mean.in_proj_weight.data[:WIDTH] = 0  # W_Q; the bias starts at 0, so all scores are 0
network = PerToken(nn.Linear(WIDTH, 50), nn.ReLU(), nn.Linear(50, WIDTH)).double()
impostors = {"identity": PerToken(), "mean": mean, "network": network}

FOUR = (leakage, prefix, permutation, convexity)
rows = {name: [probe(x) < 1e-9 for probe in FOUR] for name, x in impostors.items()}
display.show(rows, columns=[probe.__name__ for probe in FOUR], corner="passes")

# %% [markdown]
# What attention *must* do is let tokens compete. Each weight is a share of a total: if one score
# rises, the other shares fall. So how much one token counts depends on the others.
#
# The next probe measures how the result of token 3 reacts to token 1, by the **Jacobian**: the derivative of
# every number of the output with respect to every number of the input. Then it changes all the other
# tokens, measures again, and returns the difference. This time, zero is wrong.


# %%
def competition(patient: nn.Module) -> float:
    """Say how much one token's influence on another changes with the other tokens."""

    def influence(x: Tensor) -> Tensor:
        jacobian = torch.autograd.functional.jacobian(lambda x: attend(patient, x)[0, 3], x)
        return jacobian[:, 0, 1]  # (e, e)

    x, other = tokens(8), tokens(9)
    other[:, [1, 3]] = x[:, [1, 3]]
    return gap(influence(other), influence(x))


tested = {**impostors, **PATIENTS}
without = [name for name, patient in tested.items() if not competition(patient) > 1e-9]
print("without competition:", ", ".join(without))

# %% tags=["proof"]
assert 1e-3 < competition(PATIENTS["right"]) < 1e-2
assert without == [*impostors, "heads-attended-over", "softmax-over-heads"]
print("✓ In the right class keys compete; in the three impostors they do not.")

# %% [markdown]
# Tokens do not compete in the three modules, nor in two of the mistakes. In
# `heads-attended-over`, each token attends over its own heads and sees no other token. In
# `softmax-over-heads`, the heads compete for a weight, but the tokens do not.

# %% [markdown] name="idle-every-row-must-learn"
# ### Idle: every row must learn
#
# A head that takes the keys of another still leaks nothing and competes. But its own parameters lie idle:
# nothing that you train ever reaches them. So let every output count, and count the rows of the matrices that
# get no gradient. Leave the biases out, because that of the keys gets none in the right class either.


# %%
def idle(patient: nn.Module) -> int:
    """Count the rows of all matrices that get no gradient."""
    patient.zero_grad()
    attend(patient, tokens(10)).square().sum().backward()
    found = 0
    for matrix in patient.parameters():
        if matrix.dim() > 1:
            gradient = torch.zeros_like(matrix) if matrix.grad is None else matrix.grad
            found += sum(not row.any() for row in gradient)
    return found


show(idle, "keys-of-one-head", "keys-from-queries", "output-projection-missing")

# %% [markdown]
# In `keys-of-one-head`, three of the four heads make keys that nobody uses. `output-projection-missing` has a
# whole matrix that is never applied.
#
# Does a module that passes all six attend, then? Here is a fourth impostor, without query, key or softmax: it adds
# to each token the mean of those that it may see, and gives the sum to a small network.


# %% tags=["fold-input"]
class Blend(PerToken):
    """Give each token, and the mean of those that it may see, to the layers."""

    def forward(self, x, *others, key_padding_mask=None, is_causal=False):
        seen = x.new_ones(len(x), x.size(1), x.size(1))
        seen = seen.tril() if is_causal else seen
        if key_padding_mask is not None:
            seen = seen * ~key_padding_mask[:, None]
        return super().forward(x + seen / seen.sum(-1, keepdim=True) @ x)


SIX = (*FOUR, competition, idle)
torch.manual_seed(15)
blend = Blend(nn.Linear(WIDTH, 50), nn.GELU(), nn.Linear(50, WIDTH)).double()
found = {probe.__name__: probe(blend) for probe in SIX}
rows = {"blend": [f"{x:.4f}" if x > 1e-9 else "0" for x in found.values()]}
display.show(rows, columns=[*found], corner="gives")

# %% tags=["proof"]
assert found.pop("competition") > 1e-3
assert all(x < 1e-9 for x in found.values())
print("✓ The fourth impostor passes all six.")

# %% [markdown]
# It passes all: what a token does to the network depends on the others, though no weight was ever computed. The six
# are necessary, not sufficient. Only a reference, or a look inside, can say that a module attends.
#
# ### Modules that rightly fail
#
# Before you blame a module, know which of these it may fail. These are right, of six kinds:

# %% tags=["fold-input"]
from annotated_attention import modern


class Alone(nn.Module):
    """A causal module that takes x alone."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor, *others: Tensor, is_causal: bool = False, **masks):
        return self.module(x, **masks)


class Rounded(Alone):
    """A module that computes in bfloat16."""

    def forward(self, x: Tensor, *others: Tensor, **masks):
        return self.module(*[x.bfloat16()] * 3, **masks)[0].double(), None


# %% tags=["fold-input"]
KINDS = {
    "causal, takes x alone": Alone(build(modern.CachedAttention)),
    "causal, a window of 3": Alone(build(modern.WindowAttention, window=3)),
    "rotary positions": build(modern.RotaryAttention),
    "grouped heads (GQA)": build(modern.GroupedQueryAttention, num_kv_heads=2),
    "an appended key, as a sink is": build(MultiheadAttention, add_zero_attn=True),
    "bfloat16, gaps up to 0.01": Rounded(build(MultiheadAttention).bfloat16()),
}
rows = {}
for kind, module in KINDS.items():
    limit = 1e-2 if isinstance(module, Rounded) else 1e-9
    gaps = {probe.__name__: probe(module) for probe in SIX}
    rows[kind] = [
        (x > 1e-9) if name == "competition" else x <= limit for name, x in gaps.items()
    ]
display.show(rows, columns=[probe.__name__ for probe in SIX], corner="passes")

# %% [markdown]
# Who knows about order *must* fail *permutation*; positions that the module adds to its tokens spoil
# *convexity*, too. A sink must fail *convexity*: some of the weight goes to no token. Sigmoid attention fails
# that and *competition*. Without a padding mask or a way to hide the future, leave *leakage* or *prefix* out.
# Matrices that start at zero, as LoRA's do, you fill at random first, and frozen ones count as idle. If your
# window hides token 1 from token 3, let *competition* ask about nearer ones.
#
# If the module only runs in bfloat16, convert inside `attend`, and allow gaps of about a hundredth where zero is
# right. For *competition*, where zero is the failure, keep 1e-9: what it finds in the right class is itself below
# a hundredth.

# %% [markdown] name="parity-the-same-parameters-the-same-result"
# ## Parity: the same parameters, the same result
#
# Some mistakes break no property. For those you need a **reference**, an implementation that you trust. Give it
# the patient's parameters, and compare outputs and gradients, as in [Multi-head
# attention](07_multihead_attention.ipynb).


# %%
def parity(patient: nn.Module) -> float:
    """Compare with PyTorch's."""
    trusted = build(nn.MultiheadAttention)
    trusted.load_state_dict(patient.state_dict())
    x = tokens(1).requires_grad_()
    ours, theirs = attend(patient, x), attend(trusted, x)  # (2, 7, 24)
    gradients = [torch.autograd.grad(y.square().sum(), x)[0] for y in (ours, theirs)]
    return gap(ours, theirs) + gap(*gradients)  # max() could lose a NaN


show(parity, "no-scale", "keys-and-values-swapped")

# %% [markdown]
# `no-scale` is valid attention with sharper weights, and whether it is meant only a comparison tells.
# In `keys-and-values-swapped`, two matrices have traded names. (If your parameters have other names than
# PyTorch's, rename them in the `state_dict` first: `load_state_dict` raises an error otherwise, and that says
# nothing about your module.)
#
# ## Which finds which
#
# Now run all seven on every mistake. An error is kept apart: it may come from the mistake, or from a call
# that does not fit.
#
# > **Pitfall.** It is tempting to ask whether a gap is *large*. Don't: NaN is neither larger nor
# > smaller than any number, so a module that returns NaN would pass. Ask whether the gap is *small*.


# %% tags=["fold-input"]
SEVEN = (*SIX, parity)


def says(probe, patient: nn.Module) -> str:
    """Say what comes of a probe: a dot, a cross for an error, or nothing."""
    try:
        gap = probe(patient)
    except (RuntimeError, ValueError):
        return "x"
    passes = gap > 1e-9 if probe is competition else gap <= 1e-9
    return "" if passes else "o"  # NaN does not pass


assert not any(says(probe, PATIENTS["right"]) for probe in SEVEN)
assert says(lambda patient: float("nan"), PATIENTS["right"]) == "o"
said = {code: [says(probe, x) for probe in SEVEN] for code, x in WRONG.items()}
by_six = [code for code, signs in said.items() if any(signs[:-1])]
by_parity = [code for code, signs in said.items() if signs[-1] and code not in by_six]
unfound = [code for code, signs in said.items() if not any(signs)]
counts = {"the six": by_six, "parity alone": by_parity, "none of them": unfound}
rows = {name: [len(codes)] for name, codes in counts.items()}
display.show(rows, columns=[f"of {len(LISTED)} mistakes"], corner="found by")

# %% tags=["hide-input"]
from matplotlib.patches import Rectangle

drawing, axes = display.panels(405, 400, columns=2)
order = sorted(said, key=lambda code: [not sign for sign in said[code]])
half = (len(order) + 1) // 2
for ax, codes in zip(axes, (order[:half], order[half:])):
    for i, code in enumerate(codes):
        if i % 2 == 0:
            ax.add_patch(
                Rectangle((-0.5, i - 0.5), 7, 1, color="#808080", alpha=0.12, lw=0)
            )
        for j, sign in enumerate(said[code]):
            if sign:
                ax.plot(j, i, sign, color="black", markersize=4)
    ax.set(xlim=(-0.5, 6.5), ylim=(half - 0.5, -0.5))
    ax.set_yticks(range(len(codes)), codes, fontsize=8)
    ax.set_xticks(range(7), [probe.__name__ for probe in SEVEN], rotation=90, fontsize=9)
    ax.tick_params(length=0, labeltop=True, labelbottom=False)
    ax.spines[:].set_visible(False)
alt = "; ".join(
    f"{probe.__name__}: {sum(bool(signs[j]) for signs in said.values())}"
    for j, probe in enumerate(SEVEN)
)
display.finish(
    drawing,
    name="which-finds-which",
    alt=f"How many of the mistakes each probe finds. {alt}.",
    caption="A dot: the probe finds the mistake. A cross: the call raises an error.",
)

# %% tags=["proof"]
parameters = [
    sum(w.numel() for w in PATIENTS[code].parameters())
    for code in ("right", "heads-in-a-plain-list")
]
assert parameters[0] > parameters[1]
scales = {"no-scale", "scale-by-model-width", "scale-twice", "scale-inverted"}
traded = {"chunks-in-the-wrong-order", "interleaved-per-head", "keys-and-values-swapped"}
found_otherwise = {"heads-in-a-plain-list", "heads-of-other-samples"}
rest = {"output-projection-doubled", "weights-averaged-over-heads"}
assert {*by_parity} == scales | traded | found_otherwise | rest
print("✓ Counting the parameters finds `heads-in-a-plain-list` as well.")

# %% [markdown]
# One of the 22 shows only as an error: with sizes that differ, `mask-on-the-wrong-axis` does not fit. Of those
# that only parity finds, four are a wrong but constant scale, and in three the matrices have traded
# places. Two more could be found without a reference: `heads-in-a-plain-list` has too few parameters, and for
# `heads-of-other-samples` you write the probe in the second exercise. The last two are other attention, but
# valid.
#
# What is left waits for a mask, a mode or a dtype, or is no matter of outputs. Each needs a question of its own:
#
# | ask | finds |
# |---|---|
# | parity with a mask per head, `(b * h, n, m)` | `mask-in-the-wrong-order` |
# | parity under `is_causal=True`, with the causal mask that PyTorch's class wants beside it | `causal-hides-itself` |
# | parity with dropout in training, after the same seed; only if both draw the weights in the same layout and by the same kernel | `dropout-before-softmax` |
# | parity with dropout in evaluation | `dropout-in-evaluation` |
# | any mask in float16 | `finite-fill-in-half` |
# | is a fully masked row finite? | `nan-row` |
# | is the caller's tensor unchanged? | `input-changed-in-place` |
# | is a hook called? | `call-instead-of-forward` |


# %% tags=["proof"]
def differs(code: str, training: bool = False, dropout: float = 0.0, **masks) -> bool:
    """Say whether a mistake differs from PyTorch's class, after the same seed."""
    results = []
    for version in (LISTED[code].version, nn.MultiheadAttention):
        module = build(version, dropout=dropout).train(training)
        torch.manual_seed(3)
        results.append(attend(module, tokens(11), **masks))
    return gap(*results) > 1e-9


future = torch.ones(7, 7, dtype=torch.bool).triu(1)
nobody = torch.ones(7, 7, dtype=torch.bool)
per_head = torch.stack([future if i % 3 else future.mT for i in range(2 * HEADS)])
assert differs("mask-in-the-wrong-order", attn_mask=per_head)
assert differs("causal-hides-itself", attn_mask=future, is_causal=True)
assert differs("dropout-before-softmax", training=True, dropout=0.3)
assert differs("dropout-in-evaluation", dropout=0.3)
assert not any(differs(code) for code in unfound)
assert attend(PATIENTS["nan-row"], tokens(11), attn_mask=nobody).isnan().any()
x = tokens(11)
attend(WRONG["input-changed-in-place"], x, key_padding_mask=future[:2].clone())
assert not x.equal(tokens(11))
half = build(LISTED["finite-fill-in-half"].version).half()
assert says(lambda _: attend(half, tokens(11).half(), attn_mask=future), half) == "x"
seen = []
for code in ("right", "call-instead-of-forward"):
    PATIENTS[code].register_forward_hook(lambda *_, code=code: seen.append(code))
    attend(PATIENTS[code], tokens(11))
assert seen == ["right"]
print("✓ Each question finds its mistake, and plain parity finds none of them.")

# %% [markdown]
# ## A mistake has a fingerprint
#
# A probe says that something is wrong. The Jacobian can also say *what*. In attention, an output row
# does two things: it answers the query of *one* token, its own, and it collects from the keys and
# values of *all* tokens. To see both, hand the tokens to the module twice, once as `query` and once
# as `key` and `value`. The Jacobian has the axes of the output, then those of the input:
# `(1, n, e, 1, n, e)`. Take the largest absolute derivative over all features. One number is left
# for each output row and each token, and it is zero if the row does not react to the token. (A module
# that takes `x` alone gives one table, of both roles together.)


# %%
def reactions(patient: nn.Module, n: int = 8) -> tuple[Tensor, Tensor]:
    """Measure how output rows react to each token's query, and to its key and value."""
    x = tokens(6, n, b=1)  # (1, n, e)
    by_role = torch.autograd.functional.jacobian(
        lambda asking, asked: patient(asking, asked, asked)[0], (x, x)
    )
    of_query, of_key = (part.abs().amax((0, 2, 3, 5)) for part in by_role)  # (n, n)
    return of_query, of_key


# %% [markdown]
# Try it on the two mistakes of [The reshape trick](04_reshape_trick.ipynb), a merge and a split
# that leave out the transpose, and on both at once. The patients have two heads here, and the eight
# tokens get the names of eight words. In one of the three wrong ways, the row of *it* still answers
# the query of *it* and no other. In which one, and from which words does the row collect there?
#
# <details><summary>What do you expect?</summary>
#
# With both at once: the pieces of *it* come back to their place. But each head then holds only half
# of the sentence, and *it* collects from its own half alone. With one wrong step, the row of *it*
# holds pieces that were computed for other words, and so answers their queries.
#
# </details>

# %% tags=["fold-input"]
WORDS = ["the", "cat", "drank", "milk", "because", "it", "was", "thirsty"]
WAYS = {"right": MultiheadAttention}
for way, part in (
    ("wrong merge", "merge"),
    ("wrong split", "split"),
    ("both wrong", "split-and-merge"),
):
    WAYS[way] = MISTAKES[f"{part}-without-transpose"].version
it = WORDS.index("it")
tables, names = {}, {}
for way, version in WAYS.items():
    tables[way] = reactions(build(version, num_heads=2))
    names[way] = [
        " ".join(word for word, size in zip(WORDS, table[it]) if size > 1e-12)
        for table in tables[way]
    ]
display.show(names, columns=["answers", "collects from"])

# %% tags=["hide-input"]
drawing, axes = display.panels(540, 320, columns=4)
told = []


def draw_reactions(ax, top, table: Tensor, right: Tensor, letter: str, it: int) -> int:
    strength, wrong = (table / table.max()).sqrt(), (table > 1e-12) != (right > 1e-12)
    for i, j in (table > 1e-12).nonzero().tolist():
        look = {"fc": display.COLOURS[letter], "alpha": 0.2 + 0.6 * strength[i, j].item()}
        ax.add_patch(Rectangle((j, top + i), 1, 1, lw=0, **look))
    for i, j in wrong.nonzero().tolist():
        ax.plot(j + 0.5, top + i + 0.5, "o", color="black", markersize=3)
    ax.add_patch(Rectangle((0, top), 8, 8, fill=False, ec="#808080", lw=0.8))
    ax.add_patch(Rectangle((0, top + it), 8, 1, fill=False, ec="black", lw=1.2))
    ax.text(-0.3, top + it + 0.5, "it", ha="right", va="center", fontsize=10)
    return int(wrong.sum())


# %% tags=["hide-input"]
for ax, (way, pair) in zip(axes, tables.items()):
    wrong = []
    for top, letter, what, table, right in zip(
        (0, 9.6), "nm", ("query", "key and value"), pair, tables["right"]
    ):
        wrong.append(draw_reactions(ax, top, table, right, letter, it))
        colour = display.COLOURS[letter]
        ax.text(4, top - 0.2, what, ha="center", color=colour, fontsize=10)
    told.append("{}: {} wrong cells of queries, {} of keys and values".format(way, *wrong))
    ax.set(xlim=(-1, 8.2), ylim=(17.8, -1), aspect="equal", title=way)
    ax.axis("off")
display.finish(
    drawing,
    name="leak-matrix",
    alt=f"What rows react to. {'; '.join(told)}.",
    caption="A row is an output row, a column the token it reacts to: its query above, "
    "its key and value below. Dots: a reaction too many, or one that is missing.",
)

# %% [markdown]
# The upper squares reveal a single mistake, in the merge or in the split. The lower ones reveal the
# two together. Neither side catches all three wrong ways, so ask both questions: whose query does a
# row answer, and from whose keys and values does it collect?


# %% [markdown]
# ## Which sizes to test with
#
# > **Pitfall.** Testing with friendly sizes. With one sample, one head or one token there is nothing
# > to mix up. With 6 tokens and heads of width 6, `scale-by-length` divides by the right number.
#
# How many mistakes give the right output with each of five choices of sizes?

# %% tags=["fold-input"]
situations = {
    "one token": (3, 4, 1),
    "one head": (3, 1, 7),
    "one sample": (1, 4, 7),
    "n equal to d": (3, 4, 6),
    "all different": (3, 4, 7),
}
rows = {}
for name, (b, h, n) in situations.items():
    x = tokens(7, n, b)  # (b, n, 24)
    right = attend(build(MultiheadAttention, num_heads=h), x)
    outputs = [attend(build(v.version, num_heads=h), x) for v in LISTED.values()]
    rows[name] = [sum(gap(output, right) < 1e-9 for output in outputs)]
display.show(rows, columns=[f"right all the same, of {len(LISTED)} mistakes"])

# %% [markdown]
# 17 stay hidden even when all sizes differ. Most of them need a mask, training mode or half
# precision to show, and these calls use none. So make all sizes differ, and try each mask.

# %% [markdown] name="the-doctor"
# ## The doctor
#
# Here is a causal class with one mistake. Its scale is wrong, but constant, so it breaks no property:
# flatter weights are still valid weights. It also subtracts, on purpose, a bias that grows with the
# distance. No class in this book computes the same, so there is no reference either.


# %%
class Near(nn.Module):
    """A causal self-attention that prefers near tokens."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.h, self.scale = num_heads, embed_dim**-0.5
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.out = nn.Linear(embed_dim, embed_dim)

    def project(self, x: Tensor) -> Tensor:
        return self.qkv(x).unflatten(-1, (3, self.h, -1)).permute(2, 0, 3, 1, 4)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x)                  # each (b, h, n, d)
        place = torch.arange(x.size(1))            # (n,)
        distance = place[:, None] - place          # (n, n)
        scores = q @ k.mT * self.scale - distance  # (b, h, n, n)
        weights = self.weigh(scores.masked_fill(distance < 0, -torch.inf))
        return self.out((weights @ v).transpose(1, 2).flatten(2))

    def weigh(self, scores: Tensor) -> Tensor:
        return scores.softmax(-1)


# %% [markdown]
# The **doctor** looks inside; `pip install .`, in a checkout of this book's repository, installs it. While your code runs, it finds
# each softmax or call of `F.scaled_dot_product_attention`, the products before and after it, and their
# lines in your file. It also runs the probes, and looks for the mistake on its list that computes the
# same. Its function `examine` takes the module, the sizes and a `kind`: *causal* is called with x alone,
# and hides the future by itself. [Other kinds](../docs/package/doctor.md), and
# [adapters](../docs/package/doctor.md#adapters) for other layouts and masks, are on its page.

# %%
SIZES = {"embed_dim": WIDTH, "num_heads": HEADS, "kind": "causal"}
report = examine(Near(WIDTH, HEADS), **SIZES)
(found,) = report.findings
rows = {"evidence": [found.evidence], "where": [found.where.text]}
display.show(rows, columns=[found.code])

# %% tags=["proof"]
assert report.codes == ("scale-by-model-width",)


class CausalBlend(Blend):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x, is_causal=True)[0]


report = examine(CausalBlend(*blend).float().eval(), **SIZES)
assert report.ok
assert "inside: no softmax over a product of queries and keys" in "".join(
    report.not_examined
)
print(
    "✓ It is named, and nothing else is; in the fourth impostor the doctor sees no softmax."
)

# %% [markdown]
# The factor is 0.204 = 1/√24: the scores are scaled by the width of the model instead of the width
# of a head. 1/√e is a slip that many people make, so the doctor calls it wrong. A number that is no
# known slip might be on purpose, so it only gets a remark. In a causal version of the fourth impostor it finds
# nothing wrong; it only lists, under *not examined*, that it saw no softmax over a product of queries and keys. So read that list.
#
# In a notebook of your own, end a cell with `examine(…)`, and you see the whole report, with a remedy. In a test, `assert_attention` fails with the report as its
# message. With the scale mended, it passes:

# %% tags=["proof"]
mended = Near(WIDTH, HEADS).eval()
mended.scale = (WIDTH // HEADS) ** -0.5
assert_attention(mended, **SIZES)
assert examine(mended, **SIZES).ok
print("✓ With 1/√d, nothing is wrong with `Near`.")

# %% [markdown]
# The page on [your CI](../docs/package/doctor-in-ci.md) says how to keep it as a test, and
# [Symptoms](../docs/symptoms.md) leads from what you see to likely causes.

# %% [markdown]
# <!-- deeper: What a reference tells the doctor -->
# ### Going deeper: What a reference tells the doctor
#
# Given a `reference=`, `examine` compares outputs in the same way, with all masks: it copies the
# patient's parameters into the reference by name. Let the reference be `Near` with the right
# scale, and the patient a version of it with keys and values swapped. Does the doctor call it
# wrong without the reference, and with it?
#
# <details><summary>What do you expect?</summary>
#
# Only with it. Matrices that have traded names learn as well as before, so alone this is no mistake.
# The reference expects each matrix in its own place, so given the same parameters, the patient's
# results differ.
#
# </details>


# %%
class Swapped(Near):
    def project(self, x: Tensor) -> tuple[Tensor, ...]:
        q, k, v = super().project(x)
        return q, v, k


patient = Swapped(WIDTH, HEADS).eval()
patient.scale = mended.scale
references = {"alone": None, "with the reference": mended}
reports = {name: examine(patient, **SIZES, reference=x) for name, x in references.items()}
rows = {name: ["fine" if report.ok else "wrong"] for name, report in reports.items()}
display.show(rows, columns=["the doctor says"])

# %% [markdown]
# Alone, nothing says which third of `qkv` is meant to hold the keys, and no class on the list prefers
# near tokens as this one does.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Exercises
#
# ### Mend one number
#
# *Easy, 2 minutes.* Give `Near` the usual scale. The check calls the doctor, which shows the line
# in `Near` where the scale is used.


# %% tags=["exercise"]
class Scaled(Near):
    """A causal self-attention that prefers near tokens, with the usual scale."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__(embed_dim, num_heads)
        self.scale = embed_dim**-0.5  # mend this


# %%
from annotated_book import exercises

exercises.testing_attention.check_scaled(Scaled)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# A score is the sum of d products, one for each feature of a head.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A head has `embed_dim // num_heads` features. What is 1 over the square root of that number?
#
# </details>


# %% tags=["solution"]
class Scaled(Near):
    """A causal self-attention that prefers near tokens, with the usual scale."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__(embed_dim, num_heads)
        self.scale = (embed_dim // num_heads) ** -0.5


exercises.testing_attention.check_scaled.folded(Scaled)

# %% [markdown]
# ### Write a probe
#
# *Medium, 5 minutes.* Two mistakes mix the samples even without a mask: `batch-mixed-into-sequence`
# and `heads-of-other-samples`. Write a function that finds them: it returns True if the samples of
# a batch affect each other. You are given `call`, which takes a float32 tensor x of shape
# `(b, n, 24)` and returns a tensor of the same shape. Rounding errors are about `1e-6` here.


# %% tags=["exercise"]
def samples_touch(call) -> bool:
    """Say whether a sample's result depends on what else is in its batch."""
    return None  # your lines here


# %%
exercises.testing_attention.check_samples_touch(samples_touch)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Take one sample. What must not change when the others are changed, or left out? Call twice.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Results in float32 may differ in the last digits, especially when the batch size changes, so
# compare with a tolerance. And take each sample in turn: the first may see the last while the last
# does not see the first.
#
# </details>


# %% tags=["solution"]
def samples_touch(call) -> bool:
    """Say whether a sample's result depends on what else is in its batch."""
    x = torch.randn(3, 5, 24)
    alone = torch.cat([call(x[i : i + 1]) for i in range(len(x))])
    return not torch.allclose(call(x), alone, atol=1e-4)


exercises.testing_attention.check_samples_touch.folded(samples_touch)

# %% [markdown]
# ## What you have now
#
# You can test attention that you did not write, and say what the tests cannot see.
#
# > **In short.** In every attention with a plain softmax over the keys, $\partial\,\text{output}_i / \partial x_j = 0$ for a
# > blocked token $j$ and every other token $i$; without dropout, the weights of each query that sees
# > anything sum to 1, $\sum_j A_{ij} = 1$; and, unless a matrix is zero, tokens compete and every row of a matrix gets a gradient. Under a causal mask, the past does not change when the sentence grows.
# > Without masks and positions, shuffled tokens give shuffled results.
# >
# > Test with tokens `(b, n, e)` and masks `(b, n, m)` whose sizes all differ; where query and key are
# > given apart, n and m, too.
# >
# > ```python
# > sizes = {"kind": "causal", "embed_dim": 24, "num_heads": 4}
# > assert_attention(module, **sizes)
# > assert_attention(module, **sizes, reference=trusted)
# > ```
# >
# > Probes find what breaks a rule. Looking inside finds a wrong scale, mask or axis, with its line.
# > To find roles that have traded names, or a scale that may be intended, you need a reference.
#
# [The next chapter](18_published_code.ipynb) shows you six pieces of code that people copy, and you name the line
# that goes wrong.
