"""The environment: .venv from the lock, the lock itself; what a release changes."""
