"""Double of the MoGe package."""
