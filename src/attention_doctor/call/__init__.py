"""From a file to something that can be called: load, build, match names, call, put back."""
