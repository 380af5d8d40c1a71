"""Pictures and measurements of a trained model."""
