"""Builds on a Ray cluster: the bytes are those of a build on one machine (docs/design/ray-build.md)."""
