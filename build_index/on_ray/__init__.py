"""Builds on a Ray cluster, with the same bytes as a build on one machine (docs/design/ray-build.md)."""
