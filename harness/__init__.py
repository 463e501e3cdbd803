"""The harness: runs agents and scorers in containers. Imports contract only; it starts containers, it does
not compute.
"""
