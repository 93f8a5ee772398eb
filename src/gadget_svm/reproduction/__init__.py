"""The paper's evaluation: who competes, what is measured, and how it is written down. Nothing here learns by gossip."""
