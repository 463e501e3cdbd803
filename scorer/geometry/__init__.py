"""What several metrics share: rasteriser, mesh components, intersection tests."""
