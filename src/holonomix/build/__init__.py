"""Ready-made problems: models, and mechanisms of bodies and joints."""
