"""How jobs share the network of a live cluster: what each sends is measured, what it gets of that is said."""
