"""Training: recipes, the Lightning module, and run folders."""
