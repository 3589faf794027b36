# %% [markdown]
# # Training
#
# *Does a low loss mean that it works?*
#
# A model small enough to train while you watch learns to write letters backwards, and you see its
# attention turn from nothing in particular into the one thing that the task needs. Then you train it
# with each mistake of chapter 4 inside. The loss gets low all the same, and what the model writes is
# garbage. At the end you know which number tells them apart, and why the loss does not.

# %% tags=["hide-input"]
from annotated_attention import display

display.chapter_map("split", "score", "softmax", "mix", "merge")

# %% [markdown]
# ## A task that needs attention
#
# The source is ten letters, the target is the same letters backwards. Whoever writes the first has to
# look at the last: the letters are random, and nothing else tells which it is. Token 1, shown as `[`,
# starts every target. Padding, `.`, and the end, `]`, are for later.

# %%
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention import MultiheadAttention
from annotated_attention.seq2seq import Seq2SeqTransformer

torch.set_num_threads(1)  # the matrices are small; and sums are added up in one order
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
# The decoder is given the target without its last token, and is asked for the target without its
# first: at each place, for the token that follows. It is given the right beginning even where it would
# have written something else. That is **teacher forcing** [[Williams and
# Zipser](../docs/references.md#williams-1989)], and it is why one step can train all places
# at once. The causal mask of the model keeps each place from seeing the token that it is asked for.
#
# All that the next step depends on is kept together, since a checkpoint will have to hold it: the
# parameters, the optimizer's running averages, the schedule that lowers the learning rate, and the
# source of the random letters. The same seed gives the same run.
#
# The layers are post-LN, as the paper's are, and the learning rate starts at its highest value. With
# [a deep post-LN stack](08_transformer_layers.ipynb#why-the-norm-moved) that goes wrong; with one layer on
# each side it works, as you will see from several seeds.


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
    sizes |= {"nhead": heads, "dim_feedforward": 128, "max_len": 11, "dropout": 0.0}
    model = Seq2SeqTransformer(13, 13, pad=PAD, attention=attention, **sizes)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.008)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, steps)
    return Run(task, model, optimizer, schedule, torch.Generator().manual_seed(seed))


# %%
def train(run: Run, until: int, watch: Callable[[Run], None] | None = None) -> None:
    """Take steps until there are ``until``, and let ``watch`` look after each."""
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
# How good is it? Take 200 fresh sequences, and measure three things. The **loss**, as in training.
# The **accuracy**: how often the likeliest token is the right one, with the right beginning given; so
# it is teacher-forced, too. And the **exact match**: how often the model, given the source alone,
# writes the whole target without a mistake. It starts from `[`, writes the likeliest token, and goes
# on from what it wrote itself, which is called **greedy decoding**. That is what you want a model for;
# the other two only stand for it.


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
    missing = tgt.size(1) - written.size(1)
    exact = (F.pad(written, (0, missing), value=PAD) == tgt).all(1)
    return loss.item(), right.float().mean().item(), exact.float().mean().item()


# %%
def follow(run: Run, steps: int, every: int, also: Callable | None = None) -> None:
    """Train, show a progress bar, and judge now and then."""
    bar = display.Progress(steps, "loss", "accuracy", "exact match")

    def watch(run: Run) -> None:
        bar.to(run.done)
        if run.done % every == 0:
            bar.measured(*judge(run))
        if also is not None:
            also(run)

    train(run, steps, watch)


# %% [markdown]
# ## Attention that learns where to look
#
# One head, so that there is one map to look at: that of the decoder's cross-attention, where places
# of the target ask and letters of the source are looked at. The layer does not ask for weights, since
# training does not need them. So a hook, a function that PyTorch calls first, notes what its attention
# is given, and you ask again.


# %%
@torch.no_grad()
def cross_weights(model: Seq2SeqTransformer, src: Tensor, tgt: Tensor) -> Tensor:
    """Give the cross-attention weights of the last decoder layer, head by head."""
    attention = model.transformer.decoder.layers[-1].multihead_attn
    noted = []
    hook = attention.register_forward_pre_hook(lambda _, given: noted.append(given))
    model(src, tgt)
    hook.remove()
    query, key, value, padding = noted[0]
    _, weights = attention(query, key, value, padding, average_attn_weights=False)
    return weights  # (b, h, n, m)


# %%
STEPS = 160


def keep(maps: dict[int, Tensor], run: Run, src: Tensor, given: Tensor) -> None:
    """Add the map to ``maps``, every five steps."""
    if run.done % 5 == 0:
        maps[run.done] = cross_weights(run.model, src, given)[0, 0]  # (n, m)


src, tgt = ten_backwards(1, torch.Generator().manual_seed(7))  # (1, 10), (1, 11)
word, wanted = spell(src[0]), spell(tgt[0, 1:])
first, maps = begin(ten_backwards, heads=1, steps=STEPS), {}
keep(maps, first, src, tgt[:, :-1])
follow(first, STEPS, every=40, also=lambda run: keep(maps, run, src, tgt[:, :-1]))
assert judge(first)[2] > 0.9

# %% [markdown]
# The bar moves while the cell runs. The exact match needs all ten letters right, so it rises last.
# Here is what happened inside, for one sequence. Where scripts run, a slider goes through the whole
# training; otherwise you see five moments of it.

# %% jupyter={"source_hidden": true}
from matplotlib.patches import Rectangle

readings = {step: table.flip(1).diagonal().mean().item() for step, table in maps.items()}
shown = [0, 50, 70, 100, STEPS]
drawing, axes = display.panels(640, 165, columns=len(shown))
for ax, step in zip(axes, shown):
    for i, j in (maps[step] > 0.02).nonzero().tolist():
        look = {"color": display.COLOURS["n"], "alpha": 0.9 * maps[step][i, j].item()}
        ax.add_patch(Rectangle((j, i), 1, 1, linewidth=0, **look))
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
# Each row is a letter to be written, each column a letter of the source. At first every letter gets
# about a tenth, and for a long while hardly anything happens. Then the weights gather on the
# anti-diagonal: the first place looks at the last letter, the last at the first. Nobody told the head
# to. It is what lowers the loss.
#
# ## Lengths from three to ten
#
# Real sequences differ in length. Here they have three to ten letters. Short ones are filled up with padding, which the loss leaves out
# (`ignore_index`) and which the model's padding mask hides from attention. The target now says itself
# where it ends, with `]`: the model has to learn that, too. And there are two heads.


# %%
def backwards(b: int, source: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw ``b`` sequences of three to ten letters, and each of them backwards."""
    place = torch.arange(10)                                           # (m,)
    length = torch.randint(3, 11, (b, 1), generator=source)            # (b, 1)
    letters = torch.randint(3, len(SIGNS), (b, 10), generator=source)  # (b, m)
    src = letters.masked_fill(place >= length, PAD)                    # (b, m)
    mirrored = src.gather(1, (length - 1 - place).clamp(min=0))        # (b, m)
    mirrored = mirrored.masked_fill(place >= length, PAD)              # (b, m)
    tgt = F.pad(mirrored, (1, 1), value=PAD)                           # (b, 12)
    tgt[:, 0] = START
    return src, tgt.scatter(1, length + 1, END)  # (b, m), (b, 12)


some = backwards(3, torch.Generator().manual_seed(1))
for letters, mirrored in zip(*some):
    print(spell(letters), "->", spell(mirrored))

# %% [markdown]
# Twenty steps before the end, write a checkpoint, here into memory; a file on the disk is used in the
# same way.

# %%
import io

LONG = 400
PARTS = ("model", "optimizer", "schedule")


def checkpoint(run: Run) -> dict[str, object]:
    """Gather all that the next step depends on."""
    parts = {name: getattr(run, name).state_dict() for name in PARTS}
    return parts | {"source": run.source.get_state(), "done": run.done}


file = io.BytesIO()
right = begin(backwards, heads=2, steps=LONG)
follow(right, LONG - 20, every=95)
torch.save(checkpoint(right), file)

# %% [markdown]
# Then take the last steps, and look at what padding gets.

# %%
train(right, LONG)
weights = cross_weights(right.model, some[0], some[1][:, :-1])  # (3, 2, 11, 10)
unseen = weights.masked_select((some[0] == PAD)[:, None, None]).sum().item()
loss, accuracy, exact = judge(right)
print(f"loss {loss:.3f}, accuracy {accuracy:.3f}, exact match {exact:.3f}")
assert exact > 0.9
print(f"weight on padding: {unseen}")
assert unseen == 0

# %% [markdown]
# Nearly every sequence is written without a mistake, and padding gets exactly nothing. See it in the
# two heads that were trained, on the second sequence:

# %% jupyter={"source_hidden": true}
letters, wanted = list(spell(some[0][1])), list(spell(some[1][1, 1:8]))
both = weights[1, :, :7]  # (2, 7, 10)
still = display.attention_map(both[0], wanted, letters, name="two-trained-heads")
display.heads_at_work(still, both, wanted, letters, start=(0, 0, 0))

# %% [markdown]
# The columns of padding, the dots, stay empty. Where scripts run, choose the other head and compare:
# both have learned to look near the letter that is to be written, from the last one backwards. Nothing
# in the loss asks two heads to differ.
#
# The model has seen three to ten letters. What does it do with one or two? Decode 200 new sequences
# of each length:


# %%
@torch.no_grad()
def exact_at(run: Run, length: int) -> float:
    """Measure the exact match on sequences of one length."""
    source = torch.Generator().manual_seed(length)
    src = torch.randint(3, len(SIGNS), (200, length), generator=source)  # (200, m)
    written = run.model.eval().greedy(src, START, END, max_new=11)       # (200, ...)
    run.model.train()
    wanted = F.pad(src.flip(1), (0, 12), value=PAD)
    wanted[:, length] = END
    written = F.pad(written[:, 1:], (0, 12), value=PAD)
    return (written[:, :12] == wanted[:, :12]).all(1).float().mean().item()


by_length = [exact_at(right, length) for length in range(1, 11)]
print("letters    ", *(f"{length:5}" for length in range(1, 11)))
print("exact match", *(f"{exact:5.2f}" for exact in by_length))
assert by_length[0] < 0.5
assert min(by_length[2:]) > 0.9

# %% [markdown]
# At every length that it was trained on, nearly all sequences are right. A single letter, the length
# furthest from those, mostly comes out wrong: nothing in the loss asked for it.
#
# ## Go on from a checkpoint
#
# A run that was cut off should end where it would have ended. Load the checkpoint into a model that was
# drawn from another seed, take the last twenty steps again, and compare every parameter. Then leave out
# one part of the checkpoint at a time. `weights_only=True` reads tensors and plain values, and refuses
# what could run code.


# %%
def resume(run: Run, kept: dict, forgotten: str = "") -> None:
    """Put everything back but what is ``forgotten``."""
    for name in set(PARTS) - {forgotten}:
        getattr(run, name).load_state_dict(kept[name])
    if forgotten != "source":
        run.source.set_state(kept["source"])
    run.done = kept["done"]


for forgotten in ("", "schedule", "source", "optimizer"):
    file.seek(0)
    again = begin(backwards, heads=2, steps=LONG, seed=99)
    resume(again, torch.load(file, weights_only=True), forgotten)
    train(again, LONG)
    pairs = zip(again.model.parameters(), right.model.parameters())
    gap = max((mine - other).abs().max().item() for mine, other in pairs)
    print(f"{forgotten or 'nothing':>9} forgotten: parameters differ by {gap:.0e} at most")
    assert (gap == 0) == (not forgotten)

# %% [markdown]
# With everything put back, each number is the same, to the last bit. Forget a part, and it is another
# training, a little or by far, and no message says so.
#
# ## The same training with a mistake inside
#
# [Chapter 4](04_reshape_trick.ipynb) had two mistakes that keep every shape. The package has them as
# classes, and the model takes the class that attends as an argument. First the merge. This is all that
# changes:

# %%
from annotated_attention.mistakes import (
    MISTAKES,
    MergeWithoutTranspose,
    SplitAndMergeWithoutTranspose,
)

entry = MISTAKES["merge-without-transpose"]
display.diff(entry.right, entry.wrong)

# %% [markdown]
# The same task, the same seed, the same steps:

# %%
merged = begin(backwards, heads=2, steps=LONG, attention=MergeWithoutTranspose)
follow(merged, LONG, every=100)
loss, accuracy, exact = judge(merged)
assert exact < 0.02
assert accuracy > 0.95
assert loss < 0.2

# %% [markdown]
# Look at the last line. The loss is small, nearly every token is right, and next to no sequence comes
# out as it should.
#
# Now the split: straight as well, and straight back. That cannot learn to write backwards at all; you
# will see why. But it can learn to copy ten letters, so let it.

# %%
entry = MISTAKES["split-and-merge-without-transpose"]
display.diff(entry.right, entry.wrong)


# %%
def ten_forwards(b: int, source: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw ``b`` sequences of ten letters, and the same again as the target."""
    letters, tgt = ten_backwards(b, source)                         # (b, m), (b, 11)
    return letters, torch.cat([tgt[:, :1], tgt[:, 1:].flip(1)], 1)  # (b, m), (b, 11)


split = begin(ten_forwards, heads=2, steps=STEPS, attention=SplitAndMergeWithoutTranspose)
follow(split, STEPS, every=40)
loss, accuracy, exact = judge(split)
assert exact == 0
assert accuracy > 0.95

# %% [markdown]
# The same picture again. What do they write?

# %%
src, _ = ten_backwards(1, torch.Generator().manual_seed(7))  # (1, 10), (1, 11)
for name, run in (("right", right), ("merged wrongly", merged), ("split wrongly", split)):
    written = run.model.eval().greedy(src, START, END, max_new=11)
    print(f"{name:>14}: {spell(src[0])} -> {spell(written[0])}")

# %% [markdown]
# The first should be backwards, and is; the second should be, and loses its way; the third should be
# the same as the source.
#
# ## What teacher forcing does not see
#
# In training, a place of the target is given with everything that comes after it, and the mask has to
# hide that. In decoding nothing comes after it. So ask two questions of the rows of scores. Do they
# change when a *later letter* changes? Then the future leaks. Do they change when *nothing* comes
# later? Then a beginning alone is treated in another way than the same beginning of a whole.


# %%
@torch.no_grad()
def reactions(model: nn.Module, src: Tensor, given: Tensor) -> Tensor:
    """Measure how row i of the scores changes when token j is another letter."""
    variants = given.repeat(given.size(1), 1)  # (n, n)
    place = torch.arange(len(variants))
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


# %%
src, tgt = ten_backwards(1, torch.Generator().manual_seed(7))  # (1, 10), (1, 11)
given, tables = tgt[:, :-1], {}
print("                            future seen   a beginning alone differs by")
for name, run in (("right", right), ("merged wrongly", merged), ("split wrongly", split)):
    attention = type(run.model.transformer.decoder.layers[0].self_attn)
    untrained = begin(run.task, 2, STEPS, attention)
    for when, each in (("untrained", untrained), ("trained", run)):
        table = reactions(each.model, src, given)  # (10, 10)
        seen = (table.triu(1) > 1e-3).sum().item()
        gap = prefix_gap(each.model, src, given)
        print(f"{name:>14}, {when:9} {seen:5} of 45 {gap:17.3f}")
        assert (seen > 0) == (name == "merged wrongly")
        assert (gap > 1e-3) == (name != "right")
    tables[name] = table

# %% jupyter={"source_hidden": true}
drawing, axes = display.panels(620, 230, columns=3)
for ax, (name, table) in zip(axes, tables.items()):
    for i, j in (table > 1e-3).nonzero().tolist():
        colour = display.COLOURS["h" if j > i else "n"]
        ax.add_patch(Rectangle((j + 0.08, i + 0.08), 0.84, 0.84, color=colour, alpha=0.75))
        if j > i:
            ax.plot([j + 0.25, j + 0.75], [i + 0.25, i + 0.75], color="black", linewidth=1)
    ax.plot([0, 10], [0, 10], color=display.COLOURS["b"], linewidth=1, linestyle="--")
    ax.set(xlim=(0, 10), ylim=(10, 0), aspect="equal", title=name)
    ax.set_xlabel("a letter changes at")
    ax.set_xticks([0.5, 4.5, 9.5], ["1", "5", "10"])
    ax.set_yticks([0.5, 4.5, 9.5], ["1", "5", "10"])
axes[0].set_ylabel("the scores change at")
counts = {name: int((table.triu(1) > 1e-3).sum()) for name, table in tables.items()}
display.finish(drawing, name="who-reacts", alt=(
    "For three models, which places of the output change with which place of the target. "
    f"How many pairs look ahead: {', '.join(f'{name} {x}' for name, x in counts.items())}."
))

# %% [markdown]
# Read the figure row by row: the scores at this place change when one of these letters does. Up to
# the diagonal is as it should be.
#
# The **wrong merge** lays neighbouring tokens of one head side by side, so that an early row holds what
# later tokens asked for: the squares with a stroke. Is the very letter among them that the row is asked
# for? Here is how much each row of the figure changes with that letter:

# %%
for name, table in tables.items():
    print(f"{name:>14}:", " ".join(f"{change:5.1f}" for change in table.diagonal(1)))

# %% [markdown]
# In the first rows it is, and a lot depends on it. Teacher forcing hands the letter over, training
# learns to read it off, and in decoding it is not there.
#
# The **wrong split** shows nothing of the future. But it cuts the *sequence* in two, and each half looks
# only at itself. Where the cut goes depends on the length: with ten tokens given, five and five; with
# four given, two and two, which the model has never met. To copy, the first half of the target needs
# the first half of the source, and it has that. To write backwards it needs the other half. So the
# table in the next section has an accuracy of about a half, and a loss that does not fall.
#
# > **Pitfall.** To judge a decoder by its loss on fresh sequences. It is teacher-forced, too, and is
# > shown what training was shown. Decode some and compare whole outputs. And ask the two questions
# > above: the rows *untrained* show that they need no training at all.
#
# ## Is it the seed?
#
# One run may be luck. `make seeds` trains each setup from five seeds, with the functions of this page,
# and keeps the results as data. `ten_backwards` has one head, the others two.

# %%
import json
from importlib import resources

DATA = resources.files("annotated_attention").joinpath("data/training.json")
kept = json.loads(DATA.read_text())
NAMES = {"MultiheadAttention": "right", "MergeWithoutTranspose": "merged wrongly"}
NAMES["SplitAndMergeWithoutTranspose"] = "split wrongly"
groups: dict[tuple[str, str], list[dict]] = {}
for row in kept["runs"]:
    groups.setdefault((row["task"], NAMES[row["attention"]]), []).append(row)

print("lowest to highest of 5 seeds              loss      accuracy   exact match")
for (task, name), rows in groups.items():
    columns = ([row[what] for row in rows] for what in ("loss", "accuracy", "exact match"))
    spans = [f"{min(column):.3f}–{max(column):.3f}" for column in columns]
    print(f"{task:>13}, {name:15} {spans[0]:>15} {spans[1]:>13} {spans[2]:>13}")

# %% jupyter={"source_hidden": true}
drawing, axes = display.panels(640, 290, columns=2)
for ax, what in zip(axes, ("accuracy", "exact match")):
    for y, rows in enumerate(groups.values()):
        spread = [y + 0.09 * (row["seed"] - 2) for row in rows]
        found = [row[what] for row in rows]
        ax.plot(found, spread, "o", color=display.COLOURS["h"], markersize=4)
    ax.set(xlim=(-0.05, 1.05), ylim=(len(groups) - 0.5, -0.5))
    ax.set_title({"accuracy": "teacher-forced accuracy"}.get(what, "greedy exact match"))
    ax.set_yticks(range(len(groups)), ["\n".join(key) for key in groups], fontsize=10)
    ax.tick_params(left=False)
axes[1].set_yticks(range(len(groups)), [""] * len(groups))
told = "; ".join(
    f"{task}, {name}: accuracy at least {min(row['accuracy'] for row in rows):.2f}, "
    f"exact match at most {max(row['exact match'] for row in rows):.2f}"
    for (task, name), rows in groups.items()
)
display.finish(drawing, name="five-seeds", alt=f"Five seeds for each setup. {told}.")

# %% [markdown]
# Every dot is a run. With the right class, each run writes at least 0.955 of the sequences without a
# mistake. With a mistake inside, the best run gets 0.005 of them right, one sequence of 200, whatever the
# accuracy says. The wrong split on the task that it cannot learn is the lucky case: there the loss
# tells you.

# %% [markdown]
# ## Exercises
#
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
from annotated_attention import exercises

exercises.training.check_greedy(my_greedy)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# In a loop: score all that is written, take the likeliest token of the newest place, put it behind
# what is written.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Row i of the scores is about token i + 1. So the newest is row -1, and `argmax(-1)` is over the
# tokens.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Remember which sequences are complete in a boolean of `(b, 1)`, and fill their next token with
# `PAD` by `masked_fill`.
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
# *Hard, 15 minutes.* This is the heart of a decoder's self-attention: q, k and v are `(b, h, n, d)`,
# the result is `(b, n, h * d)`. A model with it trains to a loss near zero and decodes garbage. Find
# out why, with one of the two questions above if you like, and repair it.


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
# Shapes, scale, softmax and merge are as in chapter 7. What is left?
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
# Row i is asked for token i + 1. It may see the tokens 0 to i.
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
# A loop that trains, that can be cut off and goes on as if it had not been. Three numbers, of which only
# the last says whether the model does its task. And two questions that find a decoder's mistakes before
# any training; a later chapter makes tests of them.
#
# These models are tiny. [The next chapter](11_trained_weights.ipynb) puts weights that others have
# trained into the same classes.
