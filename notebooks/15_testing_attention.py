# %% [markdown]
# # Testing attention
#
# *How do you test attention that you did not write?*
#
# Somebody hands you an attention module. Its shapes are right and its loss falls, but the same was
# true of many mistakes in this book. There are three ways to test the module. Some properties hold
# for every correct attention, and you can check them just by calling the module. Some mistakes show
# only inside, while the module runs. A few show only in comparison with an implementation that you
# trust.

# %% tags=["hide-input"]
from annotated_attention import display

display.chapter_map(
    "project in", "split", "score", "mask", "softmax", "mix", "merge", "project out"
)

# %% [markdown]
# ## The patients
#
# The package collects mistakes in its module `mistakes`. Each mistake is the right class with one
# thing changed, and has a short name, such as `no-scale`. `PATIENTS` holds one module for each
# mistake, plus one of the right class.

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


# The mistakes of the final class; the classes of part IV have others.
LISTED = {code: x for code, x in MISTAKES.items() if x.of is MultiheadAttention}
WRONG = {code: build(mistake.version) for code, mistake in LISTED.items()}
PATIENTS = {"right": build(MultiheadAttention), **WRONG}
print(len(LISTED), "mistakes, such as:")
for code in ("no-scale", "padding-mask-on-queries", "scale-by-length"):
    print(f"{code}\n    {MISTAKES[code].title}.")

# %% [markdown]
# ## What must hold for all
#
# A **probe** is a function that calls a patient and returns how far the results are from what must
# hold. Zero is right. All probes here use self-attention in float64, where rounding errors are far
# smaller than the effect of any mistake. They share four small helpers.


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
# A blocked token must have no influence at all. The gradient shows whether it has any, because
# nothing flows through a weight of zero. The probe pads the first sentence and takes the
# **Jacobian**, the gradient of each output number. How strongly do the words react to the padding?


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
# Only the right class shows 0. `padding-mask-on-queries` empties the rows *of* the padding, which
# looks like success, but the real words still see the padding. `mask-after-softmax` hides the
# values of the padding, but its keys still take their share of the weights.
#
# ### Prefix: the past does not change
#
# If the future is hidden, the results for the first words must not change when the sentence grows.
# This probe finds leaks from the future, and also a mistake that no gradient shows.


# %%
def prefix(patient: nn.Module) -> float:
    """Compare the first four of seven tokens with the four alone."""
    x = tokens(3)
    longer = attend(patient, x, is_causal=True)[:, :4]  # (2, 4, 24)
    return gap(longer, attend(patient, x[:, :4], is_causal=True))


show(prefix, "causal-off-by-one", "scale-by-length")

# %% [markdown]
# `causal-off-by-one` lets each token see the next one. `scale-by-length` divides the scores by the
# square root of the *length*. Only the number of later tokens matters, not what they hold, so a
# gradient shows nothing.
#
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
# decoder's parts. One warning: in part IV, attention itself knows about positions. Such attention
# fails this probe and is still right.
#
# ### Convexity: the weights sum to one
#
# Weights that are positive and sum to one give a result *between* the values, a **convex**
# combination. Seven equal tokens have seven equal values, so they must give the same result as one
# token alone.


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
# ### Competition: it must be attention
#
# Now test three modules that are not attention. One returns its input. One takes the mean of all
# tokens that it may see, because its scores are all 0. One is a small network applied to each token
# by itself. Which of the four probes does each of them fail?
#
# <details><summary>What do you expect?</summary>
#
# None. They leak nothing, leave the past unchanged, ignore the order, and map equal tokens to equal
# results. So far the probes test only what attention must *not* do.
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

PROBES = (leakage, prefix, permutation, convexity)
for name, impostor in impostors.items():
    passed = sum(probe(impostor) < 1e-9 for probe in PROBES)
    assert passed == 4
    print(f"{name:>10}  passes {passed} of 4")

# %% [markdown]
# What attention *must* do is let tokens compete. Each weight is a share of a total: if one score
# rises, the other shares fall. So how much one token counts depends on the others.
#
# The next probe measures how the result of token 3 reacts to token 1. Then it changes all the other
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


print(f"right: {competition(PATIENTS['right']):.0e}")
tested = {**impostors, **PATIENTS}
alone = [name for name, patient in tested.items() if competition(patient) < 1e-9]
print("without competition:", ", ".join(alone))
assert alone == [*impostors, "heads-attended-over", "softmax-over-heads"]

# %% [markdown]
# Tokens do not compete in any of the three modules, nor in two of the mistakes. In
# `heads-attended-over`, each token attends over its own heads and sees no other token. In
# `softmax-over-heads`, the heads compete for a weight, but the tokens do not.
#
# ### Which finds which
#
# Now run the first four probes on every patient. A patient that raises an error counts as found,
# too: `heads-attended-over` compares heads with heads, so a padding mask does not fit its scores.


# %% jupyter={"source_hidden": true}
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
# Each of the four finds a mistake that the other three miss. 24 mistakes get past all four.
#
# ### A mistake has a fingerprint
#
# The gradient also tells you *where* something leaks. The **leak matrix** shows which token reacts
# to which, here under a causal mask.


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
# The third panel has one diagonal too many: somebody wrote `triu(diagonal=2)`. The wrong merge, in
# the second panel, leaves a pattern that repeats after every third row.
#
# <details><summary>Going deeper: Why every third row</summary>
#
# An output row has 24 features, and each head contributes 6 of them. The wrong merge fills a row
# with 4 neighbouring tokens of *one* head. So the first row holds tokens 0 to 3 and reacts to them.
# The 12 tokens of the first head fill three rows, and then the second head begins.
#
# </details>
#
# ## The doctor
#
# The function `examine` tests all this and more. It also copies your module's parameters into the
# right class and into every mistake in this book, and compares the outputs. If one of these classes
# computes the same, the report names it. `examine` takes a callable, the sizes, and the `kind`:
# *self*, *cross*, or *causal* for self-attention that hides the future by itself. Our `consult`
# adds an adapter, which calls the module with the arguments of PyTorch's class. A module that takes
# only x needs no adapter.
#
# The first patient is PyTorch's own class. Nothing should be wrong with it.


# %%
from attention_doctor import adapters, examine


def consult(version, kind: str = "self"):
    """Examine a version in self-attention."""
    call = adapters.torch_like(build(version, dtype=torch.float32), kind)
    return examine(call, embed_dim=WIDTH, num_heads=HEADS, kind=kind)


report = consult(nn.MultiheadAttention)
assert report.ok
print(report.verdict)
for finding in report.findings:
    print(f"    {finding.code}: {finding.symptom}")

# %% [markdown]
# Nothing is wrong. A *convention* is a choice on which good implementations differ. Where this class
# gives NaN, for example, the final class gives zeros. *Not examined* counts tests that do not apply;
# [a table](../docs/package/doctor.md#the-tests) says what each test asks.
#
# ## What is seen by looking inside
#
# A scale that is wrong but constant breaks no property: flatter weights are still valid weights. So
# the doctor also looks inside. While your code runs, PyTorch shows the doctor each operation. The
# doctor finds each softmax, the products before and after it, and their lines in your file.
#
# Here is a causal class with one mistake. It also subtracts, on purpose, a bias that grows with the
# distance. No class in this book computes the same, so comparing with them does not help.


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
# The factor is 0.204 = 1/√24: the scores are scaled by the width of the model instead of the width
# of a head. *Where* names the line; the number itself comes from `self.scale` in `__init__`. The
# doctor calls this scale wrong because 1/√e is a known slip. A number that is not a known slip may
# be intended, so the doctor would call it a convention.
#
# *Inside* lists what the doctor saw. *Not examined* lists, by name, tests that do not apply: `Near`
# takes no mask, has no dropout and returns no weights. The last line says that the comparison found
# nothing: because of the bias, neither the right class nor any known mistake gives these outputs.
#
# ## What only a reference finds
#
# A **reference** is an implementation that you trust.
#
# ### Parity: the same parameters, the same result
#
# Give the reference the patient's parameters, and compare outputs and gradients. The chapter
# [Multi-head attention](07_multihead_attention.ipynb) did this with PyTorch's class. Now do the
# same for every mistake that got past the four probes.


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
found = [code for code in unfound if fails(parity, PATIENTS[code])]  # too far, or an error
missed = len(unfound) - len(found)
print(f"parity finds {len(found)} of the {len(unfound)}, and misses {missed}")

# %% [markdown]
# `no-scale` is valid attention with sharper weights. In `keys-and-values-swapped`, two matrices
# have traded names. Neither mistake breaks a property. The 8 that parity misses need other tests,
# such as one with a mask, with dropout or in half precision.
#
# Given a `reference=`, `examine` does the same: it copies the patient's parameters into the
# reference by name. Let the reference be `Near` with the right scale. Examine three versions of
# `Near`: one like the reference, one with a scale of 0.1<!-- setting -->, and one with keys and
# values swapped. Which does the doctor call wrong without the reference, and which with it?
#
# <details><summary>What do you expect?</summary>
#
# Without the reference, none. A scale of 0.1<!-- setting --> is not a known slip. Matrices that
# have traded names learn as well as before. With the reference, the last two are wrong: given the
# same parameters, they return different results.
#
# </details>


# %%
def near(version=Near, scale: float = (WIDTH // HEADS) ** -0.5) -> nn.Module:
    """Make one with the right scale, or with another."""
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
    without, compared = (examine(module, **SIZES, reference=x) for x in (None, near()))
    assert without.ok
    assert compared.ok == (name == "right")
    said = ["fine" if report.ok else "wrong" for report in (without, compared)]
    print(f"{name:>8}:  alone {said[0]}, with the reference {said[1]}")

# %% [markdown]
# The last two are called wrong only with the reference.
#
# ## Every mistake
#
# Now the doctor examines every mistake on the list. It uses the right class as the reference, and
# compares the patient with each of these mistakes, too. So the count says nothing about mistakes
# that are not on the list.

# %%
CAUSAL = ("causal-off-by-one", "causal-hides-itself")  # only kind "causal" asks about these
reports = {
    code: consult(mistake.version, "causal" if code in CAUSAL else "self")
    for code, mistake in LISTED.items()
}
found = [code for code, report in reports.items() if code in report.codes]
assert found == [*LISTED]
print(f"{len(found)} of {len(LISTED)} mistakes are found and named")

# %% [markdown]
# <!-- deeper: What the reference alone finds -->
# ### Going deeper: What the reference alone finds
#
# Which of the 41 does the doctor find only because it has a reference? In their reports, the
# comparison with the reference is the only test that finds more than it does for the right class.

# %%
import textwrap

usual = consult(MultiheadAttention).results  # for each test what it says, such as "fine"
by_reference = []
for code, report in reports.items():
    ill = [x for x, said in report.results.items() if said not in ("fine", usual.get(x))]
    if ill == ["reference"]:
        by_reference.append(code)
print(len(by_reference), "by the reference alone:")
print(textwrap.fill(", ".join(by_reference), 88, break_on_hyphens=False))

# %% [markdown]
# Once the reference has named a mistake, the doctor looks inside only to find the line. So some of
# the nine might also show inside. To find out, put a layer behind each of the nine. Then no known
# version computes the same, and the doctor has nothing to compare with.


# %%
class Behind(nn.Module):
    """Put a layer behind a patient."""

    def __init__(self, patient: nn.Module) -> None:
        super().__init__()
        self.patient, self.last = patient, nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.patient(x, x, x, is_causal=True, need_weights=False)
        return self.last(y.tanh())


for code in by_reference:
    report = examine(Behind(build(LISTED[code].version, dtype=torch.float32)), **SIZES)
    assert report.codes == ((code,) if "scale" in code else ())
    found = [f"{finding.severity}: {finding.code}" for finding in report.findings]
    print(f"{code:>27}  {', '.join(found) or 'nothing'}")

# %% [markdown]
# The four scales show inside. The doctor calls `no-scale` a convention, because some families of
# models are trained without a scale. The other five need the reference.
#
# <!-- /deeper -->
#
# > **Pitfall.** Testing with friendly sizes. With one sample, one head or one token there is nothing
# > to mix up. With 6 tokens and heads of width 6, `scale-by-length` divides by the right number.
#
# Try five choices of sizes. How many mistakes give the right output for each?

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
    outputs = [attend(build(v.version, num_heads=h), x) for v in LISTED.values()]
    hidden = sum(gap(output, right) < 1e-9 for output in outputs)
    print(f"{name:>14}: {hidden:2} of {len(LISTED)} mistakes give the right output")

# %% [markdown]
# 17 stay hidden even when all sizes differ, because these calls use no mask, no training mode and
# no half precision. So make all sizes differ, and try each mask.
#
# ## In your own tests
#
# `assert_attention` examines a module. If something is wrong, it fails with the report as its
# message. Here is a test of `Near`, which still has its mistake.

# %%
from attention_doctor import assert_attention


def test_attention() -> None:
    assert_attention(Near(24, 4), kind="causal", embed_dim=24, num_heads=4)


try:
    test_attention()
except AssertionError as error:
    said = str(error)
print("\n".join(said.splitlines()[:4]))
assert "scale-by-model-width" in said

# %% [markdown]
# The doctor also examines [whole models](../docs/package/doctor.md#a-whole-model), and works
# [in your CI](../docs/package/doctor-in-ci.md). The page [Symptoms](../docs/symptoms.md) leads from
# what you see to likely causes.
#
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
from annotated_attention import exercises

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
# *Medium, 5 minutes.* This causal self-attention has three mistakes. The check shows the doctor's
# first finding with its line. Repair that mistake, and run the check again. The slip may be above
# the line where it shows.


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
# Follow the axes. What is the last axis of `k` once it is transposed? And what are the axes of
# `weights @ v` before it is reshaped?
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
# You can examine attention that somebody else wrote, say what your examination cannot see, and keep
# it as a test.
#
# > **In short.** In every correct attention, $\partial\,\text{output}_i / \partial x_j = 0$ for a
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
# > line. To find a scale that may be intended, or roles that have traded names, you need a
# > reference.
#
# [The next chapter](16_published_code.ipynb) reads seven designs that people copy, with their source
# in front of you.
