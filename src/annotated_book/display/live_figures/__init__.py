"""Interactive figures: for each one the static drawing, and its script."""
