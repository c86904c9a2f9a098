"""Interpreter first, compiled kernels when they are there."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from graphopt.device import ShaderError
from graphopt.device.tiers import BuiltKernels, Choice, TieredKernel, build_kernels, tier_choice
from graphopt.errors import OptionError


class SlowDevice:
    """Builds a kernel when it is told to."""

    def __init__(self):
        self.info: dict[str, str] = {}
        self.may_go_on = threading.Semaphore(0)
        self.built: list[str] = []

    def save_pipeline_cache(self):
        """There is none."""

    def generated(self, kernel, constants=None):
        """Wait for the test's permission, then note the kernel."""
        assert self.may_go_on.acquire(timeout=30)
        if kernel == "wrong":
            raise ShaderError("wrong:3: error: no such function")
        self.built.append(kernel)


def tiered(device, kernels=("a", "b"), choice: Choice | None = "auto") -> TieredKernel[str]:
    return TieredKernel(
        device,
        interpreted=lambda: "interpreted",
        kernels=lambda: iter(kernels),
        compiled=lambda: f"compiled {'+'.join(sorted(device.built))}",
        choice=choice,
    )


def test_compiled_kernels_take_over_between_submissions():
    """`active` changes in `advance` only, once all kernels are built, and once."""
    device = SlowDevice()
    one = tiered(device)
    assert (one.active, one.tier, one.generation) == ("interpreted", "interpreter", 0)
    device.may_go_on.release()
    assert not one.advance()
    device.may_go_on.release()
    assert one._built.wait(30)
    assert one.active == "interpreted"
    assert one.advance()
    assert (one.active, one.tier, one.generation) == ("compiled a+b", "compiled", 1)
    assert not one.advance()
    assert 0.0 < one.seconds["interpreter"] <= one.seconds["compiled"]


def test_errors_of_the_thread_surface():
    """A kernel that does not compile is an error of the next `advance`, not a silent stay."""
    device = SlowDevice()
    one = tiered(device, ("a", "wrong", "b"))
    device.may_go_on.release(3)
    one.wait()
    with pytest.raises(ShaderError, match="no such function"):
        one.advance()
    with pytest.raises(ShaderError):
        one.advance()
    assert one.active == "interpreted"


def test_kernels_are_built_while_others_are_written():
    """The second text is made, and its kernel built, before the first kernel is there."""
    second_built = threading.Event()

    def build(kernel, constants):
        if kernel == "first":
            assert second_built.wait(30)
        else:
            second_built.set()

    build_kernels(SimpleNamespace(generated=build), iter(("first", "second")))


def of_set(device, kernels, built, asked) -> TieredKernel[str]:
    """One that claims its set of kernels, as a solver's thread does, and notes that it made their text."""

    def texts():
        if built.claim():
            asked.append(built)
            yield from kernels

    return TieredKernel(
        device,
        interpreted=lambda: "interpreted",
        kernels=texts,
        compiled=lambda: "compiled",
        choice="auto",
        built=built,
    )


def test_a_set_is_known_once_all_its_kernels_are_there(monkeypatch):
    """And not where one of them failed."""
    monkeypatch.setenv("GRAPHOPT_CACHE_DIR", "")
    for kernels, expected in ((("a", "b"), True), (("a", "wrong"), False)):
        device = SlowDevice()
        device.may_go_on.release(2)
        built = BuiltKernels(device, b"some kernels")
        one = of_set(device, kernels, built, [])
        one.wait()
        assert built.are_there() == expected


def test_a_set_is_built_once_for_all_who_want_it_at_the_same_time(monkeypatch):
    """The second waits for the first; where that one fails it tries itself; another set does not wait."""
    monkeypatch.setenv("GRAPHOPT_CACHE_DIR", "")
    for kernels in (("a", "b"), ("a", "wrong")):
        device, asked = SlowDevice(), []
        sets = [BuiltKernels(device, b"the same") for _ in range(2)]
        first = of_set(device, kernels, sets[0], asked)
        device.may_go_on.release()
        while "a" not in device.built:
            pass
        second = of_set(device, kernels, sets[1], asked)
        other = of_set(device, ("c",), BuiltKernels(device, b"another"), [])
        device.may_go_on.release(4)
        for one in (first, second, other):
            one.wait()
        assert other.advance() and other.active == "compiled"
        if "wrong" in kernels:
            assert len(asked) == 2
            for one in (first, second):
                with pytest.raises(ShaderError):
                    one.advance()
        else:
            assert asked == [sets[0]]
            assert sorted(device.built) == ["a", "b", "c"]
            assert second.advance() and second.active == "compiled"


def test_tiers_can_be_forced(monkeypatch):
    """`compiled` builds before it returns, `interpreter` never; GRAPHOPT_TIER chooses."""
    device = SlowDevice()
    device.may_go_on.release(2)
    monkeypatch.setenv("GRAPHOPT_TIER", "compiled")
    one = tiered(device, choice=None)
    assert one.active == "compiled a+b" and not one.advance()
    assert set(one.seconds) == {"compiled"}
    monkeypatch.setenv("GRAPHOPT_TIER", "interpreter")
    two = tiered(SlowDevice(), choice=None)
    two.wait()
    assert two.active == "interpreted" and not two.advance()
    monkeypatch.setenv("GRAPHOPT_TIER", "fast")
    with pytest.raises(OptionError, match="fast"):
        tier_choice()


def test_an_error_of_a_forced_compilation_is_raised_at_once():
    """There is nothing to fall back to."""
    device = SimpleNamespace(generated=lambda kernel, constants: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        TieredKernel(
            device, interpreted=lambda: 0, kernels=lambda: ["a"], compiled=lambda: 1, choice="compiled"
        )
