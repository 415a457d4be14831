"""Measurements of ``suffolk bench``. Each runs the production classes and writes a JSON file and a plot."""
