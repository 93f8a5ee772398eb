"""A local certificate authority. It is a tool for administrators; no peer imports it."""
