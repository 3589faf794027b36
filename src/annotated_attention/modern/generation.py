"""Text from a language model: one token after the other, the likeliest or a drawn one."""

import math
from collections.abc import Callable, Collection, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from annotated_attention.checks import check_sizes
from annotated_attention.modern.cache import KVCache
from annotated_attention.modern.decoder import LanguageModel, check_call


def generate(
    model: LanguageModel,
    tokens: Tensor,
    steps: int,
    *,
    key_padding_mask: Tensor | None = None,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    stops: Collection[int] = (),
    use_cache: bool = True,
    generator: torch.Generator | None = None,
) -> Iterator[Tensor]:
    """Continue each row of a batch, and give the tokens as they come, without gradients.

    Args:
        model: scores the next token.
        tokens: (b, n), integers; shorter rows are padded **on the left**.
        steps: how many tokens to give at most.
        key_padding_mask: (b, n), True = blocked: padding.
        temperature: as in ``choose``, and so are ``top_k`` and ``top_p``.
        stops: the tokens that end a row. It goes on with the stop that it has met, until all rows
            have met one.
        use_cache: keep keys and values; without, each step computes all tokens anew.
        generator: draws the tokens; a seeded one reproduces them.

    Yields:
        (b,), the next token of each row, as often as there are steps.

    Examples:
        The same seed draws the same tokens, with a cache and without:

        >>> import torch
        >>> from annotated_attention.modern import LanguageModel, Settings, generate
        >>> model = LanguageModel(Settings(
        ...     vocab_size=11, embed_dim=24, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=8,
        ...     hidden_dim=40))
        >>> tokens = torch.tensor([[3, 1, 4], [1, 5, 9]])
        >>> drawn = [
        ...     torch.stack(list(generate(
        ...         model, tokens, 5, temperature=1.0, use_cache=use_cache,
        ...         generator=torch.Generator().manual_seed(3))), dim=1)
        ...     for use_cache in (True, False)]
        >>> drawn[0].shape, torch.equal(*drawn)
        (torch.Size([2, 5]), True)
    """
    check_call(model, tokens, None, key_padding_mask)
    check_sizes({"steps": steps})
    check_choice(temperature, top_k, top_p)
    if not all(isinstance(stop, int) for stop in stops):
        raise TypeError(f"stops must be integers, got {[*stops]}")
    if key_padding_mask is not None and key_padding_mask[:, -1].any():
        raise ValueError("key_padding_mask must leave the last token of each row: pad on the left")

    def pick(logits: Tensor) -> Tensor:
        return choose(logits, temperature, top_k, top_p, generator)

    return _continue(model, tokens, steps, key_padding_mask, pick, [*stops], use_cache)


@torch.no_grad()
def _continue(
    model: LanguageModel,
    tokens: Tensor,
    steps: int,
    key_padding_mask: Tensor | None,
    pick: Callable[[Tensor], Tensor],
    stops: list[int],
    use_cache: bool,
) -> Iterator[Tensor]:
    """Do what ``generate`` does, with arguments that were checked."""
    caches = [KVCache() for _ in model.layers] if use_cache else None
    ends = torch.tensor(stops, dtype=tokens.dtype, device=tokens.device)  # (...,)
    new, stopped = tokens, torch.zeros_like(tokens[:, -1], dtype=torch.bool)
    for _ in range(steps):
        states = model.states(new if use_cache else tokens, caches, key_padding_mask)
        chosen = pick(model.logits(states[:, -1])).to(tokens.dtype)  # (b,)
        # A row that has met a stop repeats it.
        chosen = torch.where(stopped, tokens[:, -1], chosen)  # (b,)
        yield chosen
        stopped = stopped | torch.isin(chosen, ends)  # (b,)
        if stops and stopped.all():
            return
        new = chosen[:, None]  # (b, 1)
        tokens = torch.cat([tokens, new], 1)
        if key_padding_mask is not None:
            key_padding_mask = F.pad(key_padding_mask, (0, 1))  # (b, ...)


def choose(
    logits: Tensor,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Choose the next token: the likeliest, or one drawn by its probability.

    Args:
        logits: (b, v), the score of each of v tokens.
        temperature: divides the scores before the softmax; 0 takes the highest, below 1 the
            likely ones gain, above 1 the unlikely.
        top_k: draw from the k highest alone, and from what ties with the last of them.
        top_p: draw from the fewest tokens alone whose probabilities sum to at least this much:
            above 0, at most 1.
        generator: draws.

    Returns:
        (b,), integers.

    Examples:
        >>> import torch
        >>> from annotated_attention.modern import choose
        >>> logits = torch.tensor([[0.5, 0.2, 0.2, 0.1]]).log()
        >>> choose(logits)
        tensor([0])
        >>> drawn = [choose(logits, temperature=1.0, top_p=0.6).item() for _ in range(100)]
        >>> max(drawn) < 3
        True

    Source: Holtzman et al. (2020), section 3.1, for ``top_p``.
    """
    check_choice(temperature, top_k, top_p)
    if not temperature:
        return logits.argmax(-1)           # (b,)
    logits = logits.float() / temperature  # (b, v)
    if top_k is not None:
        lowest = logits.topk(min(top_k, logits.size(-1))).values[:, -1:]  # (b, 1)
        logits = logits.masked_fill(logits < lowest, -math.inf)           # (b, v)
    if top_p is not None:
        ordered, order = logits.softmax(-1).sort(-1, descending=True)  # (b, v), (b, v)
        # A token goes if those before it suffice; the first one always stays.
        enough = ordered.cumsum(-1) - ordered >= top_p  # (b, v)
        logits = logits.masked_fill(enough.scatter(-1, order, enough), -math.inf)
    drawn = torch.multinomial(logits.softmax(-1), 1, generator=generator)  # (b, 1)
    return drawn.squeeze(-1)                                               # (b,)


def check_choice(temperature: float, top_k: int | None, top_p: float | None) -> None:
    """Refuse settings of ``choose`` that choose nothing."""
    if not temperature >= 0:
        raise ValueError(f"temperature ({temperature}) must not be negative")
    if top_k is not None:
        check_sizes({"top_k": top_k})
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p ({top_p}) must be above 0 and at most 1")
