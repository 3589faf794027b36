"""Wrong versions that run: one module for each mistake, named after it.

Each differs from the right version by the mistake alone, keeps every shape, and says in its
docstring what it computes instead. They are here to be run, seen to fail, and caught.
"""
