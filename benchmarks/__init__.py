"""Measurements that drive the production classes; each writes one JSON file and one plot."""
