"""What a world's geometry says about motion: optical flow and point tracks without any estimation."""
