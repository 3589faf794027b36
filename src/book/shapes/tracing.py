"""The same as ``values``, from what Dynamo knows while it traces. Imported only then."""

from typing import Any

from torch._dynamo.variables import TensorVariable

from book.shapes.comments import Comment
from book.shapes.values import find_shape, integers, local_names


def find_traced_shape(variable: Any, tx: Any, inside: bool = False) -> Any:
    """Return the sizes of a value's axes; for a tuple or a list, those of each item."""
    variable = variable.realize()
    if isinstance(variable, TensorVariable):
        return find_shape(variable.as_proxy().node.meta["example_value"])
    if issubclass(variable.python_type(), tuple | list) and not inside:
        items = variable.unpack_var_sequence(tx)
        return [find_traced_shape(item, tx, inside=True) for item in items]
    return variable.python_type().__name__


def find_traced_variables(comment: Comment, ctx: Any, tx: Any) -> dict[str, int]:
    """Return the letters that are integer variables in the code that is traced."""
    values: dict[str, object] = {}
    for name in comment.variables:
        if name not in tx.symbolic_locals:
            if name not in local_names(tx.f_code):
                values[name] = tx.f_globals.get(name)
            continue
        local = ctx.get_local(name)
        known = local._i_will_not_complain_if_bc_breaks_VariableTracker().realize()
        if local.is_python_constant():
            values[name] = local.as_python_constant()
        else:
            values[name] = getattr(known, "sym_num", None)
    return integers(values)
