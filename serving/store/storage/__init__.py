"""Datastores in object storage: push, pull, and copies that follow the newest generation (docs/design/storage.md)."""
