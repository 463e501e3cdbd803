"""Small seeded simulations and a plain renderer: the cases that `scripts/make_demo_case.py` makes."""
