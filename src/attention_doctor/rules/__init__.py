"""What each code means: one rule per code, in families; evidence goes in, signs come out."""
