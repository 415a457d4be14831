"""The main use on real input, from an empty machine: python -m demo."""
