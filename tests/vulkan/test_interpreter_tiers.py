"""Interpreter first, compiled kernels when they are there."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from graphopt.device import ShaderError
from graphopt.device.built import BuiltOnce
from graphopt.device.tiers import BuiltKernels, Choice, TieredKernel, build_kernels, tier_choice
from graphopt.errors import OptionError


class SlowDevice:
    """Builds a kernel when it is told to."""

    def __init__(self):
        self.info: dict[str, str] = {}
        self.may_go_on = threading.Semaphore(0)
        self.built: list[str] = []
        self._kernels: BuiltOnce[None] = BuiltOnce(100)

    def save_pipeline_cache(self):
        """There is none."""

    def generated(self, kernel, constants=None):
        """Each kernel once, as a device does."""
        self._kernels.get(kernel, lambda: self._build(kernel))

    def _build(self, kernel):
        """Wait for the test's permission, then note the kernel."""
        assert self.may_go_on.acquire(timeout=30)
        if kernel == "wrong":
            raise ShaderError("wrong:3: error: no such function")
        self.built.append(kernel)


def tiered(
    device, kernels=("a", "b"), choice: Choice | None = "auto", built: BuiltKernels | None = None
) -> TieredKernel[str]:
    return TieredKernel(
        device,
        interpreted=lambda: "interpreted",
        kernels=lambda: iter(kernels),
        compiled=lambda: f"compiled {'+'.join(sorted(device.built))}",
        choice=choice,
        built=built,
    )


def test_compiled_kernels_take_over_between_submissions():
    """`active` changes in `advance` only, once all kernels are built, and once."""
    device = SlowDevice()
    kernels = tiered(device)
    assert (kernels.active, kernels.tier, kernels.generation) == ("interpreted", "interpreter", 0)
    device.may_go_on.release()
    assert not kernels.advance()
    device.may_go_on.release()
    assert kernels._built.wait(30)
    assert kernels.active == "interpreted"
    assert kernels.advance()
    assert (kernels.active, kernels.tier, kernels.generation) == ("compiled a+b", "compiled", 1)
    assert not kernels.advance()
    assert 0.0 < kernels.seconds["interpreter"] <= kernels.seconds["compiled"]


def test_errors_of_the_thread_surface():
    """A kernel that does not compile is an error of the next `advance`, not a silent stay."""
    device = SlowDevice()
    kernels = tiered(device, ("a", "wrong", "b"))
    device.may_go_on.release(3)
    kernels.wait()
    with pytest.raises(ShaderError, match="no such function"):
        kernels.advance()
    with pytest.raises(ShaderError):
        kernels.advance()
    assert kernels.active == "interpreted"


def test_kernels_are_built_while_others_are_written():
    """The second text is made, and its kernel built, before the first kernel is there."""
    second_built = threading.Event()

    def build(kernel, constants):
        if kernel == "first":
            assert second_built.wait(30)
        else:
            second_built.set()

    build_kernels(SimpleNamespace(generated=build), iter(("first", "second")))


def test_a_set_is_known_once_all_its_kernels_are_there(monkeypatch):
    """And not where one of them failed."""
    monkeypatch.setenv("GRAPHOPT_CACHE_DIR", "")
    for kernels, expected in ((("a", "b"), True), (("a", "wrong"), False)):
        device = SlowDevice()
        device.may_go_on.release(2)
        built = BuiltKernels(device, b"some kernels")
        tiered(device, kernels, built=built).wait()
        assert built.are_there() == expected


@pytest.mark.parametrize("kernels", [("a", "b"), ("a", "wrong")])
def test_kernels_are_built_once_for_all_who_want_them_at_the_same_time(kernels):
    """A window that moves on meets the thread of the one before; where that one fails it tries itself."""
    device = SlowDevice()
    first = tiered(device, kernels)
    device.may_go_on.release()
    while "a" not in device.built:
        pass
    second, other = tiered(device, kernels), tiered(device, ("c",))
    device.may_go_on.release(4)
    for tiers in (first, second, other):
        tiers.wait()
    assert other.advance() and other.tier == "compiled"
    if "wrong" in kernels:
        for tiers in (first, second):
            with pytest.raises(ShaderError):
                tiers.advance()
    else:
        assert sorted(device.built) == ["a", "b", "c"]
        assert first.advance() and second.advance()


def test_tiers_can_be_forced(monkeypatch):
    """`compiled` builds before it returns, `interpreter` never; GRAPHOPT_TIER chooses."""
    device = SlowDevice()
    device.may_go_on.release(2)
    monkeypatch.setenv("GRAPHOPT_TIER", "compiled")
    kernels = tiered(device, choice=None)
    assert kernels.active == "compiled a+b" and not kernels.advance()
    assert set(kernels.seconds) == {"compiled"}
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
