"""Where engines of others load us. Nothing imports this package."""
