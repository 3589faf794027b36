"""What the letters mean, and whether a value has the shape that a comment claims.

A product with one unknown letter binds it by division; one with more waits until all but one are
known.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from shape_comments.comments import FALSE, TWO_SIZES, Comment, ShapeCommentError
from shape_comments.grammar import ANY, ONE, Axis, Shape, show
from shape_comments.values import Found, Several, Sizes

Equation = tuple[Axis, int, int]  # the item, the size found, the line where
Option = tuple[Shape, Sizes | str, str]  # a shape, a value that may have it, and which value it is
REMEMBERED = 10_000  # what came of the same letters and values before, which is most of the work


@dataclass(eq=False)
class Letters:
    """What the letters mean at one point of a call or of a section."""

    sizes: dict[str, int] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    open: list[Equation] = field(default_factory=list)  # more than one letter still unknown

    def bind(self, comment: Comment, option: Option, variables: Mapping[str, int]) -> "Letters":
        """Bind the letters of one shape; raise the error that says everything if it is not so."""
        shape, value, which = option
        for name in variables.keys() & self.sizes.keys():
            if variables[name] != self.sizes[name]:
                old = f"{self.sizes[name]} since line {self.lines[name]}"
                new = f"{variables[name]}, the value of the variable {name}"
                says = f"{name} is used with two values: {old}, and {new}"
                raise comment.error(says, level=TWO_SIZES)
        says = f"the {comment.kind} says {show(shape)}"
        if isinstance(value, str):
            raise comment.error(f"{says}, but the value{which} has no shape, it is a {value}")
        trial = Letters({**self.sizes, **variables}, dict(self.lines), list(self.open))
        pairs = align(shape, value)
        reason = "" if pairs is None else trial._match(pairs, comment.line)
        if reason is None:
            trial.sizes = {name: trial.sizes[name] for name in trial.lines}
            return trial
        known = trial.sizes
        used = dict.fromkeys(n for axis in shape for n in axis.names if n in known)
        meant = ", ".join(f"{name} = {known[name]}" for name in used)
        sources = (
            f"{name} is bound in line {trial.lines[name]}"
            if name in trial.lines
            else f"{name} is a variable"
            for name in used
        )
        alone = (Letters({**variables})._match([pair], 0) for pair in pairs or ())
        level = FALSE if pairs is None or any(x is not None for x in alone) else TWO_SIZES
        but = f"but the shape{which} is {show(value)}{reason}"
        raise comment.error(f"{says}{' with ' * bool(meant)}{meant}, {but}", *sources, level=level)

    def _match(self, pairs: Sequence[tuple[Axis, int]], line: int) -> str | None:
        """Bind the letters of axes; return what there is to add where they do not fit."""
        todo = [(axis, size, line) for axis, size in pairs] + self.open
        self.open = []
        while todo:
            axis, size, since = todo.pop(0)
            unknown = [name for name in axis.names if name not in self.sizes]
            if len(unknown) > 1:
                self.open.append((axis, size, since))
            elif unknown:
                solved = axis.solve(unknown[0], self.sizes, size)
                if solved is None:
                    return f", and {axis.text} cannot be {size}"
                self.sizes[unknown[0]], self.lines[unknown[0]] = solved, line
                todo, self.open = todo + self.open, []
            elif axis != ONE and not axis.fits(self.sizes, size):
                return "" if since == line else f", and {axis.text} was {size} in line {since}"
        return None


@lru_cache(REMEMBERED)
def compare(
    letters: Letters,
    comment: Comment,
    found: Found,
    variables: tuple[tuple[str, int], ...],
    pair: Callable[[Comment, Found], Iterable[list[Option]]],
) -> Letters:
    """Compare the shapes found with those claimed; give the letters with the new ones bound.

    ``pair`` says what has to hold, each as the options of which one must: the first that does.
    """
    for options in pair(comment, found):
        errors = list[ShapeCommentError]()
        for option in options:
            try:
                letters = letters.bind(comment, option, dict(variables))
                break
            except ShapeCommentError as error:
                errors.append(error)
        else:
            raise min(errors, key=lambda error: error.level == FALSE)
    return letters


@lru_cache(REMEMBERED)
def forget(letters: Letters, lines: tuple[int, ...]) -> Letters:
    """Forget what was bound in some lines: another turn of a loop begins."""
    kept = {name: line for name, line in letters.lines.items() if line not in lines}
    still = [x for x in letters.open if x[2] not in lines]
    return Letters({name: letters.sizes[name] for name in kept}, kept, still)


def align(shape: Shape, sizes: Sizes) -> list[tuple[Axis, int]] | None:
    """Pair axes and sizes; None if their numbers differ."""
    axes, ends = list(shape), list(sizes)
    if ANY in axes:
        start, extra = axes.index(ANY), len(ends) - len(axes) + 1
        del axes[start], ends[start : start + max(extra, 0)]
    return list(zip(axes, ends, strict=True)) if len(axes) == len(ends) else None


def name_values(found: Found) -> list[tuple[Sizes | str, str]]:
    """Give each value, and what a message calls it."""
    if not isinstance(found, Several):
        return [(found, "")]
    return [(x, f" of value {i}" * (len(found.each) > 1)) for i, x in enumerate(found.each, 1)]


def pair(comment: Comment, found: Found) -> list[list[Option]]:
    """Say which value may have which shape, where it is clear.

    Raises:
        ValueError: it is not.
    """
    shapes, values = comment.claim.shapes, name_values(found)
    given = [(x, which) for x, which in values if not isinstance(x, str)]
    options: list[Option] = [(shape, *value) for value in given for shape in shapes]
    if not options:
        raise ValueError(f"{found} has no shape" if isinstance(found, str) else "no shapes")
    if comment.claim.either:
        return [options]
    if len(shapes) > 1:
        if len(shapes) != len(values):
            raise ValueError(f"{len(shapes)} shapes for {len(values)} values")
        each = zip(shapes, values, strict=True)
        return [[(shape, *value)] for shape, value in each if not isinstance(value[0], str)]
    # One of several values has the shape, and those of other ranks are not meant.
    fit: list[Option] = [(shapes[0], *x) for x in given if align(shapes[0], x[0]) is not None]
    if isinstance(found, Several) and not fit:
        raise ValueError(f"none of {len(values)} values has so many axes")
    return [fit or options]
