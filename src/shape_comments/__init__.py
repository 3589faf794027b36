"""Check every shape comment against the value it stands beside.

``x = q @ k.mT  # (n, d) x (d, m) -> (n, m)`` claims a shape, and so does a docstring's
``x: (n, d), one row per token.`` No claim can be false unseen: code runs with a call around each
value, which compares the value with the comment and returns it. A comment that nothing reaches,
or that stands where no value is, is an error too. While code is compiled, exported or traced,
nothing is checked or reached: the tests run the same code as it stands, too.

- ``grammar`` reads one comment; ``comments`` finds all of them in a source.
- ``rewrite`` puts the calls into the syntax tree, each on the line of its value.
- ``values`` says what shape a value has.
- ``letters`` compares it with the claim. A letter that is an integer variable in scope means its
  value. The others bind once per call, arguments first, or once per ``##`` section of a chapter.
- ``checker`` joins these, and remembers what was reached and what was false.
- ``imports`` checks a package as it is imported, ``pytest_plugin`` judges the test session, and
  ``cells`` checks a chapter as it runs.
"""
