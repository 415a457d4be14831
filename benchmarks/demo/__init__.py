"""``suffolk demo``: gets a model, builds a datastore and decodes prompts, on a machine without any of these."""
