"""The three scores of protocol ``default-three-paper-v3``, in NumPy: what learned models see and say comes
in as arrays and functions, so everything here runs, and is tested, without them.
"""
