"""Reservations for real: a program runs in one batch job after the other, by a plan, until it is done."""
