"""The files of deploy/ as far as they can be checked without Docker, Grafana and a running Prometheus."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from suffolk.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is missing")
METRIC = re.compile(r"\b(?:suffolk_|vllm:)\w+")


def read(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text())


def documented() -> set[str]:
    """The names of all series: those of histograms also with their suffixes."""
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    rows = re.findall(r"^\| `((?:suffolk_|vllm:)\w+)` \| (\w+) \|", page, re.MULTILINE)
    suffixes = {"histogram": ("_bucket", "_sum", "_count")}
    return {name + suffix for name, kind in rows for suffix in suffixes.get(kind, ("",))}


def expressions() -> Iterator[str]:
    for panel in json.loads((DEPLOY / "grafana/boards/suffolk.json").read_text())["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    for group in read("alerts.yaml")["groups"]:
        yield from (rule["expr"] for rule in group["rules"])


def test_boards_and_alerts_use_metrics_that_exist() -> None:
    used = {name for each in expressions() for name in METRIC.findall(each)}
    assert len(used) > 20
    assert used <= documented()


def test_expressions_are_balanced() -> None:
    for each in expressions():
        for opening, closing in ("()", "{}", "[]"):
            assert each.count(opening) == each.count(closing), each


@needs_promtool
def test_alerts_fire_when_they_should() -> None:
    cases = Path(__file__).with_name("alerts_test.yaml")
    ended = subprocess.run(["promtool", "test", "rules", str(cases)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    tested = {
        case["alertname"] for test in yaml.safe_load(cases.read_text())["tests"] for case in test["alert_rule_test"]
    }
    assert tested == {rule["alert"] for group in read("alerts.yaml")["groups"] for rule in group["rules"]}


@needs_promtool
def test_prometheus_accepts_its_settings_the_rules_and_the_panels(tmp_path: Path) -> None:
    for kind, name in (("config", "prometheus.yaml"), ("rules", "alerts.yaml")):
        subprocess.run(["promtool", "check", kind, str(DEPLOY / name)], check=True, capture_output=True)
    plain = [each.replace("$__rate_interval", "1m").replace("$job", ".*") for each in expressions()]
    records = [{"record": f"panel:{number}", "expr": each} for number, each in enumerate(plain)]
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": records}]}))
    subprocess.run(["promtool", "check", "rules", str(tmp_path / "panels.yaml")], check=True, capture_output=True)


def test_panels_lie_beside_each_other() -> None:
    board = json.loads((DEPLOY / "grafana/boards/suffolk.json").read_text())
    places = [panel["gridPos"] for panel in board["panels"]]
    cells = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_settings_are_accepted(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", command, "--config", str(DEPLOY / f"{command}.toml")]) == 0
    assert f"insecure = true  # {DEPLOY}/{command}.toml" in capsys.readouterr().out


def test_the_compose_file_agrees_with_the_others() -> None:
    services = read("compose.yaml")["services"]
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    for name in ("store", "worker"):
        assert f" AS {services[name]['build']['target']}\n" in dockerfile
        assert (DEPLOY / services[name]["build"]["context"]).resolve() == ROOT
    for service in services.values():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        for volume in service["volumes"]:
            if volume.startswith("./"):
                assert (DEPLOY / volume.split(":")[0]).exists(), volume
    targets = [each["static_configs"][0]["targets"][0] for each in read("prometheus.yaml")["scrape_configs"]]
    assert targets == ["store:7701", "worker:7711"]
    assert "grpc://store:7700/code" in (DEPLOY / "worker.toml").read_text()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is missing")
@pytest.mark.parametrize("name", ["serve", "worker"])
def test_units_are_valid(name: str, tmp_path: Path) -> None:
    unit = tmp_path / f"suffolk-{name}.service"
    text = (DEPLOY / "systemd" / unit.name).read_text()
    unit.write_text(text.replace("/opt/suffolk/bin/suffolk", sys.executable))
    ended = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
