"""Where a command runs: ``host``, ``docker`` or ``sif``, behind the interface in :mod:`.base`."""
