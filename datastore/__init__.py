"""Opens datastores, looks up tokens in them, drafts from them, and verifies them."""
