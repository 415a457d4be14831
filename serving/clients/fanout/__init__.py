"""One datastore that several servers serve: replicas with the same text, and shards with a part of it each."""
