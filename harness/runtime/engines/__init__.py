"""See README.md of the harness."""
