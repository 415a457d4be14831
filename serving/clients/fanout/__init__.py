"""One datastore that several servers serve. Replicas have the same text, and each shard has a part of the text."""
