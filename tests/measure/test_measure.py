"""The benchmark: that it compares equals and keeps what it finds. Times are never asserted."""

import contextlib
import itertools
import json
import os
import platform
from types import SimpleNamespace

import pytest
import torch

from annotated_attention import measure
from annotated_attention.measure import __main__ as command
from annotated_attention.measure import caching, contenders, machine, memory, plan, timing
from annotated_attention.measure.process import in_new_process, new_process
from annotated_attention.measure.timing import MODES, ROUNDS
from annotated_attention.published import DESIGNS
from book.run import scripts

TINY = (3, 5, 16, 2)
FACTORY = {"device": "cpu", "dtype": torch.float32}
PROVENANCE = {
    "torch", "python", "cpu", "threads", "load", "peak_flops", "date", "commit", "command"
}  # fmt: skip
SECTIONS = {
    "final class", "for speed", "versions", "fast path", "one by one", "masks", "heads", "lengths",
    "cache", "boolean, every head", "division", "fewer keys", "cache of fewer keys",
}  # fmt: skip
IN_A_PROCESS = {"one by one", "cache", "cache of fewer keys"}  # of its own, and the goal's rows
GLIBC = platform.libc_ver()[0] == "glibc"


@pytest.fixture(autouse=True)
def one_thread():
    """Keep tiny tensors on one thread: on a busy machine, waiting for a second one takes longer."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def small(monkeypatch):
    """Make the whole plan small enough to be run in a test."""
    monkeypatch.setattr(plan, "SIZES", (TINY,) * 3)
    monkeypatch.setattr(plan, "LENGTHS", (4, 6))
    monkeypatch.setattr(plan, "HEADS", (1, 8, 16))
    monkeypatch.setattr(plan, "KEPT", ((1, 4), (3, 18)))
    monkeypatch.setattr(timing, "ROUNDS", 2)
    monkeypatch.setattr(timing, "BLOCK", 0)
    monkeypatch.setattr(timing, "WATCHED", 1)
    monkeypatch.setattr(command, "new_process", here)
    monkeypatch.setattr(machine, "WIDTH", 64)
    monkeypatch.setattr(machine, "SECONDS", 0.01)
    monkeypatch.setattr(
        command, "memory", lambda name, device: {"name": name, "lengths": [4], "bytes": [8]}
    )


def each_once(device, dtype):
    """List the cases of a small plan, in which three sizes are one, each of them once."""
    return {str(case): case for case in plan.plan(device, dtype)}.values()


@contextlib.contextmanager
def here(environment):
    """Take this process for a new one."""
    yield lambda function, *given: function(*given)


def check(found, rounds):
    """Assert that results are whole, whatever the times."""
    assert found["provenance"].keys() - {"renewed", "measured again"} == PROVENANCE
    assert all(str(value) for value in found["provenance"].values())
    assert {row["section"] for row in found["times"]} == SECTIONS
    for row in found["times"]:
        names = row["milliseconds"].keys()
        goal = row["section"] in ("final class", plan.EVERY_HEAD)
        for what in ("profile", "kernel"):
            assert row.get(what, {}).keys() == (set() if goal else names)
        elsewhere = GLIBC and (goal or row["section"] in IN_A_PROCESS)
        assert row.get("pages", {}).keys() == (names if elsewhere else set())
        assert row["rounds"] >= rounds
        assert row["mode"] in MODES
        for base, ratios in row["ratios"].items():
            assert ratios.keys() == names - {base}
            assert all(0 < low <= middle <= up for low, middle, up in ratios.values())
        for operations in row.get("profile", {}).values():
            assert operations
            assert 0 < sum(share for _, share in operations) <= 1.01
    assert [row["name"] for row in found["memory"]] == list(memory.ways("meta"))


def test_measures_prints_and_keeps(tmp_path, small, monkeypatch, capsys):
    monkeypatch.setattr(plan, "MASKS", ("none",))  # below, each of them is compared
    monkeypatch.setattr(command, "plan", each_once)
    output = tmp_path / "new" / "found.json"
    command.main(["--seconds", "0", "--output", str(output)])
    found = json.loads(output.read_text())
    assert list(found) == ["cpu"]
    check(found["cpu"], rounds=2)
    printed = capsys.readouterr()
    rows = len(found["cpu"]["times"]) + len(found["cpu"]["memory"])
    assert len([x for x in printed.out.splitlines() if x.strip()]) == rows
    assert "x bare minimum: " in printed.out
    assert f"{rows}/{rows}" in printed.err  # the progress bar
    assert "--seconds 0" in found["cpu"]["provenance"]["command"]
    assert output.read_text().count("\n") > rows  # one line each


def test_keeps_what_another_machine_has_measured(tmp_path, small):
    output = tmp_path / "found.json"
    output.write_text(json.dumps({"cuda": {"provenance": {}, "times": [], "memory": []}}))
    command.main(["--seconds", "0", "--only", "lengths", "--output", str(output)])
    assert set(json.loads(output.read_text())) == {"cpu", "cuda"}


def test_a_section_is_renewed_and_says_so(tmp_path, small):
    output = tmp_path / "found.json"
    for only in ("masks", "lengths", "memory"):
        command.main(["--seconds", "0", "--only", only, "--output", str(output)])
    found = json.loads(output.read_text())["cpu"]
    assert {row["section"] for row in found["times"]} == {"masks", "lengths"}
    assert len(found["memory"]) == len(memory.ways("meta"))
    assert found["provenance"]["renewed"].keys() == {"lengths", "memory"}
    assert "--only memory" in found["provenance"]["renewed"]["memory"]["command"]
    assert "--only masks" in found["provenance"]["command"]
    count = len(found["times"])
    command.main(["--seconds", "0", "--only", "masks", "--output", str(output)])
    assert len(json.loads(output.read_text())["cpu"]["times"]) == count


@pytest.mark.parametrize("mode", MODES)
def test_every_case_compares_equals(small, mode):
    """Building asserts; here it is seen that there is something to compare."""
    of_mode = [case for case in each_once("cpu", torch.float32) if case.mode == mode]
    assert of_mode
    for case in of_mode:
        made = case.build()
        assert len(made) >= 2
        assert set(case.baselines) <= made.keys()
        x = torch.randn(case.size[:3])
        with torch.set_grad_enabled(mode != "inference"):
            assert all(contender(x).shape == x.shape for contender in made.values())


def test_every_case_is_for_any_device(small, monkeypatch):
    """No tensor stays behind on the CPU: the device "meta", which has no numbers, notices."""

    def attends(made, x, expected, gradients=True):
        for contender in made.values():
            output = contender(x)
            assert (output.device, output.dtype) == (x.device, x.dtype)
            if gradients:
                torch.autograd.grad(output.sum(), x)

    monkeypatch.setattr(contenders, "assert_same", attends)
    monkeypatch.setattr(caching, "assert_same", attends)
    monkeypatch.setattr("annotated_attention.measure.fewer_keys.assert_same", attends)
    for case in each_once("meta", torch.bfloat16):
        assert case.build()
    for way in memory.ways("meta").values():
        x = torch.randn(1, 6, memory.E, device="meta")
        assert way(6)(x).device == x.device


def test_kernels_that_are_not_there_are_left_out(monkeypatch):
    def missing(module):
        def fail(*given, **options):
            raise RuntimeError("no compiler")

        return fail

    always = {"bare minimum", "flash", "step by step", "final class", "PyTorch"}
    compiled = {"final class, compiled", "PyTorch, compiled"}
    for compiler, expected in ((lambda module: module, always | compiled), (missing, always)):
        monkeypatch.setattr(torch, "compile", compiler)
        factory = {"device": "cpu", "dtype": torch.bfloat16}
        made = contenders.kernels(TINY, factory, "forward")
        assert made.keys() == expected
    x = torch.randn(TINY[:3]).bfloat16()
    ran = {name: timing.kernel(timing.watch(lambda c=c: c(x), "cpu")) for name, c in made.items()}
    assert ran.pop("step by step") == "attention_math"
    assert set(ran.values()) == {"flash_attention_for_cpu"}


def test_a_kernel_that_takes_too_much_memory_is_not_called_missing(monkeypatch):
    def full(*given, **options):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(torch, "compile", lambda module: full)
    with pytest.raises(torch.OutOfMemoryError):
        contenders.kernels(TINY, FACTORY, "forward")


def event(key, on, took):
    return SimpleNamespace(
        key=key, device_type=on, self_device_time_total=took, self_cpu_time_total=1,
        is_user_annotation="Region" in key,
    )  # fmt: skip


def test_on_a_gpu_each_kernel_counts_once():
    cpu, cuda = torch.autograd.DeviceType.CPU, torch.autograd.DeviceType.CUDA
    events = [
        event("aten::_scaled_dot_product_flash_attention_backward", cpu, 0),
        event("aten::_scaled_dot_product_flash_attention", cpu, 60),  # its kernel's time
        event("aten::addmm", cpu, 40),
        event("flash_fwd_kernel", cuda, 60),
        event("gemm", cuda, 40),
        event("Torch-Compiled Region", cuda, 100),
    ]
    assert timing.spent(events, "cuda") == [["flash_fwd_kernel", 0.6], ["gemm", 0.4]]
    assert timing.kernel(events) == "flash_attention"
    assert timing.kernel(events[2:]) is None


def test_a_call_that_was_disturbed_is_not_the_one_that_is_kept(monkeypatch):
    took = iter([5, 4, 2, 3, 9])

    @contextlib.contextmanager
    def profile(**options):
        x = SimpleNamespace(key="aten::exp", self_cpu_time_total=next(took))
        yield SimpleNamespace(key_averages=lambda: [x])

    monkeypatch.setattr(timing, "profile", profile)
    (kept,) = timing.watch(lambda: None, "cpu")
    assert kept.self_cpu_time_total == 2


def test_the_memory_of_a_gpu_is_asked_for_where_it_is_meant(monkeypatch):
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (7, 9))
    assert machine.free_memory("cuda") == 7
    assert machine.free_memory("cpu") > 7


def test_a_case_that_takes_too_much_memory_is_named_and_left_out(
    tmp_path, small, monkeypatch, capsys
):
    def measure(case, seconds):
        if case.options["weights"]:
            raise torch.OutOfMemoryError
        return timing.measure(case, seconds)

    monkeypatch.setattr(command, "measure", measure)
    output = tmp_path / "found.json"
    command.main(["--seconds", "0", "--only", "masks", "--output", str(output)])
    found = json.loads(output.read_text())["cpu"]["times"]
    assert [row["weights"] for row in found] == [False, False]
    printed = capsys.readouterr().out
    assert printed.count("left out, it takes more memory than there is") == 2
    assert "masks, (3, 5, 16, 2), forward, weights True: left out" in printed


def test_one_machine_can_be_asked_for(tmp_path, small, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(command, "on", lambda device, *given: asked.append(device) or [])
    given = ["--output", str(tmp_path / "found.json"), "--machine"]
    for there, name in ((True, "cuda"), (True, "cpu"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        command.main([*given, name])
    assert asked == ["cuda", "cpu", "cpu"]
    with pytest.raises(SystemExit):
        command.main([*given, "cuda"])
    assert "--machine cuda: torch finds no GPU" in capsys.readouterr().err


def test_every_version_of_the_book_and_every_design_is_there():
    names = contenders.versions(TINY, FACTORY, "forward").keys()
    assert {name[:2] for name in names if name[0].isdigit()} == {"02", "03", "04", "05", "07"}
    named = {name.removeprefix("published ") for name in names if name.startswith("published ")}
    assert named == {k for k, design in DESIGNS.items() if hasattr(design.module, "load_from")}
    assert {"bare minimum", "PyTorch", "PyTorch, weights", "07 final class"} <= names


@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("mask", [*plan.MASKS, plan.EVERY_HEAD])
def test_the_mask_is_there(mask, weights):
    made = contenders.final_class(TINY, FACTORY, "forward", mask, weights)
    assert len(made) >= 2
    x = torch.randn(3, 5, 16)
    changed = torch.cat([x[:, :4], x[:, 4:] + 1], 1)
    for contender in made.values():
        moved = (contender(changed) != contender(x))[:, 0].any()
        assert moved == (mask == "none")  # the last key is hidden from the first query


def wrong_output(x):
    return x * 1.001


def wrong_gradient(x):
    return x + (x - x.detach()) * 0.01


def wrong_in_evaluation(x):
    return x if torch.is_grad_enabled() else x * 1.001


@pytest.mark.parametrize("wrong", [wrong_output, wrong_gradient, wrong_in_evaluation])
def test_contenders_that_differ_are_not_timed(wrong):
    x = torch.randn(3, 5, 16, requires_grad=True)
    contenders.assert_same({"right": lambda x: x * 1, "same": lambda x: x * 1}, x, "right")
    with pytest.raises(AssertionError, match="wrong differs from right"):
        contenders.assert_same({"right": lambda x: x * 1, "wrong": wrong}, x, "right")


def test_memory_is_measured_in_a_process_of_its_own(monkeypatch):
    monkeypatch.setattr(memory, "LENGTHS", (2048,))
    monkeypatch.setattr(memory, "AGAIN", 2048)
    monkeypatch.setattr(memory, "TIMES", 1)
    found = memory.memory("final class, causal")
    assert found["lengths"] == [2048]
    scores = 8 * 2048 * 2048 * 4
    assert 2048 * 512 * 4 < found["bytes"][0] < scores / 2


def test_a_new_process_alone_has_the_variables(monkeypatch):
    monkeypatch.setenv("KEPT", "as it was")
    monkeypatch.delenv("GIVEN", raising=False)
    with new_process({"KEPT": "changed", "GIVEN": "new"}) as call:
        for _ in range(2):
            assert (call(os.getenv, "KEPT"), call(os.getenv, "GIVEN")) == ("changed", "new")
            assert (os.getenv("KEPT"), os.getenv("GIVEN")) == ("as it was", None)
        assert call(os.getpid) == call(os.getpid) != os.getpid()


def test_a_new_process_hands_on_what_it_raises():
    with pytest.raises(ZeroDivisionError):
        in_new_process(divmod, 1, 0)
    with pytest.raises(RuntimeError, match="the process for _exit died, given 3"):
        in_new_process(os._exit, 3)


@pytest.mark.skipif(not GLIBC, reason="the variables are glibc's")
def test_the_allocator_does_as_it_is_told():
    """Returned memory comes page by page, and PyTorch's copies need more of it."""
    wanted = {"mask": "none", "weights": False}
    cases = [
        x
        for x in plan.plan("cpu", torch.float32)
        if x.section == "final class"
        and x.size == plan.SIZES[0]
        and x.mode == "forward"
        and wanted.items() <= x.options.items()
    ]
    pages = {case.options["memory"]: row["pages"] for case, row in command.measured(cases, 0)}
    kept, returned = pages["kept"], pages["returned"]
    b, n, e, _ = plan.SIZES[0]
    tensor = 4 * b * n * e / os.sysconf("SC_PAGE_SIZE")
    assert max(kept.values()) < tensor
    assert returned["bare minimum"] == pytest.approx(5 * tensor, rel=0.2)  # q, k, v, heads, output
    assert returned["final class"] == pytest.approx(returned["bare minimum"], rel=0.2)
    assert returned["PyTorch"] > 8 * tensor


def test_memory_stops_before_the_machine_does(monkeypatch):
    monkeypatch.setattr(memory, "peak", lambda name, n, device: n)
    monkeypatch.setattr(memory, "free_memory", lambda device: 10_000)
    found = memory.memory("final class")["bytes"]
    assert found == [512, 1024, 2048, None, None, None]
    assert memory.memory("final class")["again"] == [1024] * 3


def test_committed_results_are_whole():
    found = measure.load()
    check(found, ROUNDS)
    final = measure.find("final class") + measure.find(plan.EVERY_HEAD)
    cases = [
        (tuple(row["size"]), row["mask"], row["weights"], row["mode"], row["memory"])
        for row in final
    ]
    masks = (*plan.MASKS, plan.EVERY_HEAD)
    every = itertools.product(plan.SIZES, masks, (False, True), MODES, plan.ALLOCATOR)
    assert len(cases) == len(set(cases))
    assert set(cases) == set(every)
    assert all(row["lengths"] == list(memory.LENGTHS) for row in found["memory"])
    fused = [row for row in found["memory"] if row["name"] in ("final class", "PyTorch")]
    assert {row["name"] for row in fused} == {"final class", "PyTorch"}
    assert all(row["bytes"][-1] for row in fused)


def test_load_refuses_an_unknown_machine():
    with pytest.raises(ValueError, match=r"machine \('tpu'\) must be"):
        measure.load("tpu")


def test_the_chapter_has_a_section_on_gpus_where_one_was_measured():
    chapter = (scripts.ROOT / "notebooks/13_speed.py").read_text("utf-8")
    assert ("## On a GPU" in chapter) == (measure.load("cuda") is not None)


def case(ratio, **other):
    wanted = {"size": [1, 2048, 512, 8], "mask": "boolean", "weights": True, "mode": "forward"}
    ratios = {"PyTorch": {"final class": [ratio - 0.1, ratio, ratio + 0.1]}}
    return {"memory": "kept", "ratios": ratios} | wanted | other


def test_the_goal_allows_a_boolean_mask_with_weights_at_2048_more():
    assert not measure.misses_goal(case(1.06))
    assert measure.misses_goal(case(1.08))
    others = {"mask": "floats", "weights": False, "size": [4, 512, 512, 8]}
    for name, value in others.items():
        assert measure.misses_goal(case(1.06, **{name: value}))
        assert not measure.misses_goal(case(1.05, **{name: value}))
    expected = "n = 2048, forward, mask boolean, with weights, memory kept: 1.08"
    assert measure.describe(case(1.08)) == expected
