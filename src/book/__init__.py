"""Makes the book: environment, execution, pairing, shape comments, site.

These modules work on a checkout and are not part of the installed package. The Makefile calls
them; nothing in ``annotated_attention`` imports them.
"""

import sys

# Notebooks are validated by jsonschema, which would build the grammars of a text format that they
# do not use: a second at every start. It does without where this cannot be imported.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
