"""A datastore that is appended to while it is searched: a live index in memory, a write-ahead log, and published files."""
