"""Opens, searches and verifies datastores, and drafts from them."""
