"""Which blocks of data move where."""
