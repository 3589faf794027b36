"""What the letters mean, and whether a value has the shape that a comment claims.

A product with one unknown letter binds it by division; one with more waits until all but one are
known. An argument that does not fit its docstring is an error once the function accepts it; a
function that refuses it with an exception of its own is right to do so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shape_comments.comments import Comment, ShapeCommentError
from shape_comments.grammar import ANY, Axis, Shape, show
from shape_comments.values import Found, Sizes

Equation = tuple[Axis, int, int]  # the item, the size found, the line where


@dataclass
class Letters:
    """What the letters mean at one point of a call or of a section."""

    sizes: dict[str, int] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    open: list[Equation] = field(default_factory=list)  # more than one letter still unknown
    refused: str = ""  # an argument that does not fit its docstring
    known: dict[Any, "Letters"] = field(default_factory=dict)  # what came of the same before

    def after(self, comment: Comment, found: Found, variables: Mapping[str, int]) -> "Letters":
        """Compare the shapes found with those claimed; give the letters with the new ones bound."""
        shapes = ("each", *found) if isinstance(found, list) else found
        same = (comment, shapes, *variables.items())
        if same not in self.known:
            self.known[same] = self._after(comment, found, variables)
        return self.known[same]

    def _after(self, comment: Comment, found: Found, variables: Mapping[str, int]) -> "Letters":
        if not comment.argument:
            self.leave()
            return self._bind(comment, comment.shapes, found, variables)
        refused = self.refused
        for shape in comment.shapes:  # alternatives
            try:
                return self._bind(comment, [shape], found, variables)
            except ShapeCommentError as error:
                refused = refused or str(error)
        return Letters(self.sizes, self.lines, self.open, refused)

    def leave(self) -> None:
        """Raise what was found against an argument: the function has accepted it."""
        if self.refused:
            raise ShapeCommentError(self.refused)

    def _bind(
        self,
        comment: Comment,
        shapes: Sequence[Shape],
        found: Found,
        variables: Mapping[str, int],
    ) -> "Letters":
        for name in comment.letters() & variables.keys() & self.sizes.keys():
            if variables[name] != self.sizes[name]:
                old = f"{self.sizes[name]} since line {self.lines[name]}"
                new = f"{variables[name]}, the value of the variable {name}"
                raise comment.error(f"{name} is used with two values: {old}, and {new}")
        values = found if isinstance(found, list) else [found]
        if not values:
            raise comment.error("the value is empty, so there is nothing to compare")
        if len(shapes) not in (1, len(values)):
            got = "one value" if len(values) == 1 else f"{len(values)} values"
            raise comment.error(f"the comment has {len(shapes)} shapes for {got}")
        trial = Letters(
            {**self.sizes, **variables}, dict(self.lines), list(self.open), self.refused
        )
        for i, value in enumerate(values):
            which = f" of value {i + 1}" if len(values) > 1 else ""
            trial._compare(comment, shapes[min(i, len(shapes) - 1)], value, which)
        trial.sizes = {name: trial.sizes[name] for name in trial.lines}
        return trial

    def _compare(self, comment: Comment, shape: Shape, value: Sizes | str, which: str) -> None:
        """Raise the error that says everything, if a value does not have its shape."""
        says = f"the {'docstring' if comment.argument else 'comment'} says {show(shape)}"
        if isinstance(value, str):
            raise comment.error(f"{says}, but the value{which} has no shape, it is a {value}")
        reason = self._match(shape, value, comment.line)
        if reason is None:
            return
        used = dict.fromkeys(n for axis in shape for n in axis.names if n in self.sizes)
        meant = ", ".join(f"{name} = {self.sizes[name]}" for name in used)
        sources = (
            f"{name} is bound in line {self.lines[name]}"
            if name in self.lines
            else f"{name} is a variable"
            for name in used
        )
        but = f"but the shape{which} is {show(value)}{reason}"
        raise comment.error(f"{says}{' with ' * bool(meant)}{meant}, {but}", *sources)

    def _match(self, shape: Shape, sizes: Sizes, line: int) -> str | None:
        """Bind the letters of one shape; return what there is to add where they do not fit."""
        axes, ends = list(shape), list(sizes)
        if ANY in axes:
            start, extra = axes.index(ANY), len(ends) - len(axes) + 1
            del axes[start], ends[start : start + max(extra, 0)]
        if len(axes) != len(ends):
            return ""
        todo = [(x, size, line) for x, size in zip(axes, ends, strict=True)] + self.open
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
            elif axis.value(self.sizes) != size:
                return "" if since == line else f", and {axis.text} was {size} in line {since}"
        return None
