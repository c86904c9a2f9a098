"""Several steps in one submission: the device decides what still runs, and keeps a log for the host."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import numpy as np
import pytest
from vulkan_devices import shared_device

from graphopt import pyglslang
from graphopt.cpu_kernels import kernels
from graphopt.device import DeviceError, VulkanDevice
from graphopt.errors import Stopped

INCLUDE = Path(__file__).resolve().parents[2] / "shaders" / "include"

# Newton's square root of push.number, one step per dispatch, until a step changes nothing: then the flag
# says that the work is done. log[0] counts the entries that follow.
STEP = """#version 450
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 3
#include "common.glsl"
PARAMETERS(uint number; uint step;)
INOUT(0, uint, state)   // x
INOUT(1, uint, stopped)  // (1)
INOUT(2, uint, log)     // (1 + 2 * steps): number of entries, then (step, x) of each
void main() {
  if (LANE != 0) return;
  const uint x = state.at[0], next = (x + push.number / x) / 2;
  const uint entry = log.at[0];
  log.at[1 + 2 * entry] = push.step;
  log.at[2 + 2 * entry] = next;
  log.at[0] = entry + 1;
  state.at[0] = next;
  if (next >= x) stopped.at[0] = 1;
}
"""


@pytest.fixture(params=["address", "storage"])
def device(request):
    """One device per access variant; no validation message may be left after a test."""
    opened = shared_device(request.param)
    yield opened
    assert opened.messages == []


def step_kernel(device: VulkanDevice):
    """The kernel of STEP."""
    defines = {f"GRAPHOPT_{device.access.upper()}": "1", "GRAPHOPT_MIXED": "1"}
    code = pyglslang.compile_source(STEP, include=[INCLUDE], defines=defines)
    return device.kernel(code, name="newton", num_buffers=3, num_params=2, constants={0: 32})


def newton(number: int, start: int, most: int) -> list[tuple[int, int]]:
    """The log that STEP should write."""
    entries, x = [], start
    for step in range(most):
        following = (x + number // x) // 2
        entries.append((step, following))
        if following >= x:
            break
        x = following
    return entries


def test_the_same_program_runs_on_from_where_it_stopped(device):
    """State and flag live on the device: a second submission continues, several may be in flight."""
    state, stopped = device.upload(np.array([1 << 20], np.uint32)), device.upload(np.zeros(1, np.uint32))
    log = device.upload(np.zeros(101, np.uint32))
    kernel, recorder = step_kernel(device), device.record()
    for step in range(4):
        recorder.begin_unless(stopped).dispatch(kernel, (state, stopped, log), (99, step), 1)
        recorder.end_unless().barrier()
    program = recorder.finish()
    tickets = [device.submit(program) for _ in range(8)]
    tickets[-1].wait()
    assert all(ticket.done for ticket in tickets)
    count = int(device.download(log, np.uint32, 1)[0])
    assert count == len(newton(99, 1 << 20, 32)) and device.download(state, np.uint32, 1)[0] in (9, 10)


def test_phases_are_timed_by_timestamps(device):
    """Times of many phases in one program grow; another run measures anew."""
    buffer = device.allocate(1 << 16)
    recorder = device.record().timestamp()
    for value in range(100):
        recorder.fill(buffer, value).barrier().timestamp()
    program = recorder.finish()
    for _ in range(2):
        device.submit(program).wait()
        times = program.timestamps()
        assert len(times) == 101 and times[0] == 0.0 and all(np.diff(times) >= 0.0)


def test_what_a_flag_says_is_skipped_and_what_follows_runs(device):
    """Dispatches up to end_unless run where the word is 0 by then, also one that a kernel wrote."""
    assert device.info["conditional"]
    flags = device.upload(np.array([0, 7], np.uint32))
    state, log = device.upload(np.array([1 << 20], np.uint32)), device.upload(np.zeros(101, np.uint32))
    stopped = device.upload(np.zeros(1, np.uint32))
    kernel, recorder = step_kernel(device), device.record()
    for step, place in enumerate((0, 4, 4, 0)):
        recorder.begin_unless(flags, place)
        recorder.dispatch(kernel, (state, stopped, log), (99, step), 1).barrier().end_unless()
    recorder.dispatch(kernel, (state, stopped, log), (99, 4), 1).barrier()
    recorder.begin_unless(state).dispatch(kernel, (state, stopped, log), (99, 5), 1).end_unless()
    device.submit(recorder.finish()).wait()
    words = device.download(log, np.uint32, 7)
    assert words[0] == 3 and words[1::2].tolist() == [0, 3, 4]


def test_conditions_are_used_as_they_must_be(device):
    """One at a time, ended, at a place inside the flag's buffer, on a device that has them."""
    buffer = device.allocate(16)
    with pytest.raises(DeviceError, match="cannot be nested"):
        device.record().begin_unless(buffer).begin_unless(buffer)
    with pytest.raises(DeviceError, match="No condition has begun"):
        device.record().end_unless()
    with pytest.raises(DeviceError, match="has not ended"):
        device.record().begin_unless(buffer).finish()
    for place in (2, 16):
        with pytest.raises(DeviceError, match=f"at byte {place} of a buffer of 16"):
            device.record().begin_unless(buffer, place)
    lacking = VulkanDevice(masked_features=["conditional"])
    assert not lacking.info["conditional"]
    with pytest.raises(DeviceError, match="has no conditional commands"):
        lacking.record().begin_unless(lacking.allocate(16))


def test_what_is_repeated_runs_as_often_as_if_it_were_recorded(device):
    """Dispatches, conditions, fills, copies and barriers, with another kernel between."""
    kernel = step_kernel(device)

    def words(repeat):
        state, log = device.upload(np.array([1 << 20], np.uint32)), device.upload(np.zeros(101, np.uint32))
        stopped, copied = device.upload(np.zeros(1, np.uint32)), device.allocate(404)
        recorder = device.record()

        def commands():
            recorder.fill(copied, 7).barrier().begin_unless(stopped)
            recorder.dispatch(kernel, (state, stopped, log), (99, 3), 1).barrier().end_unless()
            recorder.copy(log, copied, 12).barrier()

        repeat(recorder, commands)
        recorder.dispatch(kernel, (state, stopped, log), (99, 4), 1).timestamp()
        program = recorder.finish()
        device.submit(program).wait()
        return device.download(log, np.uint32, 101), device.download(copied, np.uint32, 101), program

    def by_recorder(recorder, commands):
        recorder.begin_repeat()
        commands()
        recorder.end_repeat(5)

    repeated, recorded = words(by_recorder), words(lambda _, commands: [commands() for _ in range(5)])
    assert repeated[0][0] == 6
    assert all(np.array_equal(a, b) for a, b in zip(repeated[:2], recorded[:2], strict=True))
    assert repeated[2].num_dispatches == recorded[2].num_dispatches == 6


def test_repetitions_are_used_as_they_must_be(device):
    """One at a time, ended, at least once, without timestamps."""
    with pytest.raises(DeviceError, match="cannot be nested"):
        device.record().begin_repeat().begin_repeat()
    with pytest.raises(DeviceError, match="No repetition has begun"):
        device.record().end_repeat(2)
    with pytest.raises(DeviceError, match="has not ended"):
        device.record().begin_repeat().finish()
    with pytest.raises(DeviceError, match="at least once"):
        device.record().begin_repeat().end_repeat(0)
    with pytest.raises(DeviceError, match="cannot be repeated"):
        device.record().begin_repeat().timestamp()


@pytest.mark.parametrize("way", ["watch", "signal"])
def test_a_wait_is_ended_early_and_the_work_goes_on(device, way):
    """By the watch of the thread, and by Ctrl-C; another wait finds what the program has written."""
    buffer = device.allocate(1 << 26)
    recorder = device.record()
    for value in range(150):
        recorder.fill(buffer, value).barrier()
    before = device.num_abandoned
    watch = kernels.Watch(lambda: way == "watch", 0.0)
    press = threading.Timer(0.1, signal.raise_signal, (signal.SIGINT,))
    ticket = device.submit(recorder.finish())
    watch.begin()
    try:
        with pytest.raises(Stopped if way == "watch" else KeyboardInterrupt):
            if way == "signal":
                press.start()
            ticket.wait()
            press.join()  # where the wait does not end early, Ctrl-C comes here
        assert not ticket.done and device.num_abandoned == before + 1
        if way == "watch":
            with pytest.raises(Stopped):
                device.download(buffer, np.uint32, 1)
    finally:
        watch.end()
    ticket.wait()
    assert ticket.done and device.download(buffer, np.uint32, 1)[0] == 149
