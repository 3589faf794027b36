"""Comments such as ``# attention-doctor: ignore[no-scale]``, on the line that a finding names."""

import linecache
import re
from collections.abc import Iterable
from pathlib import Path

from attention_doctor.call.places import Where
from attention_doctor.report import Finding

_COMMENT = re.compile(r"#\s*attention-doctor:\s*ignore(?:\[([^]]*)\])?")


def ignored(finding: Finding) -> bool:
    """Tell whether the line that a finding names has a comment with its code."""
    return finding.where is not None and finding.code in _codes(finding.where.text)


def unused(files: Iterable[str], findings: Iterable[Finding]) -> list[tuple[Where, str]]:
    """Give the places of comments that ignore none of the findings, and what each says."""
    found = {(str(Path(x.where.file).resolve()), x.where.line, x.code) for x in findings if x.where}
    paths = {str(Path(file).resolve()) for file in files} | {file for file, *_ in found}
    linecache.checkcache()
    return [
        (Where(file, line), f"ignore[{code}] ignores nothing that was found")
        for file in sorted(paths)
        for line, text in enumerate(linecache.getlines(file), 1)
        for code in _codes(text)
        if (file, line, code) not in found
    ]


def _codes(text: str) -> list[str]:
    """Give the codes of a comment; "" where it has none, which ignores nothing."""
    found = _COMMENT.search(text)
    return [code.strip() for code in (found[1] or "").split(",")] if found else []
