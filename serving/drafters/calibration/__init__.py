"""What sources' drafts are worth: from what a source knows of a node to the probability that the target takes it, learned while
decoding, for each source and class of requests, and kept in a file."""
