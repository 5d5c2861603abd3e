"""The run directory: what its files are called and mean, who writes, follows and reads them."""
