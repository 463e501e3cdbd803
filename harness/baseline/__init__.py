"""The baseline agent: background, moving pieces, tracks, and a world built from them. The floor for every
agent.
"""
