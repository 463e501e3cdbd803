"""Material of a liquid whose solver follows no particles: tracers carried through the velocities it baked."""
