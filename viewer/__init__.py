"""Shows cases, runs and results in a browser: ``python viewer/server.py``. Reads, never writes."""
