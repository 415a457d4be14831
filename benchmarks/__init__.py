"""Measurements of ``suffolk bench``. They drive the production classes and write a JSON file and a plot each."""
