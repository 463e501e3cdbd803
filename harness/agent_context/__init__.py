"""What an agent is told: three documents, the first of which is a template."""
