"""Ways into other programs; each is imported by that program, or by its users, and by nothing else here."""
