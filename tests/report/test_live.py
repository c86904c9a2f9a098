"""The live page is served to this machine only and shows the state that was set last."""

import json
import socket
import urllib.error
import urllib.request

import numpy as np
import pytest

from graphopt.errors import OptionError
from graphopt.evaluate.report.live import LiveView
from graphopt.evaluate.report.viewer import trajectory_document


def fetch(address, path="", host=None):
    """Status and content."""
    request = urllib.request.Request(address + path, headers={} if host is None else {"Host": host})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def document(count):
    line = np.stack([np.arange(count), np.zeros(count), np.zeros(count)], axis=1)
    curve = {"estimate": line, "truth": [], "error_m": np.zeros(count), "times_s": np.arange(count)}
    return trajectory_document({"run": curve}, "run", np.ones((7, 3)), middle=np.zeros(3))


def test_states_reach_the_page():
    """Nothing at first; then what was shown last. Making states is only asked for while a page asks."""
    with LiveView() as view:
        assert not view.is_watched
        status, page = fetch(view.address)
        assert status == 200 and b"is_live" in page
        assert fetch(view.address, "state") == (204, b"")
        assert view.is_watched
        view.show({**document(5), "state": "frame 5"})
        status, content = fetch(view.address, "state")
        found = json.loads(content)
        assert status == 200 and found["num_poses"] == 5 and len(found["ids"]) == 12
        assert found["state"] == "frame 5"
        assert fetch(view.address, "etc/passwd")[0] == 404
        address = view.address
    with pytest.raises(urllib.error.URLError):
        fetch(address)


def test_it_listens_on_this_machine_alone():
    """Its socket is bound to 127.0.0.1; a page that came here by another name gets nothing."""
    with LiveView() as view:
        port = int(view.address.rstrip("/").rpartition(":")[2])
        assert view.address.startswith("http://127.0.0.1:")
        assert fetch(view.address, "state", host=f"evil.example:{port}")[0] == 403
        assert fetch(view.address, "state", host=f"localhost:{port}")[0] == 204
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.2", port), timeout=5)


def test_a_port_that_is_taken_is_named():
    """The way out is another port."""
    with LiveView() as view:
        port = int(view.address.rstrip("/").rpartition(":")[2])
        with pytest.raises(OptionError, match=f"--live {port}: cannot listen there"):
            LiveView(port)
    with pytest.raises(OptionError, match="--live 70000"):
        LiveView(70000)
