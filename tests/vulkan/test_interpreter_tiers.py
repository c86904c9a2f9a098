"""Interpreter first, compiled kernels when they are there."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from graphopt.device import ShaderError
from graphopt.device.tiers import Choice, TieredKernel, build_kernels, tier_choice
from graphopt.errors import OptionError


class SlowDevice:
    """Builds a kernel when it is told to."""

    def __init__(self):
        self.may_go_on = threading.Semaphore(0)
        self.built: list[str] = []

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


def test_who_wants_to_know_is_told_once_all_kernels_are_there():
    """And not where one of them failed."""
    for kernels, expected in ((("a", "b"), [["a", "b"]]), (("a", "wrong"), [])):
        device, told = SlowDevice(), []
        device.may_go_on.release(2)
        one = TieredKernel(
            device,
            interpreted=lambda: 0,
            kernels=lambda kernels=kernels: kernels,
            compiled=lambda: 1,
            choice="auto",
            built=lambda device=device, told=told: told.append(sorted(device.built)),
        )
        one.wait()
        assert told == expected


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
