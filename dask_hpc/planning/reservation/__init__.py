"""How long to ask for a job whose time is not known: requests, one after the other, and commits between."""
