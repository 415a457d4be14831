"""Corpora -> tokens -> segments -> a published datastore, in bounded memory, resumable at any point.

``BuildOptions`` says what to build, ``plan_build`` what it will take, ``build`` does it and returns a ``BuildReport``.
"""

from suffolk.build_index.builder import build, plan_build
from suffolk.build_index.options import BuildOptions
from suffolk.build_index.plan import BuildPlan
from suffolk.build_index.report import BuildReport

__all__ = ["BuildOptions", "BuildPlan", "BuildReport", "build", "plan_build"]
