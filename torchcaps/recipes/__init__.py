"""Recipes: one YAML file per experiment, readable as its description."""
