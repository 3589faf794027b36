"""Every live figure on its page: whole without scripts, and driven, with numbers from Python."""

import json
import math
import random
import re
from dataclasses import replace
from itertools import pairwise, zip_longest
from unittest.mock import ANY

import pytest
import torch
import torch.nn.functional as F
from playwright.sync_api import expect
from torch import nn

from annotated_attention import (
    MultiheadAttention,
    counting,
    masks,
    merge_heads,
    sinusoidal_code,
    split_heads,
)
from annotated_attention.counting import PRESETS
from annotated_attention.modern import RotaryEmbedding
from annotated_attention.pretrained import attention_weights
from annotated_book import chapters, measured
from annotated_book.display import _live
from annotated_book.display.live_figures import budget as budgeted
from annotated_book.display.live_figures import cache_filling as cache
from annotated_book.display.live_figures import call_bytes as called
from annotated_book.display.live_figures import reach as reached
from annotated_book.display.live_figures import tiles_visited as visited
from annotated_book.display.live_figures.aloud import go_on
from annotated_book.display.live_figures.hands import by_distance
from annotated_book.display.live_figures.mask_merger import written
from annotated_book.display.way_through import attend_cut
from attention_doctor.mistakes.reshapes import MergeWithoutTranspose, split_without_transpose
from press.site.build import SITE

FRAMES = {  # of each live figure, a page that it is on
    module: page.parent.relative_to(SITE).as_posix()
    for page in sorted(SITE.rglob("index.html"), reverse=True)  # the first that has it
    for module in re.findall(r'data-live="(\w+)"', page.read_text(encoding="utf-8"))
}

# A drive yields what a reader does, as (role, name, key or choice), or None at the start; and what
# the figure then says: words of its readout, and texts by selector.


def aloud(data):
    ten, short = chapters.load("10_a_little_world"), chapters.load("short_path")
    three = chapters.load("03_split_and_stack")
    tellers = [three.cut_into(h) for h in data["heads"]]
    if data["reshaped"] >= 0:
        tellers[data["reshaped"]] = short.two_models()["model B"]
    for done, ending in [
        (None, data["endings"][0]),
        *((("button", each, ""), each) for each in data["endings"][1:3]),
    ]:
        text = [ten.EDGE, *data["text"].format(ending).split()]
        told = [go_on(teller, text, ten.WORDS, longest=ten.LONGEST) for teller in tellers]
        texts = [" ".join(words).replace(" .", ".") for words in told]
        said = [f"{name}: {text}" for name, text in zip(data["names"], texts, strict=True)]
        yield done, said, {".aa-aloud b": texts}


def attention_over_training(data):
    for done, at in [
        (None, -1),
        (("slider", "training step", "Home"), 0),
        (("slider", "training step", "ArrowRight"), 1),
        (("slider", "training step", "End"), -1),
    ]:
        rows, step = torch.tensor(data["maps"][at]), data["steps"][at]
        right = rows.flip(1).diagonal().double().mean().item() / 100
        reading = data["readings"]["on the right letter"][at]
        assert float(reading) == pytest.approx(right, abs=0.011)
        cells = ["1" if w == 100 else f".{w}" for w in rows.flatten().tolist() if w >= 10]
        most, key = rows[0].max(-1)
        says = f"{data['queries'][0]} looks at {data['keys'][key]} ({most / 100:.2f})"
        shown = {
            ".aa-stage .aa-weight + text:not(:empty)": cells,
            f"svg[aria-label^='Attention at step {step}. {says};']": [ANY],
        }
        yield done, [f"step {step} · on the right letter {reading}"], shown


def by_hand(data):
    one = chapters.load("01_one_head")
    _, matrices = data["settings"][0]
    head = {
        letter: torch.tensor(matrix) * 1.0 for letter, matrix in zip("QKV", matrices, strict=True)
    }
    acts = [
        (None, "", "", 0),
        (("button", "W_Q, quality, animal: 0", "Enter"), "Q", (3, 0), 1),
        (("button", "W_K, animal, animal: 0", ""), "K", (0, 0), 1),
        (("button", "W_Q, quality, animal: 1", ""), "Q", (3, 0), 2),
        (("button", "W_Q, quality, animal: 2", ""), "Q", (3, 0), 0),
        (("button", "W_Q, quality, quality: 0", ""), "Q", (3, 1), 1),
        (("button", "W_K, quality, quality: 0", ""), "K", (3, 1), 1),
        (("button", "W_Q, quality, quality: 1", ""), "Q", (3, 1), 2),
        (("button", "W_V, food, food: 1", ""), "V", (1, 1), 2),
    ]
    counts = []
    for done, letter, place, number in acts:
        if letter:
            head[letter][place] = number
        verdicts, sums, right = [], [], 0
        for sentence in data["sentences"]:
            x = one.embed(sentence["words"])
            found = one.attend(*(x @ matrix for matrix in head.values()))[0][data["query"]]
            sums += [f"{each:.2f}" for each in found.tolist()]
            says = int(found.argmax())
            right += says == sentence["answer"]
            mark = "✓" if says == sentence["answer"] else "✗"
            verdicts.append(f"{data['columns'][2][says]} {mark}")
        counts.append(right)
        counted = [f"{right} of 4 right"] if len(counts) > 2 else []
        shown = slice(None if counted else 1)
        numbers = sums if counted else sums[:2]
        at = {".aa-stage .aa-answers b": verdicts[shown], ".aa-stage .aa-answers i + span": numbers}
        yield done, counted, at
    assert counts == [1, 1, 1, 2, 1, 1, 3, 4, 4]
    yield ("button", "three presses", ""), ["The query of “it” is (0, 2)", "4 of 4 right."], {}


def blocks(data):
    models = {name: parts for name, *parts in data["models"]}
    first = "Llama 3.1 8B, 2024"
    norms, known = {"norm", "+"}, {"RoPE", "GQA", "all keys", "feed-forward"}
    for done, name, layer, apart in [
        (None, first, 1, None),
        (("button", "Kimi Linear 48B", ""), "Kimi Linear 48B, 2025", 1, 4),  # plain: one layer
        (("slider", "layer", "ArrowRight"), "Kimi Linear 48B, 2025", 2, 6),
        (("slider", "layer", "End"), "Kimi Linear 48B, 2025", 27, 4),
        (("button", "Gemma 3 27B", ""), "Gemma 3 27B, 2025", 1, 3),
    ]:
        layers, attention, forward, plain = models[name]
        made = models[first][2] if layer <= plain else forward
        parts = ["norm", *attention[layers[layer - 1]].split("; "), "+"]
        parts += ["norm", *made.split("; "), "+"]
        new = [x for x in parts if x not in norms and x.partition(",")[0] not in known]
        shown = {".aa-stage .aa-block li": parts, ".aa-stage .aa-apart": new}
        said = [f"{name}, layer {layer} of {len(layers)}."]
        if done:
            assert len(dict.fromkeys(new)) == apart
            said.append(f"Not in {first}: {'; '.join(dict.fromkeys(new))}.")
        yield done, said, shown


def call_race(data):
    took, names = measured.find("one race")[0], [name for name, *_ in data["masks"]]
    path_off = "torch.backends.mha.set_fastpath_enabled(False)\n"
    for done, mask, way, code in [
        (None, "causal", "class, weights", "attention(x, x, x, attn_mask=future)"),
        (
            ("button", "need_weights=False", ""),
            *("causal", "class", "attention(x, x, x, attn_mask=future, need_weights=False)"),
        ),
        (
            ("button", "fast path off", ""),
            *("causal", "class, fast path off"),
            path_off + "attention(x, x, x, attn_mask=future, need_weights=False)",
        ),
        (
            ("button", "is_causal=True, too", ""),
            *("causal", "class, fast path off, flag"),
            path_off + "attention(x, x, x, attn_mask=future, is_causal=True, need_weights=False)",
        ),
        (
            ("combobox", "mask", str(names.index("booleans"))),  # takes no flag
            *("booleans", "class, fast path off"),
            path_off + "attention(x, x, x, attn_mask=hide, need_weights=False)",
        ),
        (
            ("button", "call the function", ""),
            *("booleans", "function", "F.scaled_dot_product_attention(q, k, v, attn_mask=~hide)"),
        ),
        (
            ("combobox", "mask", str(names.index("causal"))),
            *("causal", "function", "F.scaled_dot_product_attention(q, k, v, is_causal=True)"),
        ),
    ]:
        all_times = {x: t[1] for x, t in took["milliseconds"].items() if x.startswith(f"{mask}:")}
        middle, best = round(all_times[f"{mask}: {way}"]), round(min(all_times.values()))
        shares = took["parts"][f"{mask}: {way}"].values()
        spent = [round(all_times[f"{mask}: {way}"] * share) for share in shares]
        parts = [name for name, _ in data["parts"]]
        end = "Within a tenth of the fastest." * (middle <= 1.1 * best)
        largest = parts[spent.index(max(spent))]
        said = f"{mask}: {middle} ms; largest: {largest}, {max(spent)} ms. {end}"
        texts = [
            x for part, time in zip(parts, spent, strict=True) for x in (part, str(time or "–"))
        ]
        shown = {
            ".aa-stage [role=status]": [said],
            ".aa-stage svg text": ["the call", *texts, f"{middle} ms", f"the fastest way: {best}"],
            ".aa-stage .aa-written": [code],
        }
        yield done, [said.strip()], shown


def cache_filling(data):
    total = {True: [0, 0], False: [0, 0]}
    for cached, name in ((True, "with a cache"), (False, "without")):
        yield ("button", name, ""), [], {}
        yield ("slider", "words", "Home"), [], {}
        for step in (1, 2, 3):
            work = cache.work(step, cached)
            total[cached] = [a + b for a, b in zip(total[cached], work.values(), strict=True)]
            done = ("slider", "words", "ArrowRight") if step > 1 else None
            kept = 2 * (step - 1) * cached
            said = f"For “{data['words'][step - 1]}”: {work['vectors']} vectors and "
            since = "Since the first word: {} vectors and {} weights".format(*total[cached])
            new = {
                f".aa-stage text:text-is('{x}')": [x] * n
                for x, n in (("new", work["vectors"]), ("kept", kept))
            }
            yield done, [said, f"{kept} vectors kept.", since], new


def calculator(data):
    big = replace(PRESETS["gpt2-xl"], embed_dim=2048, feedforward=8192, num_heads=32)
    for done, model, length, width in [
        (None, PRESETS["transformer-base"], 1024, 4),
        (("combobox", "sizes of", "gpt2-xl"), PRESETS["gpt2-xl"], 1024, 4),
        (("combobox", "numbers are", "bfloat16"), PRESETS["gpt2-xl"], 1024, 2),
        (("slider", "length n", "ArrowRight"), PRESETS["gpt2-xl"], 2048, 2),
        (("slider", "width e", "ArrowRight"), big, 2048, 2),  # 25 heads do not fit, 32 do
        (("slider", "decoder layers", "ArrowRight"), replace(big, decoder_layers=1), 2048, 2),
    ]:
        rows = counting.rows(model, length, 1, width)
        cells = [cell for row in rows for cell in row if cell]
        notes = counting.notes(model, length, 1, width)
        shown = {".aa-stage table :is(th, td):not(:empty)": cells, ".aa-stage li": notes}
        yield done, [f"{rows[-1][1]} parameters"], shown


def clocks(data):
    code = sinusoidal_code(120, 2 * data["clocks"])
    for done, at, distance in [
        (None, 3, 2),
        (("slider", "position", "End"), 99, 2),
        (("slider", "distance", "ArrowRight"), 99, 3),
    ]:
        turned = ", ".join(f"{at / 10**i:.2f}" for i in range(4))
        product = (code[at] @ code[at + distance]).item()
        said = f"Its dot product with position {at + distance} is {product:.2f}."
        hands = {
            f"[aria-label='Clock {i + 1}: sine {sine:.2f}, cosine {cosine:.2f}.']": [ANY]
            for i, (sine, cosine) in enumerate(code[at].view(-1, 2).tolist())
        }
        yield done, [f"Position {at}: turned by {turned}.", said], hands


def collects(data):
    one = chapters.load("01_one_head")
    for done, words in [
        (None, one.WORDS),
        (("button", "sweet", ""), one.SWEET),
        (("button", "thirsty", ""), one.WORDS),
    ]:
        x, it = one.embed(words).double(), one.WORDS.index("it")
        shares = (x @ x[it] / 2).softmax(-1)
        animal, food = (shares @ x)[:2].tolist()
        drawn = f".aa-stage svg[aria-label*='{words[-1]} {shares[-1]:.2f}.']"
        shown = {drawn: [ANY], ".aa-stage text[font-size='14']": [f"{animal:.2f}", f"{food:.2f}"]}
        yield done, [f"“it” collects {animal:.2f} of animal and {food:.2f} of food."], shown


def dots_in_front(data):
    ten, text, turn = chapters.load("10_a_little_world"), data["text"], data["turn"]
    begun = [ten.EDGE, *text.split()]
    alone = go_on(ten.shipped(), begun, ten.WORDS, longest=ten.LONGEST)
    names = [held for held, *_ in data["told"]]
    stages = [
        (None, 0, False, data["start"]),
        (("slider", "places in front", "End"), 0, False, -1),
        (("button", turn, ""), 0, True, -1),
        (("button", names[-1], ""), len(names) - 1, True, -1),
        (("button", turn, ""), len(names) - 1, False, -1),
        (("slider", "places in front", "Home"), len(names) - 1, False, 0),
    ]
    for done, held, on, at in stages:
        if done and done[1] == names[-1] and len(names) == 1:
            continue  # there is nothing to choose
        words = data["told"][held][1 + on][at].split()
        if (names[held] == "zeros" and on) or not data["dots"][at]:
            assert words == alone  # the cure
        places = ["·" if names[held] == "zeros" else names[held]] * data["dots"][at]
        lines = [" ".join([text, *alone]), " ".join([*places, text, *words])]
        moved = [word for word, own in zip_longest(words, alone) if word and word != own]
        who = next((who for word, who in data["answers"].items() if word in words), "")
        shown = {".aa-dots p": lines, ".aa-dots mark": moved}
        shown[".aa-stage[data-covered] .aa-dots p"] = [] if done else lines
        yield done, [f"“it” is {who}." if who else "Not a word is left."], shown


def cut(data):
    w_o, who = torch.tensor(data["output"]), data["who"]
    for done, way, last in [
        (None, "uncut", "thirsty"),
        (("button", "cut, dim=1", ""), "cut, dim=1", "thirsty"),
        (("button", "sweet", ""), "cut, dim=1", "sweet"),
        (("button", "cut, dim=0", ""), "cut, dim=0", "sweet"),
        (("button", "uncut", ""), "uncut", "sweet"),
    ]:
        weights, gets = attend_cut(torch.tensor(data["sheets"][last]), w_o, way, who)
        first = weights[:1].mT if way == "cut, dim=1" else weights
        shares = (first.flatten() if way == "cut, dim=1" else first.mT.flatten()).tolist()
        got = [f"{name} {x:.2f}" for name, x in zip(data["answers"], gets.tolist(), strict=False)]
        answer = "So “it” is the milk." if way == "cut, dim=0" else "The same twice: no answer."
        shown = {".aa-cut .aa-share": [f"{share:.2f}" for share in shares]}
        cross = ["score 3 and 3, 3 and 3"] if way == "cut, dim=1" else []
        yield done, [", ".join(got), answer, way, *cross], shown


def heads_at_work(data):
    keys, queries, at = data["keys"], data["queries"], [*data["start"]]
    for done, place, value in [
        (None, 0, at[0]),
        (("slider", "layer", "Home"), 0, 0),
        (("slider", "head", "End"), 1, 11),
        (("slider", "query", "Home"), 2, 0),
    ]:
        at[place] = value
        row = data["maps"][at[0]][at[1]][at[2]]
        order = sorted(range(len(row)), key=lambda j: (-row[j], j))
        most = [j for place, j in enumerate(order) if place == 0 or row[j] >= 10][:3]
        looks = ", ".join(f"{keys[j]} ({row[j] / 100:.2f})" for j in most)
        where = f"layer {at[0] + 1}, {data['heads'][at[1]]}"
        numbers = [f"{weight / 100:.2f}" for weight in row]
        lines = {".aa-pictures > svg:first-child > text[fill='var(--aa-h)']": numbers}
        yield done, [f"{where}: “{queries[at[2]]}” looks at {looks}"], lines


def landed(data):
    words, who, at = data["words"], data["who"], {}
    n, h = len(words), len(data["ways"]["without"][0])
    for head in range(h):
        place = head * n + who  # among all that the heads have found, one after the other
        at[head] = words[place // h], place % h + 1
    cells = [["?"] * h for _ in words]
    for head, word, (row, column) in [
        (None, "", ("", 0)),
        (h - 1, "milk", (words[who], h)),
        (0, words[who], at[0]),
        (h - 1, words[who], at[1]),
    ]:
        done = None if head is None else ("button", f"row {row}, cell {column}", "")
        said = [f"Press the {h} cells"]
        if done:
            yes = "Yes" if word == words[who] else "No"
            said = [f"{yes}: here stands what head {head + 1} has found for “{word}”."]
            cells[words.index(row)][column - 1] = word
        if (row, column) == at[h - 1]:
            said.append(f"in the rows of “{at[0][0]}” and “{at[1][0]}”; the row of “{words[who]}”")
            cells = [[words[(i * h + j) % n] for j in range(h)] for i in range(n)]
        yield done, said, {".aa-landed [role=button]": [text for row in cells for text in row]}
    yield ("button", "with the transpose", ""), [], {".aa-landed [role=button]": ["?"] * n * h}
    shown = [word for word in words for _ in range(h)]
    yield ("button", "show all", ""), ["the row of “it”"], {".aa-landed [role=button]": shown}


def learns(data):
    ten = chapters.load("10_a_little_world")
    assert data["floor"] == pytest.approx(ten.FLOOR, abs=1e-4)
    for done, at in [
        (None, 0),
        (("slider", "training step", "ArrowRight"), 1),
        (("slider", "training step", "End"), -1),
    ]:
        step = data["steps"][at]
        words, shares = zip(*step["best"], strict=True)
        shares = [f"{share:.2f}" for share in shares]
        said = ", ".join(map(" ".join, zip(words, shares, strict=True)))
        cells = ["loss", f"{step['loss']:.3f}"]
        cells += [x for pair in zip(words, shares, strict=True) for x in pair]
        shown = {".aa-learns b": cells, ".aa-wrote": [step["text"]]}
        yield done, [f"Step {step['done']}: the loss is {step['loss']:.3f}", said], shown
        if at == 1:  # a drink, but not the one
            assert {*words} < {*ten.DRINKS}
            assert words[0] != data["meant"]
    assert words[0] == data["meant"]


def glasses(data):
    streams, dry = {".aa-stage .aa-stream": [""] * 4}, {".aa-stage .aa-dry .aa-stream": [""] * 4}
    poured = "the warm cat drank cold milk: 0.00. the cold cat drank warm milk: 0.00. You cannot"
    yield None, ["The glasses are empty."], dry
    wet = {".aa-stage .aa-dry": [], ".aa-stage .aa-poured": ["0.00", "0.00"]}
    yield ("button", "pour", ""), [poured], streams | wet
    yield ("button", "empty the glasses", ""), ["The glasses are empty."], dry


def lukewarm(data):
    (_, first), (_, second), _ = data["scenes"]

    def home(scene, *shares):
        mixes = [share * scene[0] + (1 - share) * scene[1] for share in shares]
        return " and ".join(f"{mix:.2f}" for mix in mixes).replace("-", "−")

    alike, apart = "You cannot tell", "You can tell"
    told = [f"warm cat: {home(first, 0.5)}", f"warm milk: {home(second, 0.5)}", alike]
    yield None, told, {}
    yield ("button", "a second head", ""), ["Both heads have the same line: move the share."], {}
    yield ("button", "a second head", ""), [alike], {}
    told = [f"warm cat: {home(first, 0.55)}", f"warm milk: {home(second, 0.55)}", apart]
    yield ("slider", "cat's share", "ArrowRight"), told, {}
    yield ("slider", "cat's share", "ArrowLeft"), [alike], {}
    yield ("button", "confuse the head", ""), ["cat −4.0, milk 4.0: 0.00", alike], {}
    told = [f"warm cat: {home(first, 1)}", f"cat 2.0, milk 4.0: {home((2, 4), 1)}", alike]
    yield ("slider", "cat's share", "End"), told, {}
    told = [f"warm cat: {home(first, 1, 0)}", f"milk 4.0: {home((2, 4), 1, 0)}", apart]
    yield ("button", "a second head", ""), told, {}
    told = [f"cat 2.0, milk −4.0: {home((2, -4), 1, 0)}", apart]
    yield ("slider", "third scene", "Home"), told, {}
    for _ in range(5):
        yield ("slider", "cat's share", "ArrowLeft"), [apart], {}
    yield ("slider", "third scene", "End"), ["hot milk (cat 0.0, milk 4.0): 1.00 and 3.00"], {}


def mask_merger(data):
    scores, words = torch.tensor(data["scores"]).double(), torch.eye(5).double()
    second, forget = "sentence 2, rows 1, 2.", ("button", "forget the ~", "Enter")
    for done, left, stairs, said in [
        (None, 0, True, f"Sees nothing: {second}"),
        (("button", "the, key 1 of sentence 1", ""), 1, True, f"sentence 1, row 1; {second}"),
        (("button", "cat, key 2 of sentence 1", "Enter"), 2, True, f"1, rows 1, 2; {second}"),
        (("button", "staircase", ""), 2, False, "Every row sees something."),
        (forget, 2, False, "Nothing complains. Each word sees what is blocked"),
        (("button", "staircase", ""), 2, True, "Nothing complains."),
        (("button", "Start again", ""), 0, True, f"Sees nothing: {second}"),
        (forget, 0, True, "Nothing complains."),
    ]:
        padding = torch.arange(5) < torch.tensor([[left], [2]])       # (2, 5)
        future = masks.block_future(5) & stairs                       # (5, 5)
        blocked = padding[:, None] | future                           # (2, 5, 5)
        weights = scores.masked_fill(blocked, -math.inf).softmax(-1)  # (2, 5, 5)
        p, f = (x.expand(2, 5, 5).flatten().tolist() for x in (padding[:, None], future))
        marks = ["p" * padded + "f" * later for padded, later in zip(p, f, strict=True)]
        empty = "NaN"
        if said.startswith("Nothing complains."):  # to PyTorch's function True means allowed
            given = {"attn_mask": blocked, "scale": 1}
            weights = F.scaled_dot_product_attention(
                words.expand(2, 5, 5), scores.mT, words.expand(2, 5, 5), **given
            )
            marks, empty = ["" if mark else "–" for mark in marks], "0"
        none = (~weights.bool() | weights.isnan()).all(-1, keepdim=True)  # (2, 5, 1)
        cells = zip(none.expand(2, 5, 5).flatten(), marks, weights.flatten().tolist(), strict=True)
        shown = [empty if alone else mark or written(w) for alone, mark, w in cells]
        yield done, [said], {".aa-covers tbody td": shown}


def needle(data):
    across, up = data["query"]
    least = data["reach"][0]
    for done, query in [
        (None, (across, up)),
        (("slider", "asks for animal", "Home"), (least, up)),
        (("slider", "asks for quality", "Home"), (least, least)),
    ]:
        names, keys, counts = zip(*data["keys"], strict=True)
        scores = torch.tensor(keys).double() @ torch.tensor(query).double()  # (m,)
        powers = (scores / math.sqrt(2)).exp()                               # (m,)
        weights = powers / (powers * torch.tensor(counts)).sum()             # (m,)
        each = [f"{name} {weight:.2f}" for name, weight in zip(names, weights, strict=True)]
        shown = [f"{score:.1f}".replace("-", "−") for score in scores]
        parts = zip(names, shown, (f"{weight:.2f}" for weight in weights), strict=True)
        texts = ["score", "weight"] + [text for row in parts for text in row]
        said = [f": {', '.join(each)}."]
        yield done, said, {".aa-stage .aa-panels > :last-child text": texts}


def rooms(data):
    five = chapters.load("05_batches")
    order = torch.arange(24).view(12, 2).mT  # (b, n), as the words lie sequence-first
    for done, house, ends, (i, j), name in [
        (None, "across", "cheese was gone", (0, 11), "the"),
        (("button", "tea", ""), "across", "cheese was gone", (0, 11), "the"),
        (("button", "fresh", ""), "across", "water was gone", (0, 11), "the"),
        (("slider", "who listens", "End"), "across", "water was gone", (1, 11), "the"),
        (("slider", "who listens", "Home"), "across", "water was gone", (0, 0), "/"),
    ]:
        room = five.room_of(five.TURNS[house], 2, 12)
        heard = (room == room[i, j]) & (order <= order[i, j])  # (b, n)
        told = f"“{name}” of sentence {i + 1} hears "
        goes_on = f"Sentence 1 goes on: {ends} Sentence 2 goes on: {ends}"
        shown = {".aa-stage .aa-lit": [ANY] * int(heard.sum()), ".aa-stage .aa-wrong": [ends] * 2}
        yield done, [told, goes_on], shown
    yield ("button", "right", ""), ["1 goes on: cat wanted more", "2 goes on: tea was gone"], {}


def one_word(data):
    heads = data["heads"]
    for i, sentence in enumerate(data["sentences"]):
        done = ("button", sentence["name"], "") if i else None
        words, (meant, other) = sentence["words"], sentence["nouns"]
        says, verdicts = [], []
        for head, row in zip(heads, sentence["weights"], strict=True):
            right = row[meant] > row[other]
            noun = words[meant if right else other]
            says.append(f"{head}: {words[meant]} {row[meant] / 100:.2f}")
            says.append(f"prefers {noun}, {'' if right else 'not '}the one meant")
            verdicts.append(f"of the two, {noun} {'✓' if right else '✗'}")
        ends = {".aa-stage text[text-anchor=end]": verdicts}
        yield done, says, ends


def more_or_less(data):
    (first, count), *others = data["rows"]
    buttons = f"more than {count}", f"{count} or fewer"
    shown = [first, str(count)]
    done, found, right = None, f"{first}: {count}", 0
    for i, (what, each) in enumerate(others):
        rest = [text for name, _ in others[i:] for text in (name, "?" if name == what else "")]
        texts = {".aa-stage svg text": shown + rest}
        yield done, [f"{found}. Next: {what}?"], texts
        says = buttons[i > 0]
        done = ("button", says, "")
        right += (each > count) == (i == 0)
        found = f"{what}: {each}, you said {says}"
        shown += [what, str(each)]
    yield done, [f"{found}. Right: {right} of {len(others)}."], {".aa-stage svg text": shown}


def own_sentence(data):
    (_, text, asks), *_ = data["frames"]
    nouns, (one, two, says) = data["nouns"], data["start"]
    for done, at in [
        (None, (one, two, says)),
        (("combobox", "pronoun", "0"), (one, two, 0)),
        (("combobox", "first noun", str(two)), (two, one, 0)),  # the nouns change places
        (("combobox", "second noun", "4"), (two, 4, 0)),
    ]:
        put = {"A": nouns[at[0]], "B": nouns[at[1]], "P": asks[at[2]]}
        words = " ".join(put.get(word, word) for word in text).split()
        row = data["rows"][0][at[0] * len(nouns) + at[1]][at[2]]
        asking, most = words[text.index("P")], words[row.index(max(row))]
        verdict = {".aa-stage svg text[text-anchor=end]": [f"{asking} → {most}"]}
        yield done, [f"“{asking}” looks most at “{most}” ({max(row) / 100:.2f})"], verdict


def reach(data):
    for done, layers, window, everywhere in [
        (None, 4, 3, 0),
        (("slider", "window", "ArrowRight"), 4, 4, 0),
        (("slider", "global layer", "End"), 4, 4, 4),
        (("slider", "layers", "ArrowLeft"), 3, 4, 3),
        (("slider", "global layer", "Home"), 3, 4, 0),
    ]:
        stack = [None if i == everywhere else window for i in range(1, layers + 1)]
        lit = [data["tokens"] - first for first in reached.cone(data["tokens"], stack)]
        rows = [*(f"layer {i}" for i in range(layers, 0, -1)), "tokens"]
        shown = {
            ".aa-stage svg text": rows,
            ".aa-stage circle[r='6']": [ANY] * sum(lit),
        }
        yield done, [f"The last output can depend on {lit[0]} of {data['tokens']} tokens"], shown


def hands(data):
    ahead, most = (torch.tensor(data[name]).double() for name in ("ahead", "most"))
    for done, way, at in [
        (None, "as trained", 1),
        (("slider", "distance", "End"), "as trained", 130),
        (("button", "linear", ""), "linear", 130),
        (("slider", "distance", "Home"), "linear", 0),
        (("button", "yarn", ""), "yarn", 0),
    ]:
        speeds, factor = data["ways"][way]
        line = by_distance(ahead, most, torch.tensor(speeds), factor, data["farthest"])
        best = int(line.argmax())
        here, highest, before = (f"{line[r]:.2f}".replace("-", "−") for r in (at, best, 1))
        said = [
            f"Distance {at}: the score is {here}.",
            f"Highest: {highest}, at distance {best}; one letter back, {before}.",
        ]
        slow = math.degrees(math.fmod(ahead[2] + speeds[2] * at, 2 * math.pi))
        stands = f"slow hand {slow:.0f} degrees ahead"
        shown = {
            ".aa-stage .aa-button[aria-pressed=true]": [way],
            f".aa-stage svg[aria-label*='{stands}']": [ANY],
        }
        yield done, said, shown


def rotation(data):
    query, key = (torch.tensor([data[name]]).double() for name in ("query", "key"))
    turn = RotaryEmbedding(2)
    for done, key_at, distance in [
        (None, 1, 4),
        (("slider", "cat at", "End"), 39, 4),
        (("slider", "distance", "ArrowRight"), 39, 5),
    ]:
        at = key_at + distance
        turned = turn(query, torch.tensor([at])), turn(key, torch.tensor([key_at]))
        score = f"{(turned[0] @ turned[1].mT).item():.2f}".replace("-", "−")
        said = f"it stands at {at}, cat at {key_at}: turned by {at}.00"
        tip = ", ".join(f"{number:.2f}" for number in turned[0][0].tolist())
        dial = {f".aa-stage svg[aria-label*='it at {at}: {tip};']": [ANY]}
        yield done, [said, f"At distance {distance} the score is {score}."], dial


def divided(data):
    one = chapters.load("01_one_head")
    for done, d, by in [
        (None, 4, 1),
        (("slider", "width d", "End"), 256, 1),
        (("button", "divided by √d", ""), 256, 16),
        (("slider", "width d", "ArrowLeft"), 64, 8),
    ]:
        weights = (one.products(d) / by).softmax(-1)
        name = f"divided by √{d} = {by}" if by > 1 else "not divided"
        said = f"{weights[10].max():.2f}; on average over 32 queries, {weights.amax(-1).mean():.2f}"
        shown = {f".aa-stage svg text:text-is('width {d}, {name}')": [ANY]}
        yield done, [f"Width {d}, scores {name}", said], shown


def erases(data):
    rule = chapters.load("25_linear_attention").gated_delta_rule
    told, since, asked, share = [("cat", "garden")], 0, "cat", 1.0
    for done, fact, who in [
        (None, None, "cat"),
        (("button", "the cat is in the hall", ""), ("cat", "hall"), "cat"),
        (("button", "the kitten is in the kitchen", ""), ("kitten", "kitchen"), "cat"),
        (("slider", "β", "Home"), None, "cat"),
        (("button", "where is the kitten?", ""), None, "kitten"),
        (("button", "a new chapter begins", ""), None, "kitten"),
        (("button", "the cat is in the hall", ""), ("cat", "hall"), "kitten"),
    ]:
        told, asked = told + [fact] * bool(fact), who
        share = 0.1 if done and done[0] == "slider" else share
        since = len(told) if done and "chapter" in done[1] else since
        k = torch.tensor([data["keys"][key] for key, _ in told])              # (n, 3)
        v = torch.eye(3)[[data["places"].index(place) for _, place in told]]  # (n, 3)
        q = torch.tensor(data["keys"][asked]).expand_as(k)
        sums, gates = q[-1] @ k.mT @ v, torch.full((len(k), 1), 0.5)
        gates[since : since + bool(since)] = 0  # the first of a new chapter
        shares = torch.full((len(k),), share)
        both = [rule(q, k, v, a, shares)[-1] for a in (torch.ones(len(k), 1), gates)]
        both[1] = both[1] * (since < len(told))
        said = [
            ", ".join(f"{p} {x:.2f}" for p, x in zip(data["places"], row, strict=True) if x > 0.005)
            for row in (sums, *both)
        ]
        parts = [
            f"{way[0]}: {row or 'nothing'}" for way, row in zip(data["rules"], said, strict=True)
        ]
        yield done, [f"Where is the {asked}? {'. '.join(parts)}."], {}


def rounds(data):
    eight, one = chapters.load("08_transformer_layers"), chapters.load("01_one_head")
    torch.manual_seed(8)
    sentence = nn.Linear(4, 24)(one.EMBEDDINGS)[None].detach()
    torch.manual_seed(8)  # the ninth of the chapter's draws
    sublayers: list = []
    for _ in range(24):
        attention = MultiheadAttention(24, 4, batch_first=True)
        network = nn.Sequential(nn.Linear(24, 96), nn.ReLU(), nn.Linear(96, 24))
        for drawn in (*attention.parameters(), *network.parameters()):
            if drawn.dim() > 1:
                nn.init.xavier_uniform_(drawn)
        sublayers += [lambda x, attend=attention: attend(x, x, x)[0], network]
    add, think, after, before = data["switches"]
    for done, at, on in [
        (None, 0, []),
        (("slider", "rounds", "End"), 24, []),
        (("button", after, ""), 24, [after]),
        (("button", add, ""), 24, [add, after]),
        (("button", before, ""), 24, [add, before]),
        (("button", think, ""), 24, [add, think, before]),
    ]:
        x = eight.hold(sentence, sublayers, *(name in on for name in data["switches"]))[at]
        assert (eight.apart(x) > 0.1) == ({add, before} <= {*on} or not at)
        said = f"After {at} rounds: {eight.apart(x):.3f} of the whole differs from word to word."
        shown = {".aa-stage [aria-pressed=true]": on, ".aa-stage svg text": data["words"]}
        yield done, [said, f"Size of the numbers: {x.std():.2f}."], shown


def duel(data):
    bold = ".aa-stage [font-weight=bold]"
    names = [each["name"] for each in data["sentences"]]
    yield None, ["How many of the six will be right?"], {bold: [""] * 6}
    said = ["You said 5. Right: 4 of 6.", f"Not right: {names[2]}; {names[5]}."]
    says = ["animal ✓", "food ✓", "food ✗", "food ✓", "animal ✓", "animal ✗"]
    first = {".aa-stage svg text:nth-of-type(1)": ["0.97", "0.19", "0.67", "0.11", "1.76", "0.90"]}
    yield ("button", "5", ""), said, {bold: says} | first
    one, two = (f"{finds} in head {i}" for i, finds in enumerate(data["sides"][::-1], 1))
    found = {".aa-found b": ["0.0", "−0.5"]}
    yield ("slider", two, "ArrowLeft"), ["Right: 5 of 6.", f"Not right: {names[5]}."], found
    yield ("slider", two, "Home"), ["Right: 5 of 6."], {}
    yield ("slider", one, "ArrowLeft"), ["Right: 6 of 6. All six!"], {}
    yield ("slider", two, "End"), ["Not right"], {}
    for way in ("ArrowLeft", "ArrowLeft"):
        yield ("slider", two, way), ["Right"], {}
    for _ in range(2):
        yield ("slider", one, "ArrowRight"), ["Right"], {}
    yield (
        ("slider", one, "ArrowRight"),
        ["All draws: the heads look alike."],
        {bold: ["a draw"] * 6},
    )


def unfolds(data):
    scenes = torch.tensor(data["scenes"])
    for done, start, at in [
        (None, 0, 0),
        (("slider", "training step", "ArrowRight"), 0, 1),
        (("slider", "training step", "End"), 0, -1),
        (("button", "from another start", ""), 1, -1),
        (("button", "from another start", ""), 2, -1),
        (("button", "from another start", ""), 0, -1),
    ]:
        told = []
        for name, answers in data["starts"][start]:
            off = (torch.tensor(answers[at]) - scenes).square().mean().sqrt()
            told.append(f"{name} off by {off:.2f}")
        said = f"Start {start + 1}, step {data['steps'][at]}: {', '.join(told)}."
        yield done, [said], {}
        if at < 0:
            assert told == ["one head off by 1.00", "two heads off by 0.00"]


def fills(data):
    for i in (None, *range(len(data["panels"]))):
        name, end, rows = data["panels"][i or 0]
        chosen = {".aa-endings [aria-pressed=true]": [name]}
        chosen[".aa-stage[data-covered] .aa-endings .aa-button"] = [] if i == 2 else [ANY] * 3
        said = [part for _, *lines, _ in rows for part in lines]
        shown = {".aa-way :is(span, b)": said, ".aa-way b": [row[-2] for row in rows]}
        yield i if i is None else ("button", name, "Enter" * (i == 1)), [end], shown | chosen


def first_look(data):
    one, path = chapters.load("01_one_head"), chapters.load("short_path")
    last = len(data["words"]) - 1
    line = "heads.transpose(0, 1).reshape(n, h * d)"
    whose = torch.arange(2 * (last + 1)).view(2, -1, 1).expand(-1, -1, 2)  # (h, n, d)
    for done, ending, query, transposed in [
        (None, "thirsty", 5, True),
        (("button", "sweet", ""), "sweet", 5, True),
        (("checkbox", line, ""), "sweet", 5, False),
        (("button", "sweet asks", ""), "sweet", last, False),
        (("button", "nothing yet", ""), "…", last, False),
        (("checkbox", line, ""), "…", last, True),
        (("button", "cat asks", ""), "…", 1, True),
    ]:
        x = one.embed([*one.WORDS[:-1], ending if ending != "…" else "the"])  # (n, e)
        heads = [path.attend(x @ w_q, x @ w_k, x @ w_v) for w_q, w_k, w_v in path.HEADS]
        side_by_side = torch.cat(heads, -1) if transposed else torch.stack(heads).flatten()
        gets = side_by_side.view(len(x), -1) @ path.W_O
        words = [*one.WORDS[:-1], ending]
        even = not x[query, 3]  # no quality, so the query is (0, 0)
        shares = [
            "1/8" if even else f"{share:.2f}" if share >= 0.045 else ""
            for w_q, w_k, _ in path.HEADS
            for share in (x[query] @ w_q @ (x @ w_k).mT / math.sqrt(2)).softmax(-1)
        ]
        animal, food = gets[query, :2].tolist()
        said = [f"{animal:.2f} animal", f"{food:.2f} food"]
        if words[query] == "it":
            found = {
                "thirsty": [
                    "1 gets most from “thirsty”: 0.97",
                    "2 gets little",
                    "the cat",
                ]
            }
            found["sweet"] = [
                "1 gets little",
                "2 gets most from “sweet”",
                "the milk",
            ]
            said += found[ending]
        if transposed and even:
            said += [f"“{words[query]}” asks nothing, so it looks everywhere alike"]
        if not transposed:
            rows = whose.reshape(last + 1, -1)
            own = [head * len(x) + query for head in (0, 1)]
            gone = [head for head in (0, 1) if rows[query, 2 * head] != own[head]]
            to = [words[int((rows == own[head]).any(-1).nonzero())] for head in gone]
            there = [words[int(rows[query, 2 * head]) % len(x)] for head in gone]
            now = " and ".join(f"{(animal, food)[head]:.2f}" for head in gone)
            listed = [" and ".join(f"“{word}”" for word in found) for found in (to, there)]
            moved = f"“{words[query]}” {'are' if len(gone) > 1 else 'is'} now at {listed[0]}."
            row = f"found for {listed[1]}, {now}"
            said = ["No error. Same shape.", moved, row]
        idle = [
            "gives 0" if share and share != "1/8" and float(share) >= 0.3 and not row[3] else ""
            for share, row in zip(shares, [*x, *x], strict=True)
        ]
        shown = {
            ".aa-look .aa-ask text": words,
            ".aa-look .aa-share": shares,
            ".aa-stage .aa-look .aa-gives": idle,
        }
        pairs = zip(words, gets[:, :2].tolist(), strict=True)
        all_get = (f"{word} {a:.2f} and {b:.2f}" for word, (a, b) in pairs)
        shown[f".aa-stage .aa-gets[aria-label*='{', '.join(all_get)}']"] = [ANY]
        yield done, said, shown


def merged(data):
    words = data["words"]
    for done, word in [
        (None, "it"),
        (("button", "follow “the”", ""), "the"),
        (("button", "follow “thirsty”", "Enter"), "thirsty"),
    ]:
        at = words.index(word)
        flat = torch.arange(2 * len(words)).view(2, -1)    # (h, n)
        own, rows = flat[:, at] // 2, flat.reshape(-1, 2)  # where they land; (n, h)
        head, made = rows[at, 0].item() // len(words) + 1, rows[at] % len(words)
        quoted = [" and ".join(f"“{words[i]}”" for i in each) for each in (made, own)]
        said = f"“{word}” holds what head {head} found for {quoted[0]}."
        lit = {".aa-stage rect[fill-opacity='0.5'] + text": [word] * 4}
        yield done, [said, f"stands at {quoted[1]}."], lit


def shelf(data):
    x = torch.arange(12)
    trick, short = x.view(3, 2, 2).transpose(0, 1), x.reshape(2, 3, 2)
    for done, order, step in [
        (None, trick, 6),
        (("slider", "read", "ArrowRight"), trick, 7),
        (("button", "x.reshape(h, n, d)", ""), short, 7),
        (("slider", "read", "Home"), short, 1),
        (("slider", "read", "End"), short, 12),
    ]:
        places = order.flatten().tolist()
        every, jumps = (
            sum(b != a + 1 for a, b in pairwise(walk)) for walk in (places, places[:step])
        )
        told = f"{jumps} jump{'s' * (jumps != 1)} so far, {every} in all" if every else "no jumps"
        index = [int(i) for i in (order == places[step - 1]).nonzero()[0]]
        said = f"strides {tuple(order.stride())}, {told}. Number {step} of 12"
        word = data["words"][places[step - 1] // 4][0]
        rest = f"[{', '.join(map(str, index))}]: place"
        lit = {".aa-shelf path": [""] * jumps}
        yield done, [said, rest, f" = {places[step - 1]}, a number of “{word}”."], lit


def storyteller(data):
    ten, heads = (chapters.load(name) for name in ("10_a_little_world", "11_questions_to_heads"))
    told = {each["name"]: each["text"] for each in data["texts"]}
    feared = told["feared"].split()
    for done, read, left, silent in [
        (None, told["sweet"], [], []),
        (("button", "thirsty", ""), told["thirsty"], [], []),
        (("button", "sweet", ""), told["sweet"], [], []),
        (("button", "silence layer 1, head 1", ""), told["sweet"], [], [(0, 0)]),
        (("button", "silence layer 2, head 2", ""), told["sweet"], [], [(0, 0), (1, 1)]),
        (("button", "a story", ""), told["a story"], [], []),
        (("button", "feared", ""), " ".join(feared), [], []),
        (("button", ".", ""), " ".join(feared[:10]), feared[10:], []),
        (("button", "silence layer 1, head 2", ""), " ".join(feared[:10]), feared[10:], [(0, 1)]),
        (("button", "so", ""), " ".join([*feared[:10], "so"]), [], [(0, 1)]),
    ]:
        model, means = ten.shipped(0), data["models"][0]["means"]
        parts = [layer.self_attn for layer in model.layers.layers]
        values = [(parts[i], j, torch.tensor(means[i][j])) for i, j in silent]
        ids = ten.as_ids([[ten.EDGE, *read.split()]])
        with heads.silenced(*values), attention_weights(model) as seen, torch.no_grad():
            shares = model(ids)[0, -1].softmax(-1)
        best = [f"{ten.WORDS[i]} {shares[i]:.2f}" for i in shares.topk(3).indices]
        off = [f"{i + 1}.{j + 1}" for i, j in silent]
        without = f", without {' and '.join(off)}" if off else ""
        says = f"{without}: {', '.join(best)}."
        rows = torch.cat([weights[0, :, -1] for weights in seen]).mT.tolist()  # (n, layers * h)
        cells = [
            "–" if divmod(i, 2) in silent else brief(weight)
            for row in rows + [[0.0] * 4] * len(left)
            for i, weight in enumerate(row)
        ]
        words = [ten.EDGE, *read.split(), *left]
        yield done, [says], {".aa-told b": words, ".aa-told i": cells}


def brief(weight):
    return "" if weight < 0.045 else "1" if weight >= 0.995 else f"{weight:.2f}"[1:]


def exchange(data):
    ten, heads = (chapters.load(name) for name in ("10_a_little_world", "11_questions_to_heads"))
    model = ten.shipped(0)
    for name, place, key in [
        ("", 0, ""),
        ("“it”", -6, ""),
        ("the quality", -4, "Enter"),
        ("“so”", -2, ""),
    ]:
        numbers = heads.blanked(model, place) if name else heads.named(model)
        kinds = "the one meant {:.2f}, the other {:.2f}, a third word {:.2f}.".format(*numbers)
        said = f"First model, without {name}" if name else "Untouched"
        lit = {".aa-exchange [aria-pressed=true]": [f"{name}{numbers[0]:.2f}"] * bool(name)}
        done = ("button", said, key) if name else None
        yield done, [f"{said}. Of 192 questions: {kinds}"], lit


def tiles_visited(data):
    scores, values = (torch.tensor(data[name]).double() for name in ("scores", "values"))
    for done, is_causal, step in [
        (None, False, 9),
        (("slider", "tile", "End"), False, 16),
        (("button", "causal mask", ""), True, 10),
        (("slider", "tile", "End"), True, 10),
        (("slider", "tile", "ArrowLeft"), True, 9),
    ]:
        made = visited.visits(scores, values, is_causal, data["tile"])
        (rows, keys, running), words = made[step - 1], data["words"]
        numbers = [visited.written(row) for row in running.tolist()]
        asking = words[rows]
        skipped = ", 6 skipped" * is_causal
        said = f"Tile {step} of {len(made)}{skipped}: queries {', '.join(asking)}; keys"
        shown = [text for row in zip(asking, numbers, strict=True) for text in (row[0], *row[1])]
        ends = ", ".join(f"{a} {b[-1]}" for a, b in zip(asking, numbers, strict=True))
        yield (
            done,
            [said, f"{', '.join(words[keys])}. Mix / total: {ends}."],
            {".aa-running": shown},
        )


def budget(data):
    most, prompt = 512, 4096
    for done, most, prompt in [
        (None, 512, 4096),
        (("slider", "token budget", "ArrowRight"), 1024, 4096),
        (("slider", "token budget", "Home"), 128, 4096),
        (("slider", "C's prompt", "End"), 128, 32_768),
        (("slider", "token budget", "End"), 16_384, 32_768),
    ]:
        lanes = [(x, budgeted.served(data["gpu"], x, prompt, 32, 1024)) for x in data["budgets"]]
        calls = budgeted.served(data["gpu"], most, prompt, 32, 1024)
        said = (
            f"{prompt:,} tokens, read in {len(calls):,} calls. B waits up to {max(calls):,.1f} ms"
        )
        texts = [budgeted.named(*each) for each in lanes]
        texts.append(f"Yours: {budgeted.named(most, calls)}")
        yield done, [said, f"C {sum(calls):,.0f} ms"], {".aa-stage g text:first-child": texts}


def call_bytes(data):
    load = [32, 1024, 0, 16]
    for done, place, value in [
        (None, 0, 32),
        (("slider", "tokens of a prompt", "ArrowRight"), 2, 64),
        (("slider", "tokens of a prompt", "Home"), 2, 0),
        (("slider", "sequences", "End"), 0, 2048),
        (("slider", "tokens of each", "Home"), 1, 128),
        (("button", "8 bits", ""), 3, 8),
    ]:
        load[place] = value
        found = called.call(data["gpu"], *load)
        said = f"{called.named(*load)}: reading takes {found['reading']:,.1f} ms, arithmetic "
        longer = "arithmetic" if found["reading"] < found["computing"] else "bandwidth"
        said += f"{found['computing']:,.1f} ms, so {longer} is the limit. "
        said += f"{found['rate']:,.0f} tokens a second"
        bars = [called.named(*each) for each in data["loads"]]
        texts = {
            ".aa-stage g text:first-child": [*bars, f"Yours: {called.named(*load)}"],
            ".aa-stage g text:last-child >> nth=-1": [called.said(found)],
            ".aa-stage .aa-mark[aria-pressed=true]": [f"{load[3]} bits"],
        }
        yield done, [said], texts


def where_numbers_go(data):
    n, h, d = len(data["words"]), data["h"], data["d"]
    x = torch.arange(n * h * d).view(n, h * d)  # (n, h * d)
    named = [f"{i // (h * d) + 1}{'abcdefgh'[i % (h * d)]}" for i in range(n * h * d)]
    wrong = split_without_transpose(x, h)  # (h, n, d)
    right = split_heads(x, h)              # (h, n, d)
    for done, way, heads, made, lit in [
        (None, "The right way", right, x, "2c"),
        (
            ("checkbox", "transpose in the split", ""),
            "Wrong split",
            wrong,
            merge_heads(wrong),
            "2c",
        ),
        (("checkbox", "transpose in the merge", ""), "Both wrong", wrong, x, "2c"),
        (("checkbox", "transpose in the split", ""), "Wrong merge", right, None, "2c"),
        (("slider", "follow", "End"), "Wrong merge", right, None, named[-1]),
    ]:
        made = heads.reshape(n, h * d) if made is None else made
        shown = {".aa-lit text": [lit] * 3}
        for i, each in enumerate((x, heads, made)):
            cells = [named[number] for number in each.flatten().tolist()]
            shown[f".aa-block-{i} text"] = cells
        astray = int((heads != right).sum())
        hears = ", on the wrong numbers" if astray else ""
        shown[".aa-stage text:text-matches('^attention')"] = [f"attention happens here{hears}"]
        yield done, [f"{way}. In a wrong place: {astray} of {n * h * d} numbers"], shown


def strips(data):
    names, at = [name for name, *_ in data["rows"]], list(data["start"])
    for done, choice, to in [
        (None, 0, 1),
        (("button", "10", ""), 1, 7),
        (("button", "A", ""), 0, 0),
    ]:
        at[choice] = to
        texts = data["found"][" ".join(map(str, at))]
        rows = dict(zip(names, texts, strict=True))
        said, wrong = [], 0
        for name, right, other in data["rows"]:
            if right < 0:
                continue
            hits = [a == b for a, b in zip(rows[name], texts[right], strict=True)]
            copied = [a == b for a, b in zip(rows[name], texts[other], strict=True)]
            only = sum(b and not a for a, b in zip(hits, copied, strict=True)) * (other >= 0)
            said.append(f"{name}: {sum(hits)} of {len(hits)} right")
            said += [f"right, {only} copied"] * (other >= 0)
            wrong += len(hits) - sum(hits) - only
        lines = [name + text for name, text in rows.items()]
        shown = {".aa-stage .aa-strips > div": lines}
        if not wrong:
            shown[".aa-stage .aa-wrong"] = []
        yield done, said, shown


def tune(data):
    words = [each["word"] for each in data["words"]]
    filled = {".aa-tune b": words, ".aa-tune .aa-empty": []}
    yield None, ["Eight words, and mask."], filled
    yield ("button", "play from memory", ""), ["in order"], {".aa-tune b": []}
    early = {".aa-tune b": [], ".aa-tune .aa-empty": ["?"] * 9}
    yield ("button", "softmax", ""), ["Too early: scale and mask work on scores"], early
    for i, word in enumerate(words, 1):
        said = f"Yes: {9 - i} to go." if i < 9 else "That is the tune"
        yield ("button", word, "Enter"), [said], {".aa-tune b": words[:i]}
    yield ("button", "again", ""), ["in order"], {".aa-tune b": []}
    yield ("button", "show the words", ""), ["Eight words, and mask."], filled


def wheels(data):
    seven = chapters.load("07_multihead_attention")
    small, larger = seven.PlainAttention(4, 2), seven.PlainAttention(24, 4)
    x = torch.randn(2, 8, 4)
    wide = torch.randn(3, 5, 24), *torch.randn(2, 3, 7, 24)
    card = torch.rand(3, 5, 7) < 0.5
    card[..., 0] = False
    emptied = card.clone()
    emptied[2] = True
    calls = [
        (small, (x, x, x)),
        (small, (x, x, x, masks.block_padding(torch.tensor([8, 4]), 8)[:, None])),
        (larger, (*wide, card)),
        (larger, (*wide, emptied)),
    ]
    meant = chapters.load("03_split_and_stack").questions(chapters.load("10_a_little_world"))

    def hear(text):
        told = seven.tell(text, seven.answer(text, meant), meant)
        return told.facts, " ".join(told.words)

    tale = {".aa-stage .aa-tells": [hear(seven.SOURCE)[1] + " "]}
    right = {".aa-stage .aa-verdicts dd": ["right"] * 4, "del.aa-wheel:visible": []}
    yield None, ["Nothing is missing."], right | tale
    for done, names in [
        (("button", "the mask's axis", ""), ["the mask's axis"]),
        (("button", "the second fill", ""), ["the second fill", "the mask's axis"]),
        (("button", "the mask's axis", ""), ["the second fill"]),
        (("button", "the root", ""), ["the root", "the second fill"]),
        (("button", "both transposes", ""), ["both transposes", "the root", "the second fill"]),
    ]:
        text, out = seven.SOURCE, []
        for part in sorted((seven.WHEELS[name] for name in names), key=seven.SOURCE.index):
            out += [part] * seven.SOURCE.count(part)
            text = text.replace(part, "")
        said = [seven.verdict(text, *call) for call in calls]
        noticed = sum(verdict != "unnoticed" for verdict in said)
        facts, tale = hear(text)
        line = {
            2: f"The storyteller: {facts[0]} questions right, {facts[-1]} of 200 stories possible",
            1: f"The storyteller: {facts[0]}",
        }[len(facts)]
        shown = {".aa-stage .aa-verdicts dd": said, "del.aa-wheel:visible": out}
        shown |= {".aa-stage .aa-tally": [line], ".aa-stage .aa-tells": [tale + " "]}
        yield done, [f"Without {', '.join(names)}: {noticed} of 4 calls notice it."], shown


def way_of_the_nan(data):
    boxes = [box for _, *boxes in data["panels"] for box in boxes]
    bold = [holds if row == 0 else "?" for _, row, _, holds, *_ in boxes]
    yield None, ["Guess, and press."], {".aa-way b": bold}
    for i, (name, row, _, holds, _, why) in enumerate(boxes):
        if row:
            bold[i] = holds
            closed = f"{bold.count('?')} still closed." if "?" in bold else "All are open."
            covered = {".aa-stage[data-covered] .aa-way b": bold if "?" in bold else []}
            yield ("button", name, "Enter"), [why, closed], {".aa-way b": bold, **covered}
    carried = ["The NaN begins in a dot's row, and 0 · NaN carries it on."]
    yield ("button", "open all", ""), carried, {".aa-way b": bold}


def who_chases(data):
    three, words = chapters.load("03_split_and_stack"), data["words"]
    kinds = ["right", "it chases itself", "not Anna’s"]
    seen = set()
    for done, pets, who, setting in [
        (None, ("dog", "cat"), 1, "both heads"),
        (("button", "dog", ""), ("dog", "cat"), 0, "both heads"),
        (("button", "cat", ""), ("dog", "cat"), 1, "both heads"),
        (("button", "head 1", "Enter"), ("dog", "cat"), 1, "head 1 off"),
        (("button", "head 2", ""), ("dog", "cat"), 1, "both off"),
        (("button", "head 1", ""), ("dog", "cat"), 1, "head 2 off"),
        (("combobox", "first animal", "duck"), ("duck", "cat"), 1, "head 2 off"),
        (("button", "uncut", ""), ("duck", "cat"), 1, "uncut"),
        (("combobox", "second animal", "duck"), ("cat", "duck"), 1, "uncut"),
        (("button", "head 2", ""), ("cat", "duck"), 1, "both heads"),
    ]:
        cut = three.SWITCHES[setting]
        text = three.had(*pets, pets[who])
        weights = three.looks(text, cut[1])[:, data["places"]]  # (h, 3)
        for head in cut[2] if len(cut) > 2 else ():
            weights[head] = 0
        with torch.no_grad():
            ids = torch.tensor([[words.index(word) for word in text]])
            shares = three.cut_into(*cut)(ids)[0, -1].softmax(-1)
        chances = [shares[words.index(each)] for each in data["animals"]]
        best = words[shares.argmax()]
        kind = 1 if best == pets[who] else 0 if best in pets else 2
        seen.add((setting, kind))
        counts = three.faults(three.cut_into(*cut))
        of = ", ".join(f"{name} {count}" for name, count in zip(kinds, counts, strict=True))
        said = [f"{setting}: {best}, {kinds[kind]}. Of 60 beginnings: {of}."]
        bars = [f"{x:.2f}" for x in (*weights.flatten().tolist(), *chances)]
        yield done, said, {".aa-stage .aa-next:visible b": bars}
    assert {("both heads", 0), ("head 2 off", 2)} < seen
    assert 1 in {kind for _, kind in seen}


TABBED = ":is(input, select, button, [tabindex='0']):not([tabindex='-1'], :disabled):visible"
# The rest of its page would be drawn again at each step.
ALONE = "(frame) => frame.closest('article').replaceChildren(frame)"
FOCUSED = "(all) => all.indexOf(document.activeElement)"


def act(frame, role, name, key):
    """Do what a drive says: press a key, choose, or click."""
    # A token says behind its name whether it is padding.
    control = frame.get_by_role(role, name=name, exact="of sentence" not in name)
    if role == "combobox":
        control.select_option(key)
    elif key:
        control.press(key)
    else:
        control.click()


@pytest.mark.parametrize("module", FRAMES)
def test_driven_it_says_what_python_computes(visit, module):
    drive = globals().get(module)
    assert drive, f"write what a reader does with {module}, and what it then says"
    page = visit(f"{FRAMES[module]}/", viewport={"width": 360, "height": 900})
    frame = page.locator(f"[data-live={module}]").first
    frame.evaluate(ALONE)
    status = frame.get_by_role("status").first
    expect(status).not_to_be_empty()
    expect(frame.locator("figure > .aa-stage + *")).to_be_hidden()  # the picture
    for done, said, shown in drive(json.loads(frame.get_attribute("data-state"))):
        if done:
            act(frame, *done)
        for words in said:
            assert words in status.text_content(), done
        for selector, texts in shown.items():
            assert frame.locator(selector).all_text_contents() == texts, done
    controls = frame.locator(f".aa-stage {TABBED}")
    controls.first.focus()
    for place in range(controls.count()):
        assert controls.evaluate_all(FOCUSED) == place, "Tab goes from one to the next"
        page.keyboard.press("Tab")
    assert controls.evaluate_all(FOCUSED) == -1, "and out"
    assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_on_a_phone_what_a_press_does_is_said_in_sight(visit):
    page = visit(f"{FRAMES['mask_merger']}/", viewport={"width": 390, "height": 700})
    frame = page.locator("[data-live=mask_merger]")
    frame.evaluate(ALONE)
    token = frame.get_by_role("button", name="the, key 1 of sentence 1")
    token.evaluate("e => scrollBy(0, e.getBoundingClientRect().top - 150)")
    token.click()
    assert page.evaluate("scrollY") > 0
    expect(frame.get_by_role("status")).to_be_in_viewport(ratio=1)


@pytest.mark.parametrize("module", ["lukewarm", "needle"])
def test_a_point_can_be_dragged(visit, module):
    frame = visit(f"{FRAMES[module]}/").locator(f"[data-live={module}]")
    frame.evaluate(ALONE)
    expect(frame.get_by_role("status")).not_to_be_empty()
    handle = frame.locator("svg g > circle[fill=transparent]")

    def move_by(across, down):
        """Drag the point, and say how far it went."""
        box, mouse = handle.bounding_box(), frame.page.mouse
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        mouse.move(x, y)
        mouse.down()
        mouse.move(x + across, y + down, steps=3)
        mouse.up()
        moved = handle.bounding_box()
        return moved["x"] - box["x"], moved["y"] - box["y"]

    if module == "lukewarm":  # held to the line of head 1, on which both move alike at one half
        frame.get_by_role("button", name="confuse the head").click()
        for way in (1, -1):
            assert move_by(90 * way, 30 * way) == pytest.approx((60 * way, 60 * way), abs=6)
            assert "0.00. You cannot" in frame.get_by_role("status").text_content()
        third = frame.get_by_role("slider", name="third scene")
        assert float(third.input_value()) == pytest.approx(1, abs=0.06)
        return
    knobs = frame.get_by_role("slider").all()[:2]
    start = json.loads(frame.get_attribute("data-state"))["query"]
    assert [float(knob.input_value()) for knob in knobs] == start
    assert move_by(-40, -60) == pytest.approx((-40, -60), abs=4)
    values = [float(knob.input_value()) for knob in knobs]
    assert values[0] < start[0]
    assert values[1] > start[1]


READ = """async ({shapes, heads, layers, means, file, texts}) => {
  const { read, unpack } = await import("/assets/live/host/decoder.js");
  const answer = await fetch(`/assets/live/${file}`);
  const weights = unpack(await answer.arrayBuffer(), shapes);
  return texts.map(([ids, wrong]) =>
    read({ weights, heads, layers, means }, ids, [], wrong).logits.map((row) => [...row]));
}"""


@pytest.mark.parametrize(("place", "seed"), [(0, 0), (1, 4)])
def test_the_storytellers_in_the_page_are_those_of_the_chapter(visit, place, seed):
    page, ten = visit("chapters/questions-to-heads/"), chapters.load("10_a_little_world")
    data = json.loads(page.locator("[data-live=storyteller]").get_attribute("data-state"))
    right, wrong = ten.shipped(seed), ten.begin(attention=MergeWithoutTranspose)
    wrong.load_state_dict(right.state_dict())
    draw = random.Random(5)
    texts = [story.words[: draw.randint(1, 33)] for story in ten.HELD_OUT[:60]]
    texts += [draw.choices(ten.WORDS[1:], k=draw.randint(1, 34)) for _ in range(40)]
    ids = [[ten.NUMBER[word] for word in text] for text in texts]
    given = [[row, i % 3 == 0] for i, row in enumerate(ids)]
    of = {"file": f"storyteller-{seed}.bin", "means": data["models"][place]["means"]}
    found = page.evaluate(READ, data | of | {"texts": given})
    for (row, merged), logits in zip(given, found, strict=True):
        with torch.no_grad():
            expected = (wrong if merged else right)(torch.tensor([row]))[0]
        torch.testing.assert_close(torch.tensor(logits), expected, rtol=0, atol=1e-4)


def test_two_read_a_story_of_their_own_aloud(visit):
    frame = visit("short-path/").locator("[data-live=aloud]")
    frame.evaluate(ALONE)
    ten, short = chapters.load("10_a_little_world"), chapters.load("short_path")
    told, words = frame.locator(".aa-aloud b"), {*ten.WORDS}
    for name, teller in short.two_models().items():
        text = [ten.EDGE, *short.GO_ON.format("thirsty").split()]
        said = " ".join(go_on(teller, text, ten.WORDS, longest=ten.LONGEST))
        expect(frame.get_by_role("status")).to_contain_text(f"{name}: {said.replace(' .', '.')}")
    frame.get_by_role("button", name="a story of their own").click()
    expect(frame.get_by_role("status")).not_to_contain_text("model A: cat wanted more")
    for text in told.all_text_contents():
        assert words >= set(text.replace(".", " .").split()) >= {"."}


def test_a_row_of_the_twin_turns_what_it_turns_in_python(visit):
    frame = visit("chapters/questions-to-heads/").locator("[data-live=exchange]").nth(1)
    frame.scroll_into_view_if_needed()
    ten, heads = (chapters.load(name) for name in ("10_a_little_world", "11_questions_to_heads"))
    told = "Of 192 questions: the one meant {:.2f}, the other {:.2f}, a third word {:.2f}."
    status, plain = frame.get_by_role("status"), heads.shares(heads.answers(ten.shipped(0)))
    expect(status).to_contain_text(f"Nothing exchanged yet. {told.format(*plain)}")
    for word, place, layer in [
        ("so", -2, 2),
        ("the", -1, 2),
        ("thirsty", -4, 2),
        ("thirsty", -4, 1),
    ]:
        shares = heads.shares(heads.patched_rows(ten.shipped(0), layer - 1, place))
        name = f"The row of “{word}” before layer {layer}"
        act(frame, "button", name, "")
        expect(status).to_contain_text(f"{name} from the twin. {told.format(*shares)}")
        expect(frame.locator("[aria-pressed=true]")).to_have_text(f"{shares[1]:.2f}")
        expect(frame.locator(".aa-turned")).to_have_text("cat milk" if shares[1] == 1 else "cat")
    act(frame, "button", "The row of “it” before layer 1", "Enter")
    expect(status).to_contain_text(f"(the same in both runs). {told.format(*plain)}")
    expect(frame.locator(".aa-turned")).to_have_text("cat")


def test_where_a_head_looks_and_what_is_named_then_are_those_of_python(visit):
    frame = visit("chapters/questions-to-heads/").locator("[data-live=exchange]").nth(4)
    ten, heads = (chapters.load(name) for name in ("10_a_little_world", "11_questions_to_heads"))
    frame.scroll_into_view_if_needed()
    for what, asked in (("two animals", heads.questions(*heads.BETWEEN)), ("a thing", heads.ASKED)):
        act(frame, "button", f"about {what}", "")
        model, own = ten.shipped(0), heads.looks(ten.shipped(0), asked)
        with heads.patched_heads(model, "1.1", asked=asked):
            free = heads.gaze(model, asked), heads.named(model, asked)
            with heads.looking(model, "2.2", weights=own):
                kept = heads.gaze(model, asked), heads.named(model, asked)
        assert kept[0] == pytest.approx(heads.gaze(model, asked), abs=1e-5)
        for line, numbers in (("1.1 patched", free), ("1.1, 2.2’s look kept", kept)):
            for name, row in zip(("2.2’s look", "named"), numbers, strict=True):
                act(frame, "button", f"{line}: {name}", "")
                said = "the one meant {:.2f}, the other {:.2f}, a third word {:.2f}.".format(*row)
                told = f"{line}: {name}. Of {len(asked)} questions: {said}"
                expect(frame.get_by_role("status")).to_have_text(told)


def test_a_silenced_head_costs_what_it_costs_in_python_and_all_can_be_shown(visit):
    page = visit("chapters/questions-to-heads/")
    ten, heads = (chapters.load(name) for name in ("10_a_little_world", "11_questions_to_heads"))
    frames, fair = page.locator("[data-live=exchange]"), heads.questions(*heads.BETWEEN)
    first, second = ([x for x in fair if x[3] == acts] for acts in (True, False))
    for place, line, untouched, asked in [
        (2, "First model", heads.ASKED, heads.ASKED),
        (3, "the second is meant", first, second),
    ]:
        frame = frames.nth(place)
        frame.scroll_into_view_if_needed()
        right = heads.named(ten.shipped(0), untouched)[0]
        said = f"Untouched. Of {len(untouched)} questions: the one meant {right:.2f}"
        expect(frame.get_by_role("status")).to_contain_text(said)
        for name in ("1.1", "2.1"):
            model = ten.shipped(0)
            with heads.without(model, name):
                meant, other, third = heads.named(model, asked)
            cell = frame.get_by_role("button", name=f"{line}, without {name}", exact=True)
            cell.click()
            said = f"the one meant {meant:.2f}, the other {other:.2f}, a third word {third:.2f}."
            expect(frame.get_by_role("status")).to_contain_text(said)
            expect(cell).to_have_text(f"{name}{meant:.2f}")
    assert not frames.nth(2).get_by_role("button", name="show all").is_visible()
    five = frames.nth(6)
    five.scroll_into_view_if_needed()
    meant = heads.kept_looks(ten.shipped(4), fair)["2.1"][0]
    cell = five.get_by_role("button", name="Second model, look kept: 2.1")
    cell.click()
    expect(cell).to_have_text(f"2.1{meant:.2f}")
    hidden = five.locator(".aa-exchange button", has_text="?")
    expect(hidden).to_have_count(19)
    five.get_by_role("button", name="show all").click()
    expect(five.locator(".aa-exchange button")).to_have_count(20)
    expect(hidden).to_have_count(0)


def test_a_word_says_whom_it_can_hear(visit):
    frame = visit("chapters/batches/").locator("[data-live=rooms]").first
    for house, heard in (("right", "/ 2, the 2, cat 2"), ("across", "/ 1, the 1, cat 1, / 2,")):
        act(frame, "button", house, "")
        frame.locator(".aa-stage i", has_text="cat").last.click()
        expect(frame.get_by_role("status")).to_contain_text(f"sentence 2 hears {heard}")


def test_cut_otherwise_the_model_says_another_word(visit):
    five = chapters.load("05_batches")
    frame = visit("chapters/batches/").locator("[data-live=rooms]").nth(1)
    frame.scroll_into_view_if_needed()
    for press, row, k, words, said in [
        ("2", 0, 2, ["mouse"] * 2, "y.reshape(-1, 2, e): 12 of 12 rooms mix the two sentences."),
        ("12", 0, 12, ["cheese"] * 2, "2 of 2 rooms mix"),
        ("24", 0, 24, ["milk"] * 2, "1 of 1 room mixes"),
        ("transposed first", 1, 24, ["cat", "milk"], "y.transpose(0, 1).reshape(-1, 24, e): 1"),
        ("8", 1, 8, ["gone", "milk"], "1 of 3 rooms mixes"),
        ("6", 1, 6, ["mouse", "juice"], "each sentence is cut into 2 pieces."),
        ("12", 1, 12, ["cat", "milk"], "a room for each sentence."),
    ]:
        act(frame, "button", press, "")
        room = five.room_of(five.cut(bool(row), k), 2, 12)
        order = torch.arange(24).view(2, 12) if row else torch.arange(24).view(12, 2).mT  # (b, n)
        heard = (room == room[0, 11]) & (order <= order[0, 11])                           # (b, n)
        expect(frame.get_by_role("status")).to_contain_text(said)
        expect(frame.locator(".aa-stage em")).to_have_text(words)
        expect(frame.locator(".aa-stage .aa-lit")).to_have_count(int(heard.sum()))
        expect(frame.locator(".aa-stage .aa-pieces > div")).to_have_count(24 // k)


def test_uncut_is_grey(visit):
    frame = visit("chapters/split-and-stack/").locator("[data-live=aloud]")
    frame.evaluate(ALONE)
    inks = frame.locator(".aa-aloud b").evaluate_all(
        "all => all.map(e => getComputedStyle(e).color)"
    )
    assert inks[0] == "rgb(91, 100, 112)" not in inks[1:]


@pytest.fixture
def teller(visit):
    frame = visit("chapters/questions-to-heads/", viewport={"width": 390, "height": 844}).locator(
        "[data-live=storyteller]"
    )
    frame.evaluate(ALONE)
    expect(frame.get_by_role("status")).not_to_be_empty()
    return frame


def test_the_storyteller_says_what_it_cannot_do(teller, browser, served):
    status, field = teller.get_by_role("status"), teller.get_by_role("textbox")
    for typed, said in (
        ("the milks", "“milks” is no word of this world. Near it: milk, mia, cake."),
        ("", "Type a word"),
        ("the " * 40, "at most 33 words"),
    ):
        field.fill(typed)
        field.press("Enter")
        expect(status).to_contain_text(said)
    teller.get_by_role("button", name="a story").click()
    expect(field).to_have_value("")
    page = browser.new_page()
    page.route("**/storyteller-0.bin", lambda route: route.abort())
    page.goto(f"{served[0]}/chapters/questions-to-heads/#fig-ask-the-storyteller")
    expect(page.get_by_text("The model did not arrive")).to_be_visible()
    expect(
        page.locator(
            "#fig-ask-the-storyteller > svg, #fig-ask-the-storyteller > div:not(.aa-stage)"
        ).first
    ).to_be_visible()
    page.close()


def test_the_storyteller_writes_the_likeliest_or_draws(teller):
    ten, told = chapters.load("10_a_little_world"), teller.locator(".aa-told b")
    status, on = teller.get_by_role("status"), teller.get_by_role("button", name="write on")
    choice = teller.get_by_role("combobox", name="which word")

    def written():
        on.click()
        expect(status).to_contain_text(re.compile("The end, after|at most"))
        return told.all_text_contents()

    choice.select_option("the likeliest")
    ids = ten.as_ids([[ten.EDGE, *told.all_text_contents()[1:]]])
    with torch.no_grad():
        while (word := ten.shipped(0)(ids)[:, -1:].argmax(-1)) != ten.NUMBER[ten.EDGE]:
            ids = torch.cat([ids, word], 1)
    expected = [ten.WORDS[i] for i in ids[0].tolist()]
    assert written() == expected
    assert written() == expected, "once more from where it began"
    choice.select_option("temperature 1")
    teller.get_by_role("button", name="a story").click()
    stories = {" ".join(written()) for _ in range(3)}
    assert len(stories) > 1


def test_the_other_storyteller_is_fetched_when_it_is_chosen(browser, served):
    page, other = browser.new_page(), "**/storyteller-4.bin"
    page.route(other, lambda route: route.abort())
    page.goto(f"{served[0]}/chapters/questions-to-heads/#fig-ask-the-storyteller")
    teller = page.locator("[data-live=storyteller]")
    model = teller.get_by_role("combobox", name="model")
    model.select_option("second model")
    expect(teller.get_by_role("status")).to_contain_text("That model did not arrive")
    expect(model.locator("option:checked")).to_have_text("first model")
    page.unroute(other)
    with page.expect_request(other):
        model.select_option("second model")
    ten = chapters.load("10_a_little_world")
    ids = ten.as_ids([teller.locator(".aa-told b").all_text_contents()])
    with torch.no_grad():
        share, best = ten.shipped(4)(ids)[0, -1].softmax(-1).max(-1)
    expect(teller.get_by_role("status")).to_contain_text(f": {ten.WORDS[best]} {share:.2f}")
    page.close()


def test_on_a_phone_all_that_changes_is_in_view_and_stays_under_the_finger(teller):
    of = ".aa-controls:has([aria-label^=silence]), .aa-told, .aa-readout, .aa-next > :last-child"
    boxes = [each.bounding_box() for each in teller.locator(of).all()]
    assert max(x["y"] + x["height"] for x in boxes) - min(x["y"] for x in boxes) < 600
    bars = teller.locator(".aa-next > div")
    before = bars.first.bounding_box()
    for _ in range(6):
        bars.first.get_by_role("button").click()
        assert bars.first.bounding_box() == pytest.approx(before, abs=0.1)
    last, told = (
        teller.locator(each).bounding_box() for each in (".aa-told li >> nth=-1", ".aa-told")
    )
    assert told["y"] <= last["y"]
    assert last["y"] + last["height"] <= told["y"] + told["height"] + 1


def test_a_figure_whose_module_fails_leaves_the_picture(browser, served):
    page = browser.new_page()
    code = "export default { render() { throw Error('no') } }"
    fails = {"content_type": "text/javascript", "body": code}
    page.route("**/live/clocks.js", lambda route: route.fulfill(**fails))
    with page.expect_console_message(lambda message: "did not start" in message.text):
        page.goto(f"{served[0]}/chapters/transformer/#fig-clocks")
    expect(page.locator("#fig-clocks > svg")).to_be_visible()
    expect(page.locator("#fig-clocks .aa-stage")).to_have_count(0)
    page.close()


def test_training_plays_to_its_end_and_only_where_movement_is_wanted(visit):
    still, moving = (visit("chapters/training/", reduced_motion=x) for x in ("reduce", None))
    for page, buttons in ((still, 0), (moving, 1)):
        figure = page.locator("[data-live=attention_over_training]")
        figure.evaluate(ALONE)
        expect(figure.get_by_role("status")).not_to_be_empty()
        expect(figure.get_by_role("button", name="Play")).to_have_count(buttons)
    figure.get_by_role("slider").press("End")
    figure.get_by_role("slider").press("ArrowLeft")
    figure.get_by_role("button", name="Play").click()
    expect(figure.get_by_role("status")).to_contain_text("step 160 ")
    expect(figure.get_by_role("button", name="Play")).to_be_visible()


def test_a_link_to_a_head_shows_it_in_the_figure(visit):
    page = visit("chapters/trained-weights/")
    page.locator("[data-live=heads_at_work]").scroll_into_view_if_needed()
    status = page.locator("#fig-heads-at-work").get_by_role("status")
    expect(status).not_to_be_empty()
    page.locator("#fig-seventy-two-heads a[href='#head-2-3']").click()
    expect(status).to_contain_text("layer 2, head 3: ")
    assert page.url.endswith("#head-2-3")
    expect(page.locator(".aa-heads a[aria-current=true]")).to_have_attribute("href", "#head-2-3")


# What JupyterLab does with an output: scripts in it would not run, so it makes each anew.
SHOW = """([frame, text]) => {
  const output = document.body.appendChild(document.createElement("div"));
  output.innerHTML = frame;
  const script = document.createElement("script");
  output.append(Object.assign(script, { type: "module", textContent: text }));
}"""


def test_each_starts_in_a_notebook_without_its_kernel(visit):
    page = visit("glossary/")
    page.set_content("<!doctype html>")  # nothing of the site is left
    for module, at in FRAMES.items():
        text = (SITE / at / "index.html").read_text(encoding="utf-8")
        start = text.rindex("<div", 0, text.index(f'data-live="{module}"'))
        frame = text[start : text.index("</figure>", start)] + "</figure></div>"
        page.evaluate(SHOW, [frame, _live.bundle(module)])
        live = page.locator(f"[data-live={module}][data-live-on]")
        expect(live.locator(".aa-stage")).to_have_count(1)
        control = live.locator(f".aa-stage {TABBED}").first
        control.focus()
        expect(control).to_have_attribute("data-lm-suppress-shortcuts", "")
