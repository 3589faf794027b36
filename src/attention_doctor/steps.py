"""Find out by a few calls how causal attention is given a cache, and attend step by step."""

import contextlib
import copy
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from attention_doctor.adapted import Adapted, output_of
from attention_doctor.caches import held
from attention_doctor.names import plain_name
from attention_doctor.patient import Failed, Inputs, Patient, raised_in

Call = Callable[[Any, Tensor, dict[str, Any], int], Any]
# Names of arguments, and of what a module keeps.
_NAMES = {
    role: names.split()
    for role, names in {
        "past": "past layer_past past_kv past_kvs past_key_value past_key_values kv_cache cache "
        "layer_cache past_kv_cache key_value_cache past_cache cached_kv prev_kv kvcache past_state "
        "attn_cache",
        "start_pos": "start_pos start_position start cur_pos current_pos offset position_offset "
        "pos_offset past_length past_len past_seq_len cache_len cache_length seq_offset",
        "flags": "use_cache use_kv_cache return_cache return_kv return_kv_cache return_present",
        "kept": "cache kv_cache kvcache cache_k cache_v k_cache v_cache key_cache value_cache "
        "keys_cache values_cache cache_keys cache_values cached_k cached_v cached_keys past_kv "
        "cached_values cached_key cached_value cache_kv cached_kv past_k past_v past_key "
        "past_value past_key_value",
        # words of names that may say where tokens stand
        "places": "pos position positions offset start step len length index idx rope rotary cos "
        "sin freqs seqlen lens past cache kv",
    }.items()
}
_EMPTY: tuple[Any, ...] = (None, {}, {"k": None, "v": None}, {"key": None, "value": None})
_FIRST, _LENGTH_OF_ALL = 7, 12  # how many tokens are tried


@dataclass
class Steps:
    """A way to attend step by step; what is kept of a text is a dictionary.

    Attributes:
        adapted: gets ``start`` and ``step``.
        call: takes a copy of the module, or None, the tokens, arguments by name, and how many
            tokens went before.
        past, start_pos, options, place: as in ``cached``; -1 is a cache that is changed in place.
        empty: what is given as an empty cache.
        may_fail: whether a step that raises an error is a mistake of the module, not of the call.
        right: whether single tokens were seen to give what no cache gives.
        whole, chunks: whether the first tokens, and later ones, may come several at once.
    """

    adapted: Adapted
    call: Call
    past: str | None
    start_pos: str | None
    options: dict[str, Any]
    place: int = 1
    empty: Any = None
    may_fail: bool = True
    right: bool = False
    whole: bool = True
    chunks: bool = True
    guessed: ClassVar[bool] = True  # nobody has said so

    def serve(self) -> None:
        """Let the callable be asked in this way."""
        self.adapted.start, self.adapted.step = self.start, self.step  # type: ignore[attr-defined]

    def start(self) -> dict[str, Any]:
        """Begin a text; a module that keeps its cache begins again as a copy of its own."""
        own = copy.deepcopy(self.adapted.module) if self.past is None else None
        return {"past": copy.copy(self.empty), "length": 0, "own": own, "result": None}

    def step(self, x: Tensor, cache: dict[str, Any]) -> Any:
        """Attend from the next tokens, x, (b, n, e)."""
        at_once = self.chunks if cache["length"] else self.whole
        outputs: list[Any] = [self._next(y, cache) for y in ((x,) if at_once else x.split(1, 1))]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, 1)

    def _next(self, x: Tensor, cache: dict[str, Any]) -> Any:
        given: dict[str, Any] = {} if self.past is None else {self.past: cache["past"]}
        given |= {} if self.start_pos is None else {self.start_pos: cache["length"]}
        cache["result"] = result = self.call(cache["own"], x, given | self.options, cache["length"])
        cache["length"] += x.size(1)
        if self.past is not None and self.place >= 0:
            cache["past"] = result[self.place]
        return output_of(result, x.shape)[0]

    def understood(self, patient: Patient) -> bool:
        """Find out whether a cache is given so, and how many tokens it takes at once."""
        found = []
        for as_it_is in (True, False):  # code for a cache may know its own dtype only
            with patient.admitted(as_it_is):
                found.append((self._fits(patient), self.whole, self.chunks, self.place))
        return found[0][0] != "" and found[0] == found[1]

    def _fits(self, patient: Patient) -> str:
        """Say how it goes: "well", or "fails" with the cache that it gave; "" where none is."""
        x, others = (patient.draw(seed, n=_LENGTH_OF_ALL).query for seed in (57, 58))
        for first, self.whole in ((_FIRST, True), (1, False)):
            self.place, self.chunks, cache, other = 0, self.whole, self.start(), self.start()
            try:
                output = self._asked(patient, x[:, :first], cache)
                self._asked(patient, others[:, :first], other)
            except Failed:
                continue
            begun = x[:, :first]
            if not patient.same(output, patient.ask(Inputs(begun, begun, begun))):
                return ""
            if self.past is None:
                kept, another = _kept(cache["own"]), _kept(other["own"])
                return self._goes_on(patient, x) if kept and not _equal(kept, another) else ""
            parts = cache["result"] if isinstance(cache["result"], tuple | list) else ()
            places = [i for i, part in enumerate(parts) if _is_cache(part, first)]
            self.place = places[0] if places else -1
            changed = None if places else cache["past"]
            return self._goes_on(patient, x) if places or _is_cache(changed, first) else ""
        return ""

    def _asked(self, patient: Patient, x: Tensor, cache: dict[str, Any]) -> Tensor:
        return patient.ask_for(lambda y: self.step(y, cache), x)

    def _goes_on(self, patient: Patient, x: Tensor) -> str:
        """Give single tokens behind the first ones, and then two."""
        first, self.chunks, cache = _FIRST if self.whole else 1, False, self.start()
        outputs = [self._asked(patient, x[:, :first], cache)]
        for i in range(first, x.size(1)):
            try:
                outputs.append(self._asked(patient, x[:, i : i + 1], cache))
            except Failed as failure:
                fails = self.may_fail and i == first and _stumbled(failure.error)
                return "fails" if fails and not self._takes_layers(patient, x) else ""
            if self.past is not None and not _is_cache(cache["past"], i + 1, False):
                return ""
        self.right = patient.same(torch.cat(outputs, 1), patient.ask(Inputs(x, x, x)))
        cache = self.start()
        self._asked(patient, x[:, :first], cache)
        with contextlib.suppress(Failed):
            self.chunks = self.whole
            self._asked(patient, x[:, first : first + 2], cache)
            return "well"
        self.chunks = False
        return "well"

    def _takes_layers(self, patient: Patient, x: Tensor) -> bool:
        """Tell whether it is given the caches of all layers, and gives that of its own."""
        first, cache = _FIRST if self.whole else 1, self.start()
        self._asked(patient, x[:, :first], cache)
        cache["past"] = [cache["past"]]
        with contextlib.suppress(Failed):
            self._asked(patient, x[:, first : first + 1], cache)
            return True
        return False


def tried(
    adapted: Adapted,
    calls: Sequence[Call],
    names: Iterable[str],
    patient: Patient,
    may_fail: bool,
) -> str:
    """Let causal attention be asked with a cache where names, and a few calls, say how.

    Args:
        adapted: gets ``start`` and ``step`` where it is certain how they are done.
        calls: ways to call it, as in ``Steps``; the first that is right is taken, if one is.
        names: the arguments that may be given or left out.
        patient: asks it.
        may_fail: as in ``Steps``.

    Returns:
        How a cache is given; "" where it is not certain.
    """
    plain = {plain_name(x): x for x in names}
    past, length = (
        next((plain[x] for x in _NAMES[role] if x in plain), None) for role in ("past", "start_pos")
    )
    options: dict[str, Any] = {plain[x]: True for x in _NAMES["flags"] if x in plain}
    others = {x for x, name in plain.items() if name not in {past, length, *options}}
    unclear = any({*_NAMES["places"]} & {*x.split("_")} for x in others)
    if unclear or not (past or length or options) or patient.max_length < _LENGTH_OF_ALL:
        return ""
    understood: list[Steps] = []
    for call, empty in itertools.product(calls, _EMPTY if past else (None,)):
        steps = Steps(adapted, call, past, length, options, empty=empty, may_fail=may_fail)
        with contextlib.suppress(Exception):
            understood += [steps] if steps.understood(patient) else []
        if understood and understood[-1].right:
            break
    if not understood:
        return ""
    next((x for x in understood if x.right), understood[0]).serve()
    return ", ".join(f"`{x}`" for x in (past, length, *options) if x)


def names_a_cache(name: str) -> bool:
    """Tell whether an argument is named as a cache is, or the number of tokens in it."""
    return plain_name(name) in {*_NAMES["past"], *_NAMES["start_pos"]}


def _is_cache(part: Any, length: int, new: bool = True) -> bool:
    """Tell whether this may be the keys and values of as many tokens, and, if new, no weights."""
    found = [*held(part)]
    several = len(found) > 1 or any(x.dim() == 5 for x in found)
    weights = new and any(x.shape[-2:] == (length, length) for x in found)
    return several and not weights and all(length in x.shape for x in found)


def _kept(module: nn.Module) -> list[Tensor]:
    """Find what a module keeps by the usual names of caches, in itself or in its parts."""
    found = []
    for path, part in module.named_modules():
        own = vars(part) | part._buffers
        inside = plain_name(path.rpartition(".")[2]) in _NAMES["kept"]
        found += [y for name, x in own.items() if inside or plain_name(name) in _NAMES["kept"]
                  for y in held(x)]  # fmt: skip
    return found


def _equal(some: list[Tensor], others: list[Tensor]) -> bool:
    return len(some) == len(others) and all(map(torch.equal, some, others))


def _stumbled(error: Exception | None) -> bool:
    """Tell whether an error is about shapes, and not how a call is refused."""
    frame = raised_in(error) if type(error) is RuntimeError else None
    return frame is not None and not (frame.line or "").startswith(("raise", "assert"))
