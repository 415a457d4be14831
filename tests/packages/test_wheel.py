"""Tests the wheel that is built from the source distribution. It holds only the package ``suffolk``, and works by itself."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support.building import make_texts, write_jsonl, write_tokenizer

for build_requirement in ("pybind11", "ninja", "cmake"):
    pytest.importorskip(build_requirement)
pytest.importorskip("setuptools", minversion="77")

pytestmark = pytest.mark.timeout(900)  # it compiles the extension
ROOT = Path(__file__).parents[2]
NOT_SOURCE = (".git", ".venv*", "build", "dist", "*.egg-info", ".*_cache", "__pycache__", ".hypothesis", ".cache")
SOURCES = {
    *("benchmarks", "build_index", "capacity", "csrc", "datastore", "serving", "suffolk", "suffolk.egg-info"),
    *("CMakeLists.txt", "MANIFEST.in", "PKG-INFO", "constraints.txt", "pyproject.toml", "setup.cfg", "setup.py"),
    *("CHANGELOG.md", "CITATION.cff", "LICENSE", "README.md"),
}
KEPT = (".py", ".pyi", ".html")
TOOLS = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


def build(kind: str, source: Path, output: Path, tools: str = TOOLS, **variables: str) -> Path:
    """The distribution of ``source``; its extension is compiled without optimisation and in few parts, which is faster.

    ``tools``: the path of programs. ``variables``: further variables of the environment.
    """
    code = f"import sys; from setuptools import build_meta; print(build_meta.build_{kind}(sys.argv[1]))"
    flags = (
        "-DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=0"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(output)],
        cwd=source,
        env=os.environ | {"PATH": tools, "CMAKE_ARGS": flags} | variables,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Warning: " not in done.stderr, done.stderr  # of setuptools
    return output / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the working tree, with the extension module of an editable install if there is one."""
    folder = tmp_path_factory.mktemp("sdist")
    shutil.copytree(ROOT, folder / "source", symlinks=True, ignore=shutil.ignore_patterns(*NOT_SOURCE))
    return build("sdist", folder / "source", folder)


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Objects are kept in ``build/wheel``, where sources have the same paths in each run. So only what has changed is compiled."""
    home = ROOT / "build" / "wheel"
    source, config = home / "source", home / "setup.cfg"
    shutil.rmtree(source, ignore_errors=True)
    with tarfile.open(sdist) as archive:
        archive.extractall(source, filter="data")  # with the times of the files
    config.write_text(f"[build_ext]\nbuild_temp = {home / 'objects'}\n")
    folder = tmp_path_factory.mktemp("wheel")
    return build("wheel", source / sdist.name.removesuffix(".tar.gz"), folder, DIST_EXTRA_CONFIG=str(config))


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds what the wheel installs."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def python(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(site)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=site.parent, env=environment, capture_output=True, text=True
    )


def test_the_source_distribution_holds_what_a_build_needs_and_nothing_else(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames() if "/" in name]
    assert not [name for name in names if name.endswith((".so", ".pyc"))]
    assert {name.partition("/")[0] for name in names} == SOURCES


def test_the_wheel_installs_the_package_alone(site: Path) -> None:
    assert [path.name for path in site.iterdir() if not path.name.endswith(".dist-info")] == ["suffolk"]
    found = {str(path.relative_to(site)) for path in site.rglob("*.*") if path.suffix in KEPT}
    package = [folder for folder in (ROOT / "suffolk").iterdir() if folder.is_dir()]  # links included
    sources = [path for folder in package for path in folder.rglob("*.*")] + list((ROOT / "suffolk").glob("*.*"))
    assert found == {str(path.relative_to(ROOT)) for path in sources if path.suffix in KEPT}
    pages = {path.name for path in (site / "suffolk" / "serving" / "net" / "playground" / "static").iterdir()}
    assert pages == {path.name for path in (ROOT / "serving" / "net" / "playground" / "static").iterdir()}
    assert (site / "suffolk/benchmarks/demo/prompts.jsonl").is_file()
    [extension] = site.rglob("*.so")
    assert extension.parent == site / "suffolk" / "datastore"


def test_an_editable_install_is_a_path(sdist: Path, tmp_path: Path) -> None:
    """The name of an extension is enough, so nothing is compiled."""
    cmake = tmp_path / "cmake"
    extension = f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    cmake.write_text(
        "#!/bin/sh\nfor word; do case $word in -DCMAKE_LIBRARY_OUTPUT_DIRECTORY=*) folder=${word#*=}\n"
        f'mkdir -p "$folder" && : > "$folder/{extension}";; esac; done\n'
    )
    cmake.chmod(0o755)
    shutil.copytree(sdist.parent / "source", tmp_path / "source", symlinks=True)
    made = build("editable", tmp_path / "source", tmp_path, f"{tmp_path}{os.pathsep}{TOOLS}")
    with zipfile.ZipFile(made) as archive:
        [path] = [name for name in archive.namelist() if ".dist-info" not in name]
        assert archive.read(path).decode().strip() == str(tmp_path / "source")


def test_the_wheel_works_by_itself(site: Path) -> None:
    code = "import suffolk; from suffolk.datastore import _native; print(suffolk.__file__, _native.__file__)"
    done = python(site, "-c", code)
    assert done.returncode == 0, done.stderr
    assert all(path.startswith(str(site)) for path in done.stdout.split())


@pytest.mark.parametrize("name", ["datastore", "build_index", "serving", "capacity", "benchmarks", "research", "tests"])
def test_no_other_name_can_be_imported(site: Path, name: str) -> None:
    done = python(site, "-S", "-c", f"import {name}")  # an editable install would add its folder to the path
    assert f"No module named '{name}'" in done.stderr


def required(distribution: importlib.metadata.Distribution) -> set[str]:
    """The distributions that ``distribution`` needs without its extras, and those that they need."""
    found: set[str] = set()
    waiting = [distribution]
    while waiting:
        for line in waiting.pop().requires or ():
            requirement = Requirement(line)
            if requirement.name not in found and (
                requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            ):
                found.add(requirement.name)
                waiting.append(importlib.metadata.distribution(requirement.name))
    return found


@pytest.fixture(scope="module")
def slim(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a virtual environment that holds the wheel and what it requires without extras, as links."""
    folder = tmp_path_factory.mktemp("slim")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    [packages] = folder.glob("lib/python3*/site-packages")
    [facts] = site.glob("*.dist-info")
    for name in required(importlib.metadata.PathDistribution(facts)):
        distribution = importlib.metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}:
            if not (packages / top).exists():
                (packages / top).symlink_to(str(distribution.locate_file(top)))
    for path in site.iterdir():
        (packages / path.name).symlink_to(path)
    return folder / "bin" / "python"


def slim_suffolk(slim: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(slim), "-m", "suffolk", *map(str, arguments)]
    return subprocess.run(command, cwd=slim.parent, env=environment, capture_output=True, text=True, timeout=300)


def test_the_wheel_alone_builds_and_searches_without_torch(slim: Path, tmp_path: Path) -> None:
    [packages] = slim.parents[1].glob("lib/python3*/site-packages")
    assert not [path.name for path in packages.iterdir() if path.name in ("torch", "transformers", "safetensors")]
    corpus, tokenizer, store = (
        write_jsonl(tmp_path / "a.jsonl", make_texts(20)),
        write_tokenizer(tmp_path),
        tmp_path / "s",
    )
    for command in (
        ["--help"],
        ["build", "--tokenizer", tokenizer, "--output", store, corpus],
        ["lookup", store, "return value"],
        ["serve", "--help"],
        ["replay", "--help"],
    ):
        done = slim_suffolk(slim, *command)
        assert done.returncode == 0, done.stderr
    refused = slim_suffolk(slim, "demo")
    assert refused.stderr == "suffolk: torch is not installed, and the demo needs it; pip install 'suffolk[demo]'\n"
    (tmp_path / "config.json").write_text("{}")
    refused = slim_suffolk(slim, "worker", "--model", str(tmp_path), "--listen", "127.0.0.1:0")
    assert refused.stderr == "suffolk: torch is not installed, and models need it; pip install 'suffolk[worker]'\n"
