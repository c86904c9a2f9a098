"""Ranks of two hosts, here two network namespaces with host names of their own, have the bits of one host."""

import os
import shutil
import subprocess

import pytest
from rank_programs import answer, why_not

pytestmark = [pytest.mark.skipif(why_not() is not None, reason=str(why_not())), pytest.mark.slow]
DELAY = "50us"


def run(*command):
    """Whether it went well."""
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture
def hosts(tmp_path):
    """The first of two namespaces, whose link is slow if the kernel can; who starts ranks on the other."""
    if not (shutil.which("ip") and shutil.which("unshare") and run("unshare", "-n", "-u", "true")):
        pytest.skip("needs the right to make network namespaces")
    names = [f"graphopt{os.getpid()}{letter}" for letter in "ab"]
    try:
        for name in names:
            run("ip", "netns", "add", name)
        ends = [("graphopt0", "netns", names[0]), ("graphopt1", "netns", names[1])]
        run("ip", "link", "add", *ends[0], "type", "veth", "peer", *ends[1])
        for number, name in enumerate(names):
            inside, device = ("ip", "netns", "exec", name), f"graphopt{number}"
            run(*inside, "ip", "addr", "add", f"10.77.0.{number + 1}/24", "dev", device)
            if not all(run(*inside, "ip", "link", "set", link, "up") for link in (device, "lo")):
                pytest.skip("cannot link two network namespaces here")
            run(*inside, "tc", "qdisc", "add", "dev", device, "root", "netem", "delay", DELAY)
        agent = tmp_path / "agent.sh"
        agent.write_text(
            f'#!/bin/sh\nshift\nexec ip netns exec {names[1]} unshare -u sh -c "hostname graphopt-b; $*"\n'
        )
        agent.chmod(0o700)
        yield names[0], str(agent)
    finally:
        for name in names:
            run("ip", "netns", "delete", name)


def test_two_hosts_have_the_bits_of_one(hosts):
    """Chi2 of all iterations, and all estimates."""
    first, agent = hosts
    network = "10.77.0.0/24"
    start = ("--prtemca", "plm_ssh_agent", agent, "--prtemca", "prte_if_include", network)
    over = ("--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", network)
    given = [word for name in ("ANSWER", "GRAPHOPT_NUM_THREADS", "PYTHONPATH") for word in ("-x", name)]
    options = (*start, *over, *given, "--host", "10.77.0.1:1,10.77.0.2:1")
    inside = ("ip", "netns", "exec", first)
    names, chi2, estimates = answer(2, "hosts", inside=inside, options=options)
    assert len(set(names)) == 2
    assert [chi2, estimates] == answer(2, "hosts")[1:]
