# %% [markdown]
# # Training
#
# *Does a low loss mean that the model works?*
#
# A pupil learns to write a word backwards. In the lessons the solution lies on the desk, covered,
# and each letter is uncovered once the pupil has written it. In the exam there is no solution. A
# pupil who peeks under the cover can shine in every lesson and fail every exam.
#
# A decoder is trained in lessons like these and used in exams like these. Here you train a model
# that is small enough to watch: you see its attention learn where to look, and then you silence its
# heads one by one. Next, you train two more models with mistakes from [The reshape
# trick](04_reshape_trick.ipynb#two-mistakes-that-keep-every-shape) built in. Their loss still gets
# low, but they write garbage. At the end you take apart a model whose two heads you can explain.

# %% tags=["hide-input"]
from annotated_attention import display

display.chapter_map("split", "score", "mask", "softmax", "mix", "merge")

# %% [markdown]
# The lit steps are those that happen head by head, plus the split and merge around them. Here you
# watch and silence heads, and you break the split and the merge.
#
# ## A task that needs attention
#
# The source is ten random letters, and the target is the same letters backwards. To write the first
# letter, the model has to look at the last letter of the source, since the answer is nowhere else.
# Three more tokens have special signs: `[` starts every target, while `]` (the end) and `.`
# (padding) are needed later.

# %%
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention import MultiheadAttention
from annotated_attention.seq2seq import Seq2SeqTransformer

torch.set_num_threads(1)  # with one, sums come out the same each time; more gain nothing
PAD, START, END = 0, 1, 2
SIGNS = ".[]abcdefghij"


def ten_backwards(b: int, source: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw ``b`` sequences of ten letters, and each of them backwards."""
    letters = torch.randint(3, len(SIGNS), (b, 10), generator=source)  # (b, m)
    start = torch.full((b, 1), START)                                  # (b, 1)
    return letters, torch.cat([start, letters.flip(1)], 1)             # (b, m), (b, 11)


def spell(ids: Tensor) -> str:
    """Write token ids as signs."""
    return "".join(SIGNS[token] for token in ids.tolist())


src, tgt = ten_backwards(2, torch.Generator().manual_seed(0))  # (2, 10), (2, 11)
print(spell(src[0]), "->", spell(tgt[0]))

# %% [markdown]
# ## The loop
#
# The decoder is given the target without its last token, and at each place it must predict the
# token that follows. Where it would have written something else, it is still given the right token,
# as if a teacher had corrected it. This is **teacher forcing** [[Williams and
# Zipser](../docs/references.md#williams-1989)]. One step can then train all places at once, because
# the causal mask keeps each place from seeing the token that it must predict.
#
# `Run` holds everything that the next step depends on, because a checkpoint will have to save all
# of it. (Dropout is 0, so nothing else is random.) The `schedule` lowers the learning rate step by
# step, down to a tenth of its initial value. With one post-LN layer on each side, training works
# without the warm-up that deeper stacks need (see [Transformer
# layers](08_transformer_layers.ipynb)).


# %%
@dataclass
class Run:
    """A model in training, and all that its next step depends on."""

    task: Callable[[int, torch.Generator], tuple[Tensor, Tensor]]
    model: Seq2SeqTransformer
    optimizer: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LRScheduler
    source: torch.Generator
    done: int = 0


def begin(task, heads: int, steps: int, attention=MultiheadAttention, seed: int = 0) -> Run:
    """Make a model with one layer on each side, ready to be trained on ``task``."""
    torch.manual_seed(seed)
    sizes = {"d_model": 32, "num_encoder_layers": 1, "num_decoder_layers": 1}
    sizes |= {"nhead": heads, "dim_feedforward": 128, "max_len": 16, "dropout": 0.0}
    signs = len(SIGNS)  # 13: ten letters and three signs
    model = Seq2SeqTransformer(signs, signs, pad=PAD, attention=attention, **sizes)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.008)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, steps)
    return Run(task, model, optimizer, schedule, torch.Generator().manual_seed(seed))


# %%
def train(run: Run, until: int, watch: Callable[[Run], None] | None = None) -> None:
    """Take steps until there are ``until``, and call ``watch`` after each."""
    while run.done < until:
        src, tgt = run.task(64, run.source)     # (b, m), (b, n)
        given, asked = tgt[:, :-1], tgt[:, 1:]  # (b, ...), (b, ...)
        scores = run.model(src, given)          # (b, ..., 13)
        loss = F.cross_entropy(scores.flatten(0, 1), asked.flatten(), ignore_index=PAD)
        run.optimizer.zero_grad()
        loss.backward()
        run.optimizer.step()
        run.schedule.step()
        run.done += 1
        if watch is not None:
            watch(run)


# %% [markdown]
# ## Three numbers
#
# How good is the model? Take 200 fresh sequences and measure three numbers.
#
# - **Loss**: the number that training lowers, here on newly drawn sequences. (The model has met
#   hardly any of these ten-letter sequences before. Of the shorter ones, used later, it has met
#   many.)
# - **Accuracy**: how often the likeliest token is the right one. The model is given the right
#   beginning, so the accuracy is teacher-forced, like the loss.
# - **Exact match**: how often the model writes the whole target without a mistake, given the source
#   alone. It starts from `[`, writes the likeliest token, and continues from what it wrote itself.
#   This is called **greedy decoding**. It is the exam, and it is what you want a model for.


# %%
@torch.no_grad()
def judge(run: Run) -> tuple[float, float, float]:
    """Measure loss, teacher-forced accuracy and greedy exact match."""
    src, tgt = run.task(200, torch.Generator().manual_seed(12345))  # (b, m), (b, n)
    asked = tgt[:, 1:]                                              # (b, ...)
    scores = run.model.eval()(src, tgt[:, :-1])                     # (b, ..., 13)
    loss = F.cross_entropy(scores.flatten(0, 1), asked.flatten(), ignore_index=PAD)
    right = (scores.argmax(-1) == asked)[asked != PAD]
    written = run.model.greedy(src, START, END, max_new=asked.size(1))
    run.model.train()
    missing = tgt.size(1) - written.size(1)  # greedy may stop early
    exact = (F.pad(written, (0, missing), value=PAD) == tgt).all(1)
    return loss.item(), right.float().mean().item(), exact.float().mean().item()


# %% [markdown]
# <!-- deeper: a progress bar, and a curve -->
# ### Going deeper: a progress bar, and a curve
#
# `follow` trains just as `train` does, but it also moves a progress bar, judges the model and
# records the results.


# %%
def follow(run: Run, steps: int, every: int, also: Callable | None = None) -> dict:
    """Train, judge every 20 steps, and show every so many below a progress bar."""
    bar = display.Progress(steps, "loss", "accuracy", "exact match")
    curve = {}

    def watch(run: Run) -> None:
        bar.to(run.done)
        if run.done % 20 == 0:
            curve[run.done] = judge(run)
        if run.done % every == 0:
            bar.measured(*curve[run.done])
        if also is not None:
            also(run)

    train(run, steps, watch)
    return curve


# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Attention that learns where to look
#
# Begin with one head, so that there is only one map to watch: the weights of the decoder's
# cross-attention. `follow` is `train` with a progress bar, and `keep` reads the weights every five
# steps. `weights_in`, defined in the folded section, returns the weights of an attention.

# %% [markdown]
# <!-- deeper: weights that nobody asks for -->
# ### Going deeper: weights that nobody asks for
#
# Training does not ask for weights. `weights_in` therefore sets a hook, a function that PyTorch
# calls before a module runs. The hook records the inputs of the attention, and a second call with
# the same inputs asks for the weights.


# %%
@torch.no_grad()
def weights_in(attention: MultiheadAttention, model: nn.Module, *inputs: Tensor) -> Tensor:
    """Give the weights of an attention, head by head, while the model reads inputs."""
    noted = []
    hook = attention.register_forward_pre_hook(
        lambda _, given, options: noted.append((given, options)), with_kwargs=True
    )
    model(*inputs)
    hook.remove()
    given, options = noted[0]
    options = options | {"need_weights": True, "average_attn_weights": False}
    _, weights = attention(*given, **options)
    return weights  # (b, h, n, m)


def cross_attention(model: Seq2SeqTransformer) -> MultiheadAttention:
    """Find the attention in which the target looks at the source."""
    return model.transformer.decoder.layers[-1].multihead_attn


# %% [markdown]
# <!-- /deeper -->


# %%
STEPS = 160


def keep(maps: dict[int, Tensor], run: Run, src: Tensor, given: Tensor) -> None:
    """Add the map to ``maps``, every five steps."""
    if run.done % 5 == 0:
        attention = cross_attention(run.model)
        maps[run.done] = weights_in(attention, run.model, src, given)[0, 0]  # (n, m)


src, tgt = ten_backwards(1, torch.Generator().manual_seed(7))  # (1, 10), (1, 11)
word, wanted = spell(src[0]), spell(tgt[0, 1:])
first, maps = begin(ten_backwards, heads=1, steps=STEPS), {}
keep(maps, first, src, tgt[:, :-1])
learned = follow(first, STEPS, every=40, also=lambda run: keep(maps, run, src, tgt[:, :-1]))
*_, exact = learned[STEPS]
assert exact > 0.9

# %% [markdown]
# An exact match needs all ten letters to be right, so this number rises last. Here is what happened
# inside the model, for one sequence. If the figure has a slider, it takes you through the whole
# training; begin by moving it to step 0.

# %% jupyter={"source_hidden": true}
from matplotlib.patches import Rectangle

readings = {step: table.flip(1).diagonal().mean().item() for step, table in maps.items()}
shown = [0, 50, 70, 100, STEPS]
drawing, axes = display.panels(640, 165, columns=len(shown))
for ax, step in zip(axes, shown):
    i, j = (maps[step] > 0.02).nonzero(as_tuple=True)
    look = {"color": display.COLOURS["n"], "marker": "s", "s": 90, "linewidths": 0}
    ax.scatter(j + 0.5, i + 0.5, alpha=(0.9 * maps[step][i, j]).tolist(), **look)
    ax.add_patch(Rectangle((0, 0), 10, 10, fill=False, edgecolor=display.COLOURS["b"]))
    ax.set(xlim=(0, 10), ylim=(10, 0), aspect="equal", title=f"step {step}")
    ax.set_xticks([j + 0.5 for j in range(10)], list(word), color=display.COLOURS["m"])
    ax.set_yticks([i + 0.5 for i in range(10)], list(wanted), color=display.COLOURS["n"])
    ax.tick_params(length=0, labeltop=True, labelbottom=False, labelsize=8)
share = ", ".join(f"{readings[step]:.2f} at step {step}" for step in shown)
static = display.finish(drawing, name="learning-to-look", alt=(
    f"Cross-attention while {word} is read and {wanted} is written, at five steps of "
    f"training. The share of the weights that lies on the anti-diagonal: {share}."
))

# %% jupyter={"source_hidden": true}
data = {
    "steps": list(maps),
    "maps": [(weights * 100).round().int().tolist() for weights in maps.values()],
    "queries": list(wanted),
    "keys": list(word),
    "readings": {"on the right letter": [f"{share:.2f}" for share in readings.values()]},
}
display.live(static, "attention_over_training", data, room=(470, 470))

# %% [markdown]
# Each row is a letter to be written, and each column is a letter of the source. At step 0 every
# letter gets about a tenth. Then the weights gather on the anti-diagonal: the first place looks at
# the last letter, and the last place at the first. Nothing told the head to look there, except that
# looking there lowers the loss. In the end, 0.71 of the weight lies on the right letter on average.
# The rest does no harm: the layers after the attention need only tell the right letter from the
# others.
#
# ## Lengths from three to ten
#
# Real sequences differ in length, so now the sources have three to ten letters. Short ones are
# filled up with padding. The loss leaves padding out (`ignore_index`), and the padding mask hides
# it from attention. The model also has to learn where to stop, so each target ends with `]`.


# %%
def backwards(b: int, source: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw ``b`` sequences of three to ten letters, and each of them backwards."""
    place = torch.arange(10)                                           # (m,)
    length = torch.randint(3, 11, (b, 1), generator=source)            # (b, 1)
    letters = torch.randint(3, len(SIGNS), (b, 10), generator=source)  # (b, m)
    src = letters.masked_fill(place >= length, PAD)                    # (b, m)
    opposite = (length - 1 - place).clamp(min=0)                       # (b, m)
    mirrored = src.gather(1, opposite)                                 # (b, m)
    mirrored = mirrored.masked_fill(place >= length, PAD)              # (b, m)
    tgt = F.pad(mirrored, (1, 1), value=PAD)                           # (b, 12)
    tgt[:, 0] = START
    return src, tgt.scatter(1, length + 1, END)  # (b, m), (b, 12)


some = backwards(3, torch.Generator().manual_seed(1))
for letters, mirrored in zip(*some):
    print(spell(letters), "->", spell(mirrored))

# %% [markdown]
# Train a model with two heads. Twenty steps before the end, save a checkpoint, here in memory; you
# will [resume](#go-on-from-a-checkpoint) from it later.

# %%
import io

LONG = 400
PARTS = ("model", "optimizer", "schedule")


def checkpoint(run: Run) -> dict[str, object]:
    """Gather all that the next step depends on."""
    parts = {name: getattr(run, name).state_dict() for name in PARTS}
    return parts | {"generator": run.source.get_state(), "done": run.done}


file = io.BytesIO()
right = begin(backwards, heads=2, steps=LONG)
curve = follow(right, LONG - 20, every=100)
torch.save(checkpoint(right), file)

# %% [markdown]
# Take the last twenty steps, judge the model, and check how much weight padding gets.

# %%
train(right, LONG)
curve[LONG] = judge(right)
loss, accuracy, exact = curve[LONG]
print(f"loss {loss:.3f}, accuracy {accuracy:.3f}, exact match {exact:.3f}")
assert exact > 0.9

attention, given = cross_attention(right.model), some[1][:, :-1]
weights = weights_in(attention, right.model, some[0], given)  # (3, 2, 11, 10)
unseen = weights.masked_select((some[0] == PAD)[:, None, None]).sum().item()
print(f"weight on padding: {unseen}")
assert unseen == 0

# %% [markdown]
# All 200 sequences are right. In the cross-attention on the three sequences above, padding gets a
# weight of exactly zero. But the model has learned the lengths that it was trained on, three to
# ten letters, and no others: with eleven or more, nearly every sequence is wrong. The fold
# measures it.

# %% [markdown]
# <!-- deeper: lengths that it has not met -->
# ### Going deeper: lengths that it has not met
#
# The model was trained on three to ten letters. What does it do with fewer, or with more?


# %%
@torch.no_grad()
def at_length(run: Run, length: int) -> tuple[float, float]:
    """Measure the exact match at one length, and how many letters are written."""
    source = torch.Generator().manual_seed(length)
    src = torch.randint(3, len(SIGNS), (200, length), generator=source)    # (200, m)
    end = torch.full((200, 1), END)                                        # (200, 1)
    written = run.model.eval().greedy(src, START, END, max_new=15)[:, 1:]  # (200, ...)
    run.model.train()
    letters = (written > END).sum(1).float().mean().item()
    whole = F.pad(written, (0, 15))[:, : length + 1]  # (200, ...)
    exact = (whole == torch.cat([src.flip(1), end], 1)).all(1)
    return exact.float().mean().item(), letters


# %%
by_length = {length: at_length(right, length) for length in range(1, 15)}
print("letters   exact match   letters written")
for length in (1, 2, 3, 6, 10, 11, 12, 14):
    exact, letters = by_length[length]
    print(f"{length:7} {exact:13.2f} {letters:17.1f}")
assert min(by_length[length][0] for length in range(3, 11)) > 0.9
assert by_length[1][0] < 0.3
assert max(by_length[length][0] for length in range(11, 15)) < 0.3

# %% [markdown]
# From three to ten letters nearly every sequence is right, and with two letters most are. With one
# letter, and with eleven or more, nearly every sequence is wrong. The last column shows how: for
# one letter the model writes about two, and it stops after ten or eleven letters even if the source
# has fourteen. Sinusoidal positions exist for every length, but that alone does not teach a model
# to use them.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## What each part contributes
#
# The model has three attentions with two heads each: self-attention in the encoder, self-attention
# in the decoder, and the cross-attention. What does each of the six heads contribute? To find out,
# **silence** a head: set its slice of the merged heads to zero before `out_proj`, so that nothing
# from the head reaches $W_O$. A hook, a function that PyTorch calls before a module runs, does the
# zeroing. `silenced` keeps the hooks in place during a `with` block. Then judge the model again.


# %%
from collections.abc import Iterator
from contextlib import contextmanager

from torch.utils.hooks import RemovableHandle


def silence(attention: MultiheadAttention, head: int) -> RemovableHandle:
    """Set the output of a head to zero, until the hook is removed."""

    def cleared(_, given: tuple[Tensor]) -> Tensor:
        heads = given[0].unflatten(-1, (attention.num_heads, attention.head_dim))
        return heads.index_fill(-2, torch.tensor(head), 0).flatten(-2)  # (b, n, h * d)

    return attention.out_proj.register_forward_pre_hook(cleared)


@contextmanager
def silenced(*chosen: tuple[MultiheadAttention, int]) -> Iterator[None]:
    """Silence each chosen head, an attention and an index, while the block runs."""
    hooks = [silence(attention, head) for attention, head in chosen]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


# %%
def attentions(model: Seq2SeqTransformer) -> dict[str, MultiheadAttention]:
    """Name the attentions of a model with one layer on each side."""
    encoder = model.transformer.encoder.layers[0].self_attn
    decoder = model.transformer.decoder.layers[0].self_attn
    return {"encoder": encoder, "decoder": decoder, "cross": cross_attention(model)}


def contributions(run: Run) -> dict[str, tuple[float, float, float]]:
    """Judge a model with each of its heads silenced, and with each attention silenced."""
    found = {"nothing": judge(run)}
    for name, attention in attentions(run.model).items():
        for what, heads in (("head 1", [0]), ("head 2", [1]), ("both heads", [0, 1])):
            with silenced(*((attention, head) for head in heads)):
                found[f"{name}, {what}"] = judge(run)
    return found


# %%
left = contributions(right)
print("silenced              accuracy   exact match")
for what, (_, accuracy, exact) in left.items():
    print(f"{what:20} {accuracy:9.3f} {exact:13.3f}")
assert left["nothing"] == curve[LONG]
assert all(left[f"{part}, both heads"][2] < 0.3 for part in attentions(right.model))

# %% jupyter={"source_hidden": true}
drawing, (ax,) = display.panels(360, 330)
for y, (_, accuracy, exact) in enumerate(left.values()):
    ax.barh(y, exact, height=0.55, color=display.COLOURS["h"])
    ax.plot(accuracy, y, "o", color=display.COLOURS["b"], fillstyle="none", markersize=6)
ax.set(xlim=(-0.02, 1.05), ylim=(len(left) - 0.5, -0.5))
ax.set_yticks(range(len(left)), list(left), fontsize=12)
ax.set_xticks([0, 0.5, 1], ["0", "0.5", "1"], fontsize=12)
ax.set_xlabel("bar: exact match, ring: accuracy", fontsize=12)
ax.tick_params(left=False)
told = "; ".join(f"{what}: {exact:.3f}" for what, (_, _, exact) in left.items())
display.finish(drawing, name="contributions", alt=f"Exact match with parts silent. {told}.")

# %% [markdown]
# In this run the two heads of the cross-attention cannot replace each other: with either one
# silenced, hardly any sequence comes out right. With both heads of any one attention silenced, at
# most about a tenth of the sequences do. In most rows the ring lies far to the right of the bar,
# for two reasons: one token is easier to get right than a whole sequence, and the accuracy is
# measured with the right beginning given.
#
# Without the decoder's self-attention the exact match is zero. Does the task need this attention,
# then? Take a fresh model, and silence the decoder's self-attention from the first training step
# on. How well does this model learn to write backwards: not at all, a little, or as well as the
# whole model?
#
# <details><summary>What do you expect?</summary>
#
# As well as the whole model. To write the next letter, the model only has to know the place, which
# the position gives, and the source, which the cross-attention reads. The whole model has come to
# rely on its decoder's self-attention because it was there. Silencing measures what *this* model
# uses, not what the task needs.
#
# </details>
#
# The repository's command `make seeds` has measured this for each attention, with five seeds and
# 400 steps as above. The results come with the package. Each line gives the lowest and the highest
# exact match: *later* means silenced after training, *always* means silenced from the first step on.

# %%
import json
from importlib import resources

DATA = resources.files("annotated_attention").joinpath("data/training.json")
KEPT = json.loads(DATA.read_text())


def span(rows: list[dict], what: str) -> str:
    """Write the lowest and the highest value of a column."""
    values = [row[what] for row in rows]
    return f"{min(values):.3f}–{max(values):.3f}"


print("         silenced later  silenced always")
for part in attentions(right.model):
    rows = [row for row in KEPT["parts"] if row["part"] == part]
    print(f"{part:8} {span(rows, 'silenced'):>14} {span(rows, 'never there'):>16}")

# %% [markdown]
# Nothing can replace the cross-attention, since nothing else reads the source. The decoder's
# self-attention is needed only by a model that was trained with it. A model that never had the
# encoder's self-attention still gets about seven of ten sequences right, but not all of them.
# What does that attention add? The first letter to write is the last of the source, and which
# place comes last depends on the length. In the encoder's self-attention padding gets no weight,
# so a letter that looks for the highest position finds the last place that is filled, and with it
# the length. The decoder can then ask for the letter at the right distance from the end. If this
# is the reason, a model for ten letters should do without that attention, since its last place is
# always the tenth:

# %%
fixed = begin(ten_backwards, heads=1, steps=STEPS)
with silenced((attentions(fixed.model)["encoder"], 0)):
    train(fixed, STEPS)
    exact = judge(fixed)[2]
print(f"ten letters, encoder silenced always: exact match {exact:.3f}")
assert exact > 0.95

# %% [markdown]
# It does: all 200 sequences are right, as the explanation predicts.
#
# ## Go on from a checkpoint
#
# An interrupted training run, once resumed, should end exactly where it would have ended without
# the interruption. Load the checkpoint into a model initialised from another seed, take the last
# twenty steps again, and compare every parameter. Then leave out, one at a time, the schedule, the
# generator that draws the letters, and the optimizer. A checkpoint is a pickle file, which can run
# code when it is read; with `weights_only=True`, only tensors and plain values are read.


# %%
def resume(run: Run, kept: dict, forgotten: str = "") -> None:
    """Put everything back but what is ``forgotten``."""
    for name in set(PARTS) - {forgotten}:
        getattr(run, name).load_state_dict(kept[name])
    if forgotten != "generator":
        run.source.set_state(kept["generator"])
    run.done = kept["done"]


for forgotten in ("", "schedule", "generator", "optimizer"):
    file.seek(0)
    again = begin(backwards, heads=2, steps=LONG, seed=99)
    resume(again, torch.load(file, weights_only=True), forgotten)
    train(again, LONG)
    pairs = zip(again.model.parameters(), right.model.parameters())
    gap = max((mine - other).abs().max().item() for mine, other in pairs)
    print(f"{forgotten or 'nothing':>9} forgotten: parameters differ by {gap:.0e} at most")
    assert (gap == 0) == (not forgotten)

# %% [markdown]
# With everything restored, every parameter is the same to the last bit. Leave out any part, and you
# are in a different training run, without any warning.
#
# ## The same training with a mistake inside
#
# [The reshape trick](04_reshape_trick.ipynb#two-mistakes-that-keep-every-shape) shows mistakes that
# keep every shape. The package provides each of them as an attention class, which the model takes
# as an argument. Begin with the **wrong merge**. This is all that changes:

# %%
from annotated_attention.mistakes import (
    MISTAKES,
    MergeWithoutTranspose,
    SplitAndMergeWithoutTranspose,
)

entry = MISTAKES["merge-without-transpose"]
display.diff(entry.right, entry.wrong)

# %% [markdown]
# Train this model on the same task, from the same seed, for the same number of steps. Will its loss
# be higher than the right model's throughout, and what will the exact match be?
#
# <details><summary>What do you expect?</summary>
#
# The loss gets low, too. At first it is even lower than the right model's. The wrong merge puts
# results of later tokens into early rows. They include the letter to be predicted, and reading that
# off is easier than working it out. The next section shows where this happens. In the end nearly
# every token is right. But the exact match stays at zero: the model has learned something in its
# lessons that it cannot use in the exam.
#
# </details>

# %%
merged = begin(backwards, heads=2, steps=LONG, attention=MergeWithoutTranspose)
wrong_curve = follow(merged, LONG, every=100)
loss, accuracy, exact = wrong_curve[LONG]
assert all(wrong_curve[step][0] < curve[step][0] for step in range(20, 120, 20))
assert loss < 0.2
assert accuracy > 0.95
assert exact < 0.02

# %% jupyter={"source_hidden": true}
drawing, axes = display.panels(400, 230, columns=2)
for name, each, letter, line in (
    ("right", curve, "n", "-"),
    ("wrong merge", wrong_curve, "h", "--"),
):
    look = {"color": display.COLOURS[letter], "linestyle": line, "label": name}
    axes[0].plot(list(each), [loss for loss, _, _ in each.values()], **look)
    axes[1].plot(list(each), [exact for _, _, exact in each.values()], **look)
axes[0].set(title="loss", ylim=(0, None))
axes[1].set(title="exact match", ylim=(-0.03, 1.03))
axes[0].legend(fontsize=12, frameon=False)
for ax in axes:
    ax.tick_params(labelsize=12)
    ax.set_xticks([0, 200, 400], ["step 0", "200", "400"])
display.finish(drawing, name="loss-and-exact-match", alt=(
    "Loss and exact match over training. Both losses fall. The exact match of the right "
    f"model rises to {curve[LONG][2]:.3f}, that of the wrong merge ends at {exact:.3f}."
))

# %% [markdown]
# For at least the first hundred steps the wrong merge has the lower loss, and in the end its loss
# is near zero, too. Judged by its loss, it looks like a model that works. Judged by its exact
# match, it has learned nothing.
#
# The second mistake is called **both wrong**: the split is a straight reshape, and so is the merge.
# Such a model cannot learn to write backwards, for a reason explained below. So it gets a task that
# it can learn: copying ten letters, in 160 steps.


# %%
def ten_forwards(b: int, source: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw ``b`` sequences of ten letters, and the same again as the target."""
    letters, tgt = ten_backwards(b, source)                         # (b, m), (b, 11)
    return letters, torch.cat([tgt[:, :1], tgt[:, 1:].flip(1)], 1)  # (b, m), (b, 11)


split = begin(ten_forwards, heads=2, steps=STEPS, attention=SplitAndMergeWithoutTranspose)
split_curve = follow(split, STEPS, every=40)
loss, accuracy, exact = split_curve[STEPS]
assert exact == 0
assert accuracy > 0.95

# %% [markdown]
# Given the right beginning, the model gets every token right; on its own, it does not get a single
# sequence right. See what the three models write. *Right* and *wrong merge* should write the source
# backwards, and *both wrong* should copy it (its task has no `]`, so it stops only at the limit).

# %%
src, tgt = ten_backwards(1, torch.Generator().manual_seed(7))  # (1, 10), (1, 11)
MODELS = ("right", "wrong merge", "both wrong")
models = dict(zip(MODELS, (right, merged, split)))
for name, run in models.items():
    written = run.model.eval().greedy(src, START, END, max_new=11)
    print(f"{name:>11}: {spell(src[0])} -> {spell(written[0])}")

# %% [markdown]
# Only the first line is right, although all three models have a low loss.
#
# ## What teacher forcing does not see
#
# In training, each place is given together with everything that comes after it, and the mask has
# to hide what comes after. In decoding, nothing comes after the newest token. So ask two
# questions about the rows of scores, the model's output. You can ask them of an untrained model,
# too:
#
# 1. Does a row change when a *later letter* changes? Then the future leaks.
# 2. Does a row change when everything after it is *cut off*? Then the row that decoding computes is
#    not the row that was trained.


# %%
@torch.no_grad()
def reactions(model: nn.Module, src: Tensor, given: Tensor) -> Tensor:
    """Measure how row i of the scores changes when token j is another letter."""
    variants = given.repeat(given.size(1), 1)  # (n, n)
    place = torch.arange(len(variants))
    # In variant i, token i becomes the next letter of the alphabet, and [ the tenth letter.
    variants[place, place] = (variants[place, place] - 2) % 10 + 3
    many = src.expand(len(variants), -1)                       # (n, m)
    change = model.eval()(many, variants) - model(src, given)  # (n, n, 13)
    return change.abs().amax(-1).mT                            # (n, n)


@torch.no_grad()
def prefix_gap(model: nn.Module, src: Tensor, given: Tensor) -> float:
    """Measure how the first four rows of scores differ when the rest is not there."""
    whole = model.eval()(src, given)  # (1, n, 13)
    alone = model(src, given[:, :4])  # (1, 4, 13)
    return (whole[:, :4] - alone).abs().max().item()


# %% [markdown]
# The column *future* counts the pairs in which a row reacts to a later letter (ten tokens make 45
# such pairs). *Answer* counts those in which the row reacts to the letter that it must predict (at
# most 9, since the tenth answer is not among the tokens given). *Cut off* says how much the scores
# of the first four rows change when the rest is cut off; a right decoder gives 0.

# %%
given, tables = tgt[:, :-1], {}
print("                       future answer  cut off")
for name, run in models.items():
    attention = type(run.model.transformer.decoder.layers[0].self_attn)
    untrained = begin(run.task, 2, STEPS, attention)
    for when, each in (("untrained", untrained), ("trained", run)):
        tables[name] = reactions(each.model, src, given)  # (10, 10)
        seen = (tables[name].triu(1) > 1e-3).sum().item()
        answers = (tables[name].diagonal(1) > 1e-3).sum().item()
        gap = prefix_gap(each.model, src, given)
        print(f"{name:>11}, {when:9} {seen:5} {answers:6} {gap:8.2f}")
        assert (seen > 0) == (name == "wrong merge")
        assert (gap > 1e-3) == (name != "right")

# %% jupyter={"source_hidden": true}
drawing, axes = display.panels(700, 270, columns=3)
for ax, (name, table) in zip(axes, tables.items()):
    i, j = (table.tril() > 1e-3).nonzero(as_tuple=True)
    ax.plot(j + 0.5, i + 0.5, "s", color=display.COLOURS["n"], alpha=0.75, markersize=11)
    i, j = (table.triu(1) > 1e-3).nonzero(as_tuple=True)
    ax.plot(j + 0.5, i + 0.5, "s", color=display.COLOURS["h"], alpha=0.75, markersize=11)
    ax.plot(j + 0.5, i + 0.5, "x", color="black", markersize=7, markeredgewidth=1)
    ax.plot([0, 10], [0, 10], color=display.COLOURS["b"], linewidth=1, linestyle="--")
    ax.set(xlim=(0, 10), ylim=(10, 0), aspect="equal", title=name)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_ticks([i + 0.5 for i in range(10)], range(1, 11), fontsize=12)
axes[1].set_xlabel("a token changes at", fontsize=12)
axes[0].set_ylabel("scores change at", fontsize=12)
counts = {name: int((table.triu(1) > 1e-3).sum()) for name, table in tables.items()}
display.finish(drawing, name="who-reacts", alt=(
    "For three models, which places of the output change with which place of the target. "
    f"How many pairs look ahead: {', '.join(f'{name} {x}' for name, x in counts.items())}."
))

# %% [markdown]
# Read the figure row by row: a filled square marks a token whose change alters the scores of that
# row. A crossed square looks ahead.
#
# A right merge fills row 1 with what both heads have mixed for token 1. The **wrong merge** fills
# it with what *one* head has mixed for tokens 1 and 2. Row 2 gets the same for tokens 3 and 4,
# and so on; from row 6 on, the second head begins again with tokens 1 and 2. The decoder merges
# twice, in its self-attention and in its cross-attention, and the second merge puts two such rows
# together. In the cross-attention the values come from the source, but the weights depend on the
# queries, and so on the target tokens that a row holds. Through the residual connection, each row
# also keeps what the first merge gave it:
#
# | row | first merge: tokens | second merge: rows | through the merges, tokens up to |
# |---|---|---|---|
# | 1 | 1, 2 | 1, 2 | 4 |
# | 2 | 3, 4 | 3, 4 | 8 |
# | 3 | 5, 6 | 5, 6 | 10 |
# | 4 | 7, 8 | 7, 8 | 8 |
# | 5 | 9, 10 | 9, 10 | 10 |
# | 6 | 1, 2 | 1, 2 | 4 |
# | 7 | 3, 4 | 3, 4 | 8 |
# | 8 | 5, 6 | 5, 6 | 10 |
# | 9 | 7, 8 | 7, 8 | 8 |
# | 10 | 9, 10 | 9, 10 | 10 |
#
# Row 4, for example, keeps tokens 7 and 8 from the first merge. From the second it gets rows 7
# and 8, which hold tokens 3 to 6. The early rows thus look ahead. Row 6 holds what was mixed for
# tokens 1 to 4; its own token reaches it only through the residual connection, so token 5 is
# missing. In 7 of 9 rows the model sees the very letter that the row must predict. (With another
# number of tokens the rows shift.) Teacher forcing hands such letters over and the model learns
# to read them off, but in decoding they are not there. This is the pupil who peeks.
#
# **Both wrong** does not peek. A right split cuts the features of each token in two. This one cuts
# the *sequence* in two, and the first half of the target sees only the first halves of target and
# source. Within a half the order is kept, so the causal mask still hides what comes later. But
# where the cut falls depends on the length. Ten given tokens are cut into five and five. Four are
# cut into two and two, which the model has never met. With an odd number, the cut goes through the
# middle of a token. To copy, each half of the target needs only the same half of the source, which
# it can see. To write backwards it would need the other half, which it cannot see.
#
# > **Pitfall.** Do not judge a decoder by its loss on fresh sequences. That loss is teacher-forced,
# > too. Decode some sequences and compare whole outputs. And ask the two questions above before you
# > train: as the *untrained* lines show, they find both mistakes without a single training step.

# %% [markdown]
# <!-- deeper: is it the seed? -->
# ### Going deeper: is it the seed?
#
# One run may be luck, so `make seeds` has trained each setup with five seeds. Each line sums up
# five runs. Models for `ten_backwards` have one head, those for the other tasks have two. In the
# **wrong split**, only the split is wrong.

# %%
NAMES = {
    "MultiheadAttention": "right",
    "MergeWithoutTranspose": "wrong merge",
    "SplitWithoutTranspose": "wrong split",
    "SplitAndMergeWithoutTranspose": "both wrong",
}
groups: dict[tuple[str, str], list[dict]] = {}
for row in KEPT["runs"]:
    groups.setdefault((row["task"], NAMES[row["attention"]]), []).append(row)
print("lowest to highest         accuracy    exact match")
for (task, name), rows in groups.items():
    spans = (span(rows, what) for what in ("accuracy", "exact match"))
    print(f"{task:13} {name:11}", *spans)

# %% [markdown]
# With the right class, every run gets at least 0.955 of the sequences right. With a mistake
# inside, the best run gets 0.005 right, one sequence of 200, whatever its accuracy says.
# Only *both wrong* on `backwards` gives itself away: it cannot learn the task, and about half of
# its tokens are wrong.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## A head that you can explain
#
# Silencing tells you that a head matters, but not what it does. In a smaller model you can find out
# both. It has two attention layers of one head each, with residual connections, and nothing else:
# no feed-forward networks, no norms, no biases. Its task is to predict the next letter of a text
# that repeats itself. Four to sixteen different letters are drawn at random and repeated until the
# text has 32 letters.


# %%
ALPHABET, LENGTH = "abcdefghijklmnopqrstuvwxyz", 32


def repeated(
    b: int, source: torch.Generator, shortest: int = 4, longest: int = 16
) -> tuple[Tensor, Tensor]:
    """Draw ``b`` sequences that repeat their beginning, and tell how long it is."""
    period = torch.randint(shortest, longest + 1, (b, 1), generator=source)  # (b, 1)
    shuffled = torch.rand(b, 26, generator=source).argsort(1)                # (b, 26)
    place = torch.arange(LENGTH) % period
    return shuffled.gather(1, place), period  # (b, 32), (b, 1)


for ids, period in zip(*repeated(3, torch.Generator().manual_seed(0))):
    print("".join(ALPHABET[i] for i in ids.tolist()), "repeats after", period.item())


# %%
class Copier(nn.Module):
    """Attention layers with residual connections, and nothing else."""

    def __init__(self, layers: int, heads: int) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(26, 64), nn.Embedding(LENGTH, 64)
        options = {"bias": False, "batch_first": True}
        attentions = (MultiheadAttention(64, heads, **options) for _ in range(layers))
        self.layers = nn.ModuleList(attentions)
        self.scores = nn.Linear(64, 26, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Score each letter as the one that follows, at each place.

        Args:
            ids: (b, n), numbers of letters.
        """
        x = self.letters(ids) + self.places.weight[: ids.size(1)]  # (b, n, 64)
        for attention in self.layers:
            x = x + attention(x, x, x, need_weights=False, is_causal=True)[0]
        return self.scores(x)  # (b, n, 26)


# %% [markdown]
# Train it, and train a model with a single layer as a control. The loss counts only the places
# whose letter has been seen before, since in the first period nobody can know what follows. The
# accuracy is measured at the same places. The loop, `learn_to_copy`, is folded, since it is nearly
# the same as the one above.

# %% [markdown]
# <!-- deeper: the loop for the copier -->
# ### Going deeper: the loop for the copier
#
# Two things differ. The loss leaves out the first period, and the settings include AdamW, which is
# Adam with weight decay, and a warm-up.


# %%
COPY_STEPS = 300


def judge_copies(model: Copier, ids: Tensor, period: Tensor) -> tuple[Tensor, float]:
    """Measure loss and accuracy after letters that have been seen before."""
    scores, asked = model(ids)[:, :-1], ids[:, 1:]    # (b, 31, 26), (b, 31)
    seen_before = torch.arange(LENGTH - 1) >= period  # (b, 31)
    loss = F.cross_entropy(scores[seen_before], asked[seen_before])
    right = (scores.argmax(-1) == asked)[seen_before]
    return loss, right.float().mean().item()


@torch.no_grad()
def copied(model: Copier, *periods: int) -> float:
    """Measure the accuracy on 500 fresh sequences."""
    fresh = repeated(500, torch.Generator().manual_seed(4321), *periods)
    return judge_copies(model, *fresh)[1]


# %%
def warm_up(step: int) -> float:
    """Raise the learning rate for 50 steps, then lower it to zero."""
    return min((step + 1) / 50, 1) * (1 - step / COPY_STEPS)


def learn_to_copy(layers: int, heads: int = 1, seed: int = 0, periods: tuple = ()) -> tuple:
    """Train a copier; give it with its accuracy at every 25 steps."""
    torch.manual_seed(seed)
    source, curve = torch.Generator().manual_seed(seed), {}
    model = Copier(layers, heads)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, warm_up)
    for step in range(1, COPY_STEPS + 1):
        loss, _ = judge_copies(model, *repeated(64, source, *periods))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 25 == 0:
            curve[step] = copied(model, *periods)
    return model, curve


# %% [markdown]
# <!-- /deeper -->

# %%
copier, two_layers = learn_to_copy(layers=2)
single, one_layer = learn_to_copy(layers=1)
print("step   two layers   one layer")
for step in (25, 50, 75, 100, 150, 300):
    print(f"{step:4} {two_layers[step]:12.3f} {one_layer[step]:11.3f}")
assert two_layers[COPY_STEPS] > 0.98
assert one_layer[COPY_STEPS] < 0.5


# %%
@torch.no_grad()
def write_on(model: Copier, letters: str, until: int = 20) -> str:
    """Continue some letters, each time with the likeliest."""
    ids = torch.tensor([[ALPHABET.index(letter) for letter in letters]])  # (1, n)
    while ids.size(1) < until:
        ids = torch.cat([ids, model(ids)[:, -1:].argmax(-1)], 1)  # (1, ...)
    return "".join(ALPHABET[i] for i in ids[0, len(letters) :].tolist())


print("drankd", "->", write_on(copier, "drankd"))
print("milkshadowm", "->", write_on(copier, "milkshadowm"))
print("drankd, one layer", "->", write_on(single, "drankd"))

by_period = {period: copied(single, period, period) for period in (4, 5, 8, 9, 12, 13, 16)}
print("one layer, by period:", *(f"{period}: {x:.2f}" for period, x in by_period.items()))
assert by_period[4] > 0.6
assert by_period[13] < 0.1

# %% [markdown]
# Two layers learn the task quickly, between steps 50 and 100. From a single example, the copier
# continues words that it has never seen. It learns them as it reads, and no parameter changes. One
# layer stays at 0.30. It bets on a few distances and copies what stands that far back: this is
# right in 0.80 of the places at a period of 4, and in 0.01 of them at a period of 13.
#
# ### Find what the heads do
#
# How can two heads copy? In `drankd`, the second *d* has to find *r*, the letter after the first
# *d*. A head that compares letters can find the first *d*. But it needs *r*, which does not look
# like *d*. So *r* itself has to say which letter came before it, and two heads can share the work
# [[Elhage et al.](../docs/references.md#elhage-2021), [Olsson et
# al.](../docs/references.md#olsson-2022)]:
#
# - A **previous-token head** in layer 1 looks at the token before each letter, and adds it to that
#   letter. Now *r* says "I am *r*, and I come after *d*".
# - An **induction head** in layer 2 looks for a letter that comes after *d*, and copies it. From
#   one earlier case it infers what comes next, hence the name.
#
# Measure two numbers for each head. In the first period, where there is no copy to look for, how
# much weight does the head give to the previous token? After that, how much does it give to tokens
# that follow an earlier copy of the current letter? An untrained model is the control.


# %%
def roles(model: Copier) -> Tensor:
    """Measure each head's weight on the previous token, and after earlier copies."""
    ids, period = repeated(200, torch.Generator().manual_seed(99))
    place = torch.arange(LENGTH)                                  # (n,)
    previous = place == place[:, None] - 1                        # (n, n)
    before = F.pad(ids[:, :-1], (1, 0), value=-1)                 # (b, n)
    after_a_copy = (before[:, None] == ids[..., None])[:, None]   # (b, 1, n, n)
    later = place >= period                                       # (b, n)
    found = []
    for attention in model.layers:
        weights = weights_in(attention, model, ids)                  # (b, h, n, n)
        # Each query's weight on such keys, with the heads last.
        on_previous = (weights * previous).sum(-1).mT                # (b, n, h)
        on_copied = (weights * after_a_copy).sum(-1).mT              # (b, n, h)
        first, second = on_previous[~later & (place > 0)], on_copied[later]
        found.append(torch.stack([first.mean(0), second.mean(0)], 1))
    return torch.stack(found)                                        # (layers, h, 2)


# %%
torch.manual_seed(0)
print("                     previous  after copies")
for name, model in (("untrained", Copier(2, 1)), ("trained", copier)):
    for layer, heads in enumerate(roles(model), 1):
        previous, after = heads[0].tolist()
        print(f"{name:>9}, layer {layer} {previous:10.2f} {after:13.2f}")
assert min(roles(copier)[0, 0, 0], roles(copier)[1, 0, 1]) > 0.85

# %% [markdown]
# In the trained model, layer 1 gives 0.98 of its weight to the previous token, and layer 2 gives
# 0.97 to what follows an earlier copy. An untrained head spreads its weight: about a fifth falls on
# the previous token. In the trained model, each head has one role. See both at work on
# `drankdrankdr`. Each row is a letter that looks, each column is a letter that is looked at, and
# layer 1 is shown above layer 2.

# %% jupyter={"source_hidden": true}
text = "drankdrankdr"
ids = torch.tensor([[ALPHABET.index(letter) for letter in text]])  # (1, 12)
maps = torch.cat([weights_in(layer, copier, ids)[0, 0] for layer in copier.layers])
drawing, (ax,) = display.panels(330, 620)
for i, j in (maps > 0.02).nonzero().tolist():
    look = {"color": display.COLOURS["n"], "alpha": 0.9 * maps[i, j].item(), "lw": 0}
    ax.add_patch(Rectangle((j, i + i // 12), 1, 1, **look))
for top in (0, 13):
    ax.add_patch(Rectangle((0, top), 12, 12, fill=False, edgecolor=display.COLOURS["b"]))
ax.set(xlim=(0, 12), ylim=(25, 0), aspect="equal", frame_on=False)
columns, rows = [j + 0.5 for j in range(12)], [i + i // 12 + 0.5 for i in range(24)]
ax.set_xticks(columns, list(text), color=display.COLOURS["m"], fontsize=12)
ax.set_yticks(rows, list(text) * 2, color=display.COLOURS["n"], fontsize=12)
ax.tick_params(length=0, labeltop=True)
most = enumerate(maps.argmax(1).tolist())
told = "; ".join(f"layer {1 + i // 12}, {i % 12 + 1} looks at {j + 1}" for i, j in most)
display.finish(drawing, name="two-heads-explained", alt=f"Weights of two heads: {told}.")

# %% [markdown]
# In layer 1 the squares lie next to the diagonal, one place to the left, except in the first row,
# which has nothing before it. In layer 2, from the second *d* on, each letter looks at what
# followed its earlier copies: *d* looks at *r*, and *r* at *a*. Where there are two copies, the
# weight is divided between them. In the first five rows there is no earlier copy to find.
#
# ### Silence them
#
# If this explanation is right, this model needs both heads to copy, and silencing either of them
# must stop the copying.


# %%
def silenced_copies(model: Copier) -> dict[str, float]:
    """Measure the accuracy of two layers with the heads of one or both silenced."""
    first, second = ([(layer, i) for i in range(layer.num_heads)] for layer in model.layers)
    choices = {"nothing": [], "layer 1": first, "layer 2": second, "both": first + second}
    found = {}
    for what, heads in choices.items():
        with silenced(*heads):
            found[what] = copied(model)
    return found


without = silenced_copies(copier)
for what, accuracy in without.items():
    print(f"{what:>7} silenced: {accuracy:.3f}")
assert max(without["layer 1"], without["layer 2"]) < 0.35

# %% [markdown]
# It does. Without the first head the accuracy is 0.17, without the second 0.09, and without both it
# is no better than guessing among 26 letters. Silencing cannot tell you that the task itself needs
# a second layer. The model trained with one layer can: it stayed at 0.30, since an induction head
# there has no previous-token head below it. Now you can say what each head of this model does, and
# how you know.

# %% [markdown]
# <!-- deeper: how the second head uses the first -->
# ### Going deeper: how the second head uses the first
#
# The second head has queries, keys and values, and each could use what the first head has added.
# The explanation says which. Let one of the three see only the letters and places, as if there
# were no layer 1, and leave the other two as they are. The copying should stop only for the keys:
# the query is the current letter, the value is the letter to be copied, and only the key has to
# tell which letter came before.


# %%
@torch.no_grad()
def copied_if_plain(model: Copier, role: str) -> float:
    """Measure the accuracy if queries, keys or values of layer 2 do not see layer 1."""
    ids, period = repeated(500, torch.Generator().manual_seed(4321))
    plain = model.letters(ids) + model.places.weight                     # (b, n, 64)
    x = plain + model.layers[0](plain, plain, plain, is_causal=True)[0]  # (b, n, 64)
    inputs = [plain if role == each else x for each in ("queries", "keys", "values")]
    scores = model.scores(x + model.layers[1](*inputs, is_causal=True)[0])  # (b, n, 26)
    right = (scores[:, :-1].argmax(-1) == ids[:, 1:])[torch.arange(LENGTH - 1) >= period]
    return right.float().mean().item()


plain = {role: copied_if_plain(copier, role) for role in ("queries", "keys", "values")}
for role, accuracy in plain.items():
    print(f"plain {role:7}: {accuracy:.3f}")
assert plain["keys"] < 0.35
assert min(plain["queries"], plain["values"]) > 0.95

# %% [markdown]
# If its keys do not see layer 1, the second head is as lost as if the first were silent. For its
# queries and values the first head makes no difference. Elhage et al. call this *K-composition*.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# <!-- deeper: several heads, and a single period -->
# ### Going deeper: several heads, and a single period
#
# Is it always this clear? `make seeds` has trained four kinds of models, with five seeds each. The
# column *one head* gives the lowest accuracy with any single head silenced.

# %%
COLUMNS = ("accuracy", "one head", "layer 1", "layer 2")
print("                                         accuracy with ... silenced")
print("layers  heads  periods      nothing     one head      layer 1      layer 2")
for setup in dict.fromkeys(tuple(row["setup"]) for row in KEPT["copying"]):
    rows = [row for row in KEPT["copying"] if tuple(row["setup"]) == setup]
    spans = [span(rows, what) if what in rows[0] else "" for what in COLUMNS]
    print("{:6} {:6} {:>5}–{:<2}".format(*setup), "".join(f"{x:>13}" for x in spans))

# %% [markdown]
# With four heads in each layer, silencing a single head leaves most of the copying intact, while
# silencing a whole layer stops it. Several heads share a role, and one can replace another. A head
# that seems to contribute nothing may therefore have a double.
#
# In the last line every sequence has the same period of ten, and one layer is enough. It learns to
# look back a fixed number of *places*, whatever the letters are. What a model learns depends on what
# its data demand.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Exercises
#
# ### How much is one letter worth?
#
# *Easy, 2 minutes.* A model writes each letter right in 95 of 100 cases, whatever it wrote before.
# In what share of all targets is every letter right, if a target has ten letters? And if it has
# twenty? Write two numbers between 0 and 1; formulas will do.

# %% tags=["exercise"]
my_shares = [
    None,  # ten letters
    None,  # twenty letters
]

# %%
from annotated_attention import exercises

exercises.training.check_shares(my_shares)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Of the targets whose first letter is right, 95 of 100 have the second letter right, too.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# That is one factor for each letter. Python writes a power as `x**y`.
#
# </details>

# %% tags=["solution"] jupyter={"source_hidden": true}
my_shares = [0.95**10, 0.95**20]

exercises.training.check_shares(my_shares)

# %% [markdown]
# ### Greedy decoding
#
# *Medium, 10 minutes.* `model(src, given)` returns scores `(b, n, v)`, as above, where given is
# `(b, n)`. Return the ids `(b, 1 + max_new)`: `START`, then what the model writes, and after `END`
# only `PAD`.


# %% tags=["exercise"]
def my_greedy(model: nn.Module, src: Tensor, max_new: int) -> Tensor:
    """Write the likeliest token again and again."""
    written = torch.full((len(src), 1), START)
    return written  # your lines here


# %%
exercises.training.check_greedy(my_greedy)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# In a loop: score everything written so far, take the likeliest token at the newest place, and
# append it.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Row i of the scores is about token i + 1. So the newest place is row -1, and `argmax(-1)` picks
# among the tokens.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Keep track of the complete sequences in a boolean tensor of shape `(b, 1)`, and set their next
# token to `PAD` with `masked_fill`.
#
# </details>


# %% tags=["solution"] jupyter={"source_hidden": true}
def my_greedy(model: nn.Module, src: Tensor, max_new: int) -> Tensor:
    """Write the likeliest token again and again."""
    written = torch.full((len(src), 1), START)              # (b, 1)
    complete = torch.zeros_like(written, dtype=torch.bool)  # (b, 1)
    for _ in range(max_new):
        scores = model(src, written)[:, -1:]              # (b, 1, v)
        following = scores.argmax(-1)                     # (b, 1)
        following = following.masked_fill(complete, PAD)  # (b, 1)
        written = torch.cat([written, following], 1)
        complete = complete | (following == END)  # (b, 1)
    return written


exercises.training.check_greedy(my_greedy)

# %% [markdown]
# ### Trains perfectly, decodes garbage
#
# *Medium, 10 minutes.* This is the heart of a decoder's self-attention: q, k and v are `(b, h, n,
# d)`, and the result is `(b, n, h * d)`. A model that uses this function trains to a loss near zero
# and decodes garbage. Find out why, and repair it.


# %% tags=["exercise"]
def my_look_back(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Mix the values of the tokens that each token may see, and merge the heads."""
    place = torch.arange(q.size(-2))
    hidden = place > place[:, None] + 1
    scores = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5
    weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
    return (weights @ v).transpose(1, 2).flatten(2)


# %%
exercises.training.check_look_back(my_look_back)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Scale, softmax and merge are as in [Multi-head attention](07_multihead_attention.ipynb). What is
# left?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Print `hidden` for three tokens. Which tokens does the first row see?
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Row i must predict token i + 1. It may see tokens 0 to i.
#
# </details>


# %% tags=["solution"] jupyter={"source_hidden": true}
def my_look_back(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Mix the values of the tokens that each token may see, and merge the heads.

    Args:
        q: (b, h, n, d), one slice per head.
        k: (b, h, n, d), likewise.
        v: (b, h, n, d), likewise.
    """
    place = torch.arange(q.size(-2))                                 # (n,)
    hidden = place > place[:, None]                                  # (n, n)
    scores = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5             # (b, h, n, n)
    weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)  # (b, h, n, n)
    return (weights @ v).transpose(1, 2).flatten(2)                  # (b, n, h * d)


exercises.training.check_look_back(my_look_back)

# %% [markdown]
# ## What you have now
#
# > **In short.** The loss of T tokens $y_t$, given the source x and the right beginning:
# >
# > $$-\frac{1}{T} \sum_{t} \log p(y_t \mid y_1 \ldots y_{t-1},\, x)$$
# >
# > - teacher forcing: `model(src, tgt[:, :-1])` scores `tgt[:, 1:]`, all places at once, `(b, n,
# >   v)`
# > - greedy decoding: `model(src, written)[:, -1:].argmax(-1)`, `(b, 1)`, again and again
# > - a checkpoint: parameters, optimizer, schedule, and the random generator
# > - silencing head i: a hook before `out_proj` that zeroes the features `i * d` to `(i + 1) * d`
# >
# > Loss and accuracy are measured with the right beginning given, so a leak does not show in them;
# > early on it even makes them better. Decode whole outputs, and check whether a row of scores
# > changes with what comes later. To explain a head, say what it looks at, silence it, and keep a
# > control that could have proved you wrong.
#
# These models are tiny, and you have trained them yourself. [Trained
# weights](11_trained_weights.ipynb) looks at the heads of a model that others have trained.
