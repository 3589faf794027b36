"""What is measured of an attention, each thing once; nothing is judged here."""
