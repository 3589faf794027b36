"""Stories told choice by choice, so that each word's true surprise is known exactly.

A grammar is a function that is given a ``Story`` and tells it: ``say`` adds words that had to come,
``pick`` chooses. The same function tells stories at random, judges those that others wrote, and
gives the chances of the next word: what differs is who chooses. ``pack`` and ``unpack`` keep a
model that learned such stories in a quarter of its size.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["Story", "chances", "pack", "possible", "tell", "unpack"]

Grammar = Callable[["Story"], None]


class Story:
    """A story that is being told.

    Attributes:
        words: the words so far.
        nats: how surprising each of them was, the negative logarithm of its probability.
        facts: what the grammar notes about the story, such as who is meant.
    """

    def __init__(self, choose: Callable[["Story", Sequence[str]], str]) -> None:
        """Begin a story; ``choose`` is given each list of options and returns one of them."""
        self.words, self.nats = list[str](), list[float]()
        self.facts: dict[str, Any] = {}
        self._choose = choose

    def say(self, text: str) -> str:
        """Add words that have to come: no surprise."""
        for word in text.split():
            self._choose(self, [word])
            self.words.append(word)
            self.nats.append(0.0)
        return text

    def pick(self, options: Sequence[str]) -> str:
        """Add one of the options.

        Each begins with a word of its own, so that this word gives the choice away; an option that
        stands there twice is twice as likely.
        """
        choice = self._choose(self, options)
        first, *rest = choice.split()
        self.words.append(first)
        self.nats.append(-math.log(options.count(choice) / len(options)))
        self.say(" ".join(rest))
        return choice


class _Refused(Exception):
    """The world has no such story."""


class _Open(Exception):
    """The words that were given are at their end."""

    def __init__(self, options: Sequence[str]) -> None:
        self.options = options


def tell(grammar: Grammar, rng: random.Random) -> Story:
    """Tell a story at random.

    Examples:
        >>> import random
        >>> from annotated_book import world
        >>> def weather(story):
        ...     story.say("it was")
        ...     story.pick(["warm", "warm", "cold"])
        >>> story = world.tell(weather, random.Random(1))
        >>> story.words, [round(x, 2) for x in story.nats]
        (['it', 'was', 'warm'], [0.0, 0.0, 0.41])
    """
    story = Story(lambda _, options: rng.choice(options))
    grammar(story)
    return story


def possible(grammar: Grammar, words: Sequence[str]) -> bool:
    """Tell whether a grammar can tell exactly this story.

    Examples:
        >>> from annotated_book import world
        >>> def weather(story):
        ...     story.say("it was")
        ...     story.pick(["warm", "warm", "cold"])
        >>> world.possible(weather, "it was cold".split())
        True
        >>> world.possible(weather, "it was was".split())
        False
    """
    try:
        return len(_follow(grammar, words).words) == len(words)
    except (_Refused, _Open):
        return False


def chances(grammar: Grammar, words: Sequence[str]) -> dict[str, float]:
    """Give the true probability of each word that can come next; none after a story's end.

    Raises:
        ValueError: no story begins with these words.

    Examples:
        >>> from annotated_book import world
        >>> def weather(story):
        ...     story.say("it was")
        ...     story.pick(["warm", "warm", "cold", "icy"])
        >>> world.chances(weather, ["it", "was"])
        {'warm': 0.5, 'cold': 0.25, 'icy': 0.25}
    """
    try:
        whole = _follow(grammar, words)
    except _Refused:
        raise ValueError(f"no story begins with {' '.join(words)!r}") from None
    except _Open as end:
        counts = Counter(option.split()[0] for option in end.options)
        return {word: count / len(end.options) for word, count in counts.items()}
    if len(whole.words) < len(words):
        raise ValueError(f"no story goes on after {' '.join(whole.words)!r}")
    return {}


def _follow(grammar: Grammar, words: Sequence[str]) -> Story:
    """Tell the story that begins with these words, as far as they go."""

    def choose(story: Story, options: Sequence[str]) -> str:
        if len(story.words) == len(words):
            raise _Open(options)
        heard = words[len(story.words)]
        for option in options:
            if option.split()[0] == heard:
                return option
        raise _Refused

    story = Story(choose)
    grammar(story)
    return story


def pack(state: Mapping[str, Tensor]) -> bytes:
    """Write a model's numbers: vectors as float32, each row of a matrix as int8 with a scale.

    The largest number of a row becomes 127 or -127, so that each is off by at most 1/254 of it.
    """
    packed = b""
    for tensor in state.values():
        scales = tensor.float()
        if tensor.dim() == 2:
            scales = tensor.abs().amax(1) / 127
            whole = (tensor / scales[:, None]).round().to(torch.int8)
        packed += scales.numpy().astype("<f4").tobytes()
        packed += whole.numpy().tobytes() if tensor.dim() == 2 else b""
    return packed


def unpack(packed: bytes, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Read what ``pack`` wrote of a model whose ``state_dict`` has these names and shapes.

    Raises:
        ValueError: it is longer or shorter than such a model.

    Examples:
        >>> import torch
        >>> from annotated_book import world
        >>> state = {"w": torch.tensor([[1.0, 0.25], [0.5, -4.0]]), "b": torch.tensor([0.3])}
        >>> world.unpack(world.pack(state), state)["w"].round(decimals=2)
        tensor([[ 1.0000,  0.2500],
                [ 0.5000, -4.0000]])
    """
    found, at = dict[str, Tensor](), 0
    size = sum(4 * len(x) + x.numel() * (x.dim() == 2) for x in state.values())
    if size != len(packed):
        raise ValueError(f"packed ({len(packed)} bytes) must have the {size} bytes of such a model")
    for name, tensor in state.items():
        numbers = torch.frombuffer(
            bytearray(packed[at : at + 4 * len(tensor)]), dtype=torch.float32
        )
        at += 4 * len(tensor)
        if tensor.dim() == 2:
            rows = bytearray(packed[at : at + tensor.numel()])
            at += tensor.numel()
            whole = torch.frombuffer(rows, dtype=torch.int8).view(tensor.shape)
            numbers = whole * numbers[:, None]
        found[name] = numbers
    return found
