"""What the commands do when a step fails. Ray's part is replaced: it takes long to start, and fails seldom."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from ray.serve.exceptions import RayServeException

from suffolk.datastore.errors import InvalidArgument, Unavailable
from suffolk.datastore.version import __version__
from suffolk.serving.cluster import deployment, lifecycle
from suffolk.serving.cluster.config import ClusterConfig, FrontConfig, StoresConfig, WorkersConfig
from suffolk.serving.cluster.deployment import front_settings

FRONT = FrontConfig()
CONFIG = ClusterConfig("demo", "/tmp/demo", StoresConfig({"code": "/data/code"}), WorkersConfig("/models/tiny"), FRONT)


class Steps:
    """Notes the steps that the commands take. ``failing`` is raised when the front is deployed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken: list[str] = []
        self.failing: BaseException | None = None
        for name in ("check_front", "_require_resources", "_wait"):
            monkeypatch.setattr(lifecycle, name, lambda *_: None)
        monkeypatch.setattr(lifecycle, "_start_controller", lambda config: Running())
        monkeypatch.setattr(lifecycle, "_find", lambda cluster: None)
        monkeypatch.setattr(lifecycle, "check_nodes", lambda folder, live: {})
        monkeypatch.setattr(lifecycle, "front_runs", lambda cluster: False)
        monkeypatch.setattr(lifecycle, "deploy_front", self._deploy)
        monkeypatch.setattr(lifecycle, "_remove", lambda cluster, graceful: self.taken.append(f"remove {cluster}"))

    def _deploy(self, front: FrontConfig, cluster: ClusterConfig) -> None:
        self.taken.append(f"deploy {cluster.name}")
        if self.failing is not None:
            raise self.failing


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(monkeypatch)


class Running:
    """A controller of CONFIG. Each of its methods answers at once."""

    def __getattr__(self, name: str) -> Any:
        answers = {"config": CONFIG, "version": __version__, "apply": None, "front": front_settings(CONFIG)}
        answers["keep_front"] = ()
        return SimpleNamespace(remote=lambda *_: answers[name])


@pytest.mark.parametrize("command", [lifecycle.up, lifecycle.update])
def test_a_front_that_an_earlier_command_left_out_is_deployed(
    steps: Steps, monkeypatch: pytest.MonkeyPatch, command: Callable[[ClusterConfig, lifecycle.Report], None]
) -> None:
    monkeypatch.setattr(lifecycle, "_find", lambda cluster: Running())
    monkeypatch.setattr(lifecycle.ray, "get", lambda answer: answer)
    command(CONFIG, print)
    assert steps.taken == ["deploy demo"]


@pytest.mark.parametrize(
    ("changed", "taken"),
    [
        (CONFIG, []),
        (replace(CONFIG, workers=replace(CONFIG.workers, count=2, options={"slots": 2})), []),
        (replace(CONFIG, workers=replace(CONFIG.workers, options={"allowed_host": "a"})), ["deploy demo"]),
        (replace(CONFIG, front=FrontConfig(replicas=2)), ["deploy demo"]),
    ],
)
def test_a_front_is_deployed_again_only_if_it_changes(
    steps: Steps, monkeypatch: pytest.MonkeyPatch, changed: ClusterConfig, taken: list[str]
) -> None:
    monkeypatch.setattr(lifecycle, "_find", lambda cluster: Running())
    monkeypatch.setattr(lifecycle, "front_runs", lambda cluster: True)
    monkeypatch.setattr(lifecycle.ray, "get", lambda answer: answer)
    lifecycle.update(changed, print)
    assert steps.taken == taken


def test_tls_of_workers_behind_a_front_is_not_turned_on_in_a_running_cluster(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "_find", lambda cluster: Running())
    monkeypatch.setattr(lifecycle.ray, "get", lambda answer: answer)
    monkeypatch.setattr(lifecycle, "remove_front", lambda cluster: True)
    secured = replace(CONFIG, workers=replace(CONFIG.workers, options={"tls_cert": "/c", "tls_key": "/k"}))
    with pytest.raises(InvalidArgument, match="turns TLS on or off"):
        lifecycle.update(secured, print)
    lifecycle.update(replace(secured, front=None), print)


def test_the_url_of_a_front_on_ipv6_has_brackets(
    steps: Steps, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lifecycle.ray, "get", lambda answer: answer)
    lifecycle.up(replace(CONFIG, front=FrontConfig("::1")), print)
    assert "front on http://[::1]:8000/v1\n" in capsys.readouterr().out


@pytest.mark.parametrize("host", ["::1", "::"])
def test_a_front_on_ipv6_is_asked_for_an_answer(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    asked: list[str] = []
    monkeypatch.setattr(deployment.serve, "start", lambda **_: None)
    monkeypatch.setattr(deployment.serve, "run", lambda *_, **__: None)
    monkeypatch.setattr(deployment.urllib.request, "urlopen", lambda url, timeout: nullcontext(asked.append(url)))
    workers = replace(CONFIG.workers, options={"insecure": True})
    deployment.deploy_front(FrontConfig(host), replace(CONFIG, workers=workers))
    assert asked == ["http://[::1]:8000/livez"]


@pytest.mark.parametrize("error", [RuntimeError("x"), TimeoutError("x"), SystemExit(1), KeyboardInterrupt("x")])
def test_any_error_of_a_start_stops_what_was_started(steps: Steps, error: BaseException) -> None:
    steps.failing = error
    with pytest.raises(type(error)):
        lifecycle.up(CONFIG, print)
    assert steps.taken == ["deploy demo", "remove demo"]


@pytest.mark.parametrize(
    "error", [RuntimeError("no replica"), TimeoutError("no replica"), RayServeException("no replica")]
)
def test_errors_of_ray_serve_are_told_as_one(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def run(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(deployment.serve, "start", lambda **_: None)
    monkeypatch.setattr(deployment.serve, "run", run)
    with pytest.raises(Unavailable, match=r"front: Ray Serve does not start it \(no replica\)"):
        deployment.deploy_front(FRONT, CONFIG)


def test_servers_are_stopped_although_the_front_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(cluster: str) -> bool:
        raise RuntimeError("Ray Serve does not answer")

    stopped: list[str] = []
    monkeypatch.setattr(lifecycle, "remove_front", broken)
    monkeypatch.setattr(lifecycle, "_remove_servers", lambda cluster, graceful: stopped.append(cluster))
    with pytest.raises(RuntimeError):
        lifecycle.down("demo")
    assert stopped == ["demo"]
