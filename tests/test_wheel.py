"""The wheel, built from the source distribution: it holds the package ``suffolk`` and nothing else, and it works by itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

for build_requirement in ("pybind11", "ninja", "cmake"):
    pytest.importorskip(build_requirement)
pytest.importorskip("setuptools", minversion="77")

pytestmark = pytest.mark.timeout(900)  # it compiles the extension
ROOT = Path(__file__).parents[1]
NOT_SOURCE = (".git", ".venv", "build", "dist", "*.egg-info", ".*_cache", "__pycache__", ".hypothesis", ".cache")
TOOLS = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


def build(kind: str, source: Path, output: Path) -> Path:
    """The distribution of ``source``; its extension is compiled without optimisation, which takes a third of the time."""
    code = f"import sys; from setuptools import build_meta; print(build_meta.build_{kind}(sys.argv[1]))"
    flags = "-DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0"
    done = subprocess.run(
        [sys.executable, "-c", code, str(output)],
        cwd=source,
        env=os.environ | {"PATH": TOOLS, "CMAKE_ARGS": flags},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return output / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the working tree, with the extension module of an editable install if there is one."""
    folder = tmp_path_factory.mktemp("sdist")
    shutil.copytree(ROOT, folder / "source", symlinks=True, ignore=shutil.ignore_patterns(*NOT_SOURCE))
    return build("sdist", folder / "source", folder)


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    return build("wheel", folder / sdist.name.removesuffix(".tar.gz"), folder)


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds what the wheel installs."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def python(site: Path, code: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(site)}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=site.parent, env=environment, capture_output=True, text=True
    )


def test_the_source_distribution_holds_no_compiled_file(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    assert not [name for name in names if name.endswith((".so", ".pyc"))]
    assert not [name for name in names if name.startswith(("tests/", "research/"))]


def test_the_wheel_installs_the_package_alone(site: Path) -> None:
    assert [path.name for path in site.iterdir() if not path.name.endswith(".dist-info")] == ["suffolk"]
    found = {str(path.relative_to(site)) for path in site.rglob("*.py*")}
    package = [folder for folder in (ROOT / "suffolk").iterdir() if folder.is_dir()]  # links included
    sources = [path for folder in package for path in folder.rglob("*.py*")] + list((ROOT / "suffolk").glob("*.py*"))
    assert found == {str(path.relative_to(ROOT)) for path in sources if path.suffix != ".pyc"}
    [extension] = site.rglob("*.so")
    assert extension.parent == site / "suffolk" / "datastore"


def test_the_wheel_works_by_itself(site: Path) -> None:
    code = "import suffolk, suffolk.datastore as rooms; print(suffolk.__file__, rooms._native.__file__)"
    done = python(site, code)
    assert done.returncode == 0, done.stderr
    assert all(path.startswith(str(site)) for path in done.stdout.split())


@pytest.mark.parametrize("name", ["datastore", "build_index", "serving", "benchmarks", "research", "tests"])
def test_no_other_name_can_be_imported(site: Path, name: str) -> None:
    done = python(site, f"import {name}")
    assert f"No module named '{name}'" in done.stderr
