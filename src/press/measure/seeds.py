"""Trains the models of the chapter "Training" from several seeds, and keeps what came out as data.

    make seeds
    make seeds ONLY=far_key

The loop, the tasks and the measurements are the chapter's own; the chapter draws the result.
The same loop trains deeper models with and without warm-up for the chapter "Transformer layers".
A loop of the chapter "Positions" trains models on short sequences, which are tested on long ones;
another trains models to look at a far key.
The modules of "Two heads" are so small that each is trained from twenty seeds.
For the chapter "Fewer keys", trained models are made to share keys, and trained on.
The storytellers of "A little world" are trained as they should be and with leaks; two of them are
kept, packed. For "Questions to heads", those that are right are trained anew and questioned.
For "Windows", nothing is trained: a chat model (TRAINED=1 fetches it) reads this book, and forgets
its first words. The seed is then the number of the text.
"""

import json
import re
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import product
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor

from annotated_attention import MultiheadAttention, pretrained
from annotated_attention.modern import GroupedQueryAttention, block_by_position, decoder
from annotated_attention.seq2seq import Seq2SeqTransformer
from annotated_book import chapters, measured, world
from attention_doctor.mistakes.reshapes import (
    MergeWithoutTranspose,
    SplitAndMergeWithoutTranspose,
)
from press.measure.machine import provenance

FOLDER = measured.DATA.parent
SEEDS = range(5)
OTHER_SEEDS = {"two_heads": range(20), "sinks": range(16)}  # by file
Train = Callable[[Any, int], dict[str, Any]]  # of a setup and a seed, the row that is kept
# The classes that attend in a model that is trained to write backwards.
ATTENTIONS = [MultiheadAttention, MergeWithoutTranspose, SplitAndMergeWithoutTranspose]
# The attentions of the right model that are silenced, or never there.
PARTS = ("encoder", "decoder", "cross")
# Layers on each side, where the norms stand, for how many steps the learning rate rises, and its
# highest value.
WARM_UPS = [
    (4, "post-LN", 0, 0.008),
    (4, "post-LN", 60, 0.008),
    (4, "pre-LN", 0, 0.008),
    (4, "post-LN", 0, 0.004),
    (1, "post-LN", 0, 0.008),
]
WARM_UP_STEPS = 200
# Of the storytellers, what is wrong with them, if anything, and the seeds of those that are kept.
STORYTELLERS = ("right", "mask forgotten", "mask one late", "wrong merge")
KEPT = (0, 4)
# Heads of a module that is to tell two warmths, and whether its keys see them.
GLASSES = [(1, "blind"), (1, "seeing"), (2, "blind"), (2, "seeing")]
# KV heads of a copier with four heads in each of two layers, and where they come from.
GROUPS = [(g, x) for g in (2, 1) for x in ("averaged", "first", "new", "from scratch")]
# Of a cache, the window (None keeps all keys) and how many of the first keys stay besides.
CACHES = [(None, 0), (128, 0), (128, 1), (128, 4)]


def run(attention: type[MultiheadAttention], seed: int) -> dict[str, Any]:
    """Train one model of the chapter and judge it as the chapter does."""
    training: Any = chapters.load("12_training")
    begun = training.begin(training.backwards, 2, training.LONG, attention, seed)
    training.train(begun, training.LONG)
    loss, accuracy, exact = (round(number, 4) for number in training.judge(begun))
    return {
        "steps": training.LONG,
        "attention": attention.__name__,
        "seed": seed,
        "loss": loss,
        "accuracy": accuracy,
        "exact match": exact,
    }


def part(name: str, seed: int) -> dict[str, Any]:
    """Silence an attention of the right model: after training, and from its first step on."""
    training: Any = chapters.load("12_training")
    asking: Any = chapters.load("11_questions_to_heads")
    measured: dict[str, Any] = {"part": name, "seed": seed}
    for when, steps in (("silenced", training.LONG), ("never there", 0)):
        begun = training.begin(training.backwards, 2, training.LONG, seed=seed)
        training.train(begun, steps)
        attention = training.attentions(begun.model)[name]
        with asking.silenced(*((attention, head) for head in range(attention.num_heads))):
            training.train(begun, training.LONG)  # what is left
            measured[when] = round(training.judge(begun)[2], 4)
    return measured


def run_storyteller(setup: str, seed: int) -> dict[str, Any]:
    """Train a storyteller and judge it as the chapter does; a leak for half of the steps."""
    chapter: Any = chapters.load("10_a_little_world")
    leak = chapter.LEAKS.get(setup)
    model = chapter.begin(seed, leak or MultiheadAttention)
    found: dict[str, Any] = {"setup": setup, "seed": seed}
    for done in chapter.train(model, seed):
        if done in (100, 200, 300, 500, chapter.STEPS):
            judged = chapter.judge(model, 200)
            found[str(done)] = {name: round(x, 4) for name, x in judged.items()}
        if leak and done == 500:
            break
    if setup == "right" and seed in KEPT:
        packed = world.pack(model.state_dict())
        (FOLDER / f"storyteller-{seed}.bin").write_bytes(packed)
    return found | {"sample": " ".join(chapter.write(model, 1)[0])}


def question(_: str, seed: int) -> dict[str, Any]:
    """Ask a storyteller as "Questions to heads" does, about a thing and about two animals."""
    heads: Any = chapters.load("11_questions_to_heads")
    model, found = storyteller(seed), dict[str, Any](seed=seed)
    for name, asked in (("a thing", heads.ASKED), ("two animals", heads.FAIR)):
        turned = {
            what: heads.shares(heads.patched_rows(model, 1, place, asked), asked)[1]
            for what, place in heads.AFTER.items()
        }
        found[name] = {
            "right": round(heads.named(model, asked)[0], 4),
            "it blanked": round(heads.blanked(model, -6, asked)[0], 4),
            "quality blanked": round(heads.blanked(model, -4, asked)[0], 4),
            "rows that turn it": {what: round(share, 4) for what, share in turned.items()},
            "lead": {head: round(x, 4) for head, x in heads.leads(model, asked).items()},
            "looks": {
                kept: [round(share, 4) for share in row]
                for kept, row in heads.kept_looks(model, asked).items()
            },
        }
    return found


def storyteller(seed: int) -> Any:
    """Train a storyteller as the chapter does."""
    chapter: Any = chapters.load("10_a_little_world")
    model = chapter.begin(seed)
    for _ in chapter.train(model, seed):
        pass
    return model


def run_warm_up(
    setup: tuple[int, str, int, float], seed: int, steps: int = WARM_UP_STEPS
) -> dict[str, Any]:
    """Train a model on lengths from three to ten, and judge it as the chapter does.

    The model, its optimizer and the learning rate are the chapter's, apart from the setup.
    """
    training: Any = chapters.load("12_training")
    layers, order, warm_up, highest = setup
    torch.manual_seed(seed)
    model = Seq2SeqTransformer(
        13,
        13,
        32,
        2,
        layers,
        layers,
        128,
        0.0,
        pad=training.PAD,
        max_len=11,
        norm_first=order == "pre-LN",
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=highest)

    def rate(step: int) -> float:
        """Rise, if at all, over ``warm_up`` steps; fall all the way to a tenth."""
        return min(1.0, (step + 1) / max(warm_up, 1)) * (1 - 0.9 * step / steps)

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    source = torch.Generator().manual_seed(seed)
    begun = training.Run(training.backwards, model, optimizer, schedule, source)
    training.train(begun, steps)
    loss, _, exact = (round(number, 4) for number in training.judge(begun))
    return {
        "layers": layers,
        "order": order,
        "warm-up": warm_up,
        "learning rate": highest,
        "steps": steps,
        "seed": seed,
        "loss": loss,
        "exact match": exact,
    }


def positions(kind: str, seed: int) -> dict[str, Any]:
    """Train a model with positions of one kind on short sequences, and test it on long ones.

    A model with rotary positions is also tested with its rotation scaled, without more training,
    and tells what its heads ask on average.
    """
    chapter: Any = chapters.load("20_positions")
    model = chapter.learn_short(kind, seed)
    measured = {"as trained": chapter.copied_until(model)}
    if kind == "rotary":
        for name, scaling in chapter.SCALINGS.items():
            measured[name] = chapter.copied_until(chapter.scaled(model, scaling))
    rounded = {name: {end: round(x, 4) for end, x in row.items()} for name, row in measured.items()}
    found = {"kind": kind, "seed": seed, "steps": chapter.LONG_STEPS} | rounded
    if kind == "rotary":
        for name, heads in zip(("queries", "keys"), chapter.averages(model), strict=True):
            found[name] = [[round(x, 3) for x in head.tolist()] for head in heads]
    return found


def far_key(setup: Sequence[Any], seed: int) -> dict[str, Any]:
    """Train a model to give the first seat, which is far, or the last; and question its heads.

    The setup is a kind of positions, 0 or 1, and maybe how many steps to train.
    """
    chapter: Any = chapters.load("20_positions")
    kind, part, *steps = setup
    found = chapter.looks(chapter.learn_seats(kind, part, seed, *steps), part)
    rounded = {
        name: [round(x, 4) for x in value] if isinstance(value, list) else round(value, 4)
        for name, value in found.items()
    }
    asked, (taken,) = ("first", "last")[part], steps or [chapter.SEAT_STEPS]
    return {"kind": kind, "asked": asked, "seed": seed, "steps": taken} | rounded


def glasses(setup: tuple[int, str], seed: int) -> dict[str, Any]:
    """Train a module of "Two heads"; say how far off it is."""
    heads, keys = setup
    off = chapters.load("02_two_heads").learn(heads, keys, seed)
    return {"heads": heads, "keys": keys, "seed": seed, "off by": [round(x, 4) for x in off]}


def share_keys(setup: tuple[int, str], seed: int) -> dict[str, Any]:
    """Let the heads of a trained copier share keys, and train on; or share from the first step."""
    keys: Any = chapters.load("22_fewer_keys")
    g, origin = setup
    if origin == "from scratch":
        grouped = partial(GroupedQueryAttention, num_kv_heads=g)
        with patch.object(keys, "MultiheadAttention", grouped):
            accuracy = {keys.COPY_STEPS: keys.copied(keys.learn_to_copy(seed))}
    else:
        single = four_heads(seed)
        model = keys.share_keys(single, g)
        for new, old in zip(model.layers, single.layers, strict=True):
            replace_keys(new, old, origin)
        accuracy = keys.retrain(model, seed)
    found = {str(step): round(number, 4) for step, number in accuracy.items()}
    return {"KV heads": g, "origin": origin, "seed": seed} | found


@cache
def four_heads(seed: int) -> Any:
    """Train a copier whose heads have keys of their own."""
    return chapters.load("22_fewer_keys").learn_to_copy(seed)


def forget(setup: tuple[int | None, int], seed: int) -> dict[str, Any]:
    """Let the chat model read the beginning of a chapter, with some of the keys in its cache."""
    model, tokenizer = chat_model()
    tokens = tokenizer.encode(prose(chapters.names()[seed])).ids[:513]
    loss, weight, value = read(model, torch.tensor([tokens]), *setup)
    return {
        "window": setup[0],
        "sinks": setup[1],
        "seed": seed,
        "weight of the first": round(weight, 4),
        "value of the first": round(value, 4),
        "loss": [round(x, 3) for x in loss.unflatten(0, (-1, 16)).mean(1).tolist()],
    }


@torch.no_grad()
def read(model: Any, tokens: Tensor, window: int | None, sinks: int) -> tuple[Tensor, float, float]:
    """Give the loss of each next token, and what the first key gets and gives.

    A mask hides keys, which gives what a rolling cache gives.

    Args:
        model: a language model of the package.
        tokens: (1, n + 1), a text.
        window: each layer keeps so many keys; None keeps all.
        sinks: how many of the first keys it keeps besides.
    """
    n, found = tokens.size(1) - 1, []
    blocked = block_by_position(torch.arange(n), n, window, sinks=sinks)  # (n, n)

    def attend(layer: Any, q: Tensor, k: Tensor, v: Tensor, *others: Any) -> Any:
        heads, weights = layer.attend(q, k, v, blocked, True)
        lengths = v[0].norm(dim=-1)  # (g, n)
        value = (lengths[:, 0] / lengths[:, 1:].mean(-1)).mean()
        found.append((weights[..., n // 4 :, 0].mean().item(), value.item()))
        return heads, weights

    with patch.object(decoder.DecoderAttention, "attend_in_parts", attend):
        logits = model(tokens[:, :-1])[0]                            # (n, ...)
    loss = F.cross_entropy(logits, tokens[0, 1:], reduction="none")  # (n,)
    weight, value = (sum(x) / len(x) for x in zip(*found, strict=True))
    return loss, weight, value


def prose(name: str) -> str:
    """Give the paragraphs of a chapter, without tables, formulas, quotes and links."""
    cells = re.split(r"(?m)^# %%", (chapters.NOTEBOOKS / f"{name}.py").read_text("utf-8"))
    text = "\n\n".join(cell.partition("\n")[2] for cell in cells if cell.startswith(" [markdown]"))
    text = re.sub(r"<[^>]*>|\]\([^)]*\)|[\[\]]", "", re.sub(r"(?m)^# ?", "", text))
    parts = [" ".join(part.split()) for part in text.split("\n\n")]
    return "\n\n".join(part for part in parts if part and part[0] not in "|#>$")


@cache
def chat_model() -> tuple[Any, Any]:
    """Read the chat model of "A model of today" and its tokenizer."""
    return pretrained.load_gguf(pretrained.find_weights(model=pretrained.CHAT_MODEL))


@torch.no_grad()
def replace_keys(new: Any, old: MultiheadAttention, origin: str) -> None:
    """Take each group's first head for its keys and values, or draw them; averages are there."""
    e, d, rows = old.embed_dim, old.head_dim, old.in_proj_weight
    assert rows is not None
    if origin == "first":
        heads = rows[e:].unflatten(0, (2 * new.num_kv_heads, -1, d))
        new.in_proj_weight[e:] = heads[:, 0].flatten(0, 1)
    elif origin == "new":
        torch.nn.init.xavier_uniform_(new.in_proj_weight[e:])


def experiments() -> dict[str, dict[str, tuple[Sequence[Any], Train]]]:
    """List what is trained: for each file of data its tables, and of each the setups."""
    kinds = list(chapters.load("20_positions").KINDS)
    return {
        "two_heads": {"runs": (GLASSES, glasses)},
        "world": {"runs": (STORYTELLERS, run_storyteller)},
        "heads": {"questions": (("",), question)},
        "positions": {"runs": (kinds, positions)},
        "far_key": {
            "runs": (list(product(kinds, (0, 1))), far_key),
            "longer": ([("ALiBi", 0, 400), ("rotary", 0, 400), ("ALiBi", 0, 1000)], far_key),
        },
        "warm_up": {"runs": (WARM_UPS, run_warm_up)},
        "groups": {"runs": (GROUPS, share_keys)},
        "sinks": {"runs": (CACHES, forget)},
        "training": {"runs": (ATTENTIONS, run), "parts": (PARTS, part)},
    }


def main(only: Sequence[str] = ()) -> None:
    """Train every setup from every seed, and rewrite the data, all of it or the named files."""
    wanted = {file: x for file, x in experiments().items() if file in only or not only}
    for file, tables in wanted.items():
        begun = OTHER_SEEDS.get(file, SEEDS)
        found: dict[str, Any] = {"provenance": provenance("make seeds")}
        for name, (setups, train) in tables.items():
            rows = found[name] = list[dict[str, Any]]()
            for seed, setup in product(begun, setups):
                rows.append(train(setup, seed))
                print(f"{file} {len(rows)}/{len(setups) * len(begun)} {rows[-1]}", flush=True)
        (FOLDER / f"{file}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
