# %% [markdown]
# # Testing attention
#
# *How do you test attention that you did not write?*
#
# Somebody hands you an attention module. Its shapes are right and its loss falls, but that was true
# of many mistakes in this book, too. There are three ways to test it. Some properties hold for
# every right attention, and calling the module shows them. Some mistakes show only inside, while it
# runs. A few show only beside an implementation that you trust.

# %% tags=["hide-input"]
from annotated_attention import display

display.chapter_map(
    "project in", "split", "score", "mask", "softmax", "mix", "merge", "project out"
)

# %% [markdown]
# ## The patients
#
# The package has a collection of mistakes, the module `mistakes`. Each is the right class with one
# thing changed, and has a short name, such as `no-scale`. These are the patients of this chapter.

# %%
import torch
from torch import Tensor, nn

from annotated_attention import MultiheadAttention
from annotated_attention.mistakes import MISTAKES

WIDTH, HEADS = 24, 4


def build(version, **options) -> nn.Module:
    """Make a module, with the same parameters whatever its class."""
    torch.manual_seed(15)
    options = {"num_heads": HEADS, "batch_first": True, "dtype": torch.float64, **options}
    return version(WIDTH, **options).eval()


# Those of the final class; the classes of part IV have mistakes of their own.
LISTED = {code: x for code, x in MISTAKES.items() if x.of is MultiheadAttention}
WRONG = {code: mistake.version for code, mistake in LISTED.items()}
VERSIONS = {"right": MultiheadAttention, **WRONG}
PATIENTS = {code: build(version) for code, version in VERSIONS.items()}
print(len(LISTED), "mistakes, such as:")
for code in ("no-scale", "padding-mask-on-queries", "scale-by-length"):
    print(f"{code}\n    {MISTAKES[code].title}.")

# %% [markdown]
# ## What must hold for all
#
# Each question below is a **probe**: a function of a patient that returns how far it is from what
# must hold. Zero is right. A probe only calls the patient and never reads its code. (These call it
# as the final class is called.) All probes use self-attention in float64, where rounding is far
# below any effect.


# %%
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


def show(probe, *codes: str) -> None:
    for code in ("right", *codes):
        print(f"{code:>33}  {probe(PATIENTS[code]):.0e}")


# %% [markdown]
# ### Leakage: what does it react to?
#
# A blocked token must have no influence at all. The gradient shows this:
# nothing flows through a weight of zero. The probe pads the first sentence and takes the
# **Jacobian**, the gradient of each output number. How do the words react to the padding?


# %%
def leakage(patient: nn.Module) -> float:
    """Measure how the real tokens react to padding."""
    x = tokens(2)  # (2, 7, 24)
    padding = torch.zeros(2, 7, dtype=torch.bool)
    padding[0, 4:] = True

    def words(x: Tensor) -> Tensor:
        x = x * 1  # a copy, since one mistake changes its input in place
        return attend(patient, x, key_padding_mask=padding)[0, :4]  # (4, 24)

    reaction = torch.autograd.functional.jacobian(words, x)  # (4, 24, 2, 7, 24)
    return reaction[:, :, 0, 4:].abs().max().item()


show(leakage, "padding-mask-on-queries", "mask-ignored", "mask-after-softmax")

# %% [markdown]
# Only the right one shows 0. `padding-mask-on-queries` empties the rows *of* the padding, which
# looks like success, and the real words go on seeing it. `mask-after-softmax` hides the values of
# the padding, but its keys still take their share of the weights.
#
# ### Prefix: the past does not change
#
# If the future is hidden, the results for the first words must not change when the sentence goes
# on. This finds what leaks from the future, and also two mistakes that no gradient shows.


# %%
def prefix(patient: nn.Module) -> float:
    """Compare the first four of seven tokens with the four alone."""
    x = tokens(3)
    longer = attend(patient, x, is_causal=True)[:, :4]  # (2, 4, 24)
    return gap(longer, attend(patient, x[:, :4], is_causal=True))


show(prefix, "causal-off-by-one", "scale-by-length", "split-and-merge-without-transpose")

# %% [markdown]
# `scale-by-length` divides by the root of the *length*. No number of the future enters, only how
# many there are, so the gradient sees no leak. `split-and-merge-without-transpose` lays the
# features of all tokens end to end and cuts this row into h equal parts. Where it cuts depends on
# the length, too.
#
# ### Permutation: the order says nothing
#
# Without a mask, and without positions in the embeddings, attention sees a set. Shuffle the tokens,
# and the results must be shuffled in the same way.


# %%
def permutation(patient: nn.Module) -> float:
    """Compare the results of shuffled tokens with the shuffled results."""
    x, order = tokens(4), torch.tensor([3, 0, 5, 1, 6, 4, 2])
    return gap(attend(patient, x[:, order]), attend(patient, x)[:, order])


show(permutation, "causal-unasked", "merge-without-transpose")

# %% [markdown]
# `causal-unasked` hides the future where nobody asked for it, as in an encoder that is built from a
# decoder's parts. One warning: attention with positions *inside*, such as rotary ones, fails this
# probe and is right.
#
# ### Convexity: the weights sum to one
#
# Weights that are positive and sum to one make a result that lies *between* the values: a
# **convex** combination. Seven equal tokens have seven equal values, so the result must be that of
# one token. This tests the sum, not the sign.


# %%
def convexity(patient: nn.Module) -> float:
    """Compare seven equal tokens with one."""
    one = tokens(5, n=1)           # (2, 1, 24)
    seven = one.expand(-1, 7, -1)  # (2, 7, 24)
    return gap(attend(patient, seven), attend(patient, one).expand(-1, 7, -1))


show(convexity, "softmax-over-heads", "merge-without-transpose")

# %% [markdown]
# The wrong merge fails here, too: it puts one head's features in another's place.
#
# ### Competition: it must be attention
#
# Three modules that are not attention take the test. One returns its input. One takes a mean,
# because its scores are all 0. One is a small network for each token by itself. Which of the four
# probes does each of them fail?
#
# <details><summary>What do you expect?</summary>
#
# None. They leak nothing, keep the past, know no order, and map equal tokens to equal results. So
# far the probes test only what attention must *not* do.
#
# </details>


# %%
class Alone(nn.Sequential):
    """Give each token to the layers by itself."""

    def forward(self, x: Tensor, *others: Tensor, **masks) -> tuple[Tensor, None]:
        return super().forward(x), None


mean = build(MultiheadAttention)
mean.in_proj_weight.data[:WIDTH] = 0  # W_Q; the bias starts at 0, so all scores are 0
network = Alone(nn.Linear(WIDTH, 50), nn.ReLU(), nn.Linear(50, WIDTH)).double()
impostors = {"identity": Alone(), "mean": mean, "network": network}

# %% [markdown]
# What attention *must* do is let tokens compete: how much one token counts depends on the others,
# because each weight is a score's share of the total. If one score rises, the other shares fall.
# The new probe measures how the result of token 3 reacts to token 1, changes all tokens but these
# two, and measures again. Here zero is wrong.


# %%
def competition(patient: nn.Module) -> float:
    """Say how much one token's influence on another changes with the other tokens."""

    def influence(x: Tensor) -> Tensor:
        jacobian = torch.autograd.functional.jacobian(lambda x: attend(patient, x)[0, 3], x)
        return jacobian[:, 0, 1]  # (e, e)

    x, other = tokens(8), tokens(9)
    other[:, [1, 3]] = x[:, [1, 3]]
    return gap(influence(other), influence(x))


PROBES = (leakage, prefix, permutation, convexity)
for name, patient in {"right": PATIENTS["right"], **impostors}.items():
    passed = sum(probe(patient) < 1e-9 for probe in PROBES)
    strength = competition(patient)
    assert (passed, strength > 1e-9) == (4, name == "right")
    print(f"{name:>10}  passes {passed} of 4, competition {strength:.0e}")
alone = [code for code, patient in PATIENTS.items() if competition(patient) < 1e-9]
print("without competition:", ", ".join(alone))
assert alone == ["heads-attended-over", "softmax-over-heads"]

# %% [markdown]
# All three pass the four probes, and none has competition. Two of the mistakes have none either. In
# `heads-attended-over`, each token attends over its own heads and sees no other token. In
# `softmax-over-heads`, heads compete for a weight, and tokens do not.
#
# ### Which finds which
#
# This cell runs the first four probes on every patient. An error counts as found, too: the scores of
# `heads-attended-over` take no padding mask.


# %%
def fails(probe, patient: nn.Module) -> bool:
    """Tell whether a probe finds something."""
    try:
        return probe(patient) > 1e-9
    except (RuntimeError, ValueError):
        return True


found_by = {c: [p.__name__ for p in PROBES if fails(p, x)] for c, x in PATIENTS.items()}
for probe in PROBES:
    alone = [code for code, names in found_by.items() if names == [probe.__name__]]
    assert alone
    print(f"only {probe.__name__}: {', '.join(alone)}")
assert not found_by.pop("right")
unfound = [code for code, names in found_by.items() if not names]
print(f"none of the four: {len(unfound)} of {len(LISTED)} mistakes")

# %% [markdown]
# Each of the four finds a mistake that the other three miss.
#
# ### A mistake has a fingerprint
#
# The gradient also tells *where* something leaks. Draw which token reacts to which under a causal
# mask: the **leak matrix**.


# %%
def reactions(patient: nn.Module, n: int) -> Tensor:
    """Measure how strongly each output token reacts to each input token."""
    x = tokens(6, n, b=1)
    jacobian = torch.autograd.functional.jacobian(
        lambda x: attend(patient, x, is_causal=True)[0], x
    )
    return jacobian.abs().amax((1, 2, 4))  # (n, n)


fingerprints = {
    code: reactions(PATIENTS[code], 12) > 1e-12
    for code in ("right", "merge-without-transpose", "causal-off-by-one")
}
for code, seen in fingerprints.items():
    print(f"{code:>24}: {seen.triu(1).sum():2} cells of the future")

# %% jupyter={"source_hidden": true}
from matplotlib.patches import Rectangle

drawing, axes = display.panels(780, 290, columns=3)
for ax, (code, seen) in zip(axes, fingerprints.items()):
    for i, j in seen.nonzero().tolist():
        colour = display.COLOURS["h" if j > i else "n"]
        ax.add_patch(Rectangle((j, i), 1, 1, color=colour, alpha=0.55))
        if j > i:
            ax.text(j + 0.5, i + 0.55, "×", ha="center", va="center", fontsize=9)
    ax.set(xlim=(0, 12), ylim=(12, 0), aspect="equal", xticks=[], yticks=[])
    ax.set(xlabel="input token", ylabel="output token")
    ax.set_title(code, fontsize=10)
display.finish(drawing, name="fingerprints", alt="; ".join(
    f"{code}: {seen.triu(1).sum()} of 66 cells of the future react"
    for code, seen in fingerprints.items()
), caption="Blue: a token reacts to itself or the past. ×: it reacts to the future.")

# %% [markdown]
# The pattern of the wrong merge repeats after every third row. Each of its rows holds 4
# neighbouring tokens of *one* head, so three rows hold the 12 tokens of the first head, the next
# three those of the second. The second row, for instance, holds tokens 4 to 7, and reacts to all
# that these see. In the third panel there is one diagonal too many: somebody wrote
# `triu(diagonal=2)`.
#
# ## The doctor
#
# `examine` asks these questions and more. It takes something to call, the sizes, and the `kind`:
# *self*, *cross*, or *causal* for self-attention that hides the future by itself. An adapter says
# with which arguments to call the module. A doctor who finds everybody ill is no use, so the first
# patient is PyTorch's own class.

# %%
from annotated_attention.doctor import adapters, examine


def consult(version, kind: str = "self"):
    """Examine a version in self-attention."""
    module = build(version, dtype=torch.float32)
    return examine(
        adapters.torch_like(module, kind), embed_dim=WIDTH, num_heads=HEADS, kind=kind
    )


assert consult(nn.MultiheadAttention).ok
consult(nn.MultiheadAttention)

# %% [markdown]
# Nothing is wrong. A *convention* is a choice on which good implementations differ, and this class
# has two.
#
# *Agrees* means that the doctor copied the parameters into a right version and got the same outputs
# in nine *situations*, calls with different lengths and masks. *Not examined* lists what does not
# apply here, such as the cache of part IV.
#
# ## What is seen by looking inside
#
# No property shows a scale that is wrong but constant: flatter weights are weights, too. So the
# doctor also watches. While your code runs, PyTorch hands it each operation. It finds each softmax,
# the product of queries and keys before it, the product with the values after it, and the line of
# each in your file.
#
# Here is a causal class. On purpose it subtracts a bias that grows with the distance, so no class of
# this book computes the same. And it has one mistake.


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


# %%
SIZES = {"embed_dim": WIDTH, "num_heads": HEADS, "kind": "causal"}
examine(Near(WIDTH, HEADS), **SIZES)

# %% [markdown]
# The scores are scaled by the width of the model instead of a head's. *Where* is the line at which
# it happens; the number itself comes from `self.scale` in `__init__`. *Inside* is what the doctor
# saw: the factor, the axis of the softmax, and their lines. Mistakes in the mask and in the axis
# are named in the same way.
#
# The last line says that there was nothing to compare with: neither the right class nor any known
# mistake gives these outputs. Sometimes there is nothing to see inside either, as when the weights
# are computed in NumPy. Then the report says so, and the doctor goes on from outside.
#
# ## What only a reference finds
#
# A **reference** is an implementation that you trust. Give it the patient's parameters, and
# compare.
#
# ### Parity: the same parameters, the same result
#
# The chapter [Multi-head attention](07_multihead_attention.ipynb) compared its class with PyTorch's
# in this way, outputs and gradients. Now do it with every mistake that got past the four probes.


# %%
def parity(patient: nn.Module) -> float:
    """Compare with PyTorch's."""
    trusted = build(nn.MultiheadAttention)
    trusted.load_state_dict(patient.state_dict())
    x = tokens(1).requires_grad_()
    ours, theirs = attend(patient, x), attend(trusted, x)  # (2, 7, 24)
    gradients = [torch.autograd.grad(y.square().sum(), x)[0] for y in (ours, theirs)]
    return max(gap(ours, theirs), gap(*gradients))


show(parity, "no-scale", "keys-and-values-swapped")

# %%
import textwrap

rest = [code for code in unfound if not fails(parity, PATIENTS[code])]
assert 0 < len(rest) < len(unfound)
print(f"parity finds {len(unfound) - len(rest)} of the {len(unfound)}, and misses")
print(textwrap.fill(", ".join(rest), 88, break_on_hyphens=False))

# %% [markdown]
# `no-scale` is a valid attention with sharper weights, and in `keys-and-values-swapped` two matrices
# have traded names. Neither breaks a property. The mistakes that even parity misses
# need something else: a mask, half precision, dropout, a hook, or a look at the inputs afterwards.
#
# Given a `reference=`, `examine` does the same: it copies the patient's parameters into the
# reference, by their names. Let the reference be `Near` with the right scale.
# Examine three versions: the same again, one with a scale of 0.1<!-- setting -->, and one with keys
# and values swapped. Which are called wrong without the reference, and which with it?
#
# <details><summary>What do you expect?</summary>
#
# Without it, none. The scale above, 0.204, is exactly 1/√e, a known slip; 0.1<!-- setting --> is no
# known one and may be meant, so it is a convention. Matrices that swap their names learn as well as
# before. With the reference, the last two are wrong: with the same parameters they give
# other results.
#
# </details>


# %%
def near(version=Near, scale: float = (WIDTH // HEADS) ** -0.5) -> nn.Module:
    """Make one with a scale."""
    torch.manual_seed(16)
    module = version(WIDTH, HEADS).eval()
    module.scale = scale
    return module


class Swapped(Near):
    def project(self, x: Tensor) -> tuple[Tensor, ...]:
        q, k, v = super().project(x)
        return q, v, k


versions = {"right": near(), "0.1": near(scale=0.1), "swapped": near(Swapped)}
for name, module in versions.items():
    before, after = (examine(module, **SIZES, reference=x) for x in (None, near()))
    assert before.ok
    assert after.ok == (name == "right")
    print(f"{name:>8}:  alone {before.codes}  with the reference {after.codes[:1]}")

# %% [markdown]
# Alone, nothing is wrong; with the reference, the outputs of the last two differ. (No scale at all
# would be a convention in `Near`, too, since some families of models are trained without one.)
#
# ## Every mistake
#
# Now the doctor examines every mistake of the list. It knows a right version of this class, so it
# brings its own reference; for `Near` it had none. The cell counts what only this comparison names.

# %%
CAUSAL = ("causal-off-by-one", "causal-hides-itself")  # only kind "causal" asks about these
reports = {
    code: consult(mistake.version, "causal" if code in CAUSAL else "self")
    for code, mistake in LISTED.items()
}
assert all(code in report.codes for code, report in reports.items())
usual = consult(MultiheadAttention).results
compared = [
    code for code, report in reports.items()
    if [x for x, said in report.results.items() if said not in ("fine", usual.get(x))]
    == ["reference"]
]
print(f"all {len(reports)} are found, {len(compared)} of them by the reference alone:")
print(textwrap.fill(", ".join(compared), 88, break_on_hyphens=False))

# %% [markdown]
# Looking inside would show the four scales among them, too, as it did for `Near`. But where the
# reference has named a mistake, the doctor looks inside only for its line. (`nan-row` is on the list
# because the final class promises zeros; in other people's code it is a convention.)
#
# > **Pitfall.** Testing with friendly sizes. With one sample, one head or one token there is nothing
# > to mix up. And where two sizes are equal, one may stand for the other: with 6 tokens and heads of
# > width 6, `scale-by-length` divides by the right number.

# %%
situations = {
    "one token": (3, 4, 1),
    "one head": (3, 1, 7),
    "one sample": (1, 4, 7),
    "n equal to d": (3, 4, 6),
    "all different": (3, 4, 7),
}
for name, (b, h, n) in situations.items():
    x = tokens(7, n, b)                     # (b, n, 24)
    right = attend(build(MultiheadAttention, num_heads=h), x)
    outputs = [attend(build(v, num_heads=h), x) for v in WRONG.values()]
    hidden = sum(gap(output, right) < 1e-9 for output in outputs)
    print(f"{name:>14}: {hidden:2} of {len(LISTED)} mistakes give the right output")

# %% [markdown]
# 17 stay hidden even at the end: these calls use no mask, no training mode and no half precision.
# So let all sizes differ, and try each mask.
#
# ## In your own tests
#
# `assert_attention` examines a module and fails with the report as its message. Here is a whole
# test of `Near` as it was first, with its mistake.

# %%
from annotated_attention.doctor import assert_attention


def test_attention() -> None:
    assert_attention(Near(24, 4), kind="causal", embed_dim=24, num_heads=4)


try:
    test_attention()
except AssertionError as error:
    said = str(error)
print("\n".join(said.splitlines()[:4]))
assert "scale-by-model-width" in said

# %% [markdown]
# The test fails with the line where the mistake shows.
# [`examine_model`](../docs/package/doctor.md#examine-inside-a-model) examines each attention inside
# a whole model. In a shell, `attention-doctor file.py:Name --kind causal --embed-dim 24 --num-heads
# 4` examines a class in a file. The page [In your CI](../docs/package/doctor-in-ci.md) has the
# lines for a workflow, and [Symptoms](../docs/symptoms.md) leads from what you see, such as NaN, to
# likely causes.
#
# ## Exercises
#
# ### Mend one number
#
# *Easy, 2 minutes.* Give `Near` the usual scale. The check asks the doctor; the line that it shows
# stands in `Near`, where the scale is used.


# %% tags=["exercise"]
class Scaled(Near):
    """A causal self-attention that prefers near tokens, with the usual scale."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__(embed_dim, num_heads)
        self.scale = embed_dim**-0.5  # mend this


# %%
from annotated_attention import exercises

exercises.testing_attention.check_scaled(Scaled)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# A score adds up d products, one for each feature of a head.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# How wide is a head of `embed_dim // num_heads` features, and what is 1 over the root of that?
#
# </details>


# %% tags=["solution"] jupyter={"source_hidden": true}
class Scaled(Near):
    """A causal self-attention that prefers near tokens, with the usual scale."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__(embed_dim, num_heads)
        self.scale = (embed_dim // num_heads) ** -0.5


exercises.testing_attention.check_scaled(Scaled)

# %% [markdown]
# ### Make the doctor content
#
# *Medium, 5 minutes.* This is a usual causal self-attention with three mistakes. The check asks the
# doctor and shows the first finding with its line. Repair that, and ask again. The line is where a
# mistake shows; the slip may stand above it.


# %% tags=["exercise"]
class Repaired(nn.Module):
    """A causal self-attention: repair it."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.h = num_heads
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.out = nn.Linear(embed_dim, embed_dim)

    def forward(self, x: Tensor) -> Tensor:
        b, n, e = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        k = k.transpose(-2, -1)
        scores = q @ k / k.size(-1) ** 0.5
        blocked = torch.ones(n, n, dtype=torch.bool).triu(2)
        weights = scores.masked_fill(blocked, float("-inf")).softmax(-1)
        return self.out((weights @ v).reshape(b, n, e))


# %%
exercises.testing_attention.check_repaired(Repaired)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `examine(Repaired(24, 4), embed_dim=24, num_heads=4, kind="causal")` shows everything. The future
# leaks for two reasons; the past changes for a third.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Follow the axes. What is the last axis of `k` once it is transposed? And what are those of
# `weights @ v`, before they are reshaped?
#
# </details>


# %% tags=["solution"] jupyter={"source_hidden": true}
class Repaired(nn.Module):
    """A causal self-attention, repaired."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.h = num_heads
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.out = nn.Linear(embed_dim, embed_dim)

    def forward(self, x: Tensor) -> Tensor:
        b, n, e = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.mT / q.size(-1) ** 0.5
        blocked = torch.ones(n, n, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(blocked, float("-inf")).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(b, n, e))


exercises.testing_attention.check_repaired(Repaired)

# %% [markdown]
# ### Write a probe
#
# *Medium, 5 minutes.* Two mistakes mix the samples even without a mask: `batch-mixed-into-sequence`
# and `heads-of-other-samples`. Write the function that finds them: do the samples of a batch affect
# each other? You are given `call`, which takes a float32 tensor x of shape `(b, n, 24)` and returns
# one of the same shape. Return True or False. Rounding is about `1e-6` here.


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
# Results in float32 may differ in the last digits, in particular at another batch size, so compare
# with a tolerance. And take each sample in turn, since the first may see the last, and not the last
# the first.
#
# </details>


# %% tags=["solution"] jupyter={"source_hidden": true}
def samples_touch(call) -> bool:
    """Say whether a sample's result depends on what else is in its batch."""
    x = torch.randn(3, 5, 24)
    alone = torch.cat([call(x[i : i + 1]) for i in range(len(x))])
    return not torch.allclose(call(x), alone, atol=1e-4)


exercises.testing_attention.check_samples_touch(samples_touch)

# %% [markdown]
# ## What you have now
#
# You can examine attention that somebody else wrote, say what your test cannot see, and keep the
# answer as a test.
#
# > **In short.** In every right attention, $\partial\,\text{output}_i / \partial x_j = 0$ for a
# > blocked token $j$ and every other token $i$; the weights of each query sum to 1, $\sum_j A_{ij}
# > = 1$; and tokens compete. Under a causal mask, the past does not change when the sentence grows.
# > Without masks and positions, shuffled tokens give shuffled results.
# >
# > Test with tokens `(b, n, e)` and masks `(b, n, m)` whose sizes all differ.
# >
# > ```python
# > assert_attention(module, kind="causal", embed_dim=24, num_heads=4)
# > assert_attention(module, kind="causal", embed_dim=24, num_heads=4, reference=trusted)
# > ```
# >
# > Properties find what breaks a rule. Looking inside finds a wrong scale, mask or axis, with its
# > line. To find a scale that may be meant, or roles that have traded names, you need a reference.
#
# One chapter is left for the class: [write it from memory](17_from_memory.ipynb), and let the
# doctor read it.
