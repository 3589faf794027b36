"""What the tests of live figures share: a module's functions, run as a browser runs them."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import quickjs

# JSON knows neither of them.
SAY = """(key, value) =>
  typeof value === "bigint" ? String(value) : Object.is(value, NaN) ? "NaN" : value"""


@pytest.fixture(scope="module")
def script(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Run the functions of the module that a test file names as MODULE; its imports draw."""
    from annotated_attention.display import _live  # after the hook that checks shape comments

    text = re.sub(r"^import .*$", "", _live.files()[request.module.MODULE], flags=re.MULTILINE)
    context = quickjs.Context()
    context.eval(text.replace("export default", "const drawn =").replace("export ", ""))

    def call(name: str, *arguments: Any) -> Any:
        given = ", ".join(json.dumps(argument) for argument in arguments)
        return json.loads(context.eval(f"JSON.stringify({name}({given}), {SAY})") or "null")

    return call
