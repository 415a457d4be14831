"""The main use on real input, from an empty machine: ``suffolk demo``."""
