"""Worlds packed into one HDF5 file each, the form in which they are published; see README.md."""
