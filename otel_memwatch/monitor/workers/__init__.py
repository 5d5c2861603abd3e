"""Work in processes of its own: reports and pages, uploads, experiment trackers."""
