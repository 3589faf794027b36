"""The packages that import what they offer when it is first used."""

import importlib
import pickle
import pkgutil
import subprocess
import sys

import pytest

import annotated_attention
import attention_doctor

PACKAGES = [annotated_attention, attention_doctor] + [
    importlib.import_module(f"annotated_attention.{module.name}")
    for module in pkgutil.iter_modules(annotated_attention.__path__)
    if module.ispkg
]
LAZY = [package.__name__ for package in PACKAGES if "__getattr__" in vars(package)]
each_package = pytest.mark.parametrize("name", LAZY)


@each_package
def test_offers_what_it_lists(name):
    package, everything = importlib.import_module(name), {}
    exec(f"from {name} import *", everything)
    assert set(package.__all__) == everything.keys() - {"__builtins__"}
    for offered in package.__all__:
        assert getattr(package, offered) is everything[offered]
    with pytest.raises(AttributeError, match=f"'{name}' has no attribute 'nothing'"):
        _ = package.nothing
    with pytest.raises(ImportError, match="'nothing'"):
        exec(f"from {name} import nothing")


@each_package
def test_no_module_hides_what_its_package_offers(name):
    """Whoever imports a module makes it an attribute of its package, over what has its name."""
    package = importlib.import_module(name)
    for module in pkgutil.iter_modules(package.__path__):
        if module.name in package.__all__:
            offered = getattr(package, module.name)
            assert offered is sys.modules[f"{name}.{module.name}"], f"rename {module.name}.py"


def test_a_fresh_package_imports_nothing_and_says_what_it_has():
    missing = "; ".join(f"print(*set({name}.__all__) - set(dir({name})))" for name in LAZY)
    ours = "x.startswith(('annotated_attention', 'attention_doctor'))"
    loaded = f"print(*sorted(x for x in sys.modules if {ours}))"
    code = f"import sys, {', '.join(LAZY)}\n{missing}\n{loaded}"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == sorted([*LAZY, "annotated_attention._lazy"])


def ours():
    """List the modules of the package that are imported."""
    return sorted(name for name in sys.modules if name.split(".")[0] == "annotated_attention")


@pytest.fixture
def fresh(monkeypatch):
    """Forget that the package was imported, and afterwards what the test imported."""
    for name in ours():
        monkeypatch.delitem(sys.modules, name)
    yield
    for name in ours():
        del sys.modules[name]


@pytest.mark.usefixtures("fresh")
def test_one_name_brings_what_it_needs_and_no_more_and_can_be_pickled():
    from annotated_attention import split_heads

    package = "annotated_attention"
    assert ours() == [package, f"{package}._lazy", f"{package}.heads"]
    assert pickle.loads(pickle.dumps(split_heads)) is split_heads


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("first", ["scores", "reshapes", "calls"])
def test_mistakes_are_all_there_in_one_order(first):
    """Whichever of their modules is imported first."""
    importlib.import_module(f"annotated_attention.mistakes.{first}")
    found = list(sys.modules["annotated_attention.mistakes"].MISTAKES)
    mistakes = next(x for x in PACKAGES if x.__name__ == "annotated_attention.mistakes")
    assert found == list(mistakes.MISTAKES)
    rooms = {entry.version.__module__.rpartition(".")[2] for entry in mistakes.MISTAKES.values()}
    there = {x.name for x in pkgutil.iter_modules(mistakes.__path__) if x.name[0] != "_"}
    assert rooms == there - {"catalogue"}
