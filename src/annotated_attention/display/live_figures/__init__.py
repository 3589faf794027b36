"""Figures that a reader can play with: for each the static drawing, and beside it its script."""
