"""The packages that import what they offer when it is first used."""

import importlib
import pickle
import pkgutil
import subprocess
import sys

import pytest

import annotated_attention.mistakes

LAZY = ["", ".counting", ".display", ".doctor", ".exercises", ".mistakes", ".pretrained"]
each_package = pytest.mark.parametrize("name", [f"annotated_attention{x}" for x in LAZY])


def run(code):
    """Run code in a process of its own, and return what it prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@each_package
def test_offers_what_it_lists(name):
    package = importlib.import_module(name)
    everything = {}
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


def test_a_fresh_package_says_what_it_has():
    names = [f"annotated_attention{x}" for x in LAZY]
    missing = "; ".join(f"print(*set({x}.__all__) - set(dir({x})))" for x in names)
    assert run(f"import {', '.join(names)}; {missing}") == ""


def test_packages_import_nothing_by_themselves():
    names = ", ".join(f"annotated_attention{x}" for x in LAZY)
    loaded = "print(*sorted(x for x in sys.modules if x.startswith('annotated_attention')))"
    found = run(f"import sys, {names}\n{loaded}").split()
    assert found == sorted(
        [*(f"annotated_attention{x}" for x in LAZY), "annotated_attention._lazy"]
    )


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
    versions = set(annotated_attention.mistakes.__all__) - {"MISTAKES", "Mistake", "StepByStep"}
    expected = list(annotated_attention.mistakes.MISTAKES)
    assert len(expected) == len(versions)
    assert found == expected
