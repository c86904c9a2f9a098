"""A child of fork() works or says that Vulkan does not survive it; it never waits for threads it lacks."""

from __future__ import annotations

import os
import textwrap

import pytest
from processes import python

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork() here")

_GRAPH = """
import gc, os, sys
import numpy as np
import graphopt
from graphopt.cpu_kernels import kernels

def ring(n=60):
    graph, ids = graphopt.Graph(), np.arange(n)
    graph.add_vertices("VERTEX_SE2", ids, np.random.default_rng(0).normal(size=(n, 3)))
    graph.add_edges("EDGE_SE2", np.stack([ids, (ids + 1) % n], 1), np.tile([1.0, 0.0, 0.1], (n, 1)))
    return graph

def solved(graph, device):
    return graphopt.optimize(graph, "gn", 3, device=device).final_chi2

def say(*words):
    print(*words, flush=True)
"""


def run(program: str) -> list[str]:
    """Lines that a program and its children print; they all have to end."""
    return python("-c", _GRAPH + textwrap.dedent(program)).stdout.splitlines()


def test_a_child_computes_on_the_cpu_as_its_parent_did():
    """The parent's threads are not the child's: it starts its own."""
    lines = run(
        """
        kernels.set_num_threads(2)
        say(solved(ring(4000), "cpu"))
        if os.fork() == 0:
            say(solved(ring(4000), "cpu"))
            sys.exit(3)
        say(os.waitstatus_to_exitcode(os.wait()[1]))
        """
    )
    assert lines[0] == lines[1] and lines[2] == "3"


def test_a_child_of_a_process_that_used_vulkan_says_so_and_goes_on_without():
    """Its parent's devices and new ones are refused; the CPU is there; it ends; the parent works on."""
    lines = run(
        """
        graph, other = ring(), ring(40)
        first = solved(graph, "vulkan")
        solved(other, "vulkan")
        device = graphopt.device.VulkanDevice()
        buffer = device.allocate(64)
        if os.fork() == 0:
            attempts = (
                lambda: solved(graph, "vulkan"),
                lambda: solved(ring(50), "vulkan"),
                lambda: device.allocate(64),
                lambda: device.submit(device.record("").fill(buffer, 1).finish()),
                lambda: device.download(buffer, np.uint8, 64),
                graphopt.device.VulkanDevice,
                graphopt.device.list_devices,
            )
            for attempt in attempts:
                try:
                    attempt()
                    say("worked")
                except graphopt.device.DeviceError as error:
                    say("refused" if "forked" in str(error) and "spawn" in str(error) else error)
            say(np.isfinite(solved(ring(), "cpu")), device.is_lost)
            del graph, other, device, buffer
            gc.collect()
            sys.exit(3)
        say(os.waitstatus_to_exitcode(os.wait()[1]))
        say(abs(solved(ring(), "vulkan") - first) < 1e-9 * first)
        """
    )
    assert lines == ["refused"] * 7 + ["True True", "3", "True"]


def test_children_may_use_vulkan_where_the_parent_did_not():
    """Two of them, one after the other, from a parent that has optimized on the CPU."""
    lines = run(
        """
        solved(ring(), "cpu")
        for _ in range(2):
            if os.fork() == 0:
                say(np.isfinite(solved(ring(), "vulkan")))
                sys.exit(0)
            os.wait()
        """
    )
    assert lines == ["True", "True"]
