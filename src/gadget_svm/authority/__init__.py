"""A local certificate authority: a tool of administrators, which no peer imports."""
