"""The checks behind the chapters' exercises: each prints a verdict with its reason.

    exercises.one_head.check_attend(my_attend)

A check never raises, whatever it is given, and returns None: a cell shows the verdict alone.
"""

from annotated_attention.exercises import one_head, two_heads

__all__ = ["one_head", "two_heads"]
