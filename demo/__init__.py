"""The main job on real input, from an empty machine: python -m demo."""
