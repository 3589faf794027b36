"""What a code means, as its rule has it."""

import textwrap

from attention_doctor.codes import check
from attention_doctor.mistakes import MISTAKES
from attention_doctor.rules.catalogue import BY_CODE

_WIDTH = 92


def explain(code: str) -> str:
    """Say what a code means: the cause, what follows, the lines, and what it is not.

    Raises:
        ValueError: there is no such code.

    Examples:
        >>> from attention_doctor.explain import explain
        >>> print(explain("no-scale"))
        no-scale (wrong)
        ...
        - scores = q @ k.mT
        + scores = q @ k.mT / math.sqrt(d)
    """
    check([code])
    rule = BY_CODE[code]
    parts = [f"{code} ({rule.severity})", *_filled(f"{rule.cause}. {rule.explanation}")]
    if code in MISTAKES:
        parts += [f"- {MISTAKES[code].wrong}\n+ {MISTAKES[code].right}"]
    elif rule.remedy:
        parts += _filled(rule.remedy)
    if rule.neighbours:
        parts += _filled(f"Not to be confused with: {', '.join(rule.neighbours)}.")
    if rule.excuses:
        parts += _filled(f"Where it holds, it accounts for {', '.join(rule.excuses)}.")
    return "\n\n".join(parts)


def _filled(text: str) -> list[str]:
    text = text.strip()
    return [textwrap.fill(text[:1].upper() + text[1:], _WIDTH)]
