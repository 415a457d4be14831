"""Builds the extension module suffolk.datastore._native with CMake; everything else is in pyproject.toml."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pybind11
from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext


class CMakeBuild(build_ext):
    def build_extension(self, ext: Extension) -> None:
        source = Path(__file__).parent.resolve()
        output = Path(self.get_ext_fullpath(ext.name)).parent.resolve()
        build = Path(self.build_temp).resolve()
        build.mkdir(parents=True, exist_ok=True)
        configure = [
            "cmake", "-S", str(source), "-B", str(build), "-G", "Ninja",
            f"-DCMAKE_BUILD_TYPE={'Debug' if self.debug else 'Release'}",
            f"-DCMAKE_LIBRARY_OUTPUT_DIRECTORY={output}",
            f"-DPython_EXECUTABLE={sys.executable}",
            f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
            f"-DSUFFOLK_VERSION={self.distribution.get_version()}",
            *os.environ.get("CMAKE_ARGS", "").split(),
        ]  # fmt: skip
        subprocess.run(configure, check=True)
        subprocess.run(["cmake", "--build", str(build), "--target", "_native"], check=True)


ROOMS = ("datastore", "build_index", "serving", "capacity", "benchmarks")
"""Top-level folders that are packages of ``suffolk``. In this folder, links in ``suffolk/`` lead to them."""

STATIC = "suffolk.serving.net.playground.static"
"""A folder of files alone, which setuptools counts as a package."""

if "editable_wheel" in sys.argv:
    # With this layout, setuptools adds the folder to the path. Its other editable installs are import hooks, which Python asks
    # only after the path. Beside a clone called ``suffolk`` they would not be asked, because any folder of that name is a
    # namespace package.
    package_dir = {"": "."}
    packages = find_packages(include=["suffolk", "suffolk.*"])
else:
    package_dir = {f"suffolk.{room}": room for room in ROOMS}
    packages = find_packages(include=["suffolk", "suffolk.cli", "suffolk.cli.*"])
    packages += [f"suffolk.{name}" for room in ROOMS for name in find_packages(include=[room, f"{room}.*"])]

HOME = Path(__file__).parent.resolve()
version = runpy.run_path(str(HOME / "datastore" / "version.py"))["__version__"]

setup(
    version=version,
    packages=[*packages, STATIC],
    package_dir=package_dir,
    ext_modules=[Extension("suffolk.datastore._native", sources=[])],
    cmdclass={"build_ext": CMakeBuild},
)
