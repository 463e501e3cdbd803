"""The 4D world package: open, iterate, write, validate; and the project's one video reader."""
