"""Copies of live stores on several servers."""
