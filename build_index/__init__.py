"""Builds datastores from corpora. Memory is bounded, and an interrupted build can be resumed.

``plan_build`` estimates a build, ``build`` runs it. Both take ``BuildOptions``.
"""

from suffolk.build_index.builder import build, plan_build
from suffolk.build_index.options import BuildOptions
from suffolk.build_index.plan import BuildPlan
from suffolk.build_index.report import BuildReport

__all__ = ["BuildOptions", "BuildPlan", "BuildReport", "build", "plan_build"]
