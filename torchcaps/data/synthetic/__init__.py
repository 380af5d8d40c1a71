"""Data sets that are made here: digits over each other or transformed, and rendered bodies."""
