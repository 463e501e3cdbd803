"""Double of the co-tracker package."""
