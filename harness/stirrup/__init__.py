"""The loop for OpenAI-compatible endpoints.

Runs inside the agent image as a program, from a mounted directory: its modules import each other by their
bare names, and nothing else of this project.
"""
