"""What the search finds besides prose: words of code, letters as typed, American spelling.

The theme searches whatever fields the index names, and shows those that it knows. So an excerpt
stays prose, and a field of words beside it, each once, is found, too.
"""

import html
import re
import unicodedata
from typing import Any

BLOCK = re.compile(r"<pre>.*?</pre>", re.DOTALL)
TAG = re.compile(r"</?\w+>")
WORD = re.compile(r"[^\W\d]\w+")
BRITISH = re.compile(r"\b(\w{3,}?)(?:is(?:e[drs]?|ing|ations?|ers?)|(our)\w*)\b")


def widen(index: dict[str, Any]) -> dict[str, Any]:
    """Let words of code, of printouts and in American spelling be found; a page's tags once."""
    for entry in index["docs"]:
        blocks = html.unescape(TAG.sub("", " ".join(BLOCK.findall(entry["text"]))))
        entry["text"] = BLOCK.sub("", entry["text"])
        words, prose = {*WORD.findall(blocks)}, f"{entry['title']} {entry['text']}"
        plain = unicodedata.normalize("NFKC", prose.replace("^\\top", "T"))  # typed as QKT
        words |= {*WORD.findall(plain)} - {*WORD.findall(prose)}
        for stem, colour in BRITISH.findall(prose):
            ends = ("or",) if colour else ("ize", "ized", "izing", "ization")
            words |= {stem + end for end in ends}
        entry["words"] = " ".join(sorted(words))
        if "#" in entry["location"]:
            entry.pop("tags", None)
    return index
