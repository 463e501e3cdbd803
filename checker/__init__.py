"""The agent's checker: what is wrong with a delivery, before it is scored.

Light enough for the agent's image: NumPy and the video reader, nothing else.
"""
