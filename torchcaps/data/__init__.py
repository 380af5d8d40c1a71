"""Data sets in memory, by name or from a user's own files, and batches from them."""
