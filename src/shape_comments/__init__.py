"""Check every shape comment against the value it stands beside.

``x = q @ k.mT  # (n, d) x (d, m) -> (n, m)`` claims a shape. Code runs with a call around each such
value, which compares the value with the comment and returns it::

    pytest -p shape_comments --shape-comments=src     # report those that are false
    %load_ext shape_comments                          # the same in a notebook

While code is compiled, exported or traced, nothing is checked or reached.

- ``grammar`` reads one comment; ``comments`` finds all of them in a source.
- ``rewrite`` puts the calls into the syntax tree, each on the line of its value.
- ``values`` says what shape a value has.
- ``letters`` compares it with the claim. A letter that is an integer variable in scope means its
  value. The others bind once per call, anew in each turn of a loop, or once per section of a
  chapter.
- ``checker`` joins these, and remembers what was reached and what was false. A strict one raises
  it, and refuses what cannot be checked, so that no claim can be false unseen; it reads docstrings,
  too (``x: (n, d), one row per token.``). The book that this comes from is checked by one.
- ``imports`` checks modules as they are imported, ``pytest_plugin`` judges a test session, and
  ``cells`` checks notebooks as they run.
"""

from shape_comments.cells import load_ipython_extension as load_ipython_extension

pytest_plugins = ["shape_comments.pytest_plugin"]
