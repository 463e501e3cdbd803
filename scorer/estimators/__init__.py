"""One file a learned model."""
