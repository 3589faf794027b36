"""The environment: .venv from the lock, the lock itself, the trained weights."""
