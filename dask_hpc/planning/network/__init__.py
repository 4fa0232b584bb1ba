"""How much of what jobs send each other a network carries: seed 003, chapter 7."""
