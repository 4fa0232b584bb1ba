"""Where copies are kept, how many, and when they are made."""
