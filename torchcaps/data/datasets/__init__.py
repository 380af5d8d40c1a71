"""Data sets that have a name, a module for each; the registry finds them by itself."""
