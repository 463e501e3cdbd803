"""Example configuration files; copy them to ``.local/``."""
